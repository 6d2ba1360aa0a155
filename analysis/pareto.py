"""The Pareto frontier: total output rate against the rate that one user sees.

x is ``user_tps_mean`` and y is ``output_tps``; both are better when larger. Batch size trades one for the other, and what
a reader asks is which configuration gives more of one at the same value of the other. Points whose rates are not valid are
kept for the figure (hollow) and never enter a frontier: a point that the client may have slowed down must neither win
nor hide another one.

A measured frontier is noisy. A dominated point is therefore told apart from one that is dominated only within its interval:
``close`` means that no other point beats it beyond the intervals on even one axis.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specsweep.analysis.attempts import Cell, Estimate, panel_label, series_label

X_METRIC = "user_tps_mean"
Y_METRIC = "output_tps"

State = Literal["frontier", "close", "dominated", "invalid"]


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other point dominates, both coordinates larger-is-better, by falling x; O(n log n).

    p dominates q if it is at least as good in both coordinates and better in one. Equal points do not dominate each other:
    all of them stay. Raises ``ValueError`` for a coordinate that is not finite.
    """
    for i, (x, y) in enumerate(points):
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError(f"point {i} has a coordinate that is not finite: ({x}, {y})")
    kept: list[int] = []
    best = -math.inf
    for i in sorted(range(len(points)), key=lambda i: (-points[i][0], -points[i][1])):
        x, y = points[i]
        if y > best or (kept and points[kept[-1]] == (x, y)):
            kept.append(i)
            best = y
    return kept


def dominators(points: Sequence[tuple[float, float]]) -> list[int | None]:
    """For every dominated point a frontier point that dominates it (the one next to it in x); None on the frontier."""
    front = frontier(points)[::-1]  # rising x, so falling y
    on_front = set(front)
    xs = [points[i][0] for i in front]
    return [None if i in on_front else front[bisect_left(xs, x)] for i, (x, _) in enumerate(points)]


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """One mark of the Pareto figure. ``state`` is judged over all series of the panel, ``on_series_frontier`` within its own."""

    cell: Cell
    panel: str
    series: str
    x: Estimate  # tokens/s of one user
    y: Estimate  # tokens/s of all users together
    state: State
    on_series_frontier: bool
    dominated_by: Cell | None
    reason: str  # why it is invalid


def pareto(cells: Sequence[Cell], shown: set[str] | None = None) -> list[ParetoPoint]:
    """Every cell that has both rates, in the order of ``cells``, judged within its panel. ``shown``: see ``series_label``."""
    placed = [(c, x, y) for c in cells if (x := c.estimate(X_METRIC)) is not None and (y := c.estimate(Y_METRIC)) is not None]
    by_panel: dict[str, list[int]] = {}
    by_series: dict[tuple[str, str], list[int]] = {}
    for i, (cell, _, _) in enumerate(placed):
        if cell.valid("tps"):
            panel = panel_label(cell.axes)
            by_panel.setdefault(panel, []).append(i)
            by_series.setdefault((panel, series_label(cell.axes)), []).append(i)
    state: dict[int, State] = {}
    winner: dict[int, int] = {}
    for members in by_panel.values():
        beaten_by = dominators([(placed[i][1].value, placed[i][2].value) for i in members])
        front = [i for i, d in zip(members, beaten_by, strict=True) if d is None]
        for i, d in zip(members, beaten_by, strict=True):
            if d is None:
                state[i] = "frontier"
                continue
            winner[i] = members[d]
            clearly = any(clearly_dominates(placed[j][1:], placed[i][1:]) for j in front)
            state[i] = "dominated" if clearly else "close"
    own_front = set()
    for members in by_series.values():
        own_front |= {members[k] for k in frontier([(placed[i][1].value, placed[i][2].value) for i in members])}
    return [
        ParetoPoint(
            cell,
            panel_label(cell.axes, shown),
            series_label(cell.axes, shown),
            x,
            y,
            state.get(i, "invalid"),
            i in own_front,
            placed[winner[i]][0] if i in winner else None,
            cell.why_invalid("tps"),
        )
        for i, (cell, x, y) in enumerate(placed)
    ]


def clearly_dominates(p: tuple[Estimate, Estimate], q: tuple[Estimate, Estimate]) -> bool:
    """Whether p is at least as good in both, and better in one beyond the intervals."""
    at_least = all(a.value >= b.value for a, b in zip(p, q, strict=True))
    return at_least and any(a.value > b.value and not a.overlaps(b) for a, b in zip(p, q, strict=True))
