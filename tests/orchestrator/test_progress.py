"""The live table keeps one line a point, whatever the width of the terminal: the line of state below it must stay in sight."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specsweep.orchestrator.progress import COLUMNS, Tally, fitting

MARK = "invalid: client_lag_request"


def landed(target: str = "tiny") -> tuple[Any, tuple[str, ...]]:
    point = SimpleNamespace(axes={"engine": "llamacpp", "target": target})
    values = ("61.2 [60.0, 62.0]", "41.2 [40.0, 42.0]", "3.20 [3.00, 3.40]", "16.0")
    return point, (f"llamacpp {target} ngram DL8 BS1 ISL96 low_entropy", *values, MARK)


@pytest.mark.parametrize(("width", "columns"), [(76, 5), (90, 6), (115, 6), (160, 6)])
def test_rows_fit(width: int, columns: int) -> None:
    names, (row,) = fitting([landed()], width)
    assert len(names) == len(row) == columns
    assert row[0] == "ngram DL8 BS1 ISL96 low_entropy"
    assert sum(max(len(a), len(b)) + 2 for a, b in zip(names, row, strict=True)) <= width
    assert ("[" in row[1]) == (width >= 115)
    assert row[-1] == (MARK if width == 160 else "invalid")


def test_several_targets_are_named_and_no_row_is_no_error() -> None:
    _, rows = fitting([landed("a"), landed("b")], 200)
    assert [r[0].split()[1] for r in rows] == ["a", "b"]
    assert fitting([], 80) == (COLUMNS, [])


def test_no_time_is_named_before_the_first_point_of_a_server_of_unknown_speed() -> None:
    tally = Tally(sessions=1, points=3, requests=30, est_left_s=30, guessed=True)
    tally.started(0)
    assert tally.line().endswith("ETA unknown")
    tally.spent(10, 60)
    assert tally.line().endswith("ETA 2:00")
    assert Tally(sessions=1, points=3, requests=30, est_left_s=30).line().endswith("ETA 0:30")
