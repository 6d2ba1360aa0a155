"""Steps of a vLLM answer: from chunks, and from as much truth as the server gives.

From the strongest to the weakest: the per-step list (``detailed``), the histogram (``summary``), the fact that a chunk of one
token can only be one step, and the mere absence of a contradiction. What was concluded is ``step_state``; why, the notes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from specsweep.client.dialects._plausible import accepted_of_drafted
from specsweep.client.dialects._steps import as_chunks, as_steps, without_truth
from specsweep.client.dialects._walk import UNKNOWN, walk
from specsweep.client.trace import Turn


def fill_steps(turn: Turn, truth: dict[str, Any] | None, draft_length: int | None, finish: str) -> None:
    """Fills every ``step_*`` and ``srv_*`` field of a turn whose chunks are filled."""
    _server_truth(turn, truth)
    chunks = turn.chunk_tokens
    if not chunks:
        return
    if not turn.ids_complete:
        as_chunks(turn, "unknown", "")
        return
    per_step = turn.srv_accepted_per_step
    if truth is not None and len(per_step) == (turn.srv_steps or 0) == len(turn.srv_drafted_per_step):
        result = walk(chunks, per_step, turn.srv_drafted_per_step)
        if result.state == "merged":
            as_chunks(turn, "merged", result.why)
        else:
            as_steps(turn, result.steps, result.state, result.why)
    elif truth is not None:
        _by_histogram(turn, truth)
    else:
        without_truth(turn, draft_length, finish)


def _server_truth(turn: Turn, truth: dict[str, Any] | None) -> None:
    if truth is None:
        return
    turn.srv_steps = truth.get("num_spec_steps")
    turn.srv_accepted = truth.get("num_accepted_draft_tokens")
    turn.srv_drafted = truth.get("num_draft_tokens")
    turn.srv_accepted_per_step = list(truth.get("per_step_accepted") or ())
    turn.srv_drafted_per_step = list(truth.get("per_step_drafted") or ())
    accepted_of_drafted(turn.srv_accepted_per_step, turn.srv_drafted_per_step)


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
        as_chunks(turn, "merged", "chunk sizes do not agree with the server's acceptance histogram: some chunks held several steps")
        return
    length = truth.get("num_spec_tokens") or 0
    full = turn.srv_drafted == (turn.srv_steps or 0) * length
    as_chunks(turn, "exact", "", drafted=length if full and undrafted == 0 else UNKNOWN)
    if len(sizes) > 1 and last:
        turn.step_accepted[-1] = next(iter(last))
        turn.last_cut = turn.step_accepted[-1] + 1 > sizes[-1]
    if full and undrafted:
        turn.step_drafted = [0, *(length if n > 1 else UNKNOWN for n in sizes[1:])]
