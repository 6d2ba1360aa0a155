"""A report that holds captures beside timed points: each is shown as what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sweep_samples import attempt, axes

from specsweep.analysis.compare import compare
from specsweep.analysis.report import build, html, markdown
from specsweep.analysis.routing import Routing, summarise
from specsweep.analysis.routing_table import capture_line
from specsweep.orchestrator.cli.report import show


def capture(workload: str, *, failed: bool = False, valid: bool = True, simulated: bool = False) -> dict[str, Any]:
    made = attempt(axes(bs=32, workload=workload, capture="routing"), failed=failed)
    if failed:
        return made
    counts = np.ones((3, 2, 4), np.int32)
    counts[:, 1, 3] = 0
    counts[:, 1, 0] = 2
    check = {"name": "routed_tokens", "value": 12.0, "limit": 13.0, "ok": valid, "affects": ["all"], "message": "a token is missing"}
    made["measurement"] = {
        "schema_version": 1,
        "simulated": simulated,
        "untimed": True,
        "metrics": {},
        "checks": [check],
        "validity": {"valid": valid, "tps": False, "steps": False, "acceptance": False},
        "routing": summarise(Routing(counts, np.arange(3), None, 1)),
    }
    return made


TIMED = [attempt(axes(bs=4)), attempt(axes("ngram", 4, bs=4), rate=150.0)]


def logprobs(workload: str) -> dict[str, Any]:
    made = attempt(axes(bs=32, workload=workload, capture="logprobs"))
    rows = [{"prompt_id": "a", "category": "c", "tokens": 4, "nats": 2.0, "squares": 1.5}]
    made["measurement"] = {
        "schema_version": 1,
        "untimed": True,
        "metrics": {},
        "checks": [],
        "validity": {"valid": True, "tps": False, "steps": False, "acceptance": False},
        "logprobs": {"unit": "nats per token", "tokens": 4, "mean": 0.5, "by_prompt": rows},
    }
    return made


def test_log_probabilities_are_counted_by_name_and_stand_in_no_table() -> None:
    report = build("s", [*TIMED, capture("mixed"), logprobs("mixed")])
    assert report.status == "4 of 4 points measured, 2 of them untimed routing captures and log-probability captures."
    assert len(report.cells) == 2
    assert len(report.tables["routing"].rows) == 1
    alone = build("s", [logprobs("mixed")])
    assert (alone.cells, alone.tables["pareto"].rows, alone.tables["routing"].rows) == ([], (), ())
    assert "log-probability captures" in markdown(alone)
    assert "log-probability captures" in html(alone)


def test_captures_have_a_table_of_their_own_and_stand_in_no_other() -> None:
    report = build("s", [*TIMED, capture("mixed"), capture("random")])
    assert report.status == "4 of 4 points measured, 2 of them untimed routing captures."
    assert len(report.cells) == 2
    rows = report.tables["routing"].rows
    assert [row.record["workload"] for row in rows] == ["mixed", "random"]
    assert rows[0].cells == ("mixed", "3", "12", "3.5", "12.5 %", "12.5 %", "25.0 %", "1.50")
    assert {"BS": "32", "layers": "2", "experts": "4"}.items() <= report.tables["routing"].shared.items()
    assert rows[0].record["whole_unused_share_max"] == 0.25
    for name in ("pareto", "speedup"):
        assert all(
            row.record["drafter"] in ("none", "ngram") and row.record["workload"] == "low_entropy" for row in report.tables[name].rows
        )
    assert "Routing captures" in markdown(report)
    assert "<h2>Routing captures</h2>" in html(report, {})


def test_one_capture_is_named_in_the_title_and_one_line_says_what_it_found() -> None:
    table = build("s", [capture("mixed")]).tables["routing"]
    assert "workload mixed" in table.caption
    assert table.columns[0].key == "passes"
    assert capture_line(table.rows[0].record | {}) == "3 passes of 12 tokens, 3.5 of 4 experts a pass and layer, 12.5 % unused over all"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_number_breaks_on_a_narrow_terminal(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    show(build("s", [capture("mixed"), capture("high_entropy")]).tables["routing"])
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith("high_entropy ")]
    assert {"3.5", "12.5"} <= set(line.split())
    assert all(len(line) <= width for line in printed.splitlines())
    assert ("No room for" in printed) == (width < 100)


def test_a_report_of_captures_alone_is_no_empty_report() -> None:
    report = build("s", [capture("mixed")])
    page = html(report)
    assert "No point of this sweep was timed." in page
    assert "No point has been measured yet." not in page
    assert report.simulated is False
    assert "SIMULATED" in build("s", [capture("mixed", simulated=True)]).tables["routing"].notes[0]


def test_a_capture_that_failed_or_is_not_whole_is_told_like_any_point() -> None:
    report = build("s", [*TIMED, capture("mixed", failed=True), capture("random", valid=False)])
    assert [row.record["check"] for row in report.tables["validity"].rows] == ["measured", "routed_tokens"]
    (row,) = report.tables["routing"].rows
    assert row.muted


def test_captures_are_compared_with_nothing() -> None:
    found = compare([*TIMED, capture("mixed")], [*TIMED, capture("mixed")])
    assert "capture" not in str(found)
