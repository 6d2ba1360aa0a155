"""What a dialect reads from the simulator is the simulator's own record, on every wire, with any drafter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_harness import Call, Simulation

from specsweep.client.dialects import dialect
from specsweep.client.sim.settings import ModelError
from specsweep.client.sim.truth import TrueRequest, prompt_key
from specsweep.client.sim.wire import WIRES, Served, wire
from specsweep.client.trace import Sampling, Turn

ARMS = [("none", 0), ("ngram", 1), ("ngram", 6), ("draft_model", 3), ("eagle3", 1), ("eagle3", 5)]


def body(name: str, prompt: list[int], max_tokens: int, *, ignore_eos: bool = True) -> bytes:
    return dialect(name).request(prompt, Sampling(max_tokens=max_tokens, ignore_eos=ignore_eos), model="m")


def prompt_of(number: int, length: int = 40) -> list[int]:
    return [1000 + (number * 97 + i) % 5000 for i in range(length)]


def load(name: str, drafter: str, length: int, *, requests: int = 6, max_tokens: int = 60, **more: Any) -> tuple[Simulation, list[Call]]:
    simulation = Simulation(dialect=name, drafter=drafter, draft_length=length, **more)
    calls = []
    for i in range(requests):
        calls.append(simulation.post(body(name, prompt_of(i), max_tokens - i, ignore_eos=i % 2 == 0)))
        simulation.run(3)  # so that they do not march in step
    simulation.run()
    return simulation, calls


def read(name: str, call: Call, length: int | None, n_prompt: int | None = 40) -> Turn:
    return dialect(name).read(call.exchange(), draft_length=length, n_prompt=n_prompt)


def truths(simulation: Simulation) -> list[TrueRequest]:
    return sorted(simulation.log.requests, key=lambda truth: truth.ordinal)


def cut_knowable(name: str) -> bool:
    return name != "trtllm"  # whose stream does not say what the last step had accepted before the cap cut it


@pytest.mark.parametrize(("drafter", "length"), ARMS)
@pytest.mark.parametrize("name", WIRES)
def test_steps_and_acceptance_are_read_exactly(name: str, drafter: str, length: int) -> None:
    simulation, calls = load(name, drafter, length)
    accepted = 0
    for call, truth in zip(calls, truths(simulation), strict=True):
        turn = read(name, call, length)
        assert (turn.outcome, turn.step_state) == ("ok", "exact"), (turn.error, turn.notes)
        assert turn.finish_reason == truth.finish
        assert turn.step_tokens == [step.tokens for step in truth.steps]
        known = slice(None) if cut_knowable(name) else slice(-1)
        assert turn.step_accepted[known] == [step.accepted for step in truth.steps][known]
        assert len(turn.output_ids) == truth.tokens == turn.n_completion_server
        if name in ("vllm", "llamacpp"):
            drafts = [step.drafted for step in truth.steps]
            assert all(theirs in (ours, -1) for ours, theirs in zip(drafts, turn.step_drafted, strict=True))
        accepted += sum(step.accepted for step in truth.steps)
    counted = dialect(name).counters(simulation.page())
    if name in ("vllm", "llamacpp"):
        steps = [step for truth in truths(simulation) for step in truth.steps if step.drafted]
        assert (counted.accepted_tokens or 0, counted.drafts or 0) == (accepted, len(steps))
        assert sum(counted.accepted_per_pos) == accepted
    assert counted.running in (0, None)


@pytest.mark.parametrize(("drafter", "length"), [("eagle3", 3), ("none", 0)])
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_preempted_requests_are_counted_and_their_steps_still_read_exactly(name: str, drafter: str, length: int) -> None:
    simulation, calls = load(name, drafter, length, max_model_len=110, kv_tokens=260)
    turns = [read(name, call, length) for call in calls]
    resumed = [sum(not step.drafted for step in truth.steps[1:]) if length else 0 for truth in truths(simulation)]
    counted = dialect(name).counters(simulation.page()).preemptions
    assert counted == simulation.service.engine.counters.preemptions > 0
    for turn, truth, undrafted in zip(turns, truths(simulation), resumed, strict=True):
        assert (turn.outcome, turn.step_state) == ("ok", "exact"), turn.notes
        assert turn.step_tokens == [step.tokens for step in truth.steps]
        assert any("retracted" in note for note in turn.notes) == (name == "sglang" and undrafted > 0)
    assert sum(resumed) <= counted, "one that is preempted again before its first new token resumes once"
    assert bool(sum(resumed)) == bool(length)


@pytest.mark.parametrize("name", WIRES)
def test_the_same_prompt_gets_the_same_answer_whatever_drafts(name: str) -> None:
    answers = []
    for drafter, length in ARMS:
        _, calls = load(name, drafter, length, requests=2, max_tokens=30)
        answers.append(read(name, calls[0], length).output_ids)
    assert all(answer == answers[0] for answer in answers)
    assert len(set(answers[0])) > 20, "and it is no constant"


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(WIRES),
    arm=st.sampled_from(ARMS),
    tokens=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    batch=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_any_load_is_answered_whole(name: str, arm: tuple[str, int], tokens: list[int], batch: int, seed: int) -> None:
    drafter, length = arm
    simulation = Simulation(dialect=name, drafter=drafter, draft_length=length, max_batch=batch, seed=seed)
    calls = [simulation.post(body(name, prompt_of(i), n)) for i, n in enumerate(tokens)]
    simulation.run()
    for call, n, truth in zip(calls, tokens, truths(simulation), strict=True):
        turn = read(name, call, length)
        assert (turn.outcome, turn.finish_reason, len(turn.output_ids)) == ("ok", "length", n), turn.error
        assert turn.step_tokens == [step.tokens for step in truth.steps]
        assert call.transport.ended == "closed"
    assert simulation.service.counts().running == simulation.service.counts().waiting == 0


def test_merged_chunks_are_split_where_the_truth_is_there_and_refused_where_not() -> None:
    for troubles in ({"merge_share": 0.3}, {"stream_interval": 4}):
        for name, states in (("vllm", {"repaired"}), ("sglang", {"merged"}), ("trtllm", {"merged"})):
            simulation, calls = load(name, "eagle3", 3, requests=4, max_tokens=80, troubles=troubles)
            for call, truth in zip(calls, truths(simulation), strict=True):
                turn = read(name, call, 3)
                assert turn.outcome == "ok"
                assert turn.step_state in states, (name, troubles, turn.notes)
                assert len(turn.chunk_tokens) == len(truth.chunks) < len(truth.steps)
                assert [chunk.tokens for chunk in truth.chunks] == turn.chunk_tokens
                if name == "vllm":
                    assert turn.step_tokens == [step.tokens for step in truth.steps]
                    assert turn.step_accepted == [step.accepted for step in truth.steps]


def test_a_baseline_with_an_interval_is_split_into_single_tokens() -> None:
    simulation, calls = load("trtllm", "none", 0, requests=1, troubles={"stream_interval": 5})
    turn = read("trtllm", calls[0], 0)
    assert turn.step_state == "repaired"
    assert turn.chunk_tokens[:3] == [1, 5, 5]
    assert len(turn.step_tokens) == truths(simulation)[0].tokens


@pytest.mark.parametrize(("truth", "state"), [("detailed", "exact"), ("summary", "exact"), ("none", "assumed")])
def test_vllm_tells_as_much_as_it_was_started_to(truth: str, state: str) -> None:
    _, calls = load("vllm", "eagle3", 3, requests=3, step_truth=truth)
    turns = [read("vllm", call, 3) for call in calls]
    assert {turn.step_state for turn in turns} == {state}
    assert all(bool(turn.srv_accepted_per_step) == (truth == "detailed") for turn in turns)


def test_sglang_streams_the_same_ids_cumulative_and_incremental() -> None:
    found = {}
    for incremental in (True, False):
        _, calls = load("sglang", "eagle3", 3, requests=2, incremental=incremental)
        found[incremental] = [read("sglang", call, 3).output_ids for call in calls], len(calls[0].raw)
    assert found[True][0] == found[False][0]
    assert found[True][1] < found[False][1]


def test_vllm_gives_a_simulated_token_the_probability_that_it_was_drawn_with() -> None:
    found = []
    for asked in (False, True):
        said = dialect("vllm").request(prompt_of(1), Sampling(max_tokens=20, ignore_eos=True, logprobs=asked), model="m")
        simulation = Simulation(dialect="vllm", drafter="none", draft_length=0)
        call = simulation.post(said)
        simulation.run()
        found.append(read("vllm", call, 0))
    plain, asked_for = found
    assert plain.outcome == asked_for.outcome == "ok"
    assert (plain.token_surprisal, plain.output_ids) == ([], asked_for.output_ids)
    assert asked_for.token_surprisal == pytest.approx([asked_for.token_surprisal[0]] * 20)
    assert asked_for.token_surprisal[0] > 1


def test_llamacpp_never_drafts_past_the_answer() -> None:
    simulation, _ = load("llamacpp", "eagle3", 5)
    for truth in truths(simulation):
        left = 60 - truth.ordinal
        for step in truth.steps:
            assert step.drafted <= max(left - 1, 0)
            left -= step.tokens


def trtllm(**changes: Any) -> Call:
    simulation = Simulation(dialect="trtllm", max_model_len=100, vocab_size=6000)
    asked = {**json.loads(body("trtllm", prompt_of(1), 10)), **changes}
    call = simulation.post({k: v for k, v in asked.items() if v is not None})
    simulation.run()
    return call


def test_trtllm_refuses_fields_that_it_does_not_know() -> None:
    exchange = trtllm(return_token_ids=True).exchange()
    assert exchange.status == 400
    error = json.loads(b"".join(data for _, data in exchange.reads))["error"]
    assert "return_token_ids" in error
    assert "extra_forbidden" in error
    assert trtllm(model=None).exchange().status == 400


def test_trtllm_shortens_answers_without_a_word() -> None:
    turn = read("trtllm", trtllm(max_tokens=5000), 0)
    assert (turn.outcome, turn.finish_reason, turn.n_completion_server) == ("ok", "length", 60)


@pytest.mark.parametrize("prompt", [[9999999, 5], list(range(100))])
def test_trtllm_cuts_the_connection_of_what_its_executor_refuses(prompt: list[int]) -> None:
    call = trtllm(prompt=prompt)
    assert call.transport.ended == "closed"
    assert read("trtllm", call, 0).error_kind == "disconnected"


def test_trtllm_has_a_new_id_in_every_chunk_and_its_odd_usage_chunk() -> None:
    text = trtllm().raw.decode()
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert len({event["id"] for event in events}) == len(events) == 11
    assert (events[-1]["object"], events[-1]["choices"]) == ("chat.completion.chunk", [])
    assert list(events[0]["choices"][0]) == [
        "index", "text", "token_ids", "logprobs", "finish_reason", "stop_reason", "disaggregated_params", "avg_decoded_tokens_per_iter",
    ]  # fmt: skip
    assert events[0]["usage"] == {"prompt_tokens": 40, "total_tokens": 41, "completion_tokens": 1}


@pytest.mark.parametrize("name", WIRES)
def test_an_answer_without_a_stream_holds_all_of_it(name: str) -> None:
    simulation = Simulation(dialect=name, drafter="eagle3", draft_length=3)
    asked = json.loads(body(name, prompt_of(1), 20))
    call = simulation.post({**{k: v for k, v in asked.items() if k != "stream_options"}, "stream": False})
    simulation.run()
    exchange = call.exchange()
    text = b"".join(data for _, data in exchange.reads).decode()
    answer = json.loads(text.removeprefix("data: "))
    assert exchange.status == 200
    assert dict(exchange.headers).get("content-length", dict(exchange.headers).get("Content-Length")) == str(len(text))
    ids = {
        "vllm": lambda: answer["choices"][0]["token_ids"],
        "trtllm": lambda: answer["choices"][0]["token_ids"],
        "sglang": lambda: answer["output_ids"],
        "llamacpp": lambda: answer["tokens"],
    }[name]()
    assert len(ids) == 20


def test_texts_are_taken_too() -> None:
    simulation = Simulation(dialect="vllm")
    call = simulation.post({"model": "m", "prompt": "x" * 400, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}})
    simulation.run()
    turn = read("vllm", call, 0, n_prompt=None)
    assert (turn.n_prompt_server, turn.n_completion_server) == (100, 5)


def test_a_prompt_is_accepted_by_its_category() -> None:
    prompts = [prompt_of(i) for i in range(40)]
    found = {}
    for category in ("low_entropy", "high_entropy"):
        simulation = Simulation({prompt_key(p): category for p in prompts}, dialect="vllm", drafter="eagle3", draft_length=3)
        for prompt in prompts:
            simulation.post(body("vllm", prompt, 100))
        simulation.run()
        counts = simulation.service.counts()
        found[category] = counts.accepted_tokens / counts.drafts
        assert {truth.category for truth in simulation.log.requests} == {category}
    assert found["low_entropy"] > found["high_entropy"] + 0.3


def test_an_unknown_wire_and_wrong_settings_are_told_by_name() -> None:
    with pytest.raises(ValueError, match=r"'triton'.*vllm, sglang, trtllm, llamacpp"):
        wire("triton", Served("m", "1"))
    for wrong, words in (
        ({"dialect": "triton"}, "dialect='triton'"),
        ({"drafts": 3}, "drafts=3 is not a field"),
        ({"speedup": 0}, "speedup=0"),
        ({"kv_tokens": 10}, "kv_tokens=10 cannot hold one request of max_model_len=8192"),
        ({"step_truth": "some"}, "step_truth='some'"),
        ({"dialect": "llamacpp", "troubles": {"stream_interval": 2}}, "llamacpp has no stream interval"),
    ):
        with pytest.raises(ModelError, match=words.replace("(", r"\(")):
            Simulation(**wrong)
