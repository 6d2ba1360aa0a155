from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis import stats

counts = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 200)), min_size=3, max_size=40)


@given(counts, st.integers(2, 9))
def test_a_ratio_interval_contains_its_value_and_scales_with_its_units(pairs: list[tuple[int, int]], unit: int) -> None:
    num, den = np.array(pairs, dtype=float).T
    found = stats.ratio_interval(num, den)
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low <= found.value * (1 + 1e-12)
    assert found.value <= found.high * (1 + 1e-12)
    scaled = stats.ratio_interval(num * unit, den)
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((found.value * unit, found.low * unit, found.high * unit))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=3, max_size=30))
def test_a_proportion_stays_between_0_and_1(pairs: list[tuple[int, int]]) -> None:
    num = np.array([min(a, b) for a, b in pairs], dtype=float)
    den = np.array([b for _, b in pairs], dtype=float)
    found = stats.ratio_interval(num, den, scale="logit")
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1


def test_a_rate_of_one_is_not_a_certainty() -> None:
    found = stats.ratio_interval([10.0] * 5, [10.0] * 5, scale="logit")
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025 ** (1 / 5))


def test_clusters_without_a_denominator_do_not_count() -> None:
    found = stats.ratio_interval([6, 0, 8, 10], [3, 0, 4, 4])
    assert (found.n, found.value) == (3, pytest.approx(24 / 11))


def test_two_conversations_give_no_interval() -> None:
    found = stats.ratio_interval([6, 8], [3, 4])
    assert (found.low, found.high) == (None, None)
    assert "three" in found.method


def test_one_giant_conversation_leaves_little_to_go_by() -> None:
    ragged = stats.effective(np.array([1000.0, 1, 1, 1, 1, 1, 1, 1]))
    assert ragged == pytest.approx(1, abs=0.02)
    assert stats.effective(np.ones(8)) == pytest.approx(8)


@pytest.mark.parametrize(("num", "den", "words"), [([1, 2], [1], "shapes"), ([1, 2], [0, 0], "denominator")])
def test_wrong_input_is_named(num: list[float], den: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stats.ratio_interval(num, den)


@given(counts)
def test_a_paired_ratio_of_an_arm_with_itself_is_one(pairs: list[tuple[int, int]]) -> None:
    num, den = np.array(pairs, dtype=float).T
    found = stats.paired_ratio(num, den, num, den)
    assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1))


@given(counts)
def test_swapping_the_arms_inverts_a_paired_ratio(pairs: list[tuple[int, int]]) -> None:
    num, den = np.array(pairs, dtype=float).T
    other = num[::-1] + 1
    there, back = stats.paired_ratio(num, den, other, den, shared=0.01), stats.paired_ratio(other, den, num, den, shared=0.01)
    assert back.low is not None
    assert back.high is not None
    assert (there.value, there.low, there.high) == pytest.approx((1 / back.value, 1 / back.high, 1 / back.low))


def test_pairing_takes_out_what_makes_prompts_unlike() -> None:
    easy_to_hard = np.array([20.0, 40, 80, 160, 320, 640])
    noise = np.array([1.01, 0.99, 1.0, 1.02, 0.98, 1.0])
    one = np.ones(6)
    paired = stats.paired_ratio(1.3 * easy_to_hard * noise, one, easy_to_hard, one)
    alone = stats.ratio_interval(1.3 * easy_to_hard, one)
    assert paired.low is not None
    assert alone.low is not None
    assert paired.low > 1.25
    assert alone.low < alone.value / 2


def test_conversations_missing_from_one_arm_are_left_out_of_both() -> None:
    found = stats.paired_ratio([2, 2, 2, 99], [1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 0])
    assert (found.value, found.n) == (2.0, 3)


def test_shared_variance_widens_a_paired_ratio() -> None:
    num, one = np.array([1.0, 1.1, 0.9, 1.05]), np.ones(4)
    narrow, wide = (stats.paired_ratio(num, one, one, one, shared=s) for s in (0.0, 0.04))
    assert narrow.high is not None
    assert wide.high is not None
    assert wide.high > narrow.high


def test_block_rate_is_tokens_over_time() -> None:
    found = stats.block_rate([100, 120, 80, 100], 0.5)
    assert found.value == 200
    assert found.low is not None
    assert found.high is not None
    assert found.low < 200 < found.high
    wider = stats.block_rate([100, 120, 80, 100], 0.5, between=0.01)
    assert wider.low is not None
    assert wider.low < found.low


def test_block_rate_ratio_of_arms_with_other_block_lengths() -> None:
    found = stats.block_rate_ratio([30, 32, 28, 30], 0.1, [100, 104, 96, 100], 0.5)
    assert found.value == pytest.approx(1.5)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.5 < found.high
    assert found.low * found.high == pytest.approx(1.5**2)


@pytest.mark.parametrize(("tokens", "seconds"), [([], 1.0), ([1, 2, 3], 0.0)])
def test_blocks_without_tokens_or_time_are_refused(tokens: list[float], seconds: float) -> None:
    with pytest.raises(ValueError, match="blocks of time"):
        stats.block_rate(tokens, seconds)


def test_two_way_variance_knows_each_kind_of_dependence() -> None:
    rng = np.random.default_rng(3)
    weights = np.ones((40, 12))
    by_row = np.repeat(rng.standard_normal((40, 1)), 12, axis=1)
    by_time = np.repeat(rng.standard_normal((1, 12)), 40, axis=0)
    rows, time, neither = (stats.two_way(x, weights) for x in (by_row, by_time, rng.standard_normal((40, 12))))
    assert rows.between > 5 * rows.shared
    assert time.shared > 5 * time.between
    assert neither.variance == pytest.approx(480, rel=0.5)
    assert rows.variance == pytest.approx(40 * 144, rel=0.5)
    assert time.variance == pytest.approx(12 * 1600, rel=0.6)


@pytest.mark.parametrize(("q", "least"), [(0.5, 20), (0.9, 100), (0.95, 200), (0.99, 1000)])
def test_a_quantile_needs_ten_values_beyond_it(q: float, least: int) -> None:
    assert stats.may_give_quantile(q, least)
    assert not stats.may_give_quantile(q, least - 1)


def test_quantile_intervals_cover() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(300):
        values = rng.lognormal(0, 1, 240)
        found = stats.quantile_interval(values, 0.5, np.arange(240) % 60, np.arange(240) % 12)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.0 <= found.high
    assert 0.91 <= hits / 300 <= 1


def test_a_quantile_bound_beyond_the_sample_is_not_invented() -> None:
    values = np.arange(20.0)
    rows = np.arange(20) // 5  # four conversations whose values lie together: far fewer than 20 independent ones
    found = stats.quantile_interval(values, 0.5, rows, np.zeros(20, dtype=int))
    assert found.value == 9.5
    assert found.low is None
