"""The real vLLM on the CPU with the tiny pair and its heads: every drafter, its chunks against its own per-request truth and its counters."""

from __future__ import annotations

import functools
import os
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from greedy import unexplained
from whole_sweeps import Running, events, finished, measured_points, problems, running, specsweep, until

from specsweep.client.dialects import dialect
from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.engines.vllm_env import interpreter
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.own_env, pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(1200)]

ENGINE = ("engine=vllm", "engine.dtype=float32", "isl=128", "workload=mixed", "tracking.enabled=false")
SMALL = ("workload.prompts=8", "workload.osl=32")
DRAFT_LENGTHS = (1, 3, 5)
BATCH_SIZES = (1, 4, 8)
GRIDS = {"tiny": ("none", "ngram", "tiny", "tiny_eagle3"), "tiny_mtp": ("none", "mtp")}  # drafters by target
ALWAYS_DRAFT = ("tiny", "tiny_eagle3", "mtp")
TINY_TARGET = Path(__file__).parents[1] / "tiny_pair" / "target"
VLLM = dialect("vllm")
Grid = Callable[[str], list[Attempt]]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Grid:
    """The attempts of one sweep over all drafters of a target, DL and BS. Each target's sweep runs once, when it is first asked for."""

    @functools.cache
    def swept(target: str) -> list[Attempt]:
        store, drafters = tmp_path_factory.mktemp(target), GRIDS[target]
        axes = (f"drafter={','.join(drafters)}", f"draft_length={joined(DRAFT_LENGTHS)}", f"batch_size={joined(BATCH_SIZES)}")
        where = (f"store={store}", f"cache={cache}")
        done = specsweep("run", "name=vllm", *ENGINE, *SMALL, f"target={target}", *axes, *where, limit_s=1100)
        assert done.returncode in (0, 5), done.stderr
        view = Store(store).sweep("vllm")
        assert len(view.current) == (1 + len(DRAFT_LENGTHS) * (len(drafters) - 1)) * len(BATCH_SIZES)
        return [view.latest[point_id] for point_id in view.current]

    return swept


@pytest.fixture(params=GRIDS)
def attempts(request: pytest.FixtureRequest, grid: Grid) -> list[Attempt]:
    return grid(request.param)


