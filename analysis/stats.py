"""Intervals for ratios, means, rates and quantiles of dependent data. One level, no tuning knobs, no random numbers.

What depends on what decides the method:

* **Acceptance** (AL, AR; their ratios between arms). Steps of one answer are alike and answers differ in length, so the conversation
  is the unit and the estimate a ratio of sums: jackknife over conversations, on the log or logit scale, with Student's t at
  the *effective* number of conversations ``(Σd)² / Σd²`` - one answer ten times as long as the others is not eight answers. The
  percentile bootstrap covers far too little at the 8 to 24 conversations that small points have.
* **Speed** (user TPS, step times, latencies). Requests share engine steps: a slow second is slow for all that are in flight, so
  conversations are not independent either, and resampling them is wrong. A conversation lives in one slot and time runs through all of
  them, which makes two crossed ways of clustering: variance = by conversation + by block of time - by both (Cameron, Gelbach and
  Miller 2011). :func:`two_way`.
* **Output TPS** over the steady window: blocks in time with Student's t, plus what one hard or easy conversation does to *several*
  blocks (the same two-way sum, written from the other side). Blocks alone would have to outlast a request to know of it, and a
  window holds only about three of them. A bootstrap over a dozen blocks would only imitate the t quantile, and cover less.
* **Quantiles**: given only from n ≥ 10 / (1 - q) values; order statistics at the effective sample size of the two-way variance.

Everything is deterministic and vectorised; in ``*_bounds`` the last axis is the conversations or blocks, and leading axes are many
simulated points at once (the coverage of these intervals is proved that way, with known truth, in the tests).

For other modules::

    Interval(value, low, high, method, n)          low and high are None where nothing can be said (fewer than three clusters)
    ratio_interval(num, den, scale="log")          Σnum / Σden over conversations
    mean_interval(sums, counts)                    the mean over requests, given per conversation
    paired_ratio(num_a, den_a, num_b, den_b, shared=0.0)
    block_rate(tokens_per_block, block_s, between=0.0)                    tokens/s
    block_rate_ratio(tokens_a, block_s_a, tokens_b, block_s_b, between_a=0.0, between_b=0.0)

``shared`` and ``between`` are relative variances that the arrays at hand cannot show; a measurement carries them:
``ci.user_tps_mean.shared_rel_var`` (add those of both arms) and ``tps_blocks.between_rel_var``. Arrays with different units or lengths
raise ``ValueError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # type: ignore[import-untyped]  # not scipy.stats, which takes half a second to import

Floats = NDArray[np.float64]
Scale = Literal["log", "logit"]

LEVEL = 0.95
MIN_CLUSTERS = 3  # with two there is one degree of freedom and the interval says nothing


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval at ``level`` 0.95; ``n`` is the number of independent units behind it."""

    value: float
    low: float | None
    high: float | None
    method: str
    n: int


# --- ratios over conversations -------------------------------------------------------------------------------------------------


def ratio_interval(num: ArrayLike, den: ArrayLike, *, scale: Scale = "log", level: float = LEVEL) -> Interval:
    """Σnum / Σden with one entry a conversation. Conversations with ``den`` 0 have nothing to say and are left out.

    ``scale="log"`` for ratios that can be any positive number, ``"logit"`` for proportions (num ≤ den). A proportion of exactly 0
    or 1 has no spread to estimate from; its far bound is the exact binomial one with a single trial a conversation.
    Raises ``ValueError`` if no conversation has a denominator.
    """
    n_, d_ = _pair(num, den)
    clusters = int(d_.size)
    value = float(n_.sum() / d_.sum())
    if clusters < MIN_CLUSTERS:
        return Interval(value, None, None, "none: fewer than three conversations", clusters)
    if scale == "logit" and (value <= 0.0 or value >= 1.0):
        far = 1.0 - float((1 - level) / 2) ** (1 / clusters)
        low, high = (0.0, far) if value <= 0.0 else (1.0 - far, 1.0)
        return Interval(value, low, high, "exact, one trial a conversation", clusters)
    if value <= 0.0:
        return Interval(value, None, None, "none: nothing was counted", clusters)
    _, low_, high_ = ratio_bounds(n_, d_, scale=scale, level=level)
    return Interval(value, float(low_), float(high_), "jackknife-t over conversations", clusters)


