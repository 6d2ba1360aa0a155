"""Chooses the prompts of a benchmark that are least like each other: Algorithm 1 of the SPEED-Bench paper (section "Qualitative split").

A category's candidates are rows of a matrix X of unit length, their embeddings. Wanted is a set S of k rows that minimises

    L(S) = Σ_{i∈S} Σ_{j∈S, j≠i} x_i·x_j        (ordered pairs: each pair counts twice)

Greedy start: a random row, then always the row with the smallest sum of similarities to those already chosen. Refinement: the best
of all swaps (out ∈ S, in ∉ S), as long as it helps. The paper leaves three things open, decided here: ties go to the candidate that
comes first; a swap must gain more than the rounding of the similarities, or noise would be swapped back and forth; the largest
number of rounds is :data:`MAX_ROUNDS`, and the result says whether it was reached.

The N × N matrix of similarities is never formed (3 GB for 20,000 candidates). Only the similarities of the chosen rows to all candidates are
kept, a k × N block B with column sums m. A swap costs

    Δ(out, in) = Σ_{j∈S∖{out}} (x_in·x_j − x_out·x_j) = (m[in] − B[out, in]) − (m[out] − B[out, out])

so a round is one pass over the block and one product X·x_in for its new row, and L changes by 2Δ.

L measures balance, not difference, where similarities are below 0: L(S) = ‖Σ x_i‖² − k, and a row and its copy are a good choice if two others point
away from them. Embeddings of texts hardly do, but whoever offers the same text twice may get it twice: take copies out first.

Every function is deterministic: the same rows, k and seed give the same choice (on another processor the last bit of a product may
differ, and with it a near tie).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rows = NDArray[np.floating[Any]]
Floats = NDArray[np.float64]

MAX_ROUNDS = 2_000  # a choice of 80 from 20,000 takes some hundreds
UNIT_TOLERANCE = 1e-3  # embeddings that came as half floats are still unit rows


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen rows in the order of their choice (a row that was swapped in has the place of the one that left).

    ``losses``: L(S) before the first swap and after each; ``converged``: False if the rounds ran out while a swap would still have helped.
    """

    indices: tuple[int, ...]
    losses: tuple[float, ...]
    converged: bool = True

    @property
    def loss(self) -> float:
        return self.losses[-1]

    @property
    def rounds(self) -> int:
        """Swaps that were made."""
        return len(self.losses) - 1

    @property
    def average_similarity(self) -> float:
        """Mean over the pairs, L(S) / k(k − 1). Raises ``ValueError`` for a single row, which has no pair."""
        return mean_of_pairs(self.loss, len(self.indices))


def greedy_swap(x: ArrayLike, k: int, *, seed: int = 0, start: int | None = None, max_rounds: int = MAX_ROUNDS) -> Selection:
    """Algorithm 1: greedy start and local swaps. ``x``: (N, d) unit rows; ``start``: the first row, else drawn with ``seed``.

    Raises ``ValueError`` for rows that are not of unit length, for k outside 1 … N and for a start that is no row.
    """
    rows = unit_rows_of(x, k)
    return _swapped(rows, *_greedy(rows, k, _start(rows, seed, start)), max_rounds)


def greedy(x: ArrayLike, k: int, *, seed: int = 0, start: int | None = None) -> Selection:
    """The greedy start alone. Arguments and errors as of :func:`greedy_swap`."""
    rows = unit_rows_of(x, k)
    chosen, _ = _greedy(rows, k, _start(rows, seed, start))
    return Selection(tuple(chosen), (loss(rows, chosen),))


def swap(x: ArrayLike, indices: Sequence[int], *, max_rounds: int = MAX_ROUNDS) -> Selection:
    """The swaps of Algorithm 1 from any choice of distinct rows."""
    rows = unit_rows_of(x, len(indices))
    chosen = _distinct(rows, indices)
    block = np.stack([_similarities(rows, i) for i in chosen])
    return _swapped(rows, chosen, block, max_rounds)


def uniform(x: ArrayLike, k: int, *, seed: int = 0) -> Selection:
    """k distinct rows, every set as likely as every other: what an optimised choice is compared with."""
    rows = unit_rows_of(x, k)
    chosen = np.random.default_rng(seed).choice(len(rows), k, replace=False).tolist()
    return Selection(tuple(chosen), (loss(rows, chosen),))


def loss(x: ArrayLike, indices: Sequence[int]) -> float:
    """L(S) in double precision, without its pairs one by one: \\|Σ x_i\\|² − Σ \\|x_i\\|²."""
    rows = np.asarray(np.asarray(x)[list(indices)], dtype=np.float64)
    total = rows.sum(0)
    return float(total @ total - (rows * rows).sum())


