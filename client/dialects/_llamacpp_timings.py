"""llama-server's ``timings`` of one event, taken only if they can follow those of the event before.

Steps are rebuilt from differences of these counters, so one that falls back, or leaps, would be answered with steps that never were,
as many as the leap. What bounds them is the stream itself: a token that is no event ended inside a character, which has four bytes
at most, and a verify step gives at least one token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specsweep.client.dialects._llamacpp_steps import Event
from specsweep.client.dialects._plausible import MOST_DRAFTED, amount, count

# Three silent tokens begin a character; tokens without any bytes can stand between them, and a model that repeats those is possible.
_MOST_SILENT = 64
_MOST_STEPS_AT_ONCE = 2


def timing(t_ns: int, timings: Mapping[str, Any], before: Event | None) -> Event:
    """Raises ``ValueError`` naming the field for anything that cannot follow ``before``. The event after the last token may repeat it."""
    n = count("predicted_n", timings["predicted_n"])
    ms = amount("predicted_ms", timings["predicted_ms"])
    drafted = count("draft_n", timings.get("draft_n", 0))
    accepted = count("draft_n_accepted", timings.get("draft_n_accepted", 0))
    _, n_before, ms_before, drafted_before, accepted_before = before or (0, 0, 0.0, 0, 0)
    for name, now, then in (
        ("predicted_n", n, n_before),
        ("predicted_ms", ms, ms_before),
        ("draft_n", drafted, drafted_before),
        ("draft_n_accepted", accepted, accepted_before),
    ):
        if now < then:
            raise ValueError(f"{name} fell from {then} to {now} within one answer")
    if accepted > drafted:
        raise ValueError(f"draft_n_accepted is {accepted} of draft_n {drafted}: more than was drafted")
    new = n - n_before
    if new > _MOST_SILENT + 1:
        raise ValueError(f"predicted_n rose from {n_before} to {n} between two events: no {new - 1} tokens are without an event")
    if drafted - drafted_before > (new + 1) * MOST_DRAFTED:
        raise ValueError(f"draft_n rose from {drafted_before} to {drafted} over {new} tokens: at most {MOST_DRAFTED} a step are possible")
    return t_ns, n, ms, drafted, accepted


def require_clock(events: Sequence[Event]) -> None:
    """Two steps can share one ``predicted_ms``, but no clock stands still over an answer. Raises ``ValueError``."""
    (_, n, ms, _, _), (_, n_last, ms_last, _, accepted) = events[0], events[-1]
    steps = n_last - n - accepted  # at least: what the first event's own step accepted is in its counters already
    if steps > _MOST_STEPS_AT_ONCE and ms_last <= ms:
        raise ValueError(f"predicted_ms is {ms:g} at token {n} and still {ms_last:g} at token {n_last}, {steps} steps later: no clock")
