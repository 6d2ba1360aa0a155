"""A comparison in which no rate is valid has compared nothing that anybody asks for."""

from __future__ import annotations

import sweep_samples as samples

from specsweep.analysis.compare import compare


def sweep(invalid: str) -> list[dict[str, object]]:
    return [samples.attempt(samples.axes(bs=bs), rate=100 / bs, invalid=invalid) for bs in (1, 2)]


def test_rates_that_are_all_left_out_are_told_from_rates_that_agree() -> None:
    assert not compare(sweep(""), sweep("")).no_rate_of_any
    spoiled = compare(sweep(""), sweep("tps"))
    assert spoiled.left_out
    assert spoiled.no_rate_of_any
    assert not compare(sweep(""), sweep("tps"), metrics=("al_decode",)).no_rate_of_any
