"""Two throughput curves set against each other: by how much one lies above the other, and at which batch size they cross.

A curve is output TPS over user TPS, a mark for each batch size. "Above" has two readings, and both are given by name:

* **at equal batch size**: the ratio of output TPS of the two marks with the same requests in flight; the mean gap is the geometric mean
  over the batch sizes that both curves have.
* **at equal user TPS**: the ratio of the two curves where they offer a user the same speed, read off between marks on the logarithms of both
  axes and averaged over the range that both curves cover.

Both rates of a mark come from the same seconds of the same run: a run that was 1 % fast is so in both. Each mark therefore has one error, in
both of its coordinates, and marks are independent. Curves that rise to the left make that the wider of the two choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce.arms import Arm
from specsweep.analysis.reproduce.claims import Verdict
from specsweep.analysis.reproduce.contrasts import above, at_most, propagated

GRID = 33  # places between the ends of the common range at which the gap is read
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mark:
    batch_size: int
    user_tps: Estimate  # tokens/s
    output_tps: Estimate  # tokens/s


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where a ratio by batch size passes 1. ``batch_size`` is interpolated on the logarithm; ``low`` and ``high`` bound the batch sizes at
    which the band of the ratio's interval holds 1. None: it does not cross within what was measured."""

    batch_size: float | None
    low: float | None
    high: float | None


def marks(arms: Sequence[Arm]) -> list[Mark]:
    """Of the cells whose speed the client could certify; the others are no marks. By rising batch size."""
    found = []
    for arm in arms:
        x, y = arm.estimate("user_tps_mean", "tps"), arm.estimate("output_tps", "tps")
        if x is not None and y is not None and x.value > 0 and y.value > 0:
            found.append(Mark(arm.batch_size, x, y))
    return sorted(found, key=lambda m: m.batch_size)


def gap_at_equal_batch_size(upper: Sequence[Mark], lower: Sequence[Mark]) -> tuple[Estimate | None, list[int]]:
    """Mean of output TPS of the first over the second, less 1 (0.23: 23 % above), and the batch sizes that both have."""
    a, b = ({m.batch_size: m.output_tps for m in curve} for curve in (upper, lower))
    common = sorted(a.keys() & b.keys())
    if not common:
        return None, []
    n = len(common)
    inputs = [a[s] for s in common] + [b[s] for s in common]
    return propagated(lambda logs: math.expm1(float(logs[:n].mean() - logs[n:].mean())), inputs), common


def gap_at_equal_user_tps(upper: Sequence[Mark], lower: Sequence[Mark]) -> tuple[Estimate | None, tuple[float, float] | None]:
    """The same where users are equally fast, and the range of user TPS that both curves cover; None where they share none."""
    if len(upper) < 2 or len(lower) < 2:
        return None, None
    x = [np.log([m.user_tps.value for m in curve]) for curve in (upper, lower)]
    y = [np.log([m.output_tps.value for m in curve]) for curve in (upper, lower)]
    left, right = max(float(v.min()) for v in x), min(float(v.max()) for v in x)
    if not left < right:
        return None, None
    at = np.linspace(left, right, GRID)
    n = len(upper)

    def mean_gap(shifted: Floats) -> float:
        shift = shifted - np.concatenate(y)  # the error of each mark, the same in both coordinates
        reads = [_read(x[0] + shift[:n], y[0] + shift[:n], at), _read(x[1] + shift[n:], y[1] + shift[n:], at)]
        return math.expm1(float((reads[0] - reads[1]).mean()))

    inputs = [m.output_tps for m in (*upper, *lower)]
    return propagated(mean_gap, inputs), (math.exp(left), math.exp(right))


def _read(x: Floats, y: Floats, at: Floats) -> Floats:
    """The curve at ``at``, going on along its last pieces a little beyond its ends, to which an error may have moved them."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    inside = np.interp(at, x, y)
    if len(x) < 2 or x[1] == x[0] or x[-1] == x[-2]:
        return inside
    below, beyond = y[0] + (at - x[0]) * (y[1] - y[0]) / (x[1] - x[0]), y[-1] + (at - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])
    return np.where(at < x[0], below, np.where(at > x[-1], beyond, inside))


def ratios(first: Sequence[Mark], second: Sequence[Mark]) -> dict[int, Estimate]:
    """Output TPS of the first over that of the second, by batch size."""
    a, b = ({m.batch_size: m.output_tps for m in curve} for curve in (first, second))
    return {s: propagated(lambda logs: math.exp(float(logs[0] - logs[1])), [a[s], b[s]]) for s in sorted(a.keys() & b.keys())}


def crossing(ratio: dict[int, Estimate]) -> Crossing:
    """Where the first stops being ahead. With several passages the one whose sides are furthest apart; the bounds span all of the band."""
    sizes = sorted(ratio)
    logs = {s: math.log(ratio[s].value) for s in sizes}
    passages = [(a, b) for a, b in pairwise(sizes) if logs[a] > 0 >= logs[b]]
    if not passages:
        return Crossing(None, None, None)
    a, b = max(passages, key=lambda p: logs[p[0]] - logs[p[1]])
    at = _between(a, b, logs[a], logs[b])
    low = high = at
    for a, b in pairwise(sizes):
        for end in _band(a, b, ratio[a], ratio[b]):
            low, high = min(low, end), max(high, end)
    return Crossing(at, low, high)


def _between(a: int, b: int, log_a: float, log_b: float) -> float:
    share = log_a / (log_a - log_b) if log_a != log_b else 0.5
    return float(2 ** (math.log2(a) + share * (math.log2(b) - math.log2(a))))


def _band(a: int, b: int, at_a: Estimate, at_b: Estimate) -> list[float]:
    """The ends, between two batch sizes, of where the interval of the ratio (its ends joined by lines) holds 1."""
    ends: list[float] = []
    for size, value in ((a, at_a), (b, at_b)):
        if value.low is not None and value.high is not None and value.low <= 1 <= value.high:
            ends.append(float(size))
    for one, other in ((at_a.low, at_b.low), (at_a.high, at_b.high)):
        if one is not None and other is not None and one > 0 and other > 0 and (one - 1) * (other - 1) < 0:
            ends.append(_between(a, b, math.log(one), math.log(other)))
    return ends


def crosses(ratio: dict[int, Estimate]) -> Verdict:
    """Whether the first is shown to be ahead at some batch size and behind at a larger one, and never the other way round."""
    ahead = [s for s, r in ratio.items() if above(r, 1) == "holds"]
    behind = [s for s, r in ratio.items() if at_most(r, 1) == "holds"]
    if ahead and behind:
        return "holds" if max(ahead) < min(behind) else "failed"
    sizes = sorted(ratio)
    if len(sizes) > 1 and (all(s in ahead for s in (sizes[0], sizes[-1])) or all(s in behind for s in (sizes[0], sizes[-1]))):
        return "failed"  # one is ahead at both ends
    return "not decidable"
