"""Each trouble ends in the kind of error that the real one ends in, and spares everybody else."""

from __future__ import annotations

from typing import Any

import pytest
from sim_harness import Call, Simulation
from test_sim_wire import body, load, prompt_of, read, truths

from specsweep.client.dialects import dialect
from specsweep.client.sim.settings import ModelError
from specsweep.client.sim.troubles import SHARES, Troubles, read_troubles
from specsweep.client.sim.truth import prompt_key
from specsweep.client.sim.wire import WIRES

ENDINGS = [
    ("stall_share", "vllm", "stalled"),
    ("stall_share", "sglang", "stalled"),
    ("stall_share", "trtllm", "stalled"),
    ("stall_share", "llamacpp", "stalled"),
    ("cut_share", "vllm", "disconnected"),
    ("cut_share", "sglang", "disconnected"),
    ("cut_share", "trtllm", "disconnected"),
    ("cut_share", "llamacpp", "disconnected"),
    ("error_share", "vllm", "stream_error"),
    ("error_share", "sglang", "stream_error"),
    ("error_share", "trtllm", "disconnected"),
    ("error_share", "llamacpp", "stream_error"),
]


@pytest.mark.parametrize(("trouble", "name", "kind"), ENDINGS)
def test_an_answer_that_ends_badly_has_its_first_half_and_the_right_error(trouble: str, name: str, kind: str) -> None:
    simulation, calls = load(name, "eagle3", 3, troubles={trouble: 0.5}, requests=12)
    hit = 0
    for call, truth in zip(calls, truths(simulation), strict=True):
        turn = read(name, call, 3)
        if truth.finish in ("length", "stop"):
            assert turn.outcome == "ok", turn.error
            continue
        hit += 1
        assert truth.finish == trouble.removesuffix("_share")
        assert (turn.outcome, turn.error_kind) == ("failed", kind), turn.error
        assert 0 < len(turn.output_ids) < (60 - truth.ordinal) // 2 + 4
    assert 2 <= hit <= 10
    assert simulation.service.counts().running == 0, "a stream that hangs holds no place in the batch"


def test_a_stalled_client_that_gives_up_is_forgotten() -> None:
    simulation, calls = load("vllm", "none", 0, troubles={"stall_share": 1.0}, requests=2)
    for call in calls:
        assert not call.transport.ended
        call.connection.connection_lost(None)
    assert simulation.clock.due_ns is None


@pytest.mark.parametrize(("name", "kind"), [("vllm", "http_status"), ("trtllm", "http_status"), ("sglang", "stream_error")])
def test_overload_is_refused_and_the_others_go_on(name: str, kind: str) -> None:
    simulation = Simulation(dialect=name, troubles={"overload_limit": 2})
    calls = [simulation.post(body(name, prompt_of(i), 20)) for i in range(4)]
    simulation.run()
    turns = [read(name, call, 0) for call in calls]
    assert [turn.outcome for turn in turns] == ["ok", "ok", "failed", "failed"]
    assert {turn.error_kind for turn in turns[2:]} == {kind}
    assert all("503" in turn.error for turn in turns[2:])


@pytest.mark.parametrize("name", WIRES)
def test_lost_ids_are_counted_and_not_streamed(name: str) -> None:
    simulation, calls = load(name, "eagle3", 3, troubles={"lost_id_share": 1.0}, requests=1)
    turn = read(name, calls[0], 3)
    assert turn.n_completion_server == len(turn.output_ids) + 1 == truths(simulation)[0].tokens
    if name in ("vllm", "trtllm"):  # these stream every id that they count
        assert (turn.outcome, turn.error_kind) == ("failed", "protocol")
        assert f"counted {turn.n_completion_server} output tokens" in turn.error
    else:
        assert (turn.outcome, turn.ids_complete) == ("ok", False)


@pytest.mark.parametrize("name", WIRES)
def test_a_server_that_adds_a_token_to_the_prompt_is_found_out(name: str) -> None:
    _, calls = load(name, "none", 0, troubles={"wrong_prompt_share": 1.0}, requests=1)
    assert read(name, calls[0], 0).error_kind == "prompt_mismatch"


@pytest.mark.parametrize("name", ["sglang", "llamacpp"])
def test_cached_prompts_are_told(name: str) -> None:
    simulation, calls = load(name, "none", 0, troubles={"cached_prompt_share": 1.0}, requests=2)
    for call in calls:
        turn = read(name, call, 0)
        assert turn.outcome == "ok"
        assert "20 prompt tokens came from the" in " ".join(turn.notes)
    assert dialect(name).counters(simulation.page()).cached_prompt_tokens == 40


