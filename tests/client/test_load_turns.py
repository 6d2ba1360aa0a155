"""Conversations of several turns against real sockets: one slot each, turn after turn, and what becomes of those that cannot go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from stream_stubs import DONE, END, HEAD, Call, answer_tokens, chunk, planned, stub, stub_in_thread, token_event

from specsweep.client import actor as actor_module
from specsweep.client.actor import ClientActor
from specsweep.client.conversation import ChatRecipe
from specsweep.client.load import Load, LoadSpec, run_load
from specsweep.client.trace import PlannedRequest, PointTrace, RequestTrace, Sampling, from_table
from specsweep.client.turn_worker import TurnWorker, WorkerLost
from specsweep.client.workload import load_tokenizer

TARGET = Path(__file__).parents[1] / "tiny_pair" / "target"
PATH = "/v1/completions"
RECIPE = ChatRecipe(str(TARGET), "vllm", "m", Sampling(max_tokens=16))
TURNS = (3, 1, 2, 1, 3, 2)  # of each conversation


def talks(turns: tuple[int, ...] = TURNS, *, ramp: int = 0) -> list[PlannedRequest]:
    """One conversation an entry. The first body names it; later ones are made by the worker."""
    made, index = [], 0
    for n, count in enumerate(turns):
        phase = "ramp" if n < ramp else "main"
        later = tuple(f"then {n}.{k}" for k in range(1, count))
        body = json.dumps({"prompt": [n]}).encode()
        text = f"first {n}" if later else ""
        made.append(PlannedRequest(index, f"p{n}", f"p{n}", 0, "c", phase, 0, 1, 16, body, source="book", text=text, turns=later))
        index += count
    return made


def spec(base_url: str, slots: int, requests: list[PlannedRequest], **more: Any) -> LoadSpec:
    return LoadSpec(base_url, PATH, (), slots, requests, 20.0, chat=RECIPE, **more)


def said(call: Call) -> list[int]:
    """What the stub answers: ids that depend on the prompt, so that each answer can be told."""
    prompt = json.loads(call.body)["prompt"]
    return [300 + (len(prompt) + prompt[0]) % 50, 310, 320]


async def speak(call: Call) -> None:
    ids = said(call)
    await call.send(HEAD, token_event(ids[:1]), token_event(ids[1:], "length"), DONE + END, pause_s=0.002)


def by_prompt(requests: list[RequestTrace]) -> dict[str, list[RequestTrace]]:
    found = defaultdict(list)
    for r in sorted(requests, key=lambda r: r.index):
        found[r.prompt_id].append(r)
    return found


def through_actor(handler: Any, slots: int, requests: list[PlannedRequest]) -> tuple[PointTrace, list[bytes]]:
    actor = ClientActor(0)
    with stub_in_thread(handler) as server:
        assert actor.prepare(spec(server.base_url, slots, requests)) == slots
        actor.run(0)
        trace = from_table(actor.read("vllm", 0, False)[0])
    assert actor._worker is not None
    actor._worker.close()
    return trace, server.bodies


def test_a_conversation_stays_in_its_slot_and_each_turn_holds_the_answers_before_it() -> None:
    trace, bodies = through_actor(speak, 2, talks(ramp=2))
    assert [r.index for r in sorted(trace.requests, key=lambda r: r.index)] == list(range(sum(TURNS)))
    assert {r.read.outcome for r in trace.requests} == {"ok"}
    assert {r.source for r in trace.requests} == {"book"}
    tokenizer = load_tokenizer(TARGET)
    prompts = {tuple(p) for p in (json.loads(body)["prompt"] for body in bodies)}
    for n, (prompt_id, rows) in enumerate(by_prompt(trace.requests).items()):
        assert (prompt_id, len(rows)) == (f"p{n}", TURNS[n])
        assert [r.turn for r in rows] == list(range(TURNS[n]))
        assert len({r.slot for r in rows}) == 1
        assert {r.phase for r in rows} == {"ramp" if n < 2 else "main"}
        assert rows[0].gap_ns == 0
        messages = [{"role": "user", "content": f"first {n}"}]
        for before, later in pairwise(rows):
            assert later.gap_ns == later.t_send_ns - before.t_end_ns > 0
            messages.append({"role": "assistant", "content": tokenizer.decode(before.read.output_ids)})
            messages.append({"role": "user", "content": f"then {n}.{later.turn}"})
            sent = tokenizer.render(messages)
            assert tuple(sent) in prompts
            assert later.n_prompt == len(sent)
    for slot in (0, 1):
        own = sorted((r for r in trace.requests if r.slot == slot), key=lambda r: r.t_send_ns)
        assert all(later.t_send_ns >= before.t_end_ns for before, later in pairwise(own))
        assert [r.turn == 0 or r.prompt_id == own[i - 1].prompt_id for i, r in enumerate(own)] == [True] * len(own)
    assert trace.actors[0].worker_cpu_s > 0


def test_a_turn_that_fails_ends_its_conversation_and_no_other() -> None:
    async def handler(call: Call) -> None:
        if call.body.startswith(b'{"model"') and b"first" not in call.body and len(json.loads(call.body)["prompt"]) < 40 and not failed:
            failed.append(call.number)
            await call.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 19\r\n\r\n" + b'{"error":"too busy"}'[:19])
        else:
            await speak(call)

    failed: list[int] = []
    trace, _ = through_actor(handler, 1, talks((3, 3, 1)))
    rows = by_prompt(trace.requests)
    assert [r.read.error_kind for r in rows["p0"]] == ["", "http_status", "not_sent"]
    assert rows["p0"][2].read.error.startswith("turn 1 of this conversation failed: http_status: HTTP 503")
    assert (rows["p0"][2].n_prompt, rows["p0"][2].attempts, rows["p0"][2].slot) == (-1, 0, 0)
    assert [r.read.outcome for r in rows["p1"] + rows["p2"]] == ["ok"] * 4


async def test_death_of_the_worker_ends_the_load_at_once_and_the_next_one_has_a_new_worker() -> None:
    worker = TurnWorker()
    victims: list[int] = []

    async def handler(call: Call) -> None:
        if call.number == 1 and worker.pid is not None and not victims:
            victims.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)
        await speak(call)

    talked = talks((4, 3, 1, 2, 1) * 8)
    try:
        async with stub(handler) as server:
            load = Load(spec(server.base_url, 2, talked), worker=worker)
            await load.prepare()
            with pytest.raises(WorkerLost, match=r"prepares later turns \(pid \d+\) failed: killed by SIGKILL"):
                await asyncio.wait_for(load.run(), 30)
            assert server.requests < len(talked)
            again = Load(spec(server.base_url, 2, talked), worker=worker)
            await again.prepare()
            sent, _ = await asyncio.wait_for(again.run(), 30)
    finally:
        worker.close()
    assert worker.pid not in victims
    assert len(sent) == sum((4, 3, 1, 2, 1)) * 8
    assert {s.exchange.ended for s in sent} == {"complete"}


async def test_turns_of_a_dead_server_are_recorded_as_not_sent() -> None:
    async def handler(call: Call) -> None:
        if call.number == 2:
            await server.die()
        else:
            await speak(call)

    async with stub(handler) as server:
        sent, _ = await asyncio.wait_for(run_load(spec(server.base_url, 1, talks((2,) * 20))), 60)
    ends = [s.exchange.ended for s in sorted(sent, key=lambda s: s.planned.index)]
    assert len(ends) == 40
    assert ends[:2] == ["complete"] * 2
    assert ends[2] != "complete"
    assert ends[3].startswith("not_sent: turn 0 of this conversation got no answer")
    assert ends[-2].startswith("connect: not sent")
    assert ends[-1].startswith("not_sent")


def test_single_turns_have_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_module, "new_worker", lambda: pytest.fail("a worker for single turns"))
    with stub_in_thread(answer_tokens) as server:
        actor = ClientActor(0)
        actor.prepare(LoadSpec(server.base_url, PATH, (), 2, planned(6), 5.0))
        actor.run(0)
        trace = from_table(actor.read("vllm", 0, False)[0])
    assert {r.gap_ns for r in trace.requests} == {0}
    assert trace.actors[0].worker_cpu_s == 0


def test_conversations_need_a_recipe() -> None:
    with pytest.raises(ValueError, match="need a recipe"):
        Load(LoadSpec("http://127.0.0.1:9", PATH, (), 1, talks(), 5.0))


def test_an_answer_without_ids_ends_a_conversation_with_the_reason() -> None:
    async def handler(call: Call) -> None:
        event = b'data: {"choices":[{"text":"hi","finish_reason":"stop"}]}\n\n'
        await call.send(HEAD, chunk(event), DONE + END)

    trace, _ = through_actor(handler, 1, talks((2,)))
    last = max(trace.requests, key=lambda r: r.index).read
    assert (last.error_kind, "streams no token ids" in last.error) == ("not_sent", True)
