"""Log-probability captures: what is sent, what is kept, what they never are, and what refuses them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from launch_samples import spec
from plan_samples import only, plan_of

import specsweep.orchestrator.capture_logprobs as module
from specsweep.analysis.attempts import cells, is_capture
from specsweep.client.actors import PointResult
from specsweep.client.trace import PointTrace, RequestTrace, Turn
from specsweep.client.workload import Prompt, PromptSet
from specsweep.orchestrator.capture import capture_requests
from specsweep.orchestrator.capture_logprobs import capture_logprobs
from specsweep.orchestrator.errors import RequestError

WORDS = ("engine=vllm", "target=tiny", "workload=mixed", "workload.prompts=3", "isl=64", "batch_size=2")
CAPTURE = (*WORDS, "capture=logprobs")
PROMPTS = PromptSet(
    tuple(Prompt(f"p{i}", "c", tuple(range(100, 130 + i)), "text", 30 + i) for i in range(3)), (Prompt("ramp", "c", (1, 2), "t", 2),)
)
WHOLE = Turn(outcome="ok", output_ids=[5, 6], chunk_tokens=[1, 1], token_surprisal=[0.5, 1.0])


@dataclass
class Engine:
    base_url: str = "http://127.0.0.1:9"
    headers: tuple[tuple[str, str], ...] = ()


class Pool:
    """Client processes that answer the requests in turn."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns

    def measure(self, load: Any) -> PointResult:
        rows = [
            RequestTrace(
                r.index, r.prompt_id, r.conversation_id, 0, r.category, r.phase, 0, r.n_prompt, r.max_tokens, 0, 0, 0, 1, 0, 1, "complete",
                replace(self._turns[i % len(self._turns)]),
            )
            for i, r in enumerate(load.requests)
        ]  # fmt: skip
        return PointResult(PointTrace(load.batch_size, rows, []))


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: Any) -> None: ...

    monkeypatch.setattr(module, "until_idle", at_once)


async def captured(*turns: Turn, found: dict[str, Any] | None = None, words: tuple[str, ...] = CAPTURE) -> Any:
    point = only(plan_of(*words))
    requests = capture_requests(point, PROMPTS, "m")
    return await capture_logprobs(point, requests, Engine(), Pool(*turns), found=found or {}, actors=None)  # type: ignore[arg-type]


def test_every_prompt_is_sent_once_with_the_wish_and_a_timed_one_without() -> None:
    requests = capture_requests(only(plan_of(*CAPTURE)), PROMPTS, "m")
    assert [r.prompt_id for r in requests] == ["p0", "p1", "p2"]
    assert all(json.loads(r.body)["logprobs"] == 0 for r in requests)
    routing = only(
        plan_of("capture=routing", "engine=sglang", "target=qwen3-235b", "workload=mixed", "workload.prompts=3", "workload.osl=1")
    )
    assert json.loads(capture_requests(routing, PROMPTS, "m")[0].body)["return_logprob"] is False


async def test_a_capture_keeps_the_numbers_and_says_that_its_times_are_none() -> None:
    found = await captured(WHOLE)
    assert found.measurement["untimed"] is True
    assert found.measurement["metrics"] == {}
    assert found.measurement["validity"] == {"valid": True, "tps": False, "steps": False, "acceptance": False}
    assert (found.measurement["logprobs"]["tokens"], found.measurement["logprobs"]["mean"]) == (6, 0.75)
    assert "lower bound" in found.measurement["logprobs"]["meaning"]
    assert "not those of serving" in found.trace.meta["untimed"]
    json.dumps(found.measurement, allow_nan=False)


async def test_what_it_means_follows_the_temperature_and_a_simulation_says_so() -> None:
    found = await captured(WHOLE, found={"simulated": True}, words=(*CAPTURE, "temperature=1"))
    assert "unbiased estimate" in found.measurement["logprobs"]["meaning"]
    assert found.measurement["simulated"] is found.trace.simulated is True


async def test_one_answer_without_them_fails_the_capture() -> None:
    with pytest.raises(RequestError, match="nothing was captured: the answer to prompt p1 has no log-probabilities: the engine sent none"):
        await captured(WHOLE, replace(WHOLE, token_surprisal=[]))


async def test_one_failed_request_fails_the_capture() -> None:
    with pytest.raises(RequestError, match=r"1 of 3 requests failed.*stalled: silence"):
        await captured(WHOLE, WHOLE, Turn(outcome="failed", error_kind="stalled", error="silence"))


def test_it_stands_in_no_comparison_and_in_no_session_of_timed_points() -> None:
    plan = plan_of(*WORDS, "capture=none,logprobs", "drafter=none,ngram", "draft_length=3")
    assert len(plan.points) == 4
    assert all(len({p.is_capture for p in s.points}) == 1 for s in plan.sessions)
    assert all(p.baseline_id is None for p in plan.points if p.is_capture)
    attempts = [{"point": {"point_id": p.point_id, "axes": dict(p.axes), "status": "measured"}, "measurement": {}} for p in plan.points]
    assert sum(map(is_capture, attempts)) == 2
    assert len(cells(attempts)) == 2, "what fronts and speedups are made from"
    assert any("drafter=none is enough" in warning for warning in plan.warnings)


def test_the_engine_is_started_as_for_any_measurement() -> None:
    for engine in (["engine=vllm"], ["engine=sglang", "engine.version=0.5.7"], ["engine=trtllm"]):
        words = [*engine, "target=qwen3-235b", "workload=mixed", "isl=1k"]
        plain, asked = spec(*words), spec(*words, "capture=logprobs")
        assert (plain.argv, plain.env, asked.recorder_files) == (asked.argv, asked.env, 0)
