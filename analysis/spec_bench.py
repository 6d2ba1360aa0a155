"""What was drafted and accepted, counted as ``llama-spec-bench`` counts it: for its report formats, and for nothing else of specsweep.

Three of its definitions differ from ours on purpose, and a comparison with its numbers needs exactly them. Acceptance length is
1 + accepted tokens / drafts: steps for which nothing was drafted are no steps. The conditional rate at a position is accepted there /
accepted one position before, whether or not the draft was long enough to reach it. And sums are pooled: no mean of means, no interval.

One of its habits is not followed: where there is nothing to divide by it writes 0, which reads like a measured rate. Here it is None.
Counts come from the server's own word, step by step; where an engine gives only totals of a request, positions are not guessed from
the sizes of chunks. They are None, and the reason stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specsweep.analysis.acceptance import UNKNOWN, has_server_lists
from specsweep.client.trace import Turn

SERVER_STEPS = "the server's count of each step"
STREAM_STEPS = "the steps of the stream, proved by the server's counters"
SERVER_TOTALS = "the server's totals of each request"
TOTALS_ONLY = "the engine tells how much it drafted and accepted in a request, not at which position"
SILENT = "the engine's stream does not say what was drafted"


@dataclass(frozen=True, slots=True)
class Stage:
    """Counts of one drafting stage over one or more requests. None: not known, then ``reason`` says why.

    Position tuples count from draft position 1; they are as long as the longest draft, and empty if nothing was drafted.
    """

    type: str  # the drafter's method
    num_drafts: int | None
    accepted_drafts: int | None  # drafts of which at least one token was accepted
    draft_tokens: int | None
    accepted_tokens: int | None
    drafted_by_position: tuple[int, ...] | None
    accepted_by_position: tuple[int, ...] | None
    counts_from: str = ""
    reason: str = ""

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens."""
        return _ratio(self.accepted_tokens, self.draft_tokens)

    @property
    def acceptance_length(self) -> float | None:
        """1 + accepted tokens / drafts: the definition of this format only."""
        more = _ratio(self.accepted_tokens, self.num_drafts)
        return None if more is None else 1.0 + more

    @property
    def draft_tokens_per_step(self) -> float | None:
        return _ratio(self.draft_tokens, self.num_drafts)

    @property
    def acceptance_rate_by_position(self) -> list[float | None] | None:
        """Accepted at a position / drafted at it; None at a position that no draft had."""
        if self.drafted_by_position is None or self.accepted_by_position is None:
            return None
        return [_ratio(a, d) for a, d in zip(self.accepted_by_position, self.drafted_by_position, strict=True)]

    @property
    def conditional_acceptance_rate(self) -> list[float | None] | None:
        """Accepted at a position / accepted at the one before; None at the first, and where nothing was accepted before."""
        if self.accepted_by_position is None:
            return None
        accepted = self.accepted_by_position
        return [None if i == 0 else _ratio(accepted[i], accepted[i - 1]) for i in range(len(accepted))]


def stage_of(turn: Turn, method: str) -> Stage:
    """What one answer of a server with drafter ``method`` says, from the best witness there is."""
    if has_server_lists(turn):
        return _counted(method, turn.srv_drafted_per_step, turn.srv_accepted_per_step, SERVER_STEPS)
    if turn.srv_steps == 0 or turn.srv_drafted == 0:
        return Stage(method, 0, 0, 0, 0, (), (), SERVER_TOTALS)
    drafted, accepted = turn.step_drafted[1:], turn.step_accepted[1:]
    proved = turn.step_state in ("exact", "repaired") and len(turn.step_drafted) == len(turn.step_accepted) == len(turn.step_tokens)
    if proved and drafted and UNKNOWN not in drafted and UNKNOWN not in accepted:
        return _counted(method, drafted, accepted, STREAM_STEPS)
    totals = turn.srv_steps, turn.srv_drafted, turn.srv_accepted
    known = any(n is not None for n in totals)
    return Stage(
        method, totals[0], None, totals[1], totals[2], None, None, SERVER_TOTALS if known else "", TOTALS_ONLY if known else SILENT
    )


def total(method: str, stages: Sequence[Stage]) -> Stage:
    """The pooled counts. One request whose count is not known makes the sum not known: half of a sum is no sum."""

    def added(values: Sequence[int | None]) -> int | None:
        return None if None in values else sum(v for v in values if v is not None)

    def positions(lists: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
        known = [found for found in lists if found is not None]
        if len(known) < len(lists):
            return None
        return tuple(sum(found[i] for found in known if i < len(found)) for i in range(max(map(len, known), default=0)))

    silent = [s.reason for s in stages if s.reason]
    sources = dict.fromkeys(s.counts_from for s in stages if s.counts_from and s.num_drafts != 0)
    return Stage(
        method,
        added([s.num_drafts for s in stages]),
        added([s.accepted_drafts for s in stages]),
        added([s.draft_tokens for s in stages]),
        added([s.accepted_tokens for s in stages]),
        positions([s.drafted_by_position for s in stages]),
        positions([s.accepted_by_position for s in stages]),
        "; ".join(sources) or (SERVER_TOTALS if stages else ""),
        f"of {len(silent)} of {len(stages)} requests: {silent[0]}" if silent else "",
    )


def _counted(method: str, drafted: Sequence[int], accepted: Sequence[int], source: str) -> Stage:
    drafts = [(d, a) for d, a in zip(drafted, accepted, strict=True) if d > 0]
    longest = max((d for d, _ in drafts), default=0)
    return Stage(
        method,
        len(drafts),
        sum(a > 0 for _, a in drafts),
        sum(d for d, _ in drafts),
        sum(a for _, a in drafts),
        tuple(sum(d >= i for d, _ in drafts) for i in range(1, longest + 1)),
        tuple(sum(a >= i for _, a in drafts) for i in range(1, longest + 1)),
        source,
    )


def _ratio(above: int | None, below: int | None) -> float | None:
    return above / below if above is not None and below else None
