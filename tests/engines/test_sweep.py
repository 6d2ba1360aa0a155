"""Whole sweeps on the real llama.cpp with the tiny pair: what lands, what survives a kill, what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from pathlib import Path

import psutil
import pytest
from whole_sweeps import events, finished, measured_points, problems, running, specsweep, until

from specsweep.client.trace import read_trace
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(300)]

LONGER = ("workload.prompts=12", "workload.osl=160", "batch_size=1,2", "tracking.enabled=false")  # a window that can be hit


def words(store: Path, cache: Path, *more: str) -> tuple[str, ...]:
    return ("run", "sweep=smoke", f"store={store}", f"cache={cache}", *more)


def test_a_sweep_lands_whole_and_is_not_measured_twice(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    done = specsweep(*words(store, cache, "record_raw=true", "batch_size=2"))
    assert finished(done), done.stderr
    view = Store(store).sweep("smoke")
    assert sorted(p["axes"]["drafter"] for p in view.points.values()) == ["draft_model", "none"]
    for attempt in view.latest.values():
        assert problems(attempt) == []
        trace = read_trace(attempt.path / "trace.parquet")
        assert trace.counters is not None
        assert sum(r.read.srv_accepted or 0 for r in trace.requests) == trace.counters.accepted_tokens
        assert all(r.read.n_prompt_server == r.n_prompt for r in trace.requests)
        assert (
            len({r.prompt_id for r in trace.requests if r.phase == "ramp"} & {r.prompt_id for r in trace.requests if r.phase == "main"})
            == 0
        )
    drafting = next(a for a in view.latest.values() if a.point["axes"]["drafter"] == "draft_model")
    metrics = drafting.measurement["metrics"]
    assert 1.2 < metrics["al_decode_ci_low"] < metrics["al_decode"] < metrics["al_decode_ci_high"] < 4
    assert metrics["al_verify"] == pytest.approx(metrics["al_decode"], rel=0.2)
    assert [p["position"] for p in drafting.measurement["ar_cond"]] == [1, 2, 3]
    assert (store / "sweeps/smoke/report.html").read_text().count("<svg") >= 1
    assert list((store / "sweeps/smoke").glob("*.png"))
    with sqlite3.connect(store / "mlflow.db") as database:
        names = [row[0] for row in database.execute("select name from runs")]
    assert len(names) == 3, "a parent run and a child run a point"

    told = json.loads(specsweep("inspect", str(drafting.path / "evidence/raw.jsonl.gz"), "--json").stdout)
    assert told, "the recorded bytes can be inspected"

    again = specsweep(*words(store, cache, "record_raw=true", "batch_size=2"))
    assert finished(again), again.stderr
    assert re.search(r"2 of them already measured.*; 0 sessions", again.stderr), again.stderr
    assert set(measured_points(store, "smoke").values()) == {1}


def test_a_wider_sweep_keeps_the_points_that_it_has(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    quick = ("tracking.enabled=false", "drafter=none")
    assert finished(specsweep(*words(store, cache, "batch_size=2", *quick)))
    wider = specsweep(*words(store, cache, "batch_size=1,2", "workload=mixed", *quick))
    assert finished(wider), wider.stderr
    assert "2 points, 1 of them already measured" in wider.stderr
    assert set(measured_points(store, "smoke").values()) == {1}


def test_a_killed_engine_costs_the_point_in_flight_and_no_more(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    with running(*words(store, cache, *LONGER)) as run:
        until(lambda: any(e["kind"] == "point_started" for e in events(store, "smoke")), "the first point")
        until(lambda: any("ray::ClientActor" in p for p in run.alive()), "a client")
        run.find("llamacpp_server").kill()
        code, output = run.wait()
        assert code == 5, output
        assert "was killed by SIGKILL" in output
        until(lambda: not run.alive(), "the end of every process", 20)
    counts = measured_points(store, "smoke")
    assert sorted(counts.values()) == [0, 1, 1, 1]
    assert finished(specsweep(*words(store, cache, *LONGER)))
    assert set(measured_points(store, "smoke").values()) == {1}


def test_a_killed_sweep_leaves_nothing_running_and_finishes_the_next_time(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    with running(*words(store, cache, *LONGER)) as run:
        until(lambda: sum(e["kind"] == "point_started" for e in events(store, "smoke")) == 2, "the second point")
        until(lambda: len(run.family()) > 3, "its processes")
        run.process.kill()
        run.process.wait()
        until(lambda: not run.alive(), f"the end of every process, of {run.alive()}", 30)
    before = measured_points(store, "smoke")
    assert sum(before.values()) == 1
    assert finished(specsweep(*words(store, cache, *LONGER)))
    after = measured_points(store, "smoke")
    assert set(after.values()) == {1}


def test_a_lost_client_process_costs_one_repetition(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    with running(*words(store, cache, *LONGER, "drafter=none", "measure.client_processes=2", "batch_size=2")) as run:
        until(lambda: any(e["kind"] == "point_started" for e in events(store, "smoke")), "the point")
        until(lambda: sum("ray::ClientActor" in p for p in run.alive()) == 2, "two clients")
        client, engine = run.find("ray::ClientActor"), run.find("llamacpp_server")
        listens = {c.laddr.port for c in engine.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        # Before that it is replaced without a word: an actor that never ran has cost no measurement.
        until(lambda: any(c.raddr and c.raddr.port in listens for c in client.net_connections("tcp")), "a connection")
        client.kill()
        code, output = run.wait()
    assert code in (0, 5), output
    assert "measuring it once more" in output
    lost = [e for e in events(store, "smoke") if e["kind"] == "actor_lost"]
    assert len(lost) == 1
    assert "pid" in lost[0]["fact"]
    assert set(measured_points(store, "smoke").values()) == {1}


def test_a_signal_to_the_whole_group_ends_it_at_once_and_keeps_what_is_measured(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    with running(*words(store, cache, *LONGER)) as run:
        until(lambda: sum(e["kind"] == "point_started" for e in events(store, "smoke")) == 2, "the second point")
        run.family()
        os.killpg(run.process.pid, signal.SIGTERM)  # as timeout, systemd and Slurm do
        began = time.monotonic()
        code, output = run.wait()
        assert code == 130, output
        assert time.monotonic() - began < 45  # a client that waits for a Ray that is gone takes a minute
        assert "Traceback" not in output
        until(lambda: not run.alive(), "the end of every process", 20)
    assert sum(measured_points(store, "smoke").values()) == 1
    assert events(store, "smoke")[-1]["kind"] == "run_interrupted"


def test_first_position_acceptance_at_two_draft_lengths_has_intervals_and_a_word_on_why_it_may_differ(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    done = specsweep(
        *words(store, cache, "drafter=draft_model", "draft_length=1,8", "batch_size=1", "workload.prompts=24", "tracking.enabled=false")
    )
    assert finished(done), done.stderr
    first = {}
    for attempt in Store(store).sweep("smoke").latest.values():
        assert problems(attempt) == []
        rows = attempt.measurement["ar_cond"]
        assert [r["position"] for r in rows] == list(range(1, attempt.point["axes"]["draft_length"] + 1))
        assert rows[0]["ci_low"] < rows[0]["value"] < rows[0]["ci_high"]
        first[attempt.point["axes"]["draft_length"]] = rows[0]["reached"]
    assert first[1] > first[8], "with a longer draft fewer steps are taken, at other places"
    assert "start their steps at other places" in (store / "sweeps/smoke/report.html").read_text()
