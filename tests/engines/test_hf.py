"""The engine hf for real: our decoding loop beside references, and whole sweeps through Ray Serve, on the tiny pair."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from whole_sweeps import finished, problems, running, specsweep, until

from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.engines.hf_env import interpreter, problem
from specsweep.orchestrator.store import Store

pytestmark = [
    pytest.mark.own_env,
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(problem({}) is not None, reason=problem({}) or ""),
]

HERE = Path(__file__).parent
DRAFTERS = ("draft_model", "ngram", "medusa")
SWEEP = ("engine=hf", "engine.dtype=float32", "target=tiny", "isl=128", "workload=mixed", "tracking.enabled=false")
SMALL = ("workload.prompts=8", "workload.osl=32", "measure.requests_per_slot=4")


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    """What hf_reference.py finds: per prompt, ours and the references."""
    pair = HERE.parent / "tiny_pair"
    done = subprocess.run([interpreter({}), str(HERE / "hf_reference.py"), str(pair)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_plain_decoding_is_transformers_greedy_decoding(compared: dict[str, Any]) -> None:
    for prompt in compared["prompts"]:
        assert prompt["plain"]["ids"] == prompt["transformers"]["ids"]
        assert set(prompt["plain"]["drafted"]) == {0}


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_output_is_that_of_plain_decoding(compared: dict[str, Any], drafter: str) -> None:
    for prompt in compared["prompts"]:
        assert prompt[drafter]["ours"]["ids"] == prompt["plain"]["ids"]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_step_accepts_what_the_loop_without_a_cache_accepts(compared: dict[str, Any], drafter: str) -> None:
    for prompt in compared["prompts"]:
        assert prompt[drafter]["ours"] == prompt[drafter]["reference"]
    accepted = [a for prompt in compared["prompts"] for a in prompt[drafter]["ours"]["accepted"]]
    assert max(accepted) > 0, "a comparison of rejections alone would prove little"


@pytest.mark.parametrize("drafter", ["draft_model", "ngram"])
def test_it_takes_as_many_passes_as_assisted_generation_of_transformers(compared: dict[str, Any], drafter: str) -> None:
    for prompt in compared["prompts"]:
        theirs = prompt[drafter]["transformers"]
        assert theirs["ids"] == prompt["plain"]["ids"]
        assert theirs["passes"] == len(prompt[drafter]["ours"]["accepted"])


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_seed_gives_the_same_sampled_answer_again(compared: dict[str, Any], drafter: str) -> None:
    prompt = compared["prompts"][0]
    one, other = prompt[drafter]["sampled"]
    assert one == other
    assert one["ids"] != prompt["plain"]["ids"]


@pytest.mark.parametrize("kind", ["certain", "sampled"])
def test_verification_leaves_the_targets_distribution_as_it_is(compared: dict[str, Any], kind: str) -> None:
    """2,000 draws of four tokens: chi-square with 3 degrees of freedom exceeds 16.3 once in a thousand; the seed is fixed."""
    wanted, drawn = compared["distribution"], compared["drawn"][kind]
    assert sum(2000 * (d - w) ** 2 / w for d, w in zip(drawn, wanted, strict=True)) < 16.3


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> list[Attempt]:
    store = tmp_path_factory.mktemp("hf")
    axes = ("drafter=none,tiny,ngram,tiny_medusa", "draft_length=3", "batch_size=1,2")
    done = specsweep("run", "name=hf", *SWEEP, *SMALL, *axes, f"store={store}", f"cache={cache}", limit_s=850)
    assert finished(done), done.stderr
    view = Store(store).sweep("hf")
    assert len(view.current) == 8
    return [view.latest[point_id] for point_id in view.current]


@pytest.mark.ray
def test_whole_sweep_streams_are_believed_and_agree_with_truth_and_counters(attempts: list[Attempt]) -> None:
    for attempt in attempts:
        assert problems(attempt) == [], attempt.point["axes"]
        trace = attempt.trace()
        turns = [r.read for r in trace.requests]
        assert {t.outcome for t in turns} == {"ok"}
        assert {t.step_state for t in turns} == {"exact"}
        assert trace.counters is not None
        assert sum(len(t.output_ids) for t in turns) == trace.counters.generation_tokens
        if attempt.point["axes"]["drafter"] == "none":
            assert attempt.measurement["metrics"]["al_decode"] == 1
        else:
            assert sum(t.srv_steps or 0 for t in turns) == trace.counters.drafts
            assert sum(t.srv_accepted or 0 for t in turns) == sum(trace.counters.accepted_per_pos)
            assert attempt.measurement["metrics"]["al_verify"] > 1


@pytest.mark.ray
def test_whole_sweep_greedy_answers_are_the_same_in_every_arm(attempts: list[Attempt]) -> None:
    """At batch size 2 as well: replicas do not batch, so nothing depends on what else runs."""
    answers: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for attempt in attempts:
        for r in attempt.trace().requests:
            if r.phase == "main":
                answers.setdefault((r.prompt_id, len(r.read.output_ids)), set()).add(tuple(r.read.output_ids))
    assert answers
    assert all(len(found) == 1 for found in answers.values())


@pytest.mark.ray
def test_heads_that_do_not_fit_end_the_start_with_the_reason(tmp_path: Path, cache: Path) -> None:
    pair, heads = HERE.parent / "tiny_pair", tmp_path / "heads"
    heads.mkdir()
    shutil.copy(pair / "medusa" / "config.json", heads)  # so that the plan finds nothing wrong
    shutil.copy(pair / "draft" / "model.safetensors", heads)
    where = (f"drafter.model={{source: path, path: {heads}}}", f"store={tmp_path}", f"cache={cache}")
    done = specsweep("run", "name=bad", *SWEEP, *SMALL, "drafter=medusa", "draft_length=3", "batch_size=1", *where)
    assert done.returncode == 4 or done.returncode == 5, done.stderr
    (attempt,) = Store(tmp_path).sweep("bad").latest.values()
    assert "holds no Medusa heads" in str(attempt.point["error"])


@pytest.mark.ray
def test_nothing_of_an_interrupted_sweep_is_left(tmp_path: Path, cache: Path) -> None:
    with running("run", "name=gone", *SWEEP, *SMALL, "drafter=none", "batch_size=1", f"store={tmp_path}", f"cache={cache}") as run:
        until(lambda: any("ServeReplica" in line for line in run.alive()), "a replica", 200)
        run.process.terminate()
        run.wait()
        until(lambda: not run.alive(), "every process to end", 30)
