"""Acceptance: how many tokens a decode step brings, how many drafts the target takes, position by position.

Two lengths, both reported, because they answer different questions. ``al_decode`` is counted in the stream, over all decode steps
and after the output cap: it is the one that maps to speed. ``al_verify`` is counted over verify steps only and before any cut, as
servers do it. For a chain drafter they agree; for an n-gram drafter, which often has nothing to propose, they are far apart.

Only the first pass over the prompts counts, so that every prompt of a finite set weighs once, whatever the batch size made us repeat.
A stream in which chunks hold several steps has no steps to count: then only server counts are given, and the rest is absent with its
reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsweep.analysis.columns import Floats, Index, Ints, Mask, columns, flat, output_tokens, sums_by
from specsweep.analysis.stats import Interval, ratio_interval
from specsweep.client.trace import EngineCounters, RequestTrace, Turn

USABLE_STATES = ("exact", "repaired", "assumed")
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Steps:
    """One entry a decode step; the prefill step is not one. ``drafted``, ``accepted``: :data:`UNKNOWN` where the stream is silent."""

    request: Index
    cluster: Index
    clusters: int
    tokens: Ints
    drafted: Ints
    accepted: Ints
    cut: Mask  # the last step of a request that the cap or EOS may have shortened

    @property
    def verified(self) -> Mask:
        return self.drafted > 0


@dataclass(frozen=True, slots=True)
class Found:
    """A number with where it came from, or the reason why there is none."""

    interval: Interval | None
    source: str = ""
    reason: str = ""


def has_steps(turn: Turn) -> bool:
    return turn.step_state in USABLE_STATES


def why_no_steps(requests: Sequence[RequestTrace], *, split_is_fatal: bool = True) -> str:
    """Empty if every request's chunks can be read as steps; otherwise what stands against it, in words.

    ``split_is_fatal=False`` for a baseline: there a chunk of n tokens is known to be n steps, so a rare merge spoils no count.
    """
    if not requests:
        return "no request succeeded"
    states = [r.read.step_state for r in requests]
    merged, unknown = states.count("merged"), states.count("unknown")
    if merged and split_is_fatal:
        return f"chunks of {merged} of {len(requests)} requests hold several steps and cannot be split exactly"
    if unknown:
        return f"the streams of {unknown} of {len(requests)} requests say nothing about steps"
    return ""


def decode_steps(requests: Sequence[RequestTrace]) -> Steps:
    """The decode steps of requests whose steps are known (see :func:`why_no_steps`)."""
    table = columns(requests)
    reads = [r.read for r in requests]
    request = np.repeat(np.arange(len(reads), dtype=np.intp), [max(len(t.step_tokens) - 1, 0) for t in reads])
    tokens = flat([t.step_tokens[1:] for t in reads], np.int64)
    drafted = flat([_padded(t.step_drafted, len(t.step_tokens))[1:] for t in reads], np.int64)
    accepted = flat([_padded(t.step_accepted, len(t.step_tokens))[1:] for t in reads], np.int64)
    cut = np.zeros(request.size, dtype=np.bool_)
    ends = np.cumsum(np.bincount(request, minlength=len(reads))) - 1
    cut[[int(ends[i]) for i, t in enumerate(reads) if t.last_cut and len(t.step_tokens) > 1]] = True
    # A step that was not cut shows what was accepted by its size alone.
    accepted = np.where((accepted == UNKNOWN) & ~cut, tokens - 1, accepted)
    cluster = table.cluster[request] if request.size else request
    return Steps(request, cluster, len(table.clusters), tokens, drafted, accepted, cut)


def _padded(values: Sequence[int], length: int) -> Sequence[int]:
    return values if len(values) == length else [UNKNOWN] * length


def _per_cluster(steps: Steps, mask: Mask, weights: Ints | None = None) -> Floats:
    return sums_by(steps.cluster[mask], None if weights is None else weights[mask], groups=steps.clusters)


def _one_plus(extra: Floats, count: Floats) -> Interval | None:
    """1 + Σextra / Σcount: the interval is that of the extra tokens, which is never below none."""
    if not count.sum() > 0:
        return None
    more = ratio_interval(extra, count)
    low, high = (None if b is None else 1 + b for b in (more.low, more.high))
    return Interval(1 + more.value, low, high, more.method, more.n)


# --- acceptance length ---------------------------------------------------------------------------------------------------------


def al_decode(steps: Steps) -> Found:
    kept = ~steps.cut
    value = _one_plus(_per_cluster(steps, kept, steps.tokens - 1), _per_cluster(steps, kept))
    return Found(value, "decode steps of the stream", "" if value else "no request has a complete decode step")


def al_decode_request_mean(steps: Steps) -> Found:
    kept = ~steps.cut
    requests = int(steps.request.max()) + 1 if steps.request.size else 0  # of the last ones every step may be cut
    count = sums_by(steps.request[kept], groups=requests)
    extra = sums_by(steps.request[kept], steps.tokens[kept] - 1, groups=requests)
    seen = np.flatnonzero(count)
    if not seen.size:
        return Found(None, reason="no request has a complete decode step")
    cluster_of = np.zeros(count.size, dtype=np.intp)
    cluster_of[steps.request] = steps.cluster
    sums = sums_by(cluster_of[seen], extra[seen] / count[seen], groups=steps.clusters)
    return Found(_one_plus(sums, sums_by(cluster_of[seen], groups=steps.clusters)), "decode steps of the stream, request by request")


def histogram(steps: Steps) -> dict[int, int]:
    """How many complete decode steps brought 1, 2, 3 … tokens."""
    sizes, counts = np.unique(steps.tokens[~steps.cut], return_counts=True)
    return {int(s): int(c) for s, c in zip(sizes, counts, strict=True)}


def al_verify(requests: Sequence[RequestTrace], steps: Steps | None, counters: EngineCounters | None) -> Found:
    """1 + accepted / verify steps, from the best witness there is: the server request by request, the stream, the run's counters."""
    return _counted(requests, steps, counters, base="steps")