def ratio_bounds(num: Floats, den: Floats, *, scale: Scale = "log", level: float = LEVEL) -> tuple[Floats, Floats, Floats]:
    """(value, low, high) of Σnum / Σden over the last axis; every ``den`` > 0 and the ratio inside the scale."""
    value = num.sum(-1) / den.sum(-1)
    error = jackknife_error(num, den)
    reach = t_quantile(effective(den) - 1, level)
    if scale == "logit":
        odds = value / (1 - value)
        factor = _factor(reach * error / (value * (1 - value)))
        return value, odds / (odds + factor), odds * factor / (1 + odds * factor)
    factor = _factor(reach * error / value)
    return value, value / factor, value * factor


def jackknife_error(num: Floats, den: Floats) -> Floats:
    """Standard error of Σnum / Σden, leaving out one entry of the last axis at a time."""
    n = num.shape[-1]
    without = (num.sum(-1, keepdims=True) - num) / (den.sum(-1, keepdims=True) - den)
    spread = ((without - without.mean(-1, keepdims=True)) ** 2).sum(-1)
    return np.asarray(np.sqrt((n - 1) / n * spread))


def mean_interval(sums: ArrayLike, counts: ArrayLike, *, level: float = LEVEL) -> Interval:
    """The mean over requests of a positive quantity, given as its sum and the number of requests of each conversation."""
    return ratio_interval(sums, counts, level=level)


def paired_ratio(
    num_a: ArrayLike, den_a: ArrayLike, num_b: ArrayLike, den_b: ArrayLike, *, shared: float = 0.0, level: float = LEVEL
) -> Interval:
    """(Σnum_a / Σden_a) / (Σnum_b / Σden_b) over the same conversations in both arms, on the log scale.

    What makes a conversation fast in both arms cancels. ``shared``: relative variance that all conversations of an arm have in common
    (its steps), summed over the arms. Every array has one entry a conversation, in the same order.
    """
    a_num, a_den, b_num, b_den = (np.asarray(x, dtype=np.float64) for x in (num_a, den_a, num_b, den_b))
    if not a_num.shape == a_den.shape == b_num.shape == b_den.shape:
        raise ValueError("paired_ratio: the four arrays must hold the same conversations in the same order")
    keep = (a_den > 0) & (b_den > 0)
    a_num, a_den, b_num, b_den = (x[keep] for x in (a_num, a_den, b_num, b_den))
    clusters = int(keep.sum())
    if clusters == 0 or a_num.sum() <= 0 or b_num.sum() <= 0:
        raise ValueError("paired_ratio: no conversation has a rate in both arms")
    value = float(a_num.sum() / a_den.sum() / (b_num.sum() / b_den.sum()))
    if clusters < MIN_CLUSTERS:
        return Interval(value, None, None, "none: fewer than three conversations", clusters)
    _, low, high = paired_bounds(a_num, a_den, b_num, b_den, shared=shared, level=level)
    return Interval(value, float(low), float(high), "paired jackknife-t over conversations", clusters)


def paired_bounds(
    num_a: Floats, den_a: Floats, num_b: Floats, den_b: Floats, *, shared: float | Floats = 0.0, level: float = LEVEL
) -> tuple[Floats, Floats, Floats]:
    n = num_a.shape[-1]

    def log_rate(num: Floats, den: Floats) -> Floats:
        left_out = (num.sum(-1, keepdims=True) - num) / (den.sum(-1, keepdims=True) - den)
        return np.asarray(np.log(np.maximum(left_out, 1e-300)))

    without = log_rate(num_a, den_a) - log_rate(num_b, den_b)
    variance = (n - 1) / n * ((without - without.mean(-1, keepdims=True)) ** 2).sum(-1)
    value = num_a.sum(-1) / den_a.sum(-1) / (num_b.sum(-1) / den_b.sum(-1))
    freedom = np.minimum(effective(den_a), effective(den_b)) - 1
    factor = _factor(t_quantile(freedom, level) * np.sqrt(variance + shared))
    return value, value / factor, value * factor


# --- rates over blocks of time -------------------------------------------------------------------------------------------------


def block_rate(tokens_per_block: ArrayLike, block_s: float, *, between: float = 0.0, level: float = LEVEL) -> Interval:
    """Tokens per second over equal blocks of ``block_s`` seconds. Raises ``ValueError`` for no blocks or no time."""
    tokens = _blocks(tokens_per_block, block_s)
    value = float(tokens.mean() / block_s)
    if tokens.size < MIN_CLUSTERS or value <= 0:
        return Interval(value, None, None, "none: fewer than three blocks of time with tokens", int(tokens.size))
    _, low, high = block_bounds(tokens, block_s, between=between, level=level)
    return Interval(value, float(low), float(high), "blocks of time, t, with conversations that span blocks", int(tokens.size))


