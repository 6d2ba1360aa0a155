from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import sweep_samples as samples

from specsweep.analysis import figures, hover
from specsweep.analysis.report import build, draw

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def sweep():
    attempts = samples.quickstart()
    attempts[4] = samples.attempt(samples.axes("ngram", 4, 4), rate=23, al=2.4, invalid="lag_p99_share")
    report = build("quickstart", attempts)
    figure = draw(report)["pareto"]
    return report.points, figure, hover.with_targets(figures.svg(figure, "pareto", "title"), figure, report.points)


def targets(svg: str) -> dict[str, tuple[float, float]]:
    circles = ET.fromstring(svg).iter(f"{SVG}circle")
    return {c.find(f"{SVG}title").text: (float(c.attrib["cx"]), float(c.attrib["cy"])) for c in circles}


def test_every_point_of_the_figure_has_a_target_that_says_who_it_is_and_its_rates(sweep):
    points, _, svg = sweep
    assert len(targets(svg)) == len(points)
    for point in points:
        (text,) = [t for t in targets(svg) if t == "\n".join(hover.lines(point, _winner(points, point)))]
        assert text.startswith(f"{point.series}, BS {point.cell.batch_size}\n")
        assert f"per user: {point.x.value:.1f}"[:12] in text


def test_targets_lie_on_the_marks(sweep):
    points, figure, svg = sweep
    left, right = figure.axes
    spots = targets(svg)
    for panel, ax in (("high_entropy", left), ("low_entropy", right)):
        members = sorted((p for p in points if p.panel == panel), key=lambda p: p.x.value)
        places = [spots["\n".join(hover.lines(p, _winner(points, p)))] for p in members]
        assert [x for x, _ in places] == sorted(x for x, _ in places)  # rightward as the rate per user rises
        box = ax.get_position()
        width = 72 * figure.get_figwidth()
        assert all(box.x0 * width <= x <= box.x1 * width for x, _ in places)
    by_rate = sorted((p.y.value, spots["\n".join(hover.lines(p, _winner(points, p)))][1]) for p in points if p.panel == "high_entropy")
    assert [y for _, y in by_rate] == sorted((y for _, y in by_rate), reverse=True)  # SVG's y axis runs downward


def test_a_point_that_is_not_valid_says_why_and_a_dominated_one_by_what(sweep):
    points, _, _svg = sweep
    (invalid,) = [p for p in points if p.state == "invalid"]
    assert hover.lines(invalid)[-2:] == ["not valid, not ranked", invalid.reason]
    beaten = [p for p in points if p.state == "dominated"]
    assert beaten
    for point in beaten:
        winner = _winner(points, point)
        assert f"dominated: {winner.series}, BS {winner.cell.batch_size} is better in both" in hover.lines(point, winner)


def test_the_drawing_itself_stays_as_it_was(sweep):
    _, figure, svg = sweep
    plain = figures.svg(figure, "pareto", "title")
    assert svg.startswith(plain[: plain.rindex("</svg>")])


def _winner(points, point):
    return next((p for p in points if point.dominated_by is not None and p.cell.key == point.dominated_by.key), None)
