"""From chunks to steps, for the wires on which a chunk carries the new ids of one decoding step, or of several that were merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from specsweep.client.dialects._stream import Json, coalesced, judge, open_stream, read_guarded
from specsweep.client.dialects._walk import UNKNOWN, Step
from specsweep.client.trace import Exchange, StepState, Turn

T = TypeVar("T")  # what an engine says of its own steps, beside the chunks


def read_answer(
    exchange: Exchange,
    n_prompt: int | None,
    draft_length: int | None,
    chunks: Callable[[Sequence[tuple[int, Json]], Turn], tuple[str, T]],
    steps: Callable[[Turn, T, int | None, str], None],
    *,
    counts_all: Callable[[Turn], bool],
) -> Turn:
    """An answer on a wire that ends with ``[DONE]``.

    ``chunks`` fills a turn's chunks and gives the finish reason and the engine's truth, from which ``steps`` fills its steps.
    ``counts_all``: whether the server's count must be that of the streamed ids.
    """

    def fill(turn: Turn) -> None:
        stream = open_stream(exchange, turn)
        if stream is None:
            return
        finish, truth = chunks(stream.events, turn)
        steps(turn, truth, draft_length, finish)
        turn.step_coalesced = coalesced(turn.step_t_ns)
        judge(turn, stream, exchange, terminated=stream.done, finish=finish, n_prompt=n_prompt, counts_all=counts_all(turn))

    return read_guarded(fill)


def as_steps(turn: Turn, steps: Sequence[Step], state: StepState, why: str) -> None:
    """``steps``: all after the prefill's, each with the chunk that holds it."""
    times = turn.chunk_t_ns
    turn.step_t_ns = [times[0], *(times[s.chunk] for s in steps)]
    turn.step_tokens = [1, *(s.tokens for s in steps)]
    turn.step_drafted = [0, *(s.drafted for s in steps)]
    turn.step_accepted = [0, *(s.accepted for s in steps)]
    turn.step_state = state
    turn.last_cut = bool(steps) and steps[-1].tokens < steps[-1].accepted + 1
    if why:
        turn.notes.append(why)


def as_chunks(turn: Turn, state: StepState, why: str, *, drafted: int = UNKNOWN) -> None:
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


def without_truth(turn: Turn, draft_length: int | None, finish: str) -> None:
    """Where the server says nothing about steps: single tokens prove themselves, all else is assumed until something contradicts."""
    sizes = turn.chunk_tokens
    largest = max(sizes)
    if draft_length == 0 and largest > 1:
        steps = [Step(i, 1, 0, 0) for i, n in enumerate(sizes) for _ in range(n)][1:]
        merged = sum(n > 1 for n in sizes)
        as_steps(
            turn,
            steps,
            "repaired",
            f"{merged} of {len(sizes)} chunks held several tokens though nothing is drafted: split; their times are lost",
        )
    elif largest == 1:
        counted = turn.n_completion_server is not None
        as_chunks(turn, "exact" if counted else "assumed", "", drafted=UNKNOWN if draft_length else 0)
        turn.last_cut = bool(draft_length) and finish == "length" and len(sizes) > 1
    elif draft_length is None:
        as_chunks(turn, "unknown", f"chunks of up to {largest} tokens: steps if something is drafted, merged if not; give the draft length")
    elif sizes[0] > 1 or largest > draft_length + 1:
        why = (
            f"the first chunk holds {sizes[0]} tokens" if sizes[0] > 1 else f"a chunk holds {largest} tokens at draft length {draft_length}"
        )
        as_chunks(turn, "merged", f"{why}: chunks were merged, and the server gives no per-step truth to split them")
    else:
        as_chunks(turn, "assumed", "")
        turn.last_cut = len(sizes) > 1 and bool(finish) and sizes[-1] < draft_length + 1
