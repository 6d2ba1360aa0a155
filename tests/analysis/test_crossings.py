"""Where two arms change places: brackets between measured batch sizes, intervals that contain the truth, and nothing that was not shown."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.crossings import crossings, side, statement
from specsweep.analysis.log_scale import together

SIZES = (1, 2, 4, 8, 16, 32, 64)


def ratio(log_value: float, half: float) -> Estimate:
    return Estimate(math.exp(log_value), math.exp(log_value - half), math.exp(log_value + half))


def spots(logs: list[float], half: float = 0.05) -> list[tuple[int, Estimate]]:
    return [(bs, ratio(v, half)) for bs, v in zip(SIZES, logs, strict=False)]


def test_a_clear_change_of_places_lies_between_its_neighbours() -> None:
    (found,) = crossings(spots([0.5, 0.4, 0.3, 0.2, 0.1, -0.1, -0.3]))
    assert (found.below, found.above, found.rising) == (16, 32, False)
    assert found.at == pytest.approx(math.sqrt(16 * 32)), "half way on the log scale"
    assert 16 < found.low < found.at < found.high < 32
    assert str(found) == "between BS 16 and 32 (about 22.6; 95 % 19 to 26.9)"


def test_what_is_undecided_widens_the_bracket() -> None:
    (found,) = crossings(spots([0.5, 0.4, 0.3, 0.02, -0.01, -0.1, -0.3]))
    assert (found.below, found.above) == (4, 32)


def test_no_crossing_is_shown_where_one_side_is_not_clear() -> None:
    assert crossings(spots([0.5, 0.4, 0.3, 0.2, 0.1, 0.02, -0.03])) == []
    assert crossings(spots([0.5, 0.4, 0.3, 0.2, 0.1, 0.2, 0.3])) == []
    assert crossings([]) == []
    assert crossings([(1, Estimate(2.0)), (2, Estimate(0.5))]) == [], "without intervals nothing is clear"
    with pytest.raises(ValueError, match="twice"):
        crossings([(1, Estimate(2.0)), (1, Estimate(0.5))])


def test_arms_may_cross_more_than_once() -> None:
    assert [(c.below, c.above, c.rising) for c in crossings(spots([-0.5, -0.2, 0.3, 0.2, 0.1, -0.1, -0.3]))] == [
        (2, 4, True),
        (16, 32, False),
    ]


def test_sentences_say_what_was_measured_and_no_more() -> None:
    assert (
        statement(spots([0.5, 0.4, -0.4]), "A", "B")
        == "A is ahead up to BS 2; B overtakes between BS 2 and 4 (about 2.83; 95 % 2.71 to 2.95)"
    )
    assert statement(spots([0.5, 0.4, 0.2]), "A", "B") == "A is ahead from BS 1 to 4: they do not cross"
    assert statement(spots([-0.5, -0.4, 0.01]), "A", "B") == (
        "B is ahead at BS 1, 2, no difference is shown at BS 4: no crossing is shown"
    )  # fmt: skip
    assert statement(spots([0.01, -0.01]), "A", "B") == "no difference is shown from BS 1 to 2"
    assert statement(spots([0.5]), "A", "B") == "A is ahead at BS 1, the only one that both have: no crossing can be seen"
    assert statement([], "A", "B") == "A and B have no batch size in common"


LOGS = st.lists(st.floats(-1, 1), min_size=2, max_size=7)


@given(LOGS, st.floats(0.001, 0.5))
def test_a_crossing_stays_inside_its_bracket_and_the_other_way_round_it_is_the_same(logs: list[float], half: float) -> None:
    found = crossings(spots(logs, half))
    turned = crossings(spots([-v for v in logs], half))
    assert len(found) == len(turned)
    for one, other in zip(found, turned, strict=True):
        assert (one.below, one.above, one.rising) == (other.below, other.above, not other.rising)
        assert one.low == pytest.approx(other.low)
        assert one.high == pytest.approx(other.high)
        assert one.below <= one.low <= one.high <= one.above
        assert one.at is None or one.low <= one.at * (1 + 1e-9) <= one.high * (1 + 1e-9) ** 2
    sides = [s for _, r in spots(logs, half) if (s := side(r))]
    assert len(found) == sum(a != b for a, b in pairwise(sides))


def _noisy(truth: list[float], rng: np.random.Generator, error: float) -> list[tuple[int, Estimate]]:
    half = 1.96 * error
    return [(bs, together(ratio(v + error * float(rng.standard_normal()), half), len(truth))) for bs, v in zip(SIZES, truth, strict=True)]


def test_the_interval_of_a_crossing_contains_the_truth() -> None:
    """2,000 made-up sweeps with a straight log ratio that is 1 at BS 10."""
    rng = np.random.default_rng(1)
    truth = [0.25 * (math.log(10) - math.log(bs)) for bs in SIZES]
    shown = [found[0] for _ in range(2000) if len(found := crossings(_noisy(truth, rng, 0.08))) == 1]
    assert len(shown) > 1500
    assert np.mean([c.low <= 10 <= c.high for c in shown]) > 0.95
    assert np.mean([c.below < 10 < c.above for c in shown]) > 0.99


def test_arms_that_are_equal_are_hardly_ever_said_to_cross() -> None:
    rng = np.random.default_rng(2)
    assert sum(bool(crossings(_noisy([0.0] * 7, rng, 0.05))) for _ in range(2000)) < 0.01 * 2000
