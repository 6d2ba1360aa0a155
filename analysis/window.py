"""The steady window of a point, and the proof from the trace that the wanted number of requests was in flight in it.

A closed loop at batch size BS has three parts. It fills: the first wave sends BS prompts at once, and until each of them has its
first token the engine is busy with prefills. It runs: a slot that ends is filled again. It drains: with nothing left to start, the
batch shrinks and every remaining request gets faster. Only the middle is the batch size that the point is named after. The window
therefore opens when the last request of the first wave has its first token and closes when the first client process has nothing left
to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from specsweep.client.trace import PointTrace, RequestTrace

MIN_SEND_GAP_NS = 5_000_000
SEND_GAP_SHARE = 0.01  # of the median request time: a slot that is empty for less is still counted as filled


@dataclass(frozen=True, slots=True)
class Window:
    """``ok`` False: there is no steady part; open and close then span the whole point, so that numbers exist, and ``reason`` says why."""

    open_ns: int
    close_ns: int
    ok: bool
    reason: str

    @property
    def seconds(self) -> float:
        return (self.close_ns - self.open_ns) / 1e9


@dataclass(frozen=True, slots=True)
class InFlight:
    """Requests in flight over the window; a gap between two requests of one slot up to ``tolerance_ms`` is bridged, and every gap between
    two turns of a conversation."""

    floor: int
    ceiling: int
    tolerance_ms: float
    longest_gap_ms: float
    idle_share: float  # of slot time that was spent in gaps between requests
    turn_gap_longest_ms: float = 0.0  # between two turns of one conversation; such gaps are in none of the figures above
    turn_gap_share: float = 0.0  # of slot time that was spent in them
    between_turns: int = 0  # slots at most that were in one at the same time


def steady_window(trace: PointTrace) -> Window:
    """Raises ``ValueError`` for a trace without requests."""
    if not trace.requests:
        raise ValueError("the trace holds no request: nothing was sent on this point")
    main = [r for r in trace.requests if r.phase == "main"]
    wave = [r for r in trace.requests if r.phase == "ramp" and not r.turn] or sorted(main, key=lambda r: r.t_send_ns)[: trace.batch_size]
    opens = max(_first_token(r) for r in wave)
    closes = min((a.t_queue_empty_ns for a in trace.actors), default=max(r.t_send_ns for r in trace.requests))
    whole_open = min(r.t_send_ns for r in trace.requests)
    whole_close = max(_end(r) for r in trace.requests)
    if not main:
        reason = "no request of the main phase was sent"
    elif closes <= opens:
        late = (opens - closes) / 1e6
        reason = (
            f"the queue was empty {late:.1f} ms before the last request of the first wave had its first token: "
            f"{len(main)} requests are too few for batch size {trace.batch_size}"
        )
    elif not any(opens <= r.t_send_ns <= closes for r in main):
        reason = f"none of the {len(main)} requests was started while the batch was full"
    else:
        return Window(opens, closes, True, "")
    return Window(whole_open, max(whole_close, whole_open + 1), False, reason)


def _first_token(request: RequestTrace) -> int:
    stamps = request.read.chunk_t_ns
    return stamps[0] if stamps else _end(request)


def _end(request: RequestTrace) -> int:
    last = request.read.chunk_t_ns[-1] if request.read.chunk_t_ns else request.t_send_ns
    return max(request.t_end_ns, last)


def in_flight(trace: PointTrace, window: Window) -> InFlight:
    """How many requests were in flight at least and at most between the window's ends, failed ones included."""
    requests = trace.requests
    send = np.array([r.t_send_ns for r in requests], dtype=np.int64)
    end = np.array([_end(r) for r in requests], dtype=np.int64)
    tolerance = max(MIN_SEND_GAP_NS, SEND_GAP_SHARE * float(np.median(end - send)))
    bridged = end.copy()
    gaps, turn_gaps = [], []
    for previous, following in _slot_neighbours(requests):
        gap = int(send[following] - end[previous])
        if requests[following].turn > 0:  # between two turns of a conversation the answer is parsed: that is not a missing request
            bridged[previous] = max(bridged[previous], send[following])
            if window.open_ns <= send[following] and end[previous] <= window.close_ns:
                turn_gaps.append((end[previous], max(end[previous], send[following])))
        elif window.open_ns <= send[following] and end[previous] <= window.close_ns:  # also a gap that lies across the opening
            gaps.append(gap)
            if gap <= tolerance:
                bridged[previous] = max(bridged[previous], send[following])
    floor = _levels(send, bridged, window).min()
    ceiling = _levels(send, end, window).max()
    slot_time = trace.batch_size * max(window.close_ns - window.open_ns, 1)
    idle = sum(max(g, 0) for g in gaps) / slot_time
    return InFlight(
        int(floor),
        int(ceiling),
        tolerance / 1e6,
        max(gaps, default=0) / 1e6,
        float(idle),
        *_between_turns(turn_gaps, slot_time, window),
    )


def _between_turns(gaps: Sequence[tuple[int, int]], slot_time: int, window: Window) -> tuple[float, float, int]:
    """The longest gap in ms, the share of slot time, and the most at once."""
    if not gaps:
        return 0.0, 0.0, 0
    starts, ends = np.array(gaps, dtype=np.int64).T
    lengths = ends - starts
    return float(lengths.max()) / 1e6, float(lengths.sum() / slot_time), int(_levels(starts, ends, window).max())


def _slot_neighbours(requests: Sequence[RequestTrace]) -> list[tuple[int, int]]:
    by_slot: dict[tuple[int, int], list[int]] = {}
    for i, r in enumerate(requests):
        by_slot.setdefault((r.actor, r.slot), []).append(i)
    pairs = []
    for members in by_slot.values():
        members.sort(key=lambda i: requests[i].t_send_ns)
        pairs += list(pairwise(members))
    return pairs


def _levels(starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any], window: Window) -> np.ndarray[Any, Any]:
    """The number in flight at the window's opening and after each change inside it."""
    times = np.concatenate([starts, ends])
    change = np.concatenate([np.ones(starts.size, np.int64), -np.ones(ends.size, np.int64)])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(change[order])
    # Several changes at one instant are one change: only the level after the last of them lasted for any time.
    lasting = np.append(times[1:] != times[:-1], True)
    times, level = times[lasting], level[lasting]
    at_open = level[np.searchsorted(times, window.open_ns, side="right") - 1] if times[0] <= window.open_ns else 0
    inside = (times > window.open_ns) & (times < window.close_ns)
    return np.concatenate([[at_open], level[inside]])


def describe(window: Window, flight: InFlight) -> dict[str, Any]:
    """The window as it is written into ``measurement.json``."""
    return {
        "open_ns": window.open_ns,
        "close_ns": window.close_ns,
        "seconds": window.seconds,
        "steady": window.ok,
        "reason": window.reason,
        "in_flight_floor": flight.floor,
        "in_flight_ceiling": flight.ceiling,
        "send_gap_tolerance_ms": flight.tolerance_ms,
        "send_gap_longest_ms": flight.longest_gap_ms,
        "slot_idle_share": flight.idle_share,
        "turn_gap_longest_ms": flight.turn_gap_longest_ms,
        "turn_gap_share": flight.turn_gap_share,
    }
