"""Decoding steps out of llama-server's timings.

llama-server sends one event a token, so a verify step of four tokens is four events, and a token whose bytes end inside a
UTF-8 sequence is no event at all. What tells steps apart is in ``timings``: ``predicted_ms`` is written once a step,
``draft_n`` and ``draft_n_accepted`` cumulate and rise before the tokens of the step leave, ``predicted_n`` counts every
token, the silent ones too. So a change of ``predicted_ms`` or of ``draft_n`` opens a step, and the counters say how large it must be:
``accepted + 1`` for a verify step, 1 for an undrafted one.

Where events and counters disagree (silent tokens, or two steps under one ``predicted_ms``), the structure is rebuilt: over any
stretch of N tokens with A accepted, exactly N - A steps were taken, whatever was seen of them. Totals stay exact; only
which of two adjacent hidden steps held a token is then a convention, and the time of a hidden step is that of the next event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Group:
    """Consecutive events of one step: token numbers are ``predicted_n`` (1 = the first token of the answer)."""

    first: int  # of the first event
    last: int  # of the last event
    events: int
    t_ns: int  # of the read that completed the last event
    ms: float
    drafted: int  # counters, cumulative
    accepted: int


@dataclass(slots=True)
class Steps:
    """The rebuilt steps; index 0 is the prefill step. ``repairs``: for people, empty if events and counters agree."""

    t_ns: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    silent: int = 0  # tokens that the server counted and never streamed

    def add(self, group: Group, tokens: int, drafted: int, accepted: int) -> None:
        self.t_ns.append(group.t_ns)
        self.ms.append(group.ms)
        self.tokens.append(tokens)
        self.drafted.append(drafted)
        self.accepted.append(accepted)

    @property
    def deficit(self) -> int:
        """How many tokens the newest step still owes by its counters."""
        return self.accepted[-1] + 1 - self.tokens[-1] if self.tokens else 0


Event = tuple[int, int, float, int, int]  # t_ns, predicted_n, predicted_ms, draft_n, draft_n_accepted


def group(events: Iterable[Event]) -> list[Group]:
    """Events with the same ``predicted_ms`` and ``draft_n`` belong together."""
    groups: list[Group] = []
    ms, drafts = -1.0, -1
    for t_ns, n, event_ms, draft_n, accepted_n in events:
        if event_ms == ms and draft_n == drafts:
            current = groups[-1]
            current.last, current.t_ns, current.accepted = n, t_ns, accepted_n
            current.events += 1
        else:
            groups.append(Group(n, n, 1, t_ns, event_ms, draft_n, accepted_n))
            ms, drafts = event_ms, draft_n
    return groups


def rebuild(groups: list[Group], end: Group | None, draft_length: int | None) -> Steps:
    """The steps of one answer.

    ``end``: the final event as a group without events, whose ``last`` is the server's token count; None if the stream
    was cut. ``draft_length``: the most that one step can draft; it only matters where several hidden steps share one
    jump of ``draft_n``.
    """
    steps = Steps()
    last = drafted = accepted = 0
    for current in [*groups, end] if end is not None and groups else groups:
        first = current.first if current.events else current.last + 1
        lost = first - last - 1
        steps.silent += lost + (current.last - first + 1 - current.events)
        size = current.last - last
        fill = min(max(steps.deficit, 0), lost)
        if fill:  # tokens without events that the step before still owed
            steps.tokens[-1] += fill
            size -= fill
        if size > 0:
            _place(steps, current, size, current.drafted - drafted, current.accepted - accepted, draft_length)
        last, drafted, accepted = current.last, current.drafted, current.accepted
    if steps.silent:
        steps.repairs.append(
            f"{steps.silent} tokens ended inside a character and sent no event; their steps follow from the server's counts"
        )
    return steps


def _place(steps: Steps, group: Group, size: int, drafted: int, accepted: int, draft_length: int | None) -> None:
    """Adds the steps of ``size`` new tokens among which ``accepted`` of ``drafted`` draft tokens were accepted."""
    hidden = group.first - (group.last - size) - 1  # silent tokens before the first event
    if not steps.tokens and drafted and size > 1:  # the first token is the prefill's, whatever was seen of it
        steps.add(group, 1, 0, 0)
        size, hidden = size - 1, max(hidden - 1, 0)
    least = -(-drafted // draft_length) if draft_length else min(drafted, 1)  # verify steps under this jump of draft_n
    count = max(size - accepted, least)
    if count <= 1:
        steps.add(group, size, drafted, accepted)
        return
    if count - 1 > hidden:
        shared = f"tokens {group.last - size + 1} to {group.last}"
        steps.repairs.append(f"{count} steps share one predicted_ms ({group.ms:g}, {shared}); split by the counters")
    verify = min(count, least)
    plain = [(1, 0, 0)] * (count - verify)
    verified = _shares(verify, drafted, accepted, draft_length)
    # Silent steps came before the step that shows; under one predicted_ms the counters rise first.
    for share in [*plain, *verified] if hidden else [*verified, *plain]:
        steps.add(group, *share)
    # More steps than tokens allow: the newest has silent tokens that are still to be counted.
    steps.tokens[-1] -= accepted + count - size


def _shares(verify: int, drafted: int, accepted: int, draft_length: int | None) -> list[tuple[int, int, int]]:
    """``(tokens, drafted, accepted)`` of the verify steps under one jump of the counters; the newest took what it could."""
    shares: list[tuple[int, int, int]] = []
    for remaining in range(verify, 0, -1):
        step_drafted = drafted if remaining == 1 else min(drafted, draft_length or drafted)
        drafted -= step_drafted
        step_accepted = max(0, accepted - drafted)
        accepted -= step_accepted
        shares.append((step_accepted + 1, step_drafted, step_accepted))
    return shares