def average_similarity(x: ArrayLike, indices: Sequence[int] | None = None) -> float:
    """Mean x_i·x_j over the pairs of the named rows, or of all. Raises ``ValueError`` if there is no pair."""
    chosen = range(len(np.asarray(x))) if indices is None else indices
    return mean_of_pairs(loss(x, chosen), len(chosen))


def mean_of_pairs(total: float, k: int) -> float:
    """L(S) of k rows as the mean over their pairs."""
    if k < 2:
        raise ValueError(f"{k} row has no pair whose similarity could be averaged; choose at least 2")
    return total / (k * (k - 1))


def normalised(x: ArrayLike) -> Rows:
    """The rows scaled to unit length, in single precision if they came so. Raises ``ValueError`` naming a row that has no direction."""
    rows = _matrix(x)
    lengths = _lengths(rows)
    if (bad := np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))).size:
        raise ValueError(f"row {bad[0]} of the embeddings has length {lengths[bad[0]]}; it has no direction to compare")
    return rows / lengths[:, None].astype(rows.dtype)


def unit_rows_of(x: ArrayLike, k: int) -> Rows:
    """The matrix as it is, once it is certain that its rows have unit length and that k of them can be chosen."""
    rows = _matrix(x)
    if not 1 <= k <= len(rows):
        raise ValueError(f"{k} of {len(rows)} candidates cannot be chosen; give k from 1 to {len(rows)}")
    lengths = _lengths(rows)
    if (bad := np.flatnonzero(~(np.abs(lengths - 1) <= UNIT_TOLERANCE))).size:
        raise ValueError(f"row {bad[0]} of the embeddings has length {lengths[bad[0]]:.6g}, not 1; scale the rows with normalised()")
    return rows


def _matrix(x: ArrayLike) -> Rows:
    rows = np.asarray(x)
    if rows.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"embeddings must be a matrix with a row a candidate, not of shape {rows.shape}")
    return np.ascontiguousarray(rows)


def _lengths(rows: Rows) -> Floats:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))


def _start(rows: Rows, seed: int, start: int | None) -> int:
    if start is None:
        return int(np.random.default_rng(seed).integers(len(rows)))
    if not 0 <= start < len(rows):
        raise ValueError(f"start={start} is not a candidate; there are 0 to {len(rows) - 1}")
    return start


def _distinct(rows: Rows, indices: Sequence[int]) -> list[int]:
    chosen = [int(i) for i in indices]
    if len(set(chosen)) != len(chosen) or not all(0 <= i < len(rows) for i in chosen):
        raise ValueError(f"indices must be distinct rows from 0 to {len(rows) - 1}, not {chosen[:8]}")
    return chosen


def _similarities(rows: Rows, i: int) -> Floats:
    """X·x_i. The product has the precision of the embeddings; what is added up later has double precision."""
    return np.asarray(rows @ rows[i], dtype=np.float64)


def _greedy(rows: Rows, k: int, start: int) -> tuple[list[int], Floats]:
    """The chosen rows, and their similarities to all candidates as a (k, N) block."""
    block = np.empty((k, len(rows)))
    chosen = [start]
    block[0] = _similarities(rows, start)
    sums = block[0].copy()
    sums[start] = np.inf  # stays so: a chosen row is never the least
    for n in range(1, k):
        chosen.append(int(sums.argmin()))
        block[n] = _similarities(rows, chosen[n])
        sums += block[n]
        sums[chosen[n]] = np.inf
    return chosen, block


def _swapped(rows: Rows, chosen: list[int], block: Floats, max_rounds: int) -> Selection:
    """Best swaps until none helps. Changes ``chosen`` and ``block`` in place."""
    if max_rounds < 0:
        raise ValueError(f"max_rounds={max_rounds} must be 0 or more")
    k = len(chosen)
    sums = block.sum(0)
    losses = [loss(rows, chosen)]
    gain = (
        8 * k * float(np.finfo(rows.dtype).eps)
    )  # far above the error of a sum of 2k products of unit rows, far below any gain that matters
    deltas = np.empty_like(block)
    converged = False
    while k < len(rows):
        here = np.arange(k), np.array(chosen)
        np.subtract(sums, block, out=deltas)  # [out, in] = m[in] − B[out, in]
        deltas -= deltas[here][:, None]
        deltas[:, here[1]] = np.inf  # only rows that are not chosen can come in
        out, new = divmod(int(deltas.argmin()), len(rows))
        delta = float(deltas[out, new])
        if delta >= -gain:
            converged = True
            break
        if len(losses) > max_rounds:
            break
        chosen[out] = new
        row = _similarities(rows, new)
        sums += row - block[out]
        block[out] = row
        losses.append(losses[-1] + 2 * delta)
    return Selection(tuple(chosen), tuple(losses), converged or k == len(rows))
