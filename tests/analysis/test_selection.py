"""Choosing unlike rows: against all sets where there are few, and what must hold of every choice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsweep.analysis.selection import (
    Selection,
    average_similarity,
    greedy,
    greedy_swap,
    loss,
    normalised,
    swap,
    uniform,
)


def unit_rows(n: int, d: int, seed: int = 0, together: float = 0.5) -> np.ndarray:
    """Random directions with something in common, as embeddings of texts have."""
    draws = np.random.default_rng(seed)
    return normalised(draws.standard_normal((n, d)) + together * draws.standard_normal(d))


def pairs_by_hand(x: np.ndarray, chosen: tuple[int, ...]) -> float:
    return sum(float(x[i] @ x[j]) for i in chosen for j in chosen if i != j)


def greedy_by_hand(x: np.ndarray, k: int, start: int) -> list[int]:
    chosen = [start]
    while len(chosen) < k:
        chosen.append(min((sum(float(x[i] @ x[j]) for j in chosen), i) for i in range(len(x)) if i not in chosen)[1])
    return chosen


def best_swap_by_hand(x: np.ndarray, chosen: tuple[int, ...]) -> float:
    """The smallest Δ over all pairs (out, in), from its definition."""
    outside = [i for i in range(len(x)) if i not in chosen]
    return min(sum(float(x[new] @ x[j] - x[out] @ x[j]) for j in chosen if j != out) for out in chosen for new in outside)


cases = st.tuples(st.integers(3, 25), st.integers(2, 8), st.integers(0, 10_000)).flatmap(
    lambda c: st.tuples(st.just(unit_rows(*c)), st.integers(2, c[0] - 1), st.integers(0, c[0] - 1))
)


@settings(max_examples=40, deadline=None)
@given(cases)
def test_greedy_takes_the_row_least_like_those_chosen(case: tuple[np.ndarray, int, int]) -> None:
    x, k, start = case
    assert list(greedy(x, k, start=start).indices) == greedy_by_hand(x, k, start)


@settings(max_examples=40, deadline=None)
@given(cases)
def test_swaps_end_where_no_swap_helps_and_never_above_greedy(case: tuple[np.ndarray, int, int]) -> None:
    x, k, start = case
    found = greedy_swap(x, k, start=start)
    assert found.converged
    assert len(set(found.indices)) == k
    assert found.loss <= greedy(x, k, start=start).loss + 1e-9
    assert best_swap_by_hand(x, found.indices) >= -1e-9


@settings(max_examples=40, deadline=None)
@given(cases)
def test_each_swap_changes_the_loss_by_twice_the_best_delta(case: tuple[np.ndarray, int, int]) -> None:
    x, k, start = case
    at = tuple(greedy(x, k, start=start).indices)
    for _ in range(4):
        after = swap(x, at, max_rounds=1)
        assert after.loss == pytest.approx(pairs_by_hand(x, after.indices), abs=1e-9)
        if not after.rounds:
            break
        assert after.loss - pairs_by_hand(x, at) == pytest.approx(2 * best_swap_by_hand(x, at), abs=1e-9)
        assert len(set(at) - set(after.indices)) == 1
        at = after.indices


@pytest.mark.parametrize("seed", range(12))
def test_close_to_the_best_of_all_sets(seed: int) -> None:
    x = unit_rows(14, 5, seed)
    every = [loss(x, c) for c in itertools.combinations(range(14), 5)]
    best, typical = min(every), float(np.median(every))
    found = greedy_swap(x, 5, seed=seed)
    assert best - 1e-9 <= found.loss <= best + 0.05 * (typical - best)


def test_a_swap_finds_what_greedy_missed() -> None:
    """On a line of directions greedy keeps its first row, whatever it is; the best three are spread evenly."""
    angles = np.radians([0, 60, 120, 180, 240, 300, 30])
    x = np.column_stack([np.cos(angles), np.sin(angles)])
    start = 6  # 30°: with 180° or 240°, the next, no three rows are 120° apart
    assert greedy(x, 3, start=start).loss > -3 + 1e-6
    found = greedy_swap(x, 3, start=start)
    assert found.loss == pytest.approx(-3)  # three unit rows cannot have less: ‖Σx‖² ≥ 0
    assert sorted(found.indices) in ([0, 2, 4], [1, 3, 5])


def test_copies_are_not_taken_twice() -> None:
    """Where no two rows point away from each other; where some do, copies may balance them (see the module)."""
    x = np.repeat(np.eye(10), 20, axis=0)
    assert len({i // 20 for i in greedy_swap(x, 10).indices}) == 10


def test_rounds_that_run_out_are_told() -> None:
    x = unit_rows(200, 12, together=3)
    whole = greedy_swap(x, 20, seed=1)
    assert whole.rounds > 1
    cut = greedy_swap(x, 20, seed=1, max_rounds=whole.rounds - 1)
    assert (cut.converged, cut.rounds) == (False, whole.rounds - 1)
    assert cut.losses == whole.losses[:-1]
    assert greedy_swap(x, 20, seed=1, max_rounds=whole.rounds).converged  # exactly enough
    assert list(whole.losses) == sorted(whole.losses, reverse=True)


def test_single_precision_comes_to_rest() -> None:
    """Rows that are nearly all alike: gains are of the size of rounding, and must not be swapped to and fro."""
    x = normalised((np.ones((300, 32)) + 1e-4 * np.random.default_rng(0).standard_normal((300, 32))).astype(np.float32))
    found = greedy_swap(x, 30)
    assert found.converged
    assert found.loss == pytest.approx(loss(x, found.indices), rel=1e-6)


def test_the_seed_decides_the_first_row() -> None:
    x = unit_rows(200, 6)
    assert greedy_swap(x, 10, seed=3) == greedy_swap(x, 10, seed=3)
    assert len({greedy(x, 10, seed=s).indices[0] for s in range(20)}) > 10
    assert greedy(x, 10, start=7).indices[0] == 7


def test_uniform_choices_are_distinct_rows_and_every_row_is_as_likely() -> None:
    x = unit_rows(20, 4)
    choices = [uniform(x, 5, seed=s) for s in range(300)]
    assert all(len(set(c.indices)) == 5 for c in choices)
    counts = np.bincount([i for c in choices for i in c.indices], minlength=20)
    assert counts.min() > 40  # 75 expected, standard deviation 8
    assert counts.max() < 110
    assert choices[0] == uniform(x, 5, seed=0)
    assert choices[0].loss == pytest.approx(pairs_by_hand(x, choices[0].indices))


def test_average_similarity_is_the_mean_over_pairs() -> None:
    x = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    assert average_similarity(x) == pytest.approx((0.6 + 0.8 + 0) / 3)
    assert average_similarity(x, [0, 1]) == pytest.approx(0.6)
    assert Selection((0, 1, 2), (loss(x, [0, 1, 2]),)).average_similarity == pytest.approx(1.4 / 3)
    with pytest.raises(ValueError, match="no pair"):
        average_similarity(x, [1])


def test_all_candidates_can_be_chosen() -> None:
    x = unit_rows(6, 3)
    assert sorted(greedy_swap(x, 6).indices) == list(range(6))
    assert greedy_swap(x, 6).converged


@pytest.mark.parametrize(
    ("x", "k", "said"),
    [
        ([[1.0, 0.0], [0.5, 0.0]], 1, "row 1 .* length 0.5, not 1"),
        ([[1.0, 0.0], [np.nan, 0.0]], 1, "row 1 .* length nan"),
        ([[1.0, 0.0]], 2, "2 of 1 candidates"),
        ([[1.0, 0.0]], 0, "k from 1 to 1"),
        ([1.0, 0.0], 1, "matrix with a row a candidate"),
    ],
)
def test_what_cannot_be_chosen_from(x: list[list[float]], k: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        greedy_swap(x, k)


def test_other_bad_arguments() -> None:
    x = unit_rows(5, 3)
    with pytest.raises(ValueError, match="start=5 is not a candidate"):
        greedy(x, 2, start=5)
    with pytest.raises(ValueError, match="distinct rows"):
        swap(x, [1, 1])
    with pytest.raises(ValueError, match=r"row 0 .* no direction"):
        normalised(np.zeros((2, 3)))
