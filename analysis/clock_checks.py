"""Could what is not known of the clients' clocks have moved a figure? Only asked of a point whose client processes stamped on several.

Stamps of all hosts lie on one time line, each within a known bound B of its true moment (``clock_bound_ns`` of its process's report). Most
figures do not feel it: TTFT, latencies, user TPS and step times are between stamps of one request, one process, one clock. Two do:

* **Output TPS** counts the tokens of all processes between two moments. First order: tokens come at a steady rate, and an error that a
  clock has throughout moves as many tokens into the window at one end as out of it at the other. What is left is the part of the error
  that differs between the ends, at most 2 B, and with it a share of at most 2 B / window of the tokens. Over the whole span, which is
  longer, it is less.
* **step_ms_decode** leaves out the gaps between steps that another request's send → first token overlaps. An error of B makes gaps
  that begin or end within B of such an edge fall on its wrong side. How much that moves the figure depends on how unlike those gaps
  are, so it is tried: the stamps of each clock are moved to either end of its bound, and the figure is made again. The largest changes
  of the clocks are added up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsweep.analysis.check import Check
from specsweep.analysis.timing import Gaps, undisturbed
from specsweep.client.trace import ActorReport, RequestTrace

MAX_CLOCK_SHARE = 0.01


def clock_checks(actors: Sequence[ActorReport], window_s: float, step_share: float | None) -> list[Check]:
    """None for processes of one clock. ``step_share``: of :func:`step_share`; None: the point has no such figure."""
    foreign = [a for a in actors if a.clock]
    if not foreign:
        return []
    worst = max(foreign, key=lambda a: a.clock_bound_ns)
    bound_s = worst.clock_bound_ns / 1e9
    share = 2 * bound_s / window_s if window_s > 0 else 1.0
    text = (
        f"stamps of {len({a.clock for a in foreign})} other clocks are translated to within {1e3 * bound_s:.3f} ms (the worst: actor "
        f"{worst.actor} on {worst.host}), over a window of {window_s:.2f} s"
    )
    checks = [Check("clock_bound", share, MAX_CLOCK_SHARE, share <= MAX_CLOCK_SHARE, ("tps",), text)]
    if step_share is not None:
        text = f"within that bound step_ms_decode could be {step_share:.2%} higher or lower"
        checks.append(Check("clock_bound_step", step_share, MAX_CLOCK_SHARE, step_share <= MAX_CLOCK_SHARE, ("steps",), text))
    return checks


def step_share(gaps: Gaps, everybody: Sequence[RequestTrace], actors: Sequence[ActorReport]) -> float | None:
    """By which share of itself the mean or the median of the undisturbed gaps could move; 1 if none might be left.

    None if there is only one clock, or not one undisturbed gap. ``gaps``: of the steady window.
    """
    clocks: dict[str, list[ActorReport]] = {}
    for actor in actors:
        if actor.clock:
            clocks.setdefault(actor.clock, []).append(actor)
    if not clocks or (found := _mean_and_median(gaps, everybody, {})) is None:
        return None
    total = 0.0
    for members in clocks.values():
        moved = []
        for sign in (-1, 1):
            there = _mean_and_median(gaps, everybody, {a.actor: sign * a.clock_bound_ns for a in members})
            moved.append(1.0 if there is None else float(np.abs(there / found - 1).max()))
        total += max(moved)
    return min(total, 1.0)


def _mean_and_median(
    gaps: Gaps, everybody: Sequence[RequestTrace], late_ns: dict[int, int]
) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    clean = gaps.ms[undisturbed(gaps, everybody, late_ns)]
    return np.array([clean.mean(), np.median(clean)]) if clean.size and clean.sum() > 0 else None
