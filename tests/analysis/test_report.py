from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import sweep_samples as samples
from markupsafe import escape

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.report import build, crossovers, headlines, html, markdown
from specsweep.analysis.tabular import text_width
from specsweep.orchestrator.cli import main, run
from specsweep.orchestrator.cli.report import narrowed, report_of, show, up_to_date, write_report
from specsweep.orchestrator.points import Dropped, Plan, Point, Session
from specsweep.orchestrator.store import Store

DROPPED = [
    {"axes": samples.axes("ngram", 64, bs), "rule": "draft_length_limit", "reason": "ngram drafts at most 48 tokens"} for bs in (1, 4, 8)
]


class Checker(HTMLParser):
    """Collects what a page would fetch, and checks that its elements close in order."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input", "wbr"})

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href", "srcset")]
        self.ids += [v for k, v in attrs if k == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href")]
        self.ids += [v for k, v in attrs if k == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page():
    return html(build("quickstart", samples.quickstart(), dropped=DROPPED, command="specsweep run sweep=quickstart"))


def test_page_is_well_formed_and_fetches_nothing(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert all(link.startswith("#") for link in checker.links)
    assert {link.removeprefix("#") for link in checker.links} <= set(checker.ids)
    assert len(checker.ids) == len(set(checker.ids))
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(|<script [^>]*src", page)


def test_headline_is_the_best_speedup_with_its_interval():
    report = build("quickstart", samples.quickstart())
    best = max((r for r in report.speedups if r.user_tps), key=lambda r: r.user_tps.value)
    first = headlines(report)[0]
    assert f"{best.user_tps.value:.2f} [{best.user_tps.low:.2f}, {best.user_tps.high:.2f}]" in first
    assert "ngram · DL 4 on low_entropy at BS 1" in first


def test_where_nothing_is_faster_the_headline_says_so():
    slow = [samples.attempt(samples.axes()), samples.attempt(samples.axes("ngram", 4), rate=80, al=1.1)]
    assert headlines(build("slow", slow))[0] == "No drafter is shown to be faster than none at any point that was measured."
    alone = [samples.attempt(samples.axes("ngram", 4), al=2.0)]
    assert "the baseline is not measured yet" in headlines(build("alone", alone))[0]


def test_a_flagged_speedup_is_never_a_headline_without_its_flag():
    looping = [samples.attempt(samples.axes()), samples.attempt(samples.axes("ngram", 4), rate=200, al=4.0, lengths=2.0)]
    lines = headlines(build("loop", looping))
    assert any(line.startswith("Take with care") and "as long with the drafter" in line for line in lines)


def test_one_statement_a_workload_and_series():
    found = crossovers(build("quickstart", samples.quickstart()))
    assert [(p, s) for p, s, _ in found] == [(w, f"ngram · DL {dl}") for w in ("high_entropy", "low_entropy") for dl in (4, 8)]
    assert "does not pay above BS" in {(p, s): t for p, s, t in found}[("low_entropy", "ngram · DL 4")]


def test_failed_checks_failures_and_dropped_combinations_are_all_there():
    attempts = [*samples.quickstart(), samples.attempt(samples.axes("ngram", 16), failed=True)]
    attempts.append(samples.attempt(samples.axes("ngram", 12), invalid="lag_p99_share"))
    report = build("q", attempts, planned=25, dropped=DROPPED)
    page = html(report, drawn={})
    assert report.status == "19 of 25 points measured, 1 of them not valid, 1 failed, 5 not measured yet."
    for text in ("the client was the bottleneck", "0.034", "the engine died", "ngram drafts at most 48 tokens", report.status):
        assert text in page
    (dropped,) = report.tables["dropped"].rows
    assert dropped.cells[0] == "3"
    assert "BS 1, 4, 8" in dropped.cells[1]


def test_positions_never_reached_are_explicit_and_other_columns_empty():
    table = build("q", samples.quickstart()).tables["acceptance_by_position"]
    rows = {
        (r.record["workload"], r.record["draft_length"]): dict(zip([c.key for c in table.columns], r.cells, strict=True))
        for r in table.rows
    }
    assert rows["low_entropy", 8]["ar_cond_8"] == "not reached"
    assert rows["low_entropy", 4]["ar_cond_5"] == ""
    assert "[" in rows["low_entropy", 4]["ar_cond_1"]


def test_environment_shows_once_what_agrees_and_by_arm_what_does_not():
    rows = {r.cells[0]: r.cells[1] for r in build("q", samples.quickstart()).tables["environment"].rows}
    assert rows["flags.n_ctx"] == "8192"
    assert "4 (llamacpp · ngram · 4)" in rows["drafter.n_max"]


def test_texts_from_configs_and_engines_are_escaped():
    attempt = samples.attempt(samples.axes(workload="<b>x</b>"), failed=True)
    attempt["point"]["error"]["message"] = "<script>alert(1)</script>"
    page = html(build("<i>name</i>", [attempt, samples.attempt(samples.axes())]), drawn={})
    assert "<script>alert" not in page
    assert page.count("<script") == 1  # the report's own
    assert "<b>x" not in page
    assert "<i>name" not in page


def test_simulated_sweeps_say_so_first():
    report = build("sim", samples.quickstart(simulated=True))
    page = html(report, drawn={})
    assert headlines(report)[0].startswith("SIMULATED")
    assert page.index("SIMULATED") < page.index("<h1>")
    assert "<title>SIMULATED" in page


def test_every_table_of_a_simulated_sweep_says_so_in_its_title_and_its_records():
    report = build("sim", samples.quickstart(simulated=True))
    with_rows = [table for table in report.tables.values() if table.rows]
    assert {table.name for table in with_rows} >= {"pareto", "speedup", "acceptance_by_position", "acceptance_by_category", "environment"}
    for table in with_rows:
        assert table.title.startswith("SIMULATED – ")
        assert all(row.record["simulated"] is True for row in table.rows)
        assert f"## SIMULATED – {table.title.removeprefix('SIMULATED – ')}" in table.to_markdown()
    assert not any("SIMULATED" in table.title for table in build("real", samples.quickstart()).tables.values())


@pytest.mark.parametrize("attempts", [[], [samples.attempt(samples.axes(), failed=True)], [samples.attempt(samples.axes())]])
def test_a_sweep_of_almost_nothing_still_renders(attempts):
    report = build("early", attempts, planned=18)
    assert report.status in html(report)
    assert report.status in markdown(report)


def test_points_without_intervals_or_blocks_or_categories_still_render():
    attempts = samples.quickstart()
    for a in attempts:
        m = a["measurement"]
        m["metrics"] = {k: v for k, v in m["metrics"].items() if not k.endswith(("_ci_low", "_ci_high"))}
        m.update(tps_blocks=None, by_category={}, per_conversation=m["per_conversation"][:2], ar_cond=[], ci={})
    report = build("thin", attempts)
    assert html(report)
    assert all(r.output_tps is None for r in report.speedups)
    assert all(isinstance(r.user_tps, Estimate) and not r.user_tps.has_interval for r in report.speedups)
    assert {r.record["verdict"] for r in report.tables["speedup"].rows} == {"not shown"}


def test_a_large_sweep_has_a_row_for_every_point():
    attempts = []
    for bs in (1, 2, 4, 8, 16):
        attempts.append(samples.attempt(samples.axes("none", None, bs), rate=100 / bs**0.5))
        for drafter in ("ngram", "eagle3", "draft_model"):
            attempts += [samples.attempt(samples.axes(drafter, dl, bs), rate=110 / bs**0.5, al=1 + dl / 4) for dl in (1, 3, 7)]
    report = build("large", attempts)
    page = html(report, drawn={})
    assert (len(report.tables["pareto"].rows), len(report.tables["speedup"].rows)) == (50, 45)
    assert page.count("<tr") >= 50 + 45


def test_no_note_is_said_twice():
    report = build("q", samples.quickstart())
    page = html(report, drawn={})
    said = [note for table in report.tables.values() for note in table.notes]
    assert len(said) > len(set(said))
    text = markdown(report)
    for note in set(said):
        assert page.count(f"<li>{escape(note)}</li>") == 1
        assert text.count(note) == 1


def test_what_is_wider_than_a_small_screen_scrolls_in_its_box_and_says_so(page):
    boxes = re.findall(r'(<p class="hint"[^>]*>[^<]*</p>\s*)?<div class="scroll" tabindex="0"', page)
    assert len(boxes) == page.count("<table>") + page.count("<svg")
    assert sum(bool(hint) for hint in boxes) == page.count('<p class="hint"') > 3
    assert not re.search(r'<p class="hint"[^>]*>[^<]*</p>\s*<div class="scroll"[^>]*aria-label="Environment"', page)  # it wraps


def test_names_and_hashes_of_the_environment_break_at_their_joints():
    page = html(build("q", samples.quickstart()), drawn={})
    assert "flags.<wbr>n_<wbr>ctx" in page
    assert "<wbr>".join(["ab" * 8] * 4) in page


def test_one_reason_of_many_points_is_said_once():
    attempts = samples.quickstart()
    for n, a in enumerate(attempts):
        a["measurement"]["validity"] |= {"tps": False, "valid": False}
        share = 0.2 + n / 100
        a["measurement"]["checks"] = [
            {"name": "other_work", "value": share, "limit": 0.15, "ok": False, "affects": ["tps"], "message": "busy"}
        ]
    report = build("s", attempts)
    (line,) = headlines(report)
    assert line.startswith("No speedup can be given at any of 12 points: rates are not valid: other_work = 2")
    assert " … " in line
    assert crossovers(report) == []


def test_measured_points_without_a_drafter_are_not_called_nothing():
    alone = build("s", [a for a in samples.quickstart() if a["point"]["axes"]["drafter"] == "none"][:1])
    assert headlines(alone) == ["No speedup can be given: no point with a drafter was measured."]
    assert "Nothing has been measured" not in html(alone)


def test_the_page_says_how_invalid_points_are_measured_again():
    attempts = samples.quickstart()
    command = "specsweep run sweep=s rerun=invalid"
    assert "rerun=invalid" not in html(build("s", attempts, command_invalid=command), {})
    attempts[0]["measurement"]["validity"]["valid"] = False
    page = html(build("s", attempts, command_invalid=command), {})
    assert "1 measured point is not valid" in page
    assert command in page


# --- the command


def planned(attempts):
    points = [Point(a["point"]["point_id"], a["point"]["axes"], {}, a["point"]["declared"], a["point"]["baseline_id"]) for a in attempts]
    session = Session("s1", tuple(points), 1.0, tuple(1.0 for _ in points))
    return Plan("quickstart", (session,), tuple(Dropped(d["axes"], d["rule"], d["reason"]) for d in DROPPED))


@pytest.fixture
def store(tmp_path):
    attempts = samples.quickstart()
    made = Store(tmp_path / "results")
    made.write_plan(planned(attempts), ["sweep=quickstart", "draft_length=range(4,9,4)"])
    for a in attempts[:12]:
        made.commit(a["point"], a["measurement"])
    return made


@pytest.fixture
def no_figures(monkeypatch):
    """For tests that look at other things: the figures take most of the time."""
    monkeypatch.setattr("specsweep.orchestrator.cli.report.draw", lambda report: {})


def test_report_command_prints_and_writes_everything(store, capsys):
    assert main(["report", f"store={store.root}"]) == 0
    out = capsys.readouterr().out
    assert "12 of 18 points measured, 6 not measured yet." in out
    assert "1.3" in out
    assert "pays at BS 1" in out
    folder = store.root / "sweeps" / "quickstart"
    made = {p.name for p in folder.iterdir()}
    assert {"report.html", "tables.md", "pareto.csv", "speedup.csv", "pareto.png", "speedup.png", "acceptance.png"} <= made
    assert not [n for n in made if n.startswith(".")]
    page = (folder / "report.html").read_text()
    assert f"specsweep run sweep=quickstart &#39;draft_length=range(4,9,4)&#39; store={store.root}" in page


@pytest.mark.usefixtures("no_figures")
def test_report_json_has_the_tables_with_full_precision(store, capsys):
    assert main(["report", "quickstart", f"store={store.root}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["points_planned"], len(found["tables"]["pareto"]["rows"])) == (18, 12)
    row = found["tables"]["speedup"]["rows"][0]
    assert {"speedup_user_tps", "speedup_user_tps_ci_low", "verdict", "interval_scope"} <= row.keys()


def test_report_names_the_sweeps_when_it_cannot_choose(store, capsys):
    other = planned(samples.quickstart())
    store.write_plan(Plan("second", other.sessions))
    assert main(["report", f"store={store.root}"]) == 2
    assert "name one: quickstart, second" in capsys.readouterr().err
    assert main(["report", "third", f"store={store.root}"]) == 2
    assert "quickstart, second" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"), [(["store=/nowhere/at/all"], "/nowhere/at/all"), (["engine=vllm"], "engine=vllm"), (["a", "b"], "a, b")]
)
def test_report_refuses_what_it_does_not_understand(words, named, store, capsys):
    arguments = words if any(w.startswith("store=") for w in words) else [*words, f"store={store.root}"]
    assert main(["report", *arguments]) == 2
    assert named in capsys.readouterr().err


def written(store):
    view = store.sweep("quickstart")
    return [(p.name, p.read_bytes()) for p in write_report(report_of(view), view.path)]


def test_reports_of_the_same_store_are_the_same_apart_from_the_time(store):
    first, second = written(store), written(store)
    assert first[0][0] == "report.html"
    strip = re.compile(rb"Written [^<]*\.")
    assert [(n, strip.sub(b"", c)) for n, c in first] == [(n, strip.sub(b"", c)) for n, c in second]


@pytest.mark.usefixtures("no_figures")
def test_a_report_is_up_to_date_until_what_it_is_made_from_changes(store, monkeypatch):
    assert not up_to_date(store.sweep("quickstart"))
    written(store)
    assert up_to_date(store.sweep("quickstart"))
    store.write_plan(planned(samples.quickstart()), ["sweep=quickstart", "draft_length=range(4,9,4)"])  # the same once more
    assert up_to_date(store.sweep("quickstart"))
    with monkeypatch.context() as other:
        other.setattr("specsweep.orchestrator.cli.report.version", lambda name: "0.0.0")
        assert not up_to_date(store.sweep("quickstart"))
    again = samples.quickstart()[0]
    store.commit(again["point"], again["measurement"])  # measured once more, in the same environment
    assert not up_to_date(store.sweep("quickstart"))
    written(store)
    store.write_plan(planned(samples.quickstart()[:6]), ["sweep=quickstart", "drafter=none"])
    assert not up_to_date(store.sweep("quickstart"))


@pytest.mark.usefixtures("no_figures")
def test_a_run_that_measured_nothing_leaves_the_report_and_the_command_redraws_it(store, capsys):
    plan, outcome = planned(samples.quickstart()), SimpleNamespace(measured=0, worst=None, unrecorded=0)
    page = store.root / "sweeps" / "quickstart" / "report.html"
    assert run._finish(plan, store, outcome, None, as_json=False) == 5  # six points are missing
    assert "nothing is new" not in capsys.readouterr().err
    first = page.stat().st_mtime_ns
    assert run._finish(plan, store, outcome, None, as_json=False) == 5  # six points are missing
    shown = capsys.readouterr()
    assert "nothing is new since it was drawn" in shown.err
    assert "12 of 18 points measured" in shown.out  # the tables are printed all the same
    assert page.stat().st_mtime_ns == first
    assert main(["report", f"store={store.root}"]) == 0
    assert page.stat().st_mtime_ns > first


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_terminal_tables_fit_and_show_their_remarks_once(width, store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["report", f"store={store.root}"]) == 0
    out = capsys.readouterr().out.split("wrote ")[0]
    assert max(map(len, out.splitlines())) <= width
    assert out.count("within one engine start") == 1
    assert {"TPS/user", "output TPS", "verdict"} <= set(re.findall(r"TPS/user|output TPS|verdict", out))
    assert not re.search(r"\[[\d.]+,\n", out.split("•")[0])  # no interval is torn apart
    header = next(line for line in out.splitlines() if "TPS/user" in line)
    assert {"AL", "Pareto"} <= set(header.split())


@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_a_narrow_table_leaves_out_is_told_and_its_reasons_stand_below(width):
    attempts = [*samples.quickstart(), samples.attempt(samples.axes(batch_size=16), failed=True)]
    table = build("q", attempts).tables["pareto"]
    shown, left_out, below = narrowed(table, width)
    assert text_width(shown) <= width
    keys = [c.key for c in shown.columns]
    assert {"user_tps_mean", "output_tps", "valid"} <= set(keys)
    assert {"al_decode", "pareto"} <= set(keys) or width == 60
    hidden = {c.header for c in table.columns} - {c.header for c in shown.columns}
    assert hidden - {"AL (decode)"} <= set(left_out)
    assert below == ["(1) no: engine failed"]
    assert [row.cells[keys.index("valid")] for row in shown.rows].count("(1)") == 1
    assert "yes" in [row.cells[keys.index("valid")] for row in shown.rows]


def test_why_a_dash_stands_in_a_column_is_not_told_where_the_column_is_not_shown(monkeypatch, capsys):
    attempts = samples.quickstart()
    for a in attempts:
        a["measurement"].setdefault("absent", {})["ttft_ms_p50"] = "too few values"
    table = build("s", attempts).tables["pareto"]
    told = {}
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        show(table)
        told[width] = capsys.readouterr().out
    assert "TTFT p50 ms –:" in told[200]
    assert "TTFT p50 ms –:" not in told[80]
    assert "No room for:" in told[80]