def block_bounds(
    tokens: Floats, block_s: float | Floats, *, between: float | Floats = 0.0, level: float = LEVEL
) -> tuple[Floats, Floats, Floats]:
    value = tokens.mean(-1) / block_s
    reach = t_quantile(np.asarray(tokens.shape[-1] - 1.0), level)
    factor = np.exp(reach * np.sqrt(_relative_variance(tokens) + between))
    return value, value / factor, value * factor


def block_rate_ratio(
    tokens_a: ArrayLike,
    block_s_a: float,
    tokens_b: ArrayLike,
    block_s_b: float,
    *,
    between_a: float = 0.0,
    between_b: float = 0.0,
    level: float = LEVEL,
) -> Interval:
    """Rate a / rate b of two arms that ran at different times: their variances add; Welch's degrees of freedom."""
    a, b = _blocks(tokens_a, block_s_a), _blocks(tokens_b, block_s_b)
    if a.sum() <= 0 or b.sum() <= 0:
        raise ValueError("block_rate_ratio: an arm has no tokens")
    value = float(a.mean() / block_s_a / (b.mean() / block_s_b))
    blocks = int(min(a.size, b.size))
    if blocks < MIN_CLUSTERS:
        return Interval(value, None, None, "none: fewer than three blocks of time", blocks)
    parts = np.array([float(_relative_variance(a)) + between_a, float(_relative_variance(b)) + between_b])
    total = float(parts.sum())
    spread = float((parts**2 / np.array([a.size - 1, b.size - 1])).sum())
    freedom = total**2 / spread if spread > 0 else max(blocks - 1, 1)
    factor = float(_factor(t_quantile(np.asarray(freedom), level) * np.sqrt(total)))
    return Interval(value, value / factor, value * factor, "blocks of time in both arms, Welch's t", blocks)


def _relative_variance(tokens: Floats) -> Floats:
    return np.asarray(tokens.var(-1, ddof=1) / tokens.shape[-1] / tokens.mean(-1) ** 2)


# --- crossed clusters: conversations and time ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossed:
    """Variance of a sum of residuals over (conversation, block of time) cells, with its parts."""

    variance: Floats
    freedom: Floats
    shared: Floats  # by time beyond what conversations explain: what all in flight have in common
    between: Floats  # by conversation beyond what single cells explain: what one conversation does to several blocks


def two_way(cells: Floats, weights: Floats) -> Crossed:
    """``cells[..., r, k]``: the summed residuals of conversation r in block k; ``weights``: how much of the estimate each cell holds.

    Both ways are inflated by n / (n - 1) and have n - 1 degrees of freedom, with the *effective* n of their weights (at the ends of a
    window few requests are there to weigh); Satterthwaite's for their sum.
    """
    rows, blocks = (np.maximum(effective(weights.sum(axis)), 1 + 1e-9) for axis in (-1, -2))
    by_row = (cells.sum(-1) ** 2).sum(-1) * (rows / (rows - 1))
    by_time = (cells.sum(-2) ** 2).sum(-1) * (blocks / (blocks - 1))
    by_both = (cells**2).sum((-2, -1))
    shared = np.maximum(by_time - by_both, 0.0)
    variance = np.maximum(by_row + shared, by_time)
    spread = by_row**2 / np.maximum(rows - 1, 1.0) + shared**2 / np.maximum(blocks - 1, 1.0)
    freedom = np.divide((by_row + shared) ** 2, spread, out=np.asarray(rows - 1, dtype=np.float64).copy(), where=spread > 0)
    return Crossed(variance, freedom, shared, np.maximum(by_row - by_both, 0.0))


def crossed_interval(value: float, cells: Floats, weights: Floats, *, level: float = LEVEL) -> Interval:
    """Interval of a positive estimate whose error is the sum of ``cells``, on the log scale."""
    clusters = int(np.count_nonzero(weights.sum(-1)))
    if clusters < MIN_CLUSTERS:
        return Interval(value, None, None, "none: fewer than three conversations", clusters)
    if value <= 0:
        return Interval(value, None, None, "none: the estimate is not positive", clusters)
    crossed = two_way(cells, weights)
    factor = float(_factor(t_quantile(crossed.freedom, level) * np.sqrt(crossed.variance) / value))
    return Interval(value, value / factor, value * factor, "two-way clustered t: conversations and blocks of time", clusters)


