"""What differs only in a number is said once, with its range; what differs in more is not lost."""

from __future__ import annotations

import pytest

from specsweep.analysis.reasons import in_one_sentence, merged
from specsweep.analysis.tabular import Column, Row, Table, footnoted

LAG = "rates are not valid: client_lag_step_p50 = {} % of the median step time (limit 5 %)"


def test_numbers_become_a_range_and_limits_stay() -> None:
    (one,) = merged(LAG.format(x) for x in ("19.6", "100.9", "7"))
    assert one.text == LAG.format("7 … 100.9")
    assert one.count == 3


@pytest.mark.parametrize("texts", [("p50 is late", "p99 is late"), ("vLLM 0.19.1rc0", "vLLM 0.20.0rc0"), ("a is late", "b is late")])
def test_names_with_digits_are_not_numbers(texts: tuple[str, str]) -> None:
    assert [r.text for r in merged(texts)] == list(texts)


def test_the_commonest_reason_stands_first_and_the_others_are_counted() -> None:
    told = in_one_sentence(["the baseline failed", LAG.format(8), LAG.format(9)])
    assert told == LAG.format("8 … 9") + " (at 2 points); 1 other reason at 1 point"


def test_footnotes_that_differ_in_a_percentage_are_one() -> None:
    rows = tuple(Row((text,), {}) for text in ("6 % late", "9 % late", "no baseline", "", "6 % late"))
    table, notes = footnoted(Table("t", "t", (Column("remark", "remark"),), rows), "remark")
    assert notes == ["(1) 6 … 9 % late", "(2) no baseline"]
    assert [r.cells[0] for r in table.rows] == ["(1)", "(1)", "(2)", "", "(1)"]
