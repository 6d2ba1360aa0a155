"""Steps of an SGLang answer: chunks against the totals in its last event.

SGLang emits one output a decode step and counts every one of them as a verify step, an n-gram miss too
(``spec_verify_ct``); so as many chunks as verify steps, besides the first, prove that none was merged. The totals (and from
0.5.23 the histogram) are before the cut by the output cap, which tells how much the last step lost. There is no per-step
list: merged chunks cannot be split, but where nothing is drafted, where each token is a step.

A retraction (preemption) prefills again and emits one undrafted token more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from specsweep.client.dialects._plausible import count
from specsweep.client.dialects._steps import as_chunks, without_truth
from specsweep.client.dialects._walk import UNKNOWN
from specsweep.client.trace import Turn

_COUNTS = (
    "spec_verify_ct",
    "spec_num_correct_drafts",
    "spec_accept_token_num",
    "spec_num_proposed_drafts",
    "spec_draft_token_num",
)


def fill_steps(turn: Turn, last: dict[str, Any], draft_length: int | None, finish: str) -> None:
    """``last``: ``meta_info`` of the final event; empty if it never came. Fills every ``step_*`` and ``srv_*`` field."""
    for name in _COUNTS:
        if last.get(name) is not None:
            count(name, last[name])
    turn.srv_steps = last.get("spec_verify_ct")
    turn.srv_accepted = last.get("spec_num_correct_drafts", last.get("spec_accept_token_num"))
    turn.srv_drafted = last.get("spec_num_proposed_drafts", last.get("spec_draft_token_num"))
    if not turn.chunk_tokens:
        return
    if not turn.ids_complete:
        as_chunks(turn, "unknown", "")
    elif turn.srv_steps is None:
        without_truth(turn, draft_length, finish)
    else:
        _against_totals(turn, last, draft_length)


def _against_totals(turn: Turn, last: dict[str, Any], draft_length: int | None) -> None:
    sizes = turn.chunk_tokens
    verify = turn.srv_steps or 0
    retracted = count("num_retractions", last.get("num_retractions", last.get("total_retractions")) or 0)
    steps = len(sizes) - 1
    if sizes[0] != 1 or steps != verify + retracted:
        why = f"{verify} verify steps" + (f" and {retracted} retractions" if retracted else "")
        as_chunks(turn, "merged", f"{len(sizes)} chunks, the first of {sizes[0]} tokens, for {why} after the first token: merged chunks")
        return
    accepted = [n - 1 for n in sizes[1:]]
    shown = sum(accepted)
    cut = 0 if turn.srv_accepted is None else turn.srv_accepted - shown
    if cut < 0 or (cut and not steps):
        as_chunks(turn, "unknown", f"the chunks hold {shown} accepted tokens, the server counted {turn.srv_accepted}")
        return
    if steps:
        accepted[-1] += cut
    if cut and draft_length is not None and accepted[-1] > draft_length:
        why = f"the last step would have accepted {accepted[-1]} tokens at draft length {draft_length}"
        as_chunks(turn, "unknown", f"the chunks hold {shown} accepted tokens, the server counted {turn.srv_accepted}: {why}")
        return
    if not _fits(accepted, last.get("spec_correct_drafts_histogram"), retracted):
        as_chunks(turn, "unknown", "chunk sizes do not agree with the server's histogram of accepted drafts")
        return
    # Proposed is nominal, the same for every verify step; which of the single tokens a retraction emitted cannot be told.
    nominal = turn.srv_drafted // verify if turn.srv_drafted and verify else UNKNOWN
    as_chunks(turn, "exact", "", drafted=nominal)
    turn.step_accepted = [0, *accepted]
    if retracted:
        turn.step_drafted = [0, *(nominal if a else UNKNOWN for a in accepted)]
        turn.notes.append(f"the server retracted this request {retracted} times: its steps hold prefills")
    turn.last_cut = cut > 0


def _fits(accepted: list[int], histogram: list[int] | None, retracted: int) -> bool:
    """``histogram``: index = accepted drafts of a step (0.5.23). Each retraction is a step of one token outside it."""
    if histogram is None:
        return True
    wanted = Counter({k: n for k, n in enumerate(histogram) if n})
    wanted[0] += retracted
    return Counter(accepted) == +wanted