# --- quantiles -----------------------------------------------------------------------------------------------------------------


def may_give_quantile(q: float, n: int) -> bool:
    """Whether n values say anything about the quantile q: ten of them must be expected beyond it."""
    return n * (1 - q) >= 10 - 1e-9


def quantile_interval(values: Floats, q: float, rows: NDArray[np.intp], cols: NDArray[np.intp], *, level: float = LEVEL) -> Interval:
    """The quantile q by linear interpolation. ``rows``, ``cols``: conversation and block of time of each value, as small integers.

    The bounds are the sample's own quantiles at the exact binomial bounds of q for the effective sample size (Korn and Graubard 1998);
    a bound beyond the sample is no bound, and the interval is then not given.
    """
    value = float(np.quantile(values, q))
    weights = cell_sums(rows, cols, np.ones_like(values))
    clusters = int(np.count_nonzero(weights.sum(-1)))
    if clusters < MIN_CLUSTERS:
        return Interval(value, None, None, "none: fewer than three conversations", clusters)
    n = values.size
    cells = cell_sums(rows, cols, (values <= value) - q) / n
    crossed = two_way(cells, weights)
    size = float(np.clip(q * (1 - q) / max(float(crossed.variance), 1e-300), 1.0, n))
    tail = (1 - level) / 2
    stretch = float(special.ndtri(1 - tail) / t_quantile(crossed.freedom, level)) ** 2
    size = max(size * stretch, 1.0)
    hits = q * size
    low_q = float(special.betaincinv(hits, size - hits + 1, tail))
    high_q = float(special.betaincinv(hits + 1, size - hits, 1 - tail))
    if not (1 / (n + 1) <= low_q and high_q <= n / (n + 1)):
        return Interval(value, None, None, "none: a bound lies beyond the sample", clusters)
    low, high = np.quantile(values, [low_q, high_q])
    return Interval(value, float(low), float(high), "order statistics at the two-way effective size", clusters)


def cell_sums(rows: NDArray[np.intp], cols: NDArray[np.intp], values: ArrayLike) -> Floats:
    """Sums of ``values`` by (row, column) as a dense table."""
    r, k = int(rows.max(initial=0)) + 1, int(cols.max(initial=0)) + 1
    flat = np.bincount(rows * k + cols, weights=np.asarray(values, dtype=np.float64), minlength=r * k)
    return np.asarray(flat.reshape(r, k))


# --- small parts ---------------------------------------------------------------------------------------------------------------


def effective(weights: Floats) -> Floats:
    """How many equal units weigh as much: (Σw)² / Σw² over the last axis."""
    squares = (weights**2).sum(-1)
    return np.asarray(np.divide(weights.sum(-1) ** 2, squares, out=np.zeros_like(squares), where=squares > 0))


def t_quantile(freedom: Floats, level: float) -> Floats:
    """Two-sided critical value of Student's t; below one degree of freedom it is taken as one."""
    return np.asarray(special.stdtrit(np.maximum(freedom, 1.0), 0.5 + level / 2))


def _factor(log_reach: Floats) -> Floats:
    """The half width of an interval on the log scale as a factor; kept finite where hardly anything is known."""
    return np.asarray(np.exp(np.minimum(log_reach, 300.0)))


def _pair(num: ArrayLike, den: ArrayLike) -> tuple[Floats, Floats]:
    n, d = np.asarray(num, dtype=np.float64), np.asarray(den, dtype=np.float64)
    if n.shape != d.shape or n.ndim != 1:
        raise ValueError(f"numerators and denominators must be two equal rows of numbers, not of shapes {n.shape} and {d.shape}")
    keep = d > 0
    if not keep.any():
        raise ValueError("no conversation has a denominator above 0")
    return n[keep], d[keep]


def _blocks(tokens_per_block: ArrayLike, block_s: float) -> Floats:
    tokens = np.asarray(tokens_per_block, dtype=np.float64)
    if tokens.ndim != 1 or tokens.size == 0 or not block_s > 0:
        raise ValueError(f"blocks of time must be one row of token counts and block_s above 0, not shape {tokens.shape} and {block_s} s")
    return tokens
