from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.loops import loops


@given(st.lists(st.integers(0, 50), max_size=40), st.lists(st.integers(0, 50), min_size=1, max_size=32), st.integers(0, 31))
def test_a_period_that_repeats_to_the_end_is_found_wherever_it_is_cut(before: list[int], period: list[int], cut: int) -> None:
    repetitions = max(4, -(-16 // len(period)) + 1)
    assert loops(before + (period * repetitions)[: len(period) * repetitions - cut % len(period)])


@given(st.lists(st.integers(), min_size=0, max_size=200, unique=True))
def test_an_answer_without_a_repeated_token_is_no_loop(ids: list[int]) -> None:
    assert not loops(ids)


def test_what_is_no_loop() -> None:
    assert not loops([])
    assert not loops([7] * 15), "too short to say"
    assert not loops([1, 2, 3] * 10 + [9]), "it got out of it"
    assert not loops(list(range(20)) * 2), "twice is not a loop"
    assert loops([5] + [7] * 16)
