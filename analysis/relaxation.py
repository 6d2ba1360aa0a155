"""The other way to choose unlike prompts: the continuous relaxation of the choice, which the paper compares with Algorithm 1 (Table 8).

In place of a set, weights w ∈ [0, 1]^N with Σw = k that minimise the convex wᵀGw, G = XXᵀ; the k largest are the choice. G is never
formed: wᵀGw = ‖Xᵀw‖², and its gradient is 2·X(Xᵀw), two products with X an iteration. Solved by accelerated projected gradient
(Beck and Teboulle 2009) that starts its momentum afresh when it points uphill (O'Donoghue and Candès 2015).

What it is good for beside the comparison: it bounds every choice from below. A set is a point of the relaxation, wᵀGw = L(S) + k for
unit rows, so no set of k rows has a smaller L than (minimum of the relaxation) − k; the Frank-Wolfe gap says how far an iterate can
be above that minimum. A selection whose L is near the bound is near the best there is, whichever algorithm found it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from specsweep.analysis.selection import Floats, Rows, Selection, loss, mean_of_pairs, swap, unit_rows_of

MAX_ITERATIONS = 500
TOLERANCE = 1e-4  # of the average pairwise similarity; the paper gives two decimals
GAP_EVERY = 5  # iterations; the gap costs as much as one
POWER_STEPS = 20
SAFETY = 1.05  # the power method comes to the largest eigenvalue from below, and too long a step diverges


@dataclass(frozen=True, slots=True)
class Relaxed:
    """``weights``: (N,), feasible. ``objective``: wᵀGw. ``gap``: the minimum is not below ``objective − gap``. ``converged``: gap within the tolerance."""

    weights: Floats
    k: int
    objective: float
    gap: float
    iterations: int
    converged: bool

    @property
    def bound(self) -> float:
        """No set of k rows has an L below this."""
        return self.objective - self.gap - self.k

    @property
    def similarity_bound(self) -> float:
        """No set of k rows has an average pairwise similarity below this."""
        return mean_of_pairs(self.bound, self.k)


def relax(x: ArrayLike, k: int, *, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS) -> Relaxed:
    """Minimises wᵀXXᵀw over w ∈ [0, 1]^N, Σw = k. ``x``: (N, d) unit rows.

    Deterministic: it starts from equal weights. Ends when the gap is within ``tolerance`` of the average pairwise similarity, or after
    ``max_iterations``. Raises ``ValueError`` for rows that are not of unit length, k outside 2 … N, and a tolerance not above 0.
    """
    rows = unit_rows_of(x, k)
    if k < 2 or not tolerance > 0 or max_iterations < 1:
        raise ValueError(f"relax needs k of 2 or more, tolerance above 0 and an iteration, not k={k}, {tolerance=}, {max_iterations=}")
    enough = tolerance * k * (k - 1)
    step = 1 / (2 * SAFETY * _largest_eigenvalue(rows))
    weights = ahead = np.full(len(rows), k / len(rows))
    momentum = 1.0
    best = weights, np.inf, np.inf  # the iterate with the smallest gap
    lower = -np.inf
    for iteration in range(1, max_iterations + 1):
        following = project(ahead - step * _gradient(rows, ahead)[1], k)
        if float((ahead - following) @ (following - weights)) > 0:
            ahead, momentum = following, 1.0
        else:
            grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead, momentum = following + (momentum - 1) / grown * (following - weights), grown
        weights = following
        if iteration % GAP_EVERY == 0 or iteration == max_iterations:
            objective, gradient = _gradient(rows, weights)
            lower = max(lower, objective - _gap(weights, gradient, k))  # a bound holds, whichever iterate it came from
            if objective < best[1]:
                best = weights, objective, lower
            if best[1] - lower <= enough:
                break
    weights, objective, _ = best
    gap = max(objective - lower, 0.0)
    return Relaxed(weights, k, objective, gap, iteration, gap <= enough)


def rounded(x: ArrayLike, relaxed: Relaxed, *, refine: bool = False) -> Selection:
    """The k largest weights as a choice (of equal ones the first), and with ``refine`` the swaps of Algorithm 1 from there."""
    chosen = np.sort(np.argsort(-relaxed.weights, kind="stable")[: relaxed.k]).tolist()
    return swap(x, chosen) if refine else Selection(tuple(chosen), (loss(x, chosen),), relaxed.converged)


def project(v: Floats, k: int) -> Floats:
    """The point of {w ∈ [0, 1]^N, Σw = k} that is nearest to ``v``: clip(v − τ, 0, 1) with the τ that makes the sum k.

    The sum falls with τ along straight pieces that end where an entry reaches 0 or 1, so τ is found exactly: the piece by bisection over
    the sorted ends, the place on it by interpolation.
    """
    ends = np.unique(np.concatenate([v, v - 1]))
    low, high = 0, len(ends) - 1  # the sum is N at the first end and 0 at the last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if np.clip(v - ends[middle], 0, 1).sum() >= k else (low, middle)
    above, below = (float(np.clip(v - ends[i], 0, 1).sum()) for i in (low, high))
    share = (above - k) / (above - below) if above > below else 0.0
    return np.asarray(np.clip(v - (ends[low] + share * (ends[high] - ends[low])), 0, 1))


def _gradient(rows: Rows, weights: Floats) -> tuple[float, Floats]:
    """wᵀGw and its gradient 2Gw. Products in the precision of the embeddings, sums of them in double precision."""
    total = weights.astype(rows.dtype) @ rows
    return float(total.astype(np.float64) @ total), 2 * np.asarray(rows @ total, dtype=np.float64)


def _gap(weights: Floats, gradient: Floats, k: int) -> float:
    """Frank and Wolfe's: how much the linear model could still fall, max over feasible s of gradient·(w − s)."""
    least = np.partition(gradient, k - 1)[:k].sum()
    return max(float(gradient @ weights - least), 0.0)


def _largest_eigenvalue(rows: Rows) -> float:
    """Of XᵀX, by the power method from a fixed start."""
    v: Floats = np.random.default_rng(0).standard_normal((rows.shape[1],))
    value = 1.0
    for _ in range(POWER_STEPS):
        unit = (v / np.linalg.norm(v)).astype(rows.dtype)
        v = np.asarray((rows @ unit) @ rows, dtype=np.float64)
        value = float(np.linalg.norm(v))
    return value
