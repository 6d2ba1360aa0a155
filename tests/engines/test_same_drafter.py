"""One target, one drafter, the same prompts, two engines: what a drafter is worth is a fact of the models, so both must find the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from whole_sweeps import finished, problems, specsweep

from specsweep.client.trace import Turn
from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.own_env, pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(600)]

ENGINES = {"llamacpp": (), "vllm": ("engine.dtype=float32",)}
WORKLOADS = ("low_entropy", "mixed", "high_entropy")
COMMON = ("target=tiny", "drafter=tiny", "draft_length=3", "batch_size=1", f"workload={','.join(WORKLOADS)}", "isl=128")
SIZE = ("workload.prompts=24", "workload.osl=64", "measure.requests_per_slot=1", "tracking.enabled=false")
Pairs = list[tuple[Attempt, Attempt]]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Pairs:
    """The attempts of llama.cpp and of vLLM, by workload."""
    store = tmp_path_factory.mktemp("same")
    found: dict[str, dict[str, Attempt]] = {}
    for engine, more in ENGINES.items():
        words = (f"name={engine}", f"engine={engine}", *more, *COMMON, *SIZE, f"store={store}", f"cache={cache}")
        done = specsweep("run", *words, limit_s=400)
        assert finished(done), done.stderr
        view = Store(store).sweep(engine)
        found[engine] = {view.latest[p].point["axes"]["workload"]: view.latest[p] for p in view.current}
    return [(found["llamacpp"][w], found["vllm"][w]) for w in WORKLOADS]


def turns(attempt: Attempt) -> dict[str, Turn]:
    return {r.prompt_id: r.read for r in attempt.trace().requests if r.phase == "main"}


def test_acceptance_lengths_agree_within_their_intervals(pairs: Pairs) -> None:
    for llamacpp, vllm in pairs:
        assert problems(llamacpp) == problems(vllm) == []
        one, other = (a.measurement["metrics"] for a in (llamacpp, vllm))
        assert max(one["al_decode_ci_low"], other["al_decode_ci_low"]) <= min(one["al_decode_ci_high"], other["al_decode_ci_high"])


def test_where_the_text_is_the_same_the_steps_are_the_same(pairs: Pairs) -> None:
    """float16 against float32 tips a token now and then, and with it an answer; nothing tips the steps of an answer that is the same."""
    same_text = 0
    for llamacpp, vllm in pairs:
        one, other = turns(llamacpp), turns(vllm)
        for prompt in one.keys() & other.keys():
            if one[prompt].output_ids == other[prompt].output_ids:
                same_text += 1
                assert steps(one[prompt]) == steps(other[prompt]), prompt
    assert same_text >= len(WORKLOADS) * 24 * 0.8


def steps(turn: Any) -> list[int]:
    return list(turn.step_tokens)
