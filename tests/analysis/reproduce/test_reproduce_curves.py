"""Gaps and crossings of throughput curves, against curves whose truth is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce.contrasts import combination, propagated
from specsweep.analysis.reproduce.curves import Mark, crosses, crossing, gap_at_equal_batch_size, gap_at_equal_user_tps, ratios

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def curve(scale: float = 1.0, slope: float = 0.0, error: float = 0.01, sizes: tuple[int, ...] = SIZES) -> list[Mark]:
    """User TPS falls as BS^-0.6; ``slope`` bends the curve by a power of BS."""
    made = []
    for bs in sizes:
        user = 100 * scale * bs ** (slope - 0.6)
        made.append(Mark(bs, around(user, error), around(bs * user, error)))
    return made


def around(value: float, error: float) -> Estimate:
    return Estimate(value, value * (1 - error), value * (1 + error))


@given(gap=st.floats(0.8, 1.6), error=st.floats(0.001, 0.05))
def test_a_curve_that_is_a_factor_faster_lies_that_much_higher_at_equal_batch_size(gap: float, error: float) -> None:
    found, sizes = gap_at_equal_batch_size(curve(gap, error=error), curve(error=error))
    assert tuple(sizes) == SIZES
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.value == pytest.approx(gap - 1, abs=1e-9)
    assert found.low < gap - 1 < found.high
    # Eight independent marks on both sides: the mean is known better than any of them.
    assert (found.high - found.low) / 2 < gap * error


@given(gap=st.floats(0.9, 1.3))
def test_at_equal_user_tps_the_same_factor_counts_more(gap: float) -> None:
    found, between = gap_at_equal_user_tps(curve(gap), curve())
    # y = BS * x and x ~ BS^-0.6: at the same x the batch size is larger by gap^(1/0.6).
    assert found is not None
    assert between is not None
    assert found.value == pytest.approx(gap ** (1 / 0.6) - 1, abs=1e-6)
    assert between[0] < between[1]


def test_curves_without_a_common_range_have_no_gap_there() -> None:
    assert gap_at_equal_user_tps(curve(100), curve()) == (None, None)
    assert gap_at_equal_batch_size(curve(sizes=(1, 2)), curve(sizes=(4, 8))) == (None, [])


@given(at=st.floats(3, 60), bend=st.floats(0.05, 0.3))
def test_the_crossing_is_found_where_it_is(at: float, bend: float) -> None:
    ratio = ratios(curve(at**bend, slope=-bend, error=0.002), curve(error=0.002))
    found = crossing(ratio)
    assert found.batch_size is not None
    assert found.low is not None
    assert found.high is not None
    assert math.log2(found.batch_size) == pytest.approx(math.log2(at), abs=0.02)
    assert found.low <= found.batch_size <= found.high
    assert crosses(ratio) == "holds"
    assert crosses(ratios(curve(error=0.002), curve(at**bend, slope=-bend, error=0.002))) == "failed"


def test_more_error_moves_the_bounds_apart_and_then_decides_nothing() -> None:
    spans = []
    for error in (0.005, 0.02, 0.05):
        found = crossing(ratios(curve(1.5, slope=-0.1, error=error), curve(error=error)))
        assert found.low is not None
        assert found.high is not None
        spans.append(found.high / found.low)
    assert spans == sorted(spans)
    assert crosses(ratios(curve(1.02, slope=-0.01, error=0.2), curve(error=0.2))) == "not decidable"


def test_a_curve_that_is_ahead_at_both_ends_does_not_cross() -> None:
    ratio = ratios(curve(1.3), curve())
    assert crosses(ratio) == "failed"
    assert crossing(ratio).batch_size is None


@given(values=st.lists(st.floats(0.5, 5), min_size=1, max_size=6))
def test_propagation_of_a_sum_is_the_sum_of_variances(values: list[float]) -> None:
    inputs = [Estimate(v, v - 0.01, v + 0.01) for v in values]
    plain = combination(inputs, [1.0] * len(inputs))
    general = propagated(lambda logs: float(sum(math.exp(x) for x in logs)), inputs)
    assert general.value == pytest.approx(plain.value)
    assert general.low is not None
    assert plain.low is not None
    assert general.value - general.low == pytest.approx(plain.value - plain.low, rel=0.01)


def test_a_part_without_an_interval_leaves_the_whole_without_one() -> None:
    assert not combination([Estimate(1.0), Estimate(2.0, 1.9, 2.1)], [1, 1]).has_interval
    assert not propagated(lambda logs: float(logs.sum()), [Estimate(1.0)]).has_interval
