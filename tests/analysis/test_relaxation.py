"""The relaxation: its projection and minimum against what is known otherwise, and that its bound is one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from specsweep.analysis.relaxation import Relaxed, project, relax, rounded
from specsweep.analysis.selection import greedy_swap, loss, normalised, uniform


def unit_rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    draws = np.random.default_rng(seed)
    return normalised(draws.standard_normal((n, d)) + draws.standard_normal(d))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=2, max_size=12), st.data())
def test_projection_is_feasible_and_nearest(values: list[float], data: st.DataObject) -> None:
    v, k = np.array(values), data.draw(st.integers(1, len(values)))
    w = project(v, k)
    assert w.min() >= 0
    assert w.max() <= 1
    assert w.sum() == pytest.approx(k)
    # Nearest in a convex set: no feasible point lies on the far side of w as seen from v. Its corners are the sets of k.
    order = np.argsort(-(v - w), kind="stable")
    corner = np.zeros(len(v))
    corner[order[:k]] = 1
    assert (v - w) @ (corner - w) <= 1e-9


def test_minimum_agrees_with_a_general_solver() -> None:
    x, k = unit_rows(12, 20, 3), 4
    gram = x @ x.T
    known = optimize.minimize(
        lambda w: w @ gram @ w,
        np.full(12, k / 12),
        jac=lambda w: 2 * gram @ w,
        bounds=[(0, 1)] * 12,
        constraints=[{"type": "eq", "fun": lambda w: w.sum() - k, "jac": lambda w: np.ones(12)}],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    found = relax(x, k, tolerance=1e-9, max_iterations=20_000)
    assert found.converged
    assert found.objective == pytest.approx(known.fun, abs=1e-6)
    assert found.weights == pytest.approx(known.x, abs=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_no_set_is_below_the_bound(seed: int) -> None:
    x = unit_rows(13, 30, seed)
    best = min(loss(x, c) for c in itertools.combinations(range(13), 4))
    found = relax(x, 4)
    assert found.converged
    assert found.bound <= best + 1e-9
    assert found.bound > best - 2.0  # and says something: chance is far above
    assert relax(x, 4, max_iterations=1).bound <= best + 1e-9  # even where it has not converged


def test_rounding_is_about_as_good_as_swaps() -> None:
    x, k = unit_rows(300, 24, 1).astype(np.float32), 20
    found = relax(x, k)
    chosen, refined = rounded(x, found), rounded(x, found, refine=True)
    assert len(set(chosen.indices)) == k
    assert set(chosen.indices) == set(np.argsort(-found.weights)[:k].tolist())
    chance, swaps = uniform(x, k).average_similarity, greedy_swap(x, k).average_similarity
    assert found.similarity_bound <= refined.average_similarity <= chosen.average_similarity
    assert chosen.average_similarity - swaps < 0.1 * (chance - swaps)


def test_equal_weights_go_to_the_first() -> None:
    x = np.eye(5)
    assert rounded(x, Relaxed(np.full(5, 0.4), 2, 0.8, 0.0, 1, True)).indices == (0, 1)


def test_iterations_that_run_out_are_told() -> None:
    found = relax(unit_rows(60, 40), 10, tolerance=1e-12, max_iterations=3)
    assert (found.converged, found.iterations) == (False, 3)
    assert found.gap > 0
    assert found.weights.sum() == pytest.approx(10)


def test_arguments_that_make_no_sense() -> None:
    x = unit_rows(5, 3)
    for arguments in ({"k": 1}, {"k": 3, "tolerance": 0.0}, {"k": 3, "max_iterations": 0}):
        with pytest.raises(ValueError, match="relax needs"):
            relax(x, **arguments)
    with pytest.raises(ValueError, match="6 of 5 candidates"):
        relax(x, 6)
