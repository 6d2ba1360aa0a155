from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
import sweep_samples as samples

from specsweep.analysis import figures
from specsweep.analysis.report import build, draw


@pytest.fixture(scope="module")
def drawn():
    attempts = samples.quickstart()
    attempts[4] = samples.attempt(samples.axes("ngram", 4, 4), rate=23, al=2.4, invalid="lag_p99_share")
    return draw(build("quickstart", attempts))


def hollow(ax):
    """(x, y) of every mark without a filling."""
    lines = [line for line in ax.lines if line.get_marker() not in ("", "None") and line.get_markerfacecolor() == "white"]
    return [spot for line in lines for spot in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def test_one_panel_a_workload_with_units_on_its_axes(drawn):
    assert list(drawn) == ["pareto", "speedup", "acceptance"]
    assert [ax.get_title(loc="left") for ax in drawn["pareto"].axes] == ["high_entropy", "low_entropy"]
    for ax in drawn["pareto"].axes:
        assert "tokens/s" in ax.get_xlabel()
        assert "tokens/s" in ax.get_ylabel()


def test_only_the_invalid_point_is_hollow_and_its_line_breaks_there(drawn):
    high, low = drawn["pareto"].axes
    assert len(hollow(high)) == 0
    (mark,) = hollow(low)
    assert mark[0] == pytest.approx(23, rel=0.1)
    connecting = [line for line in low.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 3]
    assert sorted(sum(x != x for x in line.get_xdata()) for line in connecting if line.get_zorder() == 3) == [0, 0, 1]


def test_numbers_beside_marks_do_not_overlap(drawn):
    figure = drawn["pareto"]
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    for ax in figure.axes:
        boxes = [t.get_window_extent(renderer).shrunk(0.9, 0.7) for t in ax.texts]
        assert len(boxes) >= 6
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_speedup_figure_has_a_line_at_one_and_hollow_marks_for_ties(drawn):
    for ax in drawn["speedup"].axes:
        assert any(list(line.get_ydata()) == [1, 1] for line in ax.lines)
    assert sum(len(hollow(ax)) for ax in drawn["speedup"].axes) >= 1


def test_series_keep_colour_and_marker_in_every_figure_and_never_share_both():
    style = figures.styles([("none", "none", True), *((f"s{i}", f"f{i % 9}", False) for i in range(40))])
    assert len(set(style.values())) == 41
    assert style["none"][0] == figures.BASELINE[0]


def test_many_series_share_a_colour_by_drafter():
    style = figures.styles([(f"{d} {k}", d, False) for d in ("ngram", "eagle3", "mtp") for k in range(6)])
    assert len(set(style.values())) == 18
    for drafter in ("ngram", "eagle3", "mtp"):
        assert len({colour for name, (colour, _) in style.items() if name.startswith(drafter)}) == 1


def test_simulated_is_in_every_title():
    for figure in draw(build("sim", samples.quickstart(simulated=True))).values():
        assert figure.get_suptitle().startswith("SIMULATED")
    for figure in draw(build("real", samples.quickstart())).values():
        assert "SIMULATED" not in figure.get_suptitle()


def test_svg_is_well_formed_self_contained_and_the_same_each_time(drawn):
    text = figures.svg(drawn["pareto"], "pareto", "A < B")
    root = ET.fromstring(text)
    assert root.attrib["aria-label"] == "A < B"
    assert "<style" not in text  # would reach the whole page
    ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    assert len(ids) == len(set(ids))
    assert all(i.startswith("pareto-") for i in ids)
    used = {v.removeprefix("#") for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")}
    assert used <= set(ids)
    assert text == figures.svg(draw(build("again", _attempts_of_fixture()))["pareto"], "pareto", "A < B")


def _attempts_of_fixture():
    attempts = samples.quickstart()
    attempts[4] = samples.attempt(samples.axes("ngram", 4, 4), rate=23, al=2.4, invalid="lag_p99_share")
    return attempts


def test_png_is_written_at_twice_screen_resolution(drawn, tmp_path):
    content = figures.write_png(drawn["speedup"], tmp_path / "s.png").read_bytes()
    width = int.from_bytes(content[16:20], "big")
    assert content[:4] == b"\x89PNG"
    assert width == round(drawn["speedup"].get_figwidth() * 200)


def test_matplotlib_is_imported_only_when_a_figure_is_made_and_pyplot_never():
    code = (
        "import sys, specsweep.analysis.report as r; assert 'matplotlib' not in sys.modules; "
        "import sweep_samples as s; r.draw(r.build('q', s.quickstart())); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=samples.__file__.rpartition("/")[0])