def acceptance_rate(requests: Sequence[RequestTrace], steps: Steps | None, counters: EngineCounters | None) -> Found:
    """accepted / verified draft tokens, from the same witnesses."""
    return _counted(requests, steps, counters, base="drafted")


def _counted(requests: Sequence[RequestTrace], steps: Steps | None, counters: EngineCounters | None, *, base: str) -> Found:
    reads = [r.read for r in requests]
    server = [(t.srv_accepted, t.srv_steps if base == "steps" else t.srv_drafted) for t in reads]
    what = "verify steps" if base == "steps" else "verified draft tokens"
    if reads and all(a is not None and b is not None for a, b in server):
        table = columns(requests)
        sums = [sums_by(table.cluster, np.array([p[i] for p in server], dtype=np.float64)) for i in (0, 1)]
        return _rate(sums[0], sums[1], base, f"accepted draft tokens / {what}, by the server's count of each request")
    if steps is not None and steps.tokens.size and bool((steps.drafted != UNKNOWN).all()):
        known = steps.verified & (steps.accepted != UNKNOWN)
        down = _per_cluster(steps, known, None if base == "steps" else steps.drafted)
        return _rate(_per_cluster(steps, known, steps.accepted), down, base, f"accepted draft tokens / {what}, by the steps of the stream")
    if counters is not None and counters.accepted_tokens is not None:
        below = counters.drafts if base == "steps" else counters.draft_tokens
        if below:
            value = counters.accepted_tokens / below
            value = 1 + value if base == "steps" else value
            single = Interval(value, None, None, "none: run totals have no conversations", 1)
            return Found(single, f"accepted draft tokens / {what}, engine counters over the whole point, ramp-up included")
        if below == 0:
            return Found(None, reason="the engine verified no draft")
    return Found(None, reason="neither the streams nor the engine's counters say how many drafts were verified")


def _rate(accepted: Floats, below: Floats, base: str, source: str) -> Found:
    if not below.sum() > 0:
        return Found(None, reason="the engine verified no draft on these prompts")
    return Found(_one_plus(accepted, below) if base == "steps" else ratio_interval(accepted, below, scale="logit"), source)


# --- conditional acceptance by position ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verified:
    """One entry a step, for rates by position. ``drafted``: 0 for an undrafted step, :data:`UNKNOWN` where only the size is unknown."""

    cluster: Index
    clusters: int
    drafted: Ints
    accepted: Ints
    proved: bool  # False: some undrafted steps may be among the drafted ones


def verified_steps(requests: Sequence[RequestTrace]) -> Verified:
    """What was drafted and accepted in each step, from the best witness of each request.

    The server's own per-step lists come first: they are complete and from before any cut. Otherwise the steps of the stream; where
    those do not say which steps were drafted, the server's count of verify steps does, because only steps that accepted nothing are in
    doubt, and for the rates it does not matter which of them they were.
    """
    table = columns(requests)
    drafted: list[Sequence[int]] = []
    accepted: list[Sequence[int]] = []
    proved = True
    for r in requests:
        d, a, sure = _witness(r.read)
        drafted.append(d)
        accepted.append(a)
        proved &= sure
    cluster = np.repeat(table.cluster, [len(d) for d in drafted])
    return Verified(cluster, len(table.clusters), flat(drafted, np.int64), flat(accepted, np.int64), proved)


