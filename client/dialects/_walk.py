"""Chunks of a stream against the server's per-step truth: which chunk is which step, and which chunks hold several.

An engine with chain drafting emits ``accepted + 1`` tokens a verify step and one token an undrafted step; a chunk holds whole
steps, usually one. vLLM merges chunks without any mark when its API process lags, and a merge of 1 + 1 looks like a step of 2.
Only the server's own count decides. Over the N tokens after the first, with A accepted, a request takes exactly
``N - A + cut`` steps (``cut``: tokens that the last step lost to the cap), so as many chunks as steps proves that nothing was
merged, and fewer chunks are split only where one single split fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

UNKNOWN = -1
_MAX_STATES = 200_000  # of the split search; a request that needs more is refused as ambiguous


@dataclass(frozen=True, slots=True)
class Step:
    chunk: int  # index of the chunk that holds it
    tokens: int
    drafted: int  # UNKNOWN: drafted or not cannot be told (it accepted nothing in either case)
    accepted: int


@dataclass(frozen=True, slots=True)
class Walk:
    """``state`` as in a trace. ``steps``: without the prefill step; empty unless the state is exact or repaired."""

    state: Literal["exact", "repaired", "merged"]
    steps: list[Step]
    why: str


def walk(chunks: Sequence[int], accepted: Sequence[int], drafted: Sequence[int]) -> Walk:
    """``chunks``: tokens of every chunk, the first included (its first token is the prefill's). ``accepted``, ``drafted``: the
    server's lists over the drafted steps, before any cut."""
    room = [chunks[0] - 1, *chunks[1:]]
    tokens, promised = sum(room), sum(accepted) + len(accepted)
    if tokens <= promised:  # no undrafted step, or as many as tokens were cut
        dictated = _all_drafted(room, accepted, drafted, promised - tokens)
        if dictated.state != "merged":
            return dictated
    if room[0] == 0 and (steps := _one_each(room, accepted, drafted)) is not None:
        return Walk("exact", steps, "")
    return _search(room, accepted, drafted)


def _all_drafted(room: Sequence[int], accepted: Sequence[int], drafted: Sequence[int], cut: int) -> Walk:
    """No undrafted step: the list dictates every split."""
    last = len(accepted) - 1
    steps: list[Step] = []
    merged: set[int] = set()
    at = 0
    for chunk, left in enumerate(room):
        before = at
        while left > 0 and at <= last:
            size = accepted[at] + 1 - (cut if at == last else 0)
            if not 1 <= size <= left:
                return Walk(
                    "merged",
                    [],
                    f"chunk {chunk} does not hold whole steps of the server's list (step {at} has {size} tokens, {left} are left)",
                )
            steps.append(Step(chunk, size, drafted[at], accepted[at]))
            left -= size
            at += 1
        if left > 0:
            return Walk("merged", [], f"chunk {chunk} holds {left} tokens more than the server's steps")
        if at - before > 1 or (chunk == 0 and at > before):
            merged.add(chunk)
    if at <= last:
        return Walk("merged", [], f"the server took {last + 1} verify steps, the chunks hold {at}")
    if not merged:
        return Walk("exact", steps, "")
    return Walk(
        "repaired",
        steps,
        f"{len(merged)} of {len(room)} chunks held several steps: split by the server's per-step list; their times are lost",
    )


def _one_each(room: Sequence[int], accepted: Sequence[int], drafted: Sequence[int]) -> list[Step] | None:
    """One step a chunk, if the lists allow it. Between two chunks of more than one token, zeros and undrafted steps look the same."""
    size_last = room[-1]
    for cut in _cuts(size_last, accepted):
        want = list(accepted)
        if cut:
            want[-1] = size_last - 1
        steps = _align(room, want, drafted)
        if steps is not None:
            if cut:
                steps[-1] = Step(len(room) - 1, size_last, drafted[-1], accepted[-1])
            return steps
    return None


def _cuts(size_last: int, accepted: Sequence[int]) -> list[bool]:
    return [False, True] if accepted and accepted[-1] + 1 > size_last else [False]


def _align(room: Sequence[int], accepted: Sequence[int], drafted: Sequence[int]) -> list[Step] | None:
    steps: list[Step] = []
    ones: list[int] = []  # chunks of one token since the last larger one
    at = 0

    def close(zeros_until: int) -> bool:
        nonlocal at
        zeros = zeros_until - at
        if zeros > len(ones):
            return False
        known = zeros in (0, len(ones))
        for i, chunk in enumerate(ones):
            d = (drafted[at + i] if zeros else 0) if known else UNKNOWN
            steps.append(Step(chunk, 1, d, 0))
        at = zeros_until
        ones.clear()
        return True

    for chunk, size in enumerate(room[1:], 1):
        if size == 1:
            ones.append(chunk)
            continue
        anchor = next((j for j in range(at, len(accepted)) if accepted[j]), None)
        if anchor is None or accepted[anchor] + 1 != size or not close(anchor):
            return None
        steps.append(Step(chunk, size, drafted[anchor], accepted[anchor]))
        at = anchor + 1
    if any(accepted[at:]) or not close(len(accepted)):
        return None
    return steps


def _search(room: Sequence[int], accepted: Sequence[int], drafted: Sequence[int]) -> Walk:
    """Merged chunks and undrafted steps at once: split only if exactly one assignment of drafted steps to chunks fits."""
    total = len(accepted)
    layers: list[set[int]] = [{0}]  # drafted steps consumed after each chunk
    for index, left in enumerate(room):
        following: set[int] = set()
        final = index == len(room) - 1
        for at in layers[-1]:
            following.update(_reach(at, left, accepted, final=final))
        layers.append(following)
        if not following or sum(map(len, layers)) > _MAX_STATES:
            return Walk("merged", [], "chunks and the server's per-step list cannot be brought together")
    if total not in layers[-1]:
        return Walk("merged", [], f"the chunks do not hold the server's {total} verify steps")
    kept = {total}
    path = [total]
    for index in range(len(room) - 1, -1, -1):
        final = index == len(room) - 1
        kept = {at for at in layers[index] if kept & set(_reach(at, room[index], accepted, final=final))}
        if len(kept) != 1:
            return Walk("merged", [], "merged chunks among undrafted steps: several splits fit, none is taken")
        path.insert(0, next(iter(kept)))
    steps: list[Step] = []
    merged = 0
    for chunk, (left, at, to) in enumerate(zip(room, path, path[1:], strict=False)):
        count = len(steps)
        for j in range(at, to):
            size = min(accepted[j] + 1, left)
            steps.append(Step(chunk, size, drafted[j], accepted[j]))
            left -= size
        steps += [Step(chunk, 1, 0, 0)] * left
        merged += len(steps) - count > 1 or (chunk == 0 and len(steps) > count)
    return Walk(
        "repaired", steps, f"{merged} of {len(room)} chunks held several steps: split by the server's per-step list; their times are lost"
    )


def _reach(at: int, left: int, accepted: Sequence[int], *, final: bool) -> list[int]:
    """How many drafted steps may be consumed after a chunk of ``left`` tokens that begins when ``at`` are."""
    ends = [at]
    while at < len(accepted) and left > 0:
        size = accepted[at] + 1
        if size > left:
            if final and at == len(accepted) - 1:  # the very last step may be cut
                ends.append(at + 1)
            break
        left -= size
        at += 1
        ends.append(at)
    return ends
