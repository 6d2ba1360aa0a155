"""Steps of a TensorRT-LLM answer: the iteration number at every chunk.

``avg_decoded_tokens_per_iter`` is tokens so far over iterations so far, the context iteration included, so
``tokens / average`` is the number of the iteration that made the chunk. A number that rises by one is one step; by more, that
many iterations were merged (``stream_interval``). Merged chunks are split only where their size leaves one way: all single
tokens, or all full drafts. A step that accepted nothing may have verified a draft or not; the stream does not say.
"""

from __future__ import annotations

from itertools import pairwise

from specsweep.client.dialects._plausible import amount
from specsweep.client.dialects._steps import as_chunks, as_steps, without_truth
from specsweep.client.dialects._walk import UNKNOWN, Step
from specsweep.client.trace import Turn

_SLACK = 0.01  # of an iteration: the average is a quotient of two integers, so tokens / average is whole up to rounding


def fill_steps(turn: Turn, averages: list[float | None], draft_length: int | None, finish: str) -> None:
    """``averages``: for each chunk, tokens per iteration up to it; None where the server did not say."""
    if not turn.chunk_tokens:
        return
    numbers = _iterations(turn.chunk_tokens, averages)
    if numbers is None:
        without_truth(turn, draft_length, finish)
        return
    turn.srv_accepted = len(turn.output_ids) - numbers[-1]
    taken = [numbers[0], *(b - a for a, b in pairwise(numbers))]
    _split(turn, taken, draft_length)
    if draft_length and len(turn.step_tokens) > 1:
        turn.last_cut = finish == "length" and turn.step_tokens[-1] < draft_length + 1
    if turn.last_cut:  # the server counts what it accepted before the cut, the stream shows what was left of it
        turn.srv_accepted = None
        if turn.step_accepted:
            turn.step_accepted[-1] = UNKNOWN


def _iterations(sizes: list[int], averages: list[float | None]) -> list[int] | None:
    """Iteration number at each chunk, the first token's being 1; None if the averages are missing or do not give whole numbers."""
    numbers: list[int] = []
    tokens = 0
    for size, average in zip(sizes, averages, strict=True):
        tokens += size
        if average is None or not amount("avg_decoded_tokens_per_iter", average):
            return None
        number = round(tokens / average)
        if abs(tokens / average - number) > _SLACK or number <= (numbers[-1] if numbers else 0):
            return None
        numbers.append(number)
    return numbers


def _split(turn: Turn, taken: list[int], draft_length: int | None) -> None:
    sizes = turn.chunk_tokens
    if sizes[0] == 1 and all(n == 1 for n in taken):
        as_chunks(turn, "exact", "", drafted=draft_length or (UNKNOWN if draft_length is None else 0))
        if draft_length:
            turn.step_drafted = [0, *(draft_length if n > 1 else UNKNOWN for n in sizes[1:])]
        return
    steps: list[Step] = []
    for chunk, (size, iterations) in enumerate(zip(sizes, taken, strict=True)):
        full = (draft_length or 0) + 1
        if size == iterations:
            each = 1
        elif chunk and size == iterations * full:
            each = full
        elif chunk and iterations == 1:
            each = size
        else:
            as_chunks(turn, "merged", f"chunk {chunk} holds {size} tokens of {iterations} iterations: several splits fit, none is taken")
            return
        drafted = (UNKNOWN if each == 1 else draft_length or UNKNOWN) if draft_length != 0 else 0
        steps += [Step(chunk, each, drafted, each - 1)] * iterations
    merged = sum(n > 1 for n in taken)
    as_steps(turn, steps[1:], "repaired", f"{merged} of {len(sizes)} chunks held several iterations: split; their times are lost")
