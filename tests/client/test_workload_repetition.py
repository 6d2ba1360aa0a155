from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.workload.repetition import SPAN, repeated_share


def counted(ids: list[int], span: int) -> float:
    seen: set[tuple[int, ...]] = set()
    windows = [tuple(ids[i : i + span]) for i in range(len(ids) - span + 1)]
    again = sum(w in seen or seen.add(w) is not None for w in windows)
    return again / len(windows) if len(windows) > 1 else 0.0


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 5))
def test_it_is_the_part_of_windows_that_stood_there_before(ids: list[int], span: int) -> None:
    assert repeated_share(ids, span) == pytest.approx(counted(ids, span))


def test_a_text_that_is_repeated_to_fill_a_bucket_is_nearly_all_repetition_and_a_fresh_one_is_none() -> None:
    drawn = random.Random(0)
    fresh = [drawn.randrange(200_000) for _ in range(2000)]
    assert repeated_share(fresh) == 0
    assert repeated_share(fresh * 16) == pytest.approx(15 / 16, abs=0.01)
    assert repeated_share(fresh * 2) == pytest.approx(0.5, abs=0.02)


@given(st.lists(st.integers(0, 2**31), max_size=SPAN))
def test_shorter_texts_have_none(ids: list[int]) -> None:
    assert repeated_share(ids) == 0