def joined(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


# vLLM's server merges chunks when it lags, as it does on a busy machine. Where every step drafts, its list of steps tells how to split them;
# steps without a draft are not in that list, and then the point must say so.
MERGED = ("merged_requests", "merge_probe")


def unsplit(attempt: Attempt) -> bool:
    return any(check["name"] == "merged_requests" and not check["ok"] for check in attempt.measurement["checks"])


def test_every_point_is_measured_and_its_streams_are_believed(attempts: list[Attempt]) -> None:
    for attempt in attempts:
        assert attempt.measured, attempt.point["error"]
        told = MERGED if attempt.point["axes"]["drafter"] not in ALWAYS_DRAFT else ()
        assert [problem for problem in problems(attempt) if not problem.startswith(told)] == [], attempt.point["axes"]


def test_chunks_truth_and_counters_agree_exactly(attempts: list[Attempt]) -> None:
    for attempt in attempts:
        axes, trace = attempt.point["axes"], attempt.trace()
        if axes["drafter"] == "none":
            continue
        assert trace.counters is not None
        turns = [r.read for r in trace.requests]
        assert {t.outcome for t in turns} == {"ok"}, axes
        assert {t.step_state for t in turns} <= {"exact", "repaired"} or unsplit(attempt), axes
        assert all(t.notes for t in turns if t.step_state == "repaired")
        assert sum(t.srv_steps or 0 for t in turns) == trace.counters.drafts, axes
        assert sum(t.srv_accepted or 0 for t in turns) == trace.counters.accepted_tokens, axes
        assert sum(sum(t.step_accepted) for t in turns) == trace.counters.accepted_tokens or unsplit(attempt), axes
        assert sum(len(t.output_ids) for t in turns) == trace.counters.generation_tokens, axes
        per_position = [sum(a > i for t in turns for a in t.srv_accepted_per_step) for i in range(int(axes["draft_length"]))]
        assert per_position == list(trace.counters.accepted_per_pos), axes


def test_a_baseline_takes_one_step_a_token(attempts: list[Attempt]) -> None:
    for attempt in attempts:
        if attempt.point["axes"]["drafter"] == "none":
            assert all(set(r.read.step_tokens) == {1} for r in attempt.trace().requests)
            assert attempt.measurement["metrics"]["al_decode"] == 1


def test_a_drafter_that_always_drafts_has_one_acceptance_length(attempts: list[Attempt]) -> None:
    """Server and client count the same steps, but for the first and the cut last one of each request, which only the server's count has."""
    for attempt in attempts:
        if attempt.point["axes"]["drafter"] in ALWAYS_DRAFT:
            metrics = attempt.measurement["metrics"]
            assert metrics["al_verify"] == pytest.approx(metrics["al_decode"], rel=0.1)
            assert 1.5 < metrics["al_verify"] < 1 + attempt.point["axes"]["draft_length"]


def outputs(attempts: list[Attempt], drafter: str, length: int | None) -> dict[str, list[int]]:
    """Output ids of the first pass at batch size 1, by prompt."""
    wanted = (drafter, length, 1)
    (found,) = (a for a in attempts if tuple(a.point["axes"][axis] for axis in ("drafter", "draft_length", "batch_size")) == wanted)
    return {r.prompt_id: r.read.output_ids for r in found.trace().requests if r.phase == "main" and r.pass_index == 0}


def baseline(attempts: list[Attempt]) -> Attempt:
    return next(a for a in attempts if a.point["axes"]["drafter"] == "none")


def test_greedy_output_is_the_same_with_and_without_speculation_at_batch_size_1(attempts: list[Attempt]) -> None:
    """At float32; or the outputs part where the two best logits nearly tie."""
    plain, python = outputs(attempts, "none", None), interpreter({})
    for drafter in {a.point["axes"]["drafter"] for a in attempts} - {"none"}:
        for length in DRAFT_LENGTHS:
            drafted = outputs(attempts, drafter, length)
            assert unexplained(baseline(attempts), plain, drafted, model=TINY_TARGET, python=python) == [], (drafter, length)


def test_the_checkpoint_with_an_mtp_layer_writes_what_the_target_writes(grid: Grid) -> None:
    """As another architecture in vLLM: the same weights in other code."""
    one, other = (outputs(grid(target), "none", None) for target in ("tiny", "tiny_mtp"))
    assert unexplained(baseline(grid("tiny")), one, other, model=TINY_TARGET, python=interpreter({})) == []


def test_the_environment_names_what_ran(attempts: list[Attempt]) -> None:
    for attempt in attempts:
        env = attempt.point["env"]
        assert env["engine"]["version"].startswith("0.32.0")
        assert env["flags"]["stream-interval"] == 1
        assert "/" not in str(env["drafter"].get("speculative-config") or "")


KILLS = (("EngineCore", signal.SIGKILL), ("api_server", signal.SIGKILL), ("api_server", signal.SIGTERM))


def kill_in_the_middle_of_point(number: int, word: str, how: int, run: Running, store: Path) -> None:
    until(lambda: sum(e["kind"] == "point_started" for e in events(store, "kill")) == number, f"point {number}", 240)
    command = run.find("api_server").cmdline()
    page = f"http://127.0.0.1:{command[command.index('--port') + 1]}/metrics"
    until(lambda: (VLLM.counters(urllib.request.urlopen(page).read().decode()).running or 0) > 0, "requests in flight", 60)
    os.kill(run.find(word).pid, how)


@pytest.mark.soak
def test_an_engine_that_is_killed_in_the_middle_of_a_point_is_started_again(tmp_path: Path, cache: Path) -> None:
    """Its engine process, its server, and its server politely: each costs the point in flight and no other."""
    store = tmp_path / "store"
    longer = ("workload.prompts=16", "workload.osl=300", "batch_size=2", "measure.stall_seconds=10", f"repeats={2 * len(KILLS)}")
    words = ("run", "name=kill", *ENGINE, *longer, "target=tiny", "drafter=none", f"store={store}", f"cache={cache}")
    with running(*words) as run:
        for number, (word, how) in enumerate(KILLS):
            kill_in_the_middle_of_point(2 * number + 1, word, how, run, store)
        code, output = run.wait()
    assert code == 5, output
    assert "Traceback" not in output
    attempts = Store(store).sweep("kill").latest.values()
    assert sorted(a.measured for a in attempts) == [False] * len(KILLS) + [True] * len(KILLS)
    assert all(a.point["error"]["kind"].startswith("Engine") for a in attempts if not a.measured)
    assert not run.alive()
    assert finished(specsweep(*words, limit_s=400))
    assert all(n == 1 for n in measured_points(store, "kill").values())
