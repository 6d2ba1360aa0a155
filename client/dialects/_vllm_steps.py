"""Steps of a vLLM answer: from chunks, and from as much truth as the server gives.

From the strongest to the weakest: the per-step list (``detailed``), the histogram (``summary``), the fact that a chunk of one
token can only be one step, and the mere absence of a contradiction. What was concluded is ``step_state``; why, the notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from specsweep.client.dialects._walk import UNKNOWN, Step, walk
from specsweep.client.trace import StepState, Turn


def fill_steps(turn: Turn, truth: dict[str, Any] | None, draft_length: int | None, finish: str) -> None:
    """Fills every ``step_*`` and ``srv_*`` field of a turn whose chunks are filled."""
    _server_truth(turn, truth)
    chunks = turn.chunk_tokens
    if not chunks:
        return
    if not turn.ids_complete:
        _as_chunks(turn, "unknown", "")
        return
    per_step = turn.srv_accepted_per_step
    if truth is not None and len(per_step) == (turn.srv_steps or 0) == len(turn.srv_drafted_per_step):
        result = walk(chunks, per_step, turn.srv_drafted_per_step)
        if result.state == "merged":
            _as_chunks(turn, "merged", result.why)
        else:
            _as_steps(turn, result.steps, result.state, result.why)
    elif truth is not None:
        _by_histogram(turn, truth)
    else:
        _without_truth(turn, draft_length, finish)


def _server_truth(turn: Turn, truth: dict[str, Any] | None) -> None:
    if truth is None:
        return
    turn.srv_steps = truth.get("num_spec_steps")
    turn.srv_accepted = truth.get("num_accepted_draft_tokens")
    turn.srv_drafted = truth.get("num_draft_tokens")
    turn.srv_accepted_per_step = list(truth.get("per_step_accepted") or ())
    turn.srv_drafted_per_step = list(truth.get("per_step_drafted") or ())


def _as_steps(turn: Turn, steps: Sequence[Step], state: StepState, why: str) -> None:
    times = turn.chunk_t_ns
    turn.step_t_ns = [times[0], *(times[s.chunk] for s in steps)]
    turn.step_tokens = [1, *(s.tokens for s in steps)]
    turn.step_drafted = [0, *(s.drafted for s in steps)]
    turn.step_accepted = [0, *(s.accepted for s in steps)]
    turn.step_state = state
    turn.last_cut = bool(steps) and steps[-1].tokens < steps[-1].accepted + 1
    if why:
        turn.notes.append(why)


def _as_chunks(turn: Turn, state: StepState, why: str, *, drafted: int = UNKNOWN) -> None:
    """Chunks in place of steps, where more cannot be told."""
    chunks = turn.chunk_tokens
    turn.step_t_ns = list(turn.chunk_t_ns)
    turn.step_tokens = list(chunks)
    turn.step_drafted = [0, *[drafted] * (len(chunks) - 1)]
    known = state in ("exact", "assumed")
    turn.step_accepted = [0, *((n - 1 if known else UNKNOWN) for n in chunks[1:])]
    turn.step_state = state
    if why:
        turn.notes.append(why)


def _by_histogram(turn: Turn, truth: dict[str, Any]) -> None:
    """Totals and a histogram only. One step a chunk is proved if every accepted count but the last occurs as often as the
    server says: each merge would take two steps out of the histogram and put another one in."""
    sizes = turn.chunk_tokens
    histogram = {k: n for k, n in enumerate(truth.get("acceptance_histogram") or ()) if n}
    seen = Counter(n - 1 for n in sizes[1:-1])
    left = {k: histogram.get(k, 0) - seen.get(k, 0) for k in {*histogram, *seen} if k > 0}
    last = {k: n for k, n in left.items() if n}  # what must be the last step: one of at least its size, or nothing
    undrafted = len(sizes) - 1 - (turn.srv_steps or 0)
    fits = undrafted >= 0 and sizes[0] == 1 and (not last or (list(last.values()) == [1] and next(iter(last)) >= sizes[-1] - 1))
    if len(sizes) == 1:
        fits = sizes[0] == 1 and not histogram
    elif not last:
        fits = fits and sizes[-1] == 1
    if not fits:
        _as_chunks(turn, "merged", "chunk sizes do not agree with the server's acceptance histogram: some chunks held several steps")
        return
    length = truth.get("num_spec_tokens") or 0
    full = turn.srv_drafted == (turn.srv_steps or 0) * length
    _as_chunks(turn, "exact", "", drafted=length if full and undrafted == 0 else UNKNOWN)
    if len(sizes) > 1 and last:
        turn.step_accepted[-1] = next(iter(last))
        turn.last_cut = turn.step_accepted[-1] + 1 > sizes[-1]
    if full and undrafted:
        turn.step_drafted = [0, *(length if n > 1 else UNKNOWN for n in sizes[1:])]


def _without_truth(turn: Turn, draft_length: int | None, finish: str) -> None:
    sizes = turn.chunk_tokens
    largest = max(sizes)
    if draft_length == 0 and largest > 1:
        steps = [Step(i, 1, 0, 0) for i, n in enumerate(sizes) for _ in range(n)][1:]
        merged = sum(n > 1 for n in sizes)
        _as_steps(
            turn,
            steps,
            "repaired",
            f"{merged} of {len(sizes)} chunks held several tokens though nothing is drafted: split; their times are lost",
        )
    elif largest == 1:
        counted = turn.n_completion_server is not None
        _as_chunks(turn, "exact" if counted else "assumed", "", drafted=UNKNOWN if draft_length else 0)
        turn.last_cut = bool(draft_length) and finish == "length" and len(sizes) > 1
    elif draft_length is None:
        _as_chunks(
            turn, "unknown", f"chunks of up to {largest} tokens: steps if something is drafted, merged if not; give the draft length"
        )
    elif sizes[0] > 1 or largest > draft_length + 1:
        why = (
            f"the first chunk holds {sizes[0]} tokens" if sizes[0] > 1 else f"a chunk holds {largest} tokens at draft length {draft_length}"
        )
        _as_chunks(turn, "merged", f"{why}: chunks were merged, and the server gives no per-step truth to split them")
    else:
        _as_chunks(turn, "assumed", "")
        turn.last_cut = len(sizes) > 1 and bool(finish) and sizes[-1] < draft_length + 1
