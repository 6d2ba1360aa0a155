"""Whole sweeps on the simulator: the truth is found, the mark goes everywhere, and each trouble ends where it should."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from whole_sweeps import events, finished, problems, running, specsweep, until

from specsweep.client.trace import read_trace
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SIM = (
    "engine=sim",
    "target=tiny",
    "workload=mixed",
    "isl=128",
    "workload.prompts=12",
    "workload.osl=48",
    "engine.speedup=0.25",
    "name=simulated",
)


def run(store: Path, cache: Path, *words: str) -> Any:
    return specsweep("run", *SIM, *words, f"store={store}", f"cache={cache}")


def attempts(store: Path) -> list[Any]:
    return list(Store(store).sweep("simulated").latest.values())


def test_a_sweep_over_every_wire_finds_the_simulators_own_acceptance_and_is_marked(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    done = run(
        store, cache, "engine.dialect=vllm,sglang,trtllm,llamacpp", "engine.step_clock=client,server", "drafter=eagle3",
        "draft_length=3", "batch_size=4",
    )  # fmt: skip
    assert finished(done), done.stderr
    seen = set()
    for attempt in attempts(store):
        dialect = attempt.point["config"]["engine"]["dialect"]
        assert [problem for problem in problems(attempt) if not problem.startswith("client_lag")] == [], dialect
        trace = read_trace(attempt.path / "trace.parquet")
        assert trace.simulated is attempt.measurement["simulated"] is attempt.point["env"]["engine"]["simulated"] is True
        assert {r.read.outcome for r in trace.requests} == {"ok"}
        assert {r.read.step_state for r in trace.requests} == {"exact"}
        steps = [step for r in trace.requests for step in r.read.step_tokens[1:]]
        assert 1.5 < sum(steps) / len(steps) < 3.2
        seen.add(dialect)
    assert len(seen) == len(attempts(store)) == 4, "a wire with the wrong clock is no point"
    assert "SIMULATED" in done.stdout
    assert "simulated" in (store / "sweeps" / "simulated" / "report.html").read_text().lower()
    with sqlite3.connect(store / "mlflow.db") as connection:
        assert {row[0] for row in connection.execute("select value from tags where key = 'simulated'")} == {"true"}


def test_streams_that_break_spoil_their_point_by_kind_and_the_next_one_is_measured(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    done = run(
        store, cache, "tracking.enabled=false", "batch_size=4,8", "measure.stall_seconds=5", "workload.prompts=32", "record_raw=true",
        "engine.troubles.stall_share=0.1", "engine.troubles.cut_share=0.1", "engine.troubles.error_share=0.1",
        "engine.troubles.wrong_prompt_share=0.1",
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    seen: set[str] = set()
    for attempt in attempts(store):
        assert attempt.measured, attempt.point.get("error")
        assert not attempt.valid
        counts = attempt.measurement["counts"]
        assert counts["ok"] > counts["failed"] > 0
        seen |= set(counts["failed_by_kind"])
    assert len(attempts(store)) == 2
    assert seen == {"stalled", "disconnected", "stream_error", "prompt_mismatch"}
    told = specsweep("inspect", str(attempts(store)[0].path / "evidence" / "raw.jsonl.gz"), "--json")
    assert json.loads(told.stdout)[0]["kind"] == "recording, simulated"


def test_wrong_counters_are_found_and_merged_chunks_repaired(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    done = run(
        store, cache, "tracking.enabled=false", "drafter=eagle3", "draft_length=3", "batch_size=2",
        "engine.troubles.wrong_counters=0,0.3", "engine.troubles.merge_share=0,0.3",
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert len(attempts(store)) == 4
    for attempt in attempts(store):
        troubles = attempt.point["config"]["engine"]["troubles"]
        failed = {check["name"] for check in attempt.measurement["checks"] if not check["ok"]}
        states = {r.read.step_state for r in read_trace(attempt.path / "trace.parquet").requests}
        assert ("repaired" in states) == bool(troubles["merge_share"])
        assert states <= {"exact", "repaired"}
        assert ("counter_accepted_tokens" in failed) is bool(troubles["wrong_counters"]), failed


def test_a_cache_that_cannot_hold_the_batch_marks_the_point_by_gauges_or_preemptions(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    done = run(
        store, cache, "tracking.enabled=false", "batch_size=8", "engine.kv_tokens=1200,4000", "engine.speedup=0.05",
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    for attempt in attempts(store):
        trace = read_trace(attempt.path / "trace.parquet")
        assert trace.gauges
        assert trace.running_max == max(look.running for look in trace.gauges)
        failed = {check["name"]: check["message"] for check in attempt.measurement["checks"] if not check["ok"]}
        short = {"running_requests", "queued_in_engine", "preemptions"} & failed.keys()
        if attempt.point["config"]["engine"]["kv_tokens"] == 4000:
            assert not short, failed
            continue
        assert short, (trace.running_max, trace.gauges)
        assert all("KV cache" in failed[name] for name in short), failed
        assert not attempt.valid
    assert len(attempts(store)) == 2


def test_an_engine_that_dies_or_never_gets_ready_costs_its_own_points(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    done = run(
        store, cache, "tracking.enabled=false", "engine.troubles.dies_after_steps=0,300",
        "engine.troubles.never_healthy=false,true", "engine.startup_timeout_s=5",
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    found = attempts(store)
    assert len(found) == 4
    for attempt in found:
        troubles = attempt.point["config"]["engine"]["troubles"]
        if troubles["never_healthy"]:
            assert "not ready after 5 s" in json.dumps(attempt.point["error"])
        elif troubles["dies_after_steps"]:
            assert "SIGKILL" in json.dumps(attempt.point["error"])
        else:
            assert attempt.measured, attempt.point.get("error")
    started = [e for e in events(store, "simulated") if e["kind"] == "session_started"]
    assert len(started) == 4


def test_a_sweep_whose_turn_process_is_killed_measures_the_point_again(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    words = (
        "engine=sim", "target=tiny", "drafter=none", "workload=qualitative", "isl=natural", "workload.prompts=44", "workload.osl=200", "batch_size=4",
        "name=talks", "tracking.enabled=false", "measure.quiet_seconds=0", f"store={store}", f"cache={cache}",
    )  # fmt: skip

    def workers() -> list[psutil.Process]:
        with suppress(AssertionError):
            return [run.find("specsweep.client.turn_process")]
        return []

    with running("run", *words) as run:
        until(lambda: bool(workers()), "the process that prepares later turns")
        time.sleep(2)  # and into the window; wherever it is, the point is measured again
        (victim,) = workers()
        victim.kill()
        code, output = run.wait()
        assert run.alive() == []
    assert code in (0, 5), output
    assert "measuring it once more with fresh clients" in output
    (lost,) = (event["fact"] for event in events(store, "talks") if event["kind"] == "actor_lost")
    assert f"prepares later turns (pid {victim.pid}) failed: killed by SIGKILL" in lost
    (attempt,) = Store(store).sweep("talks").latest.values()
    assert problems(attempt) == []
    assert attempt.measurement["counts"]["failed"] == 0
    assert attempt.measurement["counts"]["conversations"] == 44
