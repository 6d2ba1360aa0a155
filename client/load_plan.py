"""Which requests a point sends, in which order, with which caps. Pure: prompts in, serialised requests out.

The first batch is the ramp. If all slots began with requests of full length, they would all prefill together and end together,
for several rounds: the engine would see waves and not a steady batch. So the first request of each slot has a cap of its own,
spread evenly up to the full one, and a prompt that is never measured. The main phase follows: every prompt once, in the given
order, and then round again until the plan is long enough for a steady window. ``pass_index`` keeps the first round apart,
because acceptance is taken from it alone: each prompt exactly once and none of them cut short.

A prompt of several turns is one entry of the plan, and is dealt, cycled and counted as one: a conversation stays in one slot, and a
steady window takes so many fillings of a slot, not so many turns. (Were turns counted, 64 slots and conversations of five turns would
get 52 conversations: the queue would be empty before every slot has its first.) In the ramp only the first turn has a staggered cap,
which is enough to bring the slots out of step. Each turn has an index of its own: an entry's later turns take those that follow it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsweep.client.trace import Phase, PlannedRequest, Sampling

if TYPE_CHECKING:
    from specsweep.client.dialects import Dialect
    from specsweep.client.workload import Prompt

RAMP_MIN_TOKENS = 4  # a ramp request must still have a first chunk and a few steps


def plan_requests(
    main: Sequence[Prompt],
    ramp: Sequence[Prompt],
    *,
    batch_size: int,
    sampling: Sampling,
    dialect: Dialect,
    model: str,
    stateful: bool,
    requests_per_slot: int = 4,
) -> list[PlannedRequest]:
    """``batch_size`` ramp requests, then max(len(main), requests_per_slot · batch_size) main ones, indexed from 0.

    Each begins a conversation: ``requests_per_slot`` counts conversations, and the index counts turns. ``stateful``: the drafter learns
    from earlier answers, so no prompt is sent twice. Raises ``ValueError`` if there are too few prompts for that, if there is no prompt
    at all, or if a prompt stands twice in or between the two lists.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be at least 1")
    _check_prompts(main, ramp)
    wanted = requests_per_slot * batch_size
    if stateful:
        _check_enough("main", len(main), wanted, batch_size)
        _check_enough("ramp", len(ramp), batch_size, batch_size)

    bodies: dict[tuple[str, int], bytes] = {}  # a prompt that is sent again shares its body: at 32k tokens, a fifth of a megabyte
    turns = 0

    def request(prompt: Prompt, phase: Phase, pass_index: int, max_tokens: int) -> PlannedRequest:
        nonlocal turns
        index, turns = turns, turns + 1 + len(prompt.turns)
        key = (prompt.prompt_id, max_tokens)
        if key not in bodies:
            content = prompt.ids if dialect.takes_ids else prompt.text
            bodies[key] = dialect.request(content, dataclasses.replace(sampling, max_tokens=max_tokens), model=model)
        return PlannedRequest(
            index=index,
            prompt_id=prompt.prompt_id,
            conversation_id=prompt.prompt_id,
            turn=0,
            category=prompt.category,
            phase=phase,
            pass_index=pass_index,
            n_prompt=len(prompt.ids),
            max_tokens=max_tokens,
            body=bodies[key],
            sub_category=prompt.sub_category,
            difficulty=prompt.difficulty,
            source=prompt.source,
            isl_o200k=prompt.isl_o200k,
            isl_target=prompt.isl_target,
            padding_share=prompt.padding_share,
            repeated_share=prompt.repeated_share,
            text=prompt.text if prompt.turns else "",
            turns=prompt.turns,
        )

    caps = ramp_caps(batch_size, sampling.max_tokens)
    first = [request(ramp[i % len(ramp)], "ramp", 0, cap) for i, cap in enumerate(caps)]
    count = max(len(main), wanted)
    measured = [main[i % len(main)] for i in range(count)]
    rest = [request(prompt, "main", i // len(main), prompt.cap(sampling.max_tokens)) for i, prompt in enumerate(measured)]
    return first + rest


def ramp_caps(batch_size: int, max_tokens: int) -> list[int]:
    """Ascending output caps in tokens, evenly spread and ending at ``max_tokens``; all different if there is room for it."""
    least = min(RAMP_MIN_TOKENS, max_tokens)
    if batch_size == 1:
        return [max_tokens]
    values = max_tokens - least + 1
    if batch_size > values:  # each value as often as the others
        return [least + values * i // batch_size for i in range(batch_size)]
    return [least + (max_tokens - least) * i // (batch_size - 1) for i in range(batch_size)]


def split_slots(batch_size: int, processes: int) -> list[int]:
    """Slots of each process: they sum to ``batch_size`` and differ by one at most."""
    if not 1 <= processes <= batch_size:
        raise ValueError(f"processes={processes}: must be between 1 and the batch size ({batch_size})")
    return [batch_size * (i + 1) // processes - batch_size * i // processes for i in range(processes)]


def deal(requests: Sequence[PlannedRequest], slots: Sequence[int]) -> list[list[PlannedRequest]]:
    """Each process's requests, in the order of the plan and in proportion to its slots; each request exactly once.

    Ramp requests go round, so that each process gets as many as it has slots and caps from the whole range. Main requests go
    in blocks, one block a process and round: dealt one by one, eight processes and eight interleaved categories would give each
    process a single category, and with it another amount of work.
    """
    batch_size, processes = sum(slots), len(slots)
    hands: list[list[PlannedRequest]] = [[] for _ in slots]
    ramp = [r for r in requests if r.phase == "ramp"]
    turn = 0
    for request in ramp:
        if all(len(hand) >= size for hand, size in zip(hands, slots, strict=True)):
            raise ValueError(f"{len(ramp)} ramp requests for {batch_size} slots")
        while len(hands[turn % processes]) >= slots[turn % processes]:
            turn += 1
        hands[turn % processes].append(request)
        turn += 1
    main = [r for r in requests if r.phase == "main"]
    upto = [sum(slots[: i + 1]) for i in range(processes)]
    for start in range(0, len(main), batch_size):
        block = main[start : start + batch_size]
        begin = 0
        for hand, bound in zip(hands, upto, strict=True):
            end = len(block) * bound // batch_size
            hand.extend(block[begin:end])
            begin = end
    return hands


def _check_prompts(main: Sequence[Prompt], ramp: Sequence[Prompt]) -> None:
    if not main or not ramp:
        raise ValueError(f"the workload has {len(main)} main and {len(ramp)} ramp prompts; at least one of each is needed")
    main_ids = {p.prompt_id for p in main}
    if len(main_ids) < len(main):
        raise ValueError(f"{len(main) - len(main_ids)} main prompts share their prompt_id with another one; ids must be unique")
    if shared := main_ids & {p.prompt_id for p in ramp}:
        raise ValueError(f"prompt {min(shared)!r} is both a ramp and a main prompt; ramp prompts must never be measured")


def _check_enough(kind: str, have: int, need: int, batch_size: int) -> None:
    if have < need:
        raise ValueError(
            f"a stateful drafter must never see a prompt twice: batch size {batch_size} needs {need} {kind} prompts, "
            f"the workload has {have}; add prompts or lower the batch size"
        )
