"""The plan of a point's requests, and how it is dealt to processes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsweep.client.load_plan import RAMP_MIN_TOKENS, deal, plan_requests, ramp_caps, split_slots
from specsweep.client.trace import EngineCounters, Exchange, PlannedRequest, Sampling, Turn
from specsweep.client.workload import Prompt


@dataclass
class Wire:
    """A dialect that says what it was given, and counts how often it was asked."""

    name: str = "wire"
    path: str = "/"
    takes_ids: bool = True
    metrics_path: str | None = None
    calls: int = 0

    def request(self, prompt: Sequence[int] | str, sampling: Sampling, *, model: str) -> bytes:
        self.calls += 1
        return json.dumps([prompt if isinstance(prompt, str) else list(prompt), sampling.max_tokens, sampling.seed, model]).encode()

    def read(self, exchange: Exchange, *, draft_length: int | None, n_prompt: int | None) -> Turn:
        raise NotImplementedError

    def counters(self, metrics_text: str) -> EngineCounters:
        raise NotImplementedError


def prompts(count: int, kind: str = "m", categories: int = 3) -> list[Prompt]:
    return [Prompt(f"{kind}{i}", f"c{i % categories}", tuple(range(i, i + 5)), f"text {kind}{i}", 5) for i in range(count)]


def plan(
    main: int, ramp: int, batch_size: int, *, max_tokens: int = 64, stateful: bool = False, wire: Wire | None = None
) -> list[PlannedRequest]:
    return plan_requests(
        prompts(main),
        prompts(ramp, "r"),
        batch_size=batch_size,
        sampling=Sampling(max_tokens=max_tokens, seed=7),
        dialect=wire or Wire(),
        model="m",
        stateful=stateful,
    )


@settings(max_examples=60, deadline=None)
@given(main=st.integers(1, 90), ramp=st.integers(1, 20), batch_size=st.integers(1, 40), max_tokens=st.integers(1, 300))
def test_plan_properties(main: int, ramp: int, batch_size: int, max_tokens: int) -> None:
    requests = plan(main, ramp, batch_size, max_tokens=max_tokens)
    assert [r.index for r in requests] == list(range(len(requests)))
    first, rest = requests[:batch_size], requests[batch_size:]
    assert {r.phase for r in first} == {"ramp"}
    assert {r.phase for r in rest} == {"main"}
    assert not {r.prompt_id for r in first} & {r.prompt_id for r in rest}
    assert len(rest) == max(main, 4 * batch_size)
    # acceptance is taken from pass 0: each prompt exactly once, in the given order, never cut by a ramp cap
    assert [r.prompt_id for r in rest if r.pass_index == 0] == [p.prompt_id for p in prompts(main)]
    assert {r.max_tokens for r in rest} == {max_tokens}
    # later passes go round in the same order, so the categories stay interleaved as they were given
    assert [(r.pass_index, r.prompt_id) for r in rest] == [(i // main, f"m{i % main}") for i in range(len(rest))]
    assert all(r.category == f"c{int(r.prompt_id[1:]) % 3}" for r in rest)
    for r in requests:
        ids, cap, seed, model = json.loads(r.body)
        assert (len(ids), cap, seed, model) == (r.n_prompt, r.max_tokens, 7, "m")


@given(batch_size=st.integers(1, 600), max_tokens=st.integers(1, 2000))
def test_ramp_caps_are_staggered_and_as_different_as_they_can_be(batch_size: int, max_tokens: int) -> None:
    caps = ramp_caps(batch_size, max_tokens)
    least = min(RAMP_MIN_TOKENS, max_tokens)
    assert len(caps) == batch_size
    assert caps == sorted(caps)
    assert caps[-1] == max_tokens
    assert min(caps) >= least
    room = max_tokens - least + 1
    assert len(set(caps)) == min(batch_size, room)
    times = Counter(caps).values()
    assert max(times) - min(times) <= 1


def test_prompt_that_is_sent_again_shares_its_body() -> None:
    wire = Wire()
    requests = plan(3, 2, 8, wire=wire)
    assert wire.calls == 3 + 8
    assert len({id(r.body) for r in requests if r.prompt_id == "m1"}) == 1


def test_text_is_sent_where_ids_cannot_be() -> None:
    assert json.loads(plan(2, 2, 1, wire=Wire(takes_ids=False))[1].body)[0] == "text m0"


def test_stateful_drafter_never_sees_a_prompt_twice() -> None:
    requests = plan(40, 8, 8, stateful=True)
    assert len({r.prompt_id for r in requests}) == len(requests) == 48
    with pytest.raises(ValueError, match="needs 32 main prompts, the workload has 31"):
        plan(31, 8, 8, stateful=True)
    with pytest.raises(ValueError, match="needs 8 ramp prompts, the workload has 7"):
        plan(40, 7, 8, stateful=True)


def test_what_cannot_be_planned_is_said() -> None:
    with pytest.raises(ValueError, match="0 main and 2 ramp prompts"):
        plan(0, 2, 1)
    with pytest.raises(ValueError, match="batch_size=0"):
        plan(1, 1, 0)
    one, two = prompts(2), prompts(2, "r")
    kwargs = {"batch_size": 1, "sampling": Sampling(8), "dialect": Wire(), "model": "m", "stateful": False}
    with pytest.raises(ValueError, match="'m1' is both a ramp and a main prompt"):
        plan_requests(one, [*two, one[1]], **kwargs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 main prompts share"):
        plan_requests([*one, one[0]], two, **kwargs)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(batch_size=st.integers(1, 520), processes=st.integers(1, 64), main=st.integers(1, 1000))
def test_splitting_loses_and_doubles_nothing(batch_size: int, processes: int, main: int) -> None:
    processes = min(processes, batch_size)
    slots = split_slots(batch_size, processes)
    assert sum(slots) == batch_size
    assert max(slots) - min(slots) <= 1
    requests = [PlannedRequest(i, "p", "p", 0, "c", "ramp" if i < batch_size else "main", 0, 1, i, b"") for i in range(batch_size + main)]
    hands = deal(requests, slots)
    assert sorted(r.index for hand in hands for r in hand) == list(range(len(requests)))
    for size, hand in zip(slots, hands, strict=True):
        assert [r.phase for r in hand[:size]] == ["ramp"] * size  # so each slot begins with a ramp request
        assert all(r.phase == "main" for r in hand[size:])
        assert [r.index for r in hand] == sorted(r.index for r in hand)
        share = main * size / batch_size
        assert abs(len(hand) - size - share) <= 1


def talks(kind: str, turns: Sequence[int]) -> list[Prompt]:
    """A prompt for each number of turns."""
    return [
        replace(p, turns=tuple(f"{p.prompt_id} {k}" for k in range(1, count)), source="book", difficulty="hard", sub_category="s")
        for p, count in zip(prompts(len(turns), kind), turns, strict=True)
    ]


def every_turn(requests: Sequence[PlannedRequest]) -> list[PlannedRequest]:
    """What is sent of a plan when every turn goes well."""
    later = lambda r: [r.later(k, n_prompt=9, max_tokens=5, body=b"") for k in range(1, len(r.turns) + 1)]  # noqa: E731
    return [turn for r in requests for turn in (r, *later(r))]


@given(
    main=st.lists(st.integers(1, 5), min_size=1, max_size=40),
    ramp=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    batch_size=st.integers(1, 24),
    processes=st.integers(1, 8),
)
def test_conversations_are_planned_and_dealt_whole(main: list[int], ramp: list[int], batch_size: int, processes: int) -> None:
    requests = plan_requests(
        talks("m", main), talks("r", ramp), batch_size=batch_size, sampling=Sampling(64), dialect=Wire(), model="m", stateful=False
    )
    slots = split_slots(batch_size, min(processes, batch_size))
    hands = deal(requests, slots)
    sent = [every_turn(hand) for hand in hands]
    # every turn of every conversation has its own index, and they are without holes over all processes
    assert sorted(r.index for hand in sent for r in hand) == list(range(sum(1 + len(r.turns) for r in requests)))
    # turns follow each other in one process, and begin at the first
    for hand in sent:
        for before, turn in pairwise(hand):
            assert turn.turn == 0 or (turn.prompt_id, turn.turn, turn.index) == (before.prompt_id, before.turn + 1, before.index + 1)
    # a slot begins with a ramp conversation; what fills slots is counted in conversations
    for size, hand in zip(slots, hands, strict=True):
        assert [r.phase for r in hand[:size]] == ["ramp"] * size
    assert sum(r.phase == "main" for r in requests) == max(len(main), 4 * batch_size)
    # acceptance: every turn of every prompt exactly once in the first pass
    scored = Counter((r.prompt_id, r.turn) for hand in sent for r in hand if r.phase == "main" and r.pass_index == 0)
    assert scored == Counter((f"m{i}", k) for i, count in enumerate(main) for k in range(count))
    assert {(r.sub_category, r.difficulty, r.source) for hand in sent for r in hand} == {("s", "hard", "book")}


def test_only_the_first_turn_of_a_conversation_carries_the_others() -> None:
    first, *_ = plan_requests(
        talks("m", [3]), talks("r", [3]), batch_size=1, sampling=Sampling(64), dialect=Wire(), model="m", stateful=False
    )
    assert (first.text, first.turns) == ("text r0", ("r0 1", "r0 2"))
    later = first.later(2, n_prompt=40, max_tokens=64, body=b"x")
    assert (later.turn, later.index, later.n_prompt, later.max_tokens, later.body) == (2, first.index + 2, 40, 64, b"x")
    assert (later.text, later.turns, later.phase, later.prompt_id) == ("", (), "ramp", "r0")
    assert plan(2, 2, 1)[0].text == ""  # a single turn needs no words beside its body


def test_dealing_mixes_caps_and_categories_over_the_processes() -> None:
    """Eight interleaved categories over eight processes: each process must get all of them."""
    requests = [
        PlannedRequest(i, "p", "p", 0, f"c{i % 8}", "ramp" if i < 512 else "main", 0, 1, i if i < 512 else 512, b"") for i in range(512 * 5)
    ]
    for hand in deal(requests, split_slots(512, 8)):
        assert {r.category for r in hand if r.phase == "main"} == {f"c{i}" for i in range(8)}
        caps = [r.max_tokens for r in hand if r.phase == "ramp"]
        assert min(caps) < 10
        assert max(caps) > 500


def test_more_processes_than_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="processes=3"):
        split_slots(2, 3)


def test_a_prompt_with_a_budget_of_its_own_keeps_it_and_the_ramp_does_not_care() -> None:
    main = [replace(p, max_tokens=None if i else 7) for i, p in enumerate(prompts(3))]
    made = plan_requests(
        main,
        prompts(2, "r"),
        batch_size=1,
        sampling=Sampling(max_tokens=64),
        dialect=Wire(),
        model="m",
        stateful=False,
        requests_per_slot=1,
    )
    assert [(r.phase, r.max_tokens) for r in made] == [("ramp", 64), ("main", 7), ("main", 64), ("main", 64)]