def has_server_lists(turn: Turn) -> bool:
    """Whether the server told what it drafted and accepted step by step: then merged chunks hide nothing of acceptance."""
    return bool(turn.srv_drafted_per_step) and len(turn.srv_drafted_per_step) == len(turn.srv_accepted_per_step)


def _witness(turn: Turn) -> tuple[Sequence[int], Sequence[int], bool]:
    if has_server_lists(turn):
        return turn.srv_drafted_per_step, turn.srv_accepted_per_step, True
    drafted = list(_padded(turn.step_drafted, len(turn.step_tokens))[1:])
    accepted = list(_padded(turn.step_accepted, len(turn.step_tokens))[1:])
    if accepted and accepted[-1] == UNKNOWN and turn.last_cut:
        del drafted[-1], accepted[-1]
    sizes = turn.step_tokens[1:]
    accepted = [n - 1 if a == UNKNOWN else a for a, n in zip(accepted, sizes, strict=False)]
    in_doubt = [i for i, (d, a) in enumerate(zip(drafted, accepted, strict=True)) if d == UNKNOWN and a == 0]
    if not in_doubt:
        return drafted, accepted, True
    if turn.srv_steps is None:
        return drafted, accepted, False
    sure = len(drafted) - len(in_doubt) - drafted.count(0)
    for i in in_doubt[max(turn.srv_steps - sure, 0) :]:
        drafted[i] = 0
    return drafted, accepted, True


def conditional(steps: Verified, draft_length: int | None) -> tuple[list[dict[str, Any]], str]:
    """AR at positions 1…DL, and what the base is. A position that no step reached is listed with value null.

    A step reaches position i if it drafted at least i tokens and accepted the i - 1 before: a short draft is no rejection.
    """
    longest = int(np.maximum(steps.drafted, steps.accepted).max(initial=0))
    positions = draft_length if draft_length is not None else longest
    drafted = np.where(steps.drafted == UNKNOWN, max(positions, longest), steps.drafted)
    rows: list[dict[str, Any]] = []
    for i in range(1, positions + 1):
        reached = (drafted >= i) & (steps.accepted >= i - 1)
        hit = reached & (steps.accepted >= i)
        row: dict[str, Any] = {"position": i, "value": None, "ci_low": None, "ci_high": None}
        if reached.any():
            counts = [sums_by(steps.cluster[mask], groups=steps.clusters) for mask in (hit, reached)]
            interval = ratio_interval(counts[0], counts[1], scale="logit")
            row |= {"value": interval.value, "ci_low": interval.low, "ci_high": interval.high}
        rows.append(row | {"reached": int(reached.sum()), "accepted": int(hit.sum())})
    base = "steps that drafted this position" if steps.proved else "all decode steps: the stream does not say which were drafted"
    return rows, base


# --- totals for checks ---------------------------------------------------------------------------------------------------------


def stream_totals(requests: Sequence[RequestTrace]) -> Mapping[str, int | None]:
    """Σ over requests of verify steps, drafted and accepted tokens, as the stream's steps say; None where it cannot say.

    Falls back to the server's own count of a request where the stream has no steps.
    """
    totals: dict[str, int | None] = {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0, "generation_tokens": 0, "decode_steps": 0}

    def add(name: str, amount: int | None) -> None:
        before = totals[name]
        totals[name] = None if before is None or amount is None else before + amount

    for r in requests:
        t = r.read
        drafted, accepted = t.step_drafted[1:], t.step_accepted[1:]
        stream_knows = has_steps(t) and len(t.step_drafted) == len(t.step_tokens) and UNKNOWN not in drafted
        add("drafts", sum(d > 0 for d in drafted) if stream_knows else t.srv_steps)
        add("draft_tokens", sum(drafted) if stream_knows else t.srv_drafted)
        add("accepted_tokens", sum(accepted) if stream_knows and UNKNOWN not in accepted else t.srv_accepted)
        add("generation_tokens", output_tokens(r))
        add("decode_steps", max(len(t.step_tokens) - 1, 0) if has_steps(t) else None)
    return totals


def apparent_accepted(requests: Sequence[RequestTrace]) -> int:
    """Σ (tokens − 1) over the decode steps of the streams: what was accepted if each chunk is one step and none was cut."""
    return sum(n - 1 for r in requests if has_steps(r.read) for n in r.read.step_tokens[1:])
