"""Where two arms change places along the batch size: brackets and intervals, never beyond what was measured.

A ratio of two arms is known at the batch sizes that were measured, each with an interval. It is taken to run straight between neighbours, log ratio
over log batch size, because steps grow by a power of the batch over such a span. All intervals of one pair hold together (Bonferroni), so
the band between their ends contains the whole true curve in 95 % of cases, and so do the places where the band contains 1: that is the
interval of a crossing. A crossing is *shown* only between two batch sizes at which the ratio lies clearly on different sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from specsweep.analysis.attempts import Estimate

Spot = tuple[int, Estimate]  # batch size and ratio there


@dataclass(frozen=True, slots=True)
class Crossing:
    """One change of places. ``below``, ``above``: the nearest measured batch sizes at which the ratio is clearly on either side of 1."""

    below: int
    above: int
    at: float | None  # where the interpolated ratio is 1; None where it is so more than once
    low: float
    high: float
    rising: bool  # the ratio goes from below 1 to above 1

    def __str__(self) -> str:
        about = "" if self.at is None else f" (about {self.at:.3g}; 95 % {self.low:.3g} to {self.high:.3g})"
        return f"between BS {self.below} and {self.above}{about}"


def side(ratio: Estimate) -> int:
    """1 clearly above 1, -1 clearly below, 0 neither."""
    if ratio.low is None or ratio.high is None:
        return 0
    return 1 if ratio.low > 1 else -1 if ratio.high < 1 else 0


def crossings(spots: Sequence[Spot]) -> list[Crossing]:
    """The crossings that are shown, in the order of the batch sizes. ``spots``: any order, each batch size once, ratios above 0, intervals that
    hold together. Raises ``ValueError`` for a batch size that is there twice."""
    ordered = sorted(spots, key=lambda s: s[0])
    if any(a[0] == b[0] for a, b in pairwise(ordered)):
        raise ValueError("crossings: a batch size is there twice")
    ordered = [(bs, r) for bs, r in ordered if r.has_interval]  # what has none puts no bound to the curve: its neighbours do
    decided = [i for i, (_, ratio) in enumerate(ordered) if side(ratio)]
    found = []
    for i, j in pairwise(decided):
        if side(ordered[i][1]) != side(ordered[j][1]):
            found.append(_crossing(ordered[i : j + 1]))
    return found


def _crossing(part: Sequence[Spot]) -> Crossing:
    """Of a stretch whose ends are clearly on different sides, with none between them that is clearly on any."""
    rising = side(part[-1][1]) > 0
    values = [(math.log(bs), math.log(r.value)) for bs, r in part]
    zeros = _zeros(values)
    # Where the ratio rises the upper end of the band reaches 1 first and the lower end last.
    first, last = ("high", "low") if rising else ("low", "high")
    early = _zeros([(math.log(bs), _log(getattr(r, first), r.value)) for bs, r in part])
    late = _zeros([(math.log(bs), _log(getattr(r, last), r.value)) for bs, r in part])
    at = math.exp(zeros[0]) if len(zeros) == 1 else None
    return Crossing(part[0][0], part[-1][0], at, math.exp(early[0]), math.exp(late[-1]), rising)


def _log(bound: float | None, value: float) -> float:
    return math.log(max(value if bound is None else bound, 1e-300))


def _zeros(line: Sequence[tuple[float, float]]) -> list[float]:
    """Where a line through these points is 0, in order, each place once."""
    found: list[float] = []
    for (x, y), (x2, y2) in pairwise(line):
        if y == 0:
            found.append(x)
        elif y * y2 < 0:
            found.append(min(max(x + (x2 - x) * y / (y - y2), x), x2))
    if line and line[-1][1] == 0:
        found.append(line[-1][0])
    return found


def statement(spots: Sequence[Spot], a: str, b: str) -> str:
    """One sentence about ``a`` over ``b`` at the batch sizes that were measured; it says nothing of others."""
    ordered = sorted(spots, key=lambda s: s[0])
    if not ordered:
        return f"{a} and {b} have no batch size in common"
    if len(ordered) == 1:
        (only,) = ordered
        word = {1: f"{a} is ahead", -1: f"{b} is ahead", 0: "no difference is shown"}[side(only[1])]
        return f"{word} at BS {only[0]}, the only one that both have: no crossing can be seen"
    found = crossings(ordered)
    if found:
        first = f"{b if found[0].rising else a} is ahead up to BS {found[0].below}"
        steps = [f"{a if c.rising else b} overtakes {c}" for c in found]
        return "; ".join([first, *steps])
    sides = [side(r) for _, r in ordered]
    span = f"from BS {ordered[0][0]} to {ordered[-1][0]}"
    if not any(sides):
        return f"no difference is shown {span}"
    leader = a if max(sides) > 0 else b
    unclear = [str(bs) for (bs, _), s in zip(ordered, sides, strict=True) if not s]
    return (
        f"{leader} is ahead {span}: they do not cross"
        if not unclear
        else (
            f"{leader} is ahead at BS {', '.join(str(bs) for (bs, _), s in zip(ordered, sides, strict=True) if s)}, no difference is shown at BS "
            f"{', '.join(unclear)}: no crossing is shown"
        )
    )