def test_cached_prompts_show_in_vllms_counters_and_in_the_time_to_the_first_token() -> None:
    ttft = {}
    for share in (0.0, 1.0):
        simulation = Simulation(dialect="vllm", troubles={"cached_prompt_share": share})
        call = simulation.post(body("vllm", prompt_of(1, 6000), 2))
        simulation.run()
        ttft[share] = truths(simulation)[0].chunks[0].t_ns - call.sent_ns
        assert dialect("vllm").counters(simulation.page()).cached_prompt_tokens == (3000 if share else 0)
    assert ttft[1.0] < 0.8 * ttft[0.0]


def test_wrong_counters_disagree_with_the_streams() -> None:
    simulation, calls = load("vllm", "eagle3", 3, troubles={"wrong_counters": 0.25})
    counted = dialect("vllm").counters(simulation.page()).accepted_tokens
    streamed = sum(read("vllm", call, 3).srv_accepted or 0 for call in calls)
    assert counted == pytest.approx(1.25 * streamed, abs=1)


@pytest.mark.parametrize("name", WIRES)
def test_an_engine_that_fails_takes_its_streams_along(name: str) -> None:
    simulation = Simulation(dialect=name, troubles={"fails_after_steps": 10})
    calls = [simulation.post(body(name, prompt_of(i), 50)) for i in range(2)]
    simulation.run()
    assert simulation.deaths == [False]
    for call in calls:
        turn = read(name, call, 0)
        assert turn.error_kind == ("disconnected" if name == "trtllm" else "stream_error")
        assert len(turn.output_ids) >= 5
    late = simulation.post(body(name, prompt_of(9), 5))
    assert late.exchange().status == 500
    assert simulation.get("/health")[0] == 503


def test_a_share_hits_about_that_share_the_same_ones_each_time() -> None:
    troubles = Troubles(cut_share=0.1)
    hit = [i for i in range(4000) if troubles.plan(i, 100, seed=3).ending]
    assert hit == [i for i in range(4000) if troubles.plan(i, 7, seed=3).ending]
    assert 320 <= len(hit) <= 480
    assert hit != [i for i in range(4000) if troubles.plan(i, 100, seed=4).ending]
    # one trouble more does not move another
    more = Troubles(cut_share=0.1, lost_id_share=0.5)
    assert hit == [i for i in range(4000) if more.plan(i, 100, seed=3).ending]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"stall": 0.1}, "troubles.stall=0.1 is not a field; known: .*stall_share"),
        ({"stall_share": 1.5}, "troubles.stall_share=1.5: expected a number of at least 0 and at most 1"),
        ({"dies_after_steps": 2.5}, "troubles.dies_after_steps=2.5: expected a whole number"),
        ({"stream_interval": 0}, "troubles.stream_interval=0"),
        ([1], "troubles=.*expected a mapping"),
    ],
)
def test_what_is_no_trouble_is_told_by_name(value: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        read_troubles(value)


def test_prompts_that_are_not_measured_are_spared() -> None:
    simulation = Simulation({prompt_key(prompt_of(1)): "mixed"}, dialect="vllm", troubles={"cut_share": 1.0})
    calls = [simulation.post(body("vllm", prompt_of(i), 20)) for i in (1, 2)]
    simulation.run()
    assert [read("vllm", call, 0).outcome for call in calls] == ["failed", "ok"]


def test_nothing_happens_by_default() -> None:
    assert read_troubles(None) == Troubles()
    plan = Troubles().plan(5, 100, seed=0)
    assert (plan.ending, plan.ends_after, plan.lost_at, plan.extra_prompt, plan.cached) == ("", None, -1, 0, 0.0)
    assert all(getattr(Troubles(), name) == 0 for name in SHARES)


def test_a_client_that_leaves_frees_its_place() -> None:
    simulation = Simulation(dialect="vllm", max_batch=1)
    first: Call = simulation.post(body("vllm", prompt_of(1), 4000))
    second = simulation.post(body("vllm", prompt_of(2), 5))
    simulation.run(20)
    first.connection.connection_lost(None)
    simulation.run()
    assert read("vllm", second, 0).outcome == "ok"
    assert [truth.finish for truth in simulation.log.requests] == ["aborted", "length"]
