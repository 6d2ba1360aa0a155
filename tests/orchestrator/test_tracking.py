"""MLflow agrees with the store, whatever happened: tried against the real MLflow, on sqlite and behind its server."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_samples import axes, measurement, plan, record, trace

from specsweep.orchestrator import tracking, tracking_mlflow
from specsweep.orchestrator.errors import ConfigError, TrackingError
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import Tracker, link, sync, ui_command

pytestmark = pytest.mark.slow  # importing MLflow and making its schema take 15 s; what a run holds is tested without MLflow

GRID = [axes("none", None, 1), axes("none", None, 8), axes("ngram", 4, 1), axes("ngram", 4, 8)]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's schema takes seconds to make, so it is made once and copied."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    tracking_mlflow.connect(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def store(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = Store(tmp_path / "results")
    made.write_plan(plan("demo", GRID))
    shutil.copy(empty_database, made.root / "mlflow.db")
    return made


def land(store: Store, values: dict[str, Any], minute: int = 0, **more: Any) -> Any:
    measured = measurement(drafter=values["drafter"], tps=100.0 * values["batch_size"], **more.pop("measured", {}))
    store.commit(record(values, minute=minute, **more), measured, trace(), {"engine.log": "log\n"})
    return store.latest(record(values)["point_id"])


def client(uri: str) -> Any:
    return tracking_mlflow.connect(uri)


def children(uri: str, query: str = "", sweep: str = "demo") -> list[Any]:
    mlflow = client(uri)
    experiment = mlflow.get_experiment_by_name(sweep)
    query = "tags.role = 'attempt'" + (f" and {query}" if query else "")
    return list(mlflow.search_runs([experiment.experiment_id], query, max_results=1000))


def parent(uri: str, sweep: str = "demo") -> Any:
    mlflow = client(uri)
    [run] = mlflow.search_runs([mlflow.get_experiment_by_name(sweep).experiment_id], "tags.role = 'sweep'")
    return run


def assert_one_complete_run_per_attempt(store: Store, uri: str) -> None:
    runs = children(uri)
    assert sorted(r.data.tags["attempt_sha"] for r in runs) == sorted(a.sha256 for a in store.attempts())
    assert all(r.data.tags.get("complete") == "true" and r.info.status in ("FINISHED", "FAILED") for r in runs)
    assert {r.data.tags["mlflow.parentRunId"] for r in runs} == {parent(uri).info.run_id}


# -- while it runs


def test_runs_appear_as_points_land_and_the_parents_figure_grows(store: Store) -> None:
    tracker = Tracker(store, None, "demo")
    uri = tracker.uri
    assert uri == f"sqlite:///{store.root}/mlflow.db"
    tracker.start()
    tracker.settle()
    figures = []
    for landed, values in enumerate(GRID, start=1):
        assert tracker.attempt(land(store, values, minute=landed))
        assert len(children(uri)) == landed
        path = client(uri).download_artifacts(parent(uri).info.run_id, "pareto.png", str(store.root))
        figures.append(Path(path).read_bytes())
        assert parent(uri).info.status == "RUNNING"
    assert figures[-1].startswith(b"\x89PNG")
    assert len(set(figures)) == len(figures)
    assert tracker.finish()
    assert parent(uri).info.status == "FINISHED"
    history = client(uri).get_metric_history(parent(uri).info.run_id, "points_done")
    assert [m.value for m in sorted(history, key=lambda m: m.step)] == [0, 1, 2, 3, 4]
    assert_one_complete_run_per_attempt(store, uri)

    [run] = children(uri, "params.drafter = 'ngram' and params.batch_size = '8'")
    assert run.info.run_name == "ngram DL4 BS8 ISL256 low_entropy"
    assert run.data.metrics["output_tps"] == 800.0
    positions = client(uri).get_metric_history(run.info.run_id, "ar_cond")
    assert [(m.step, m.value) for m in positions] == [(1, 0.8)]
    assert {f.path for f in client(uri).list_artifacts(run.info.run_id)} == {"point.json", "measurement.json", "trace.parquet", "evidence"}
    first = client(uri).search_runs([run.info.experiment_id], order_by=["attributes.start_time ASC"], max_results=1)
    assert first[0].info.run_id == parent(uri).info.run_id, "the linked page shows the parent first"
    assert [e["kind"] for e in store.sweep("demo").events] == []


def test_a_resumed_sweep_uses_the_same_parent(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    for values, status in ((GRID[0], "KILLED"), (GRID[1], "KILLED")):
        tracker = Tracker(store, None, "demo")
        tracker.start()
        tracker.attempt(land(store, values))
        assert parent(uri).info.status == "RUNNING"
        tracker.finish()
        assert parent(uri).info.status == status, "stopped with points missing"
    assert_one_complete_run_per_attempt(store, uri)


def test_low_acceptance_does_not_find_the_baseline(store: Store) -> None:
    for values in GRID:
        land(store, values, measured={"al": 1.1})
    sync(store, "demo")
    found = children(tracking.tracking_uri(store), "metrics.al_decode < 1.2")
    assert {r.data.params["drafter"] for r in found} == {"ngram"}
    assert len(found) == 2


# -- afterwards


def test_syncing_twice_changes_nothing(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    for values in GRID[:3]:
        land(store, values)
    store.commit(record(GRID[3], status="failed"), None, None, {"engine.log": "boom"})
    assert sync(store, "demo").created == 4
    before = {r.info.run_id: (r.data.to_dictionary(), r.info.end_time) for r in [*children(uri), parent(uri)]}
    second = sync(store, "demo")
    assert (second.created, second.repaired, second.superseded, second.unchanged) == (0, 0, 0, 4)
    assert {r.info.run_id: (r.data.to_dictionary(), r.info.end_time) for r in [*children(uri), parent(uri)]} == before
    assert {r.info.status for r in children(uri, "tags.validity = 'failed'")} == {"FAILED"}


def test_another_environment_or_another_measurement_is_another_run_and_never_kills_the_sync(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    first = land(store, GRID[3])
    sync(store, "demo")
    config = {**record(GRID[3])["config"], "engine": {"name": "llamacpp", "image": "sha256:other"}}
    other = land(store, GRID[3], minute=1, env_id="f" * 64, config=config)
    again = land(store, GRID[3], minute=2)
    result = sync(store, "demo")
    assert (result.created, result.unchanged, result.superseded) == (2, 1, 1)
    superseded = {r.data.tags["attempt_sha"]: r.data.tags.get("superseded") for r in children(uri)}
    assert superseded == {first.sha256: again.sha256, other.sha256: None, again.sha256: None}
    assert sync(store, "demo").superseded == 0


def test_half_written_and_doubled_runs_are_put_right(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    half, doubled = land(store, GRID[2]), land(store, GRID[3])
    sync(store, "demo")
    mlflow = client(uri)
    [run] = children(uri, f"tags.attempt_sha = '{half.sha256}'")
    mlflow.delete_tag(run.info.run_id, "complete")  # as a kill before the last write leaves it
    [whole] = children(uri, f"tags.attempt_sha = '{doubled.sha256}'")
    for status in ("RUNNING", "FINISHED"):
        mlflow.update_run(mlflow.create_run(whole.info.experiment_id, tags=dict(whole.data.tags)).info.run_id, status)
    result = sync(store, "demo")
    assert (result.repaired, result.unchanged) == (2, 0)
    assert_one_complete_run_per_attempt(store, uri)


def test_a_value_that_mlflow_refuses_costs_that_run_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    odd = land(store, GRID[0])
    land(store, GRID[1])
    real = tracking_mlflow.run_content

    def content(attempt: Any) -> Any:
        made = real(attempt)
        return dataclasses.replace(made, params={"a?b": "1"}) if attempt.sha256 == odd.sha256 else made

    monkeypatch.setattr(tracking_mlflow, "run_content", content)
    result = sync(store, "demo")
    assert result.created == 1
    assert len(result.refused) == 1
    assert str(odd.path) in result.refused[0]
    monkeypatch.undo()
    assert sync(store, "demo").repaired == 1
    assert_one_complete_run_per_attempt(store, f"sqlite:///{store.root}/mlflow.db")


def test_a_damaged_measurement_is_reported_and_not_projected(store: Store) -> None:
    attempt = land(store, GRID[0])
    path = attempt.path / "measurement.json"
    good = path.read_text()
    path.write_text(good.replace("100.0", "900.0"))
    result = sync(Store(store.root), "demo")
    assert result.created == 0
    assert str(path) in result.damaged[0]
    path.write_text(good)
    assert sync(Store(store.root), "demo").created == 1


def test_an_experiment_or_parent_that_was_deleted_comes_back(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    land(store, GRID[0])
    sync(store, "demo")
    mlflow = client(uri)
    mlflow.delete_run(parent(uri).info.run_id)
    sync(store, "demo")
    assert_one_complete_run_per_attempt(store, uri)
    mlflow.delete_experiment(parent(uri).info.experiment_id)
    sync(store, "demo")
    assert_one_complete_run_per_attempt(store, uri)


def test_two_syncs_at_once_do_not_double(store: Store) -> None:
    for values in GRID:
        land(store, values)
    threads = [threading.Thread(target=sync, args=(Store(store.root), "demo"), kwargs={"patience_s": 30}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_one_complete_run_per_attempt(store, tracking.tracking_uri(store))


def test_syncing_an_unknown_sweep_is_a_config_error(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"'dmeo' is not in store"):
        sync(store, "dmeo")


# -- away


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield int(listener.getsockname()[1])


def test_mlflow_away_costs_the_sweep_nothing_and_sync_catches_up(store: Store, closed_port: int) -> None:
    began = time.monotonic()
    tracker = Tracker(store, f"http://user:secret@127.0.0.1:{closed_port}", "demo")
    tracker.start()
    landed = [tracker.attempt(land(store, values, minute=m)) for m, values in enumerate(GRID)]
    assert not tracker.finish()
    assert time.monotonic() - began < 5
    assert landed == [False] * 4
    [event] = store.sweep("demo").events
    assert event["kind"] == "tracking_unavailable"
    assert "does not answer" in event["reason"]
    assert event["catch_up"] == f"specsweep sync demo store={store.root} --uri 'http://user:***@127.0.0.1:{closed_port}'"
    assert "secret" not in str(event)
    assert sync(store, "demo").created == 4
    assert_one_complete_run_per_attempt(store, tracking.tracking_uri(store))


def test_a_server_that_hangs_is_given_up_within_the_limit(store: Store, silent_server: int) -> None:
    tracker = Tracker(store, f"http://127.0.0.1:{silent_server}", "demo")
    began = time.monotonic()
    tracker.start()
    tracker.settle(timeout_s=1.0)
    assert not tracker.attempt(land(store, GRID[0]), timeout_s=1.0)
    assert not tracker.attempt(land(store, GRID[1]), timeout_s=1.0)
    assert not tracker.finish(timeout_s=1.0)
    assert time.monotonic() - began < 4
    assert [e["kind"] for e in store.sweep("demo").events] == ["tracking_unavailable"]


def test_mlflow_that_comes_back_is_used_again_and_what_it_missed_is_made_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "RETRY_AFTER_S", 0.0)
    real, away = tracking_mlflow.connect, [True]

    def connect(uri: str) -> Any:
        if away[0]:
            raise TrackingError("MLflow does not answer")
        return real(uri)

    monkeypatch.setattr(tracking, "connect", connect)
    tracker = Tracker(store, None, "demo")
    tracker.start()
    assert not tracker.attempt(land(store, GRID[0]))
    away[0] = False
    assert tracker.attempt(land(store, GRID[1]))
    assert len(children(tracker.uri)) == 1
    assert tracker.finish()
    assert_one_complete_run_per_attempt(store, tracker.uri)
    assert [e["kind"] for e in store.sweep("demo").events] == ["tracking_unavailable", "tracking_available"]


def test_a_sync_to_nobody_is_a_tracking_error_soon(store: Store, closed_port: int) -> None:
    began = time.monotonic()
    with pytest.raises(TrackingError, match="does not answer"):
        sync(store, "demo", f"http://127.0.0.1:{closed_port}")
    assert time.monotonic() - began < 4


def test_links_and_commands() -> None:
    assert link("https://u:pw@mlflow.example:8443/", "7").startswith(
        "https://u:***@mlflow.example:8443/#/experiments/7/runs?orderByKey=attributes.start_time"
    )
    assert link("sqlite:////x/mlflow.db", "7").startswith("http://127.0.0.1:5000/#/experiments/7/")
    assert ui_command("https://mlflow.example") is None
    assert "--backend-store-uri 'sqlite:////x/mlflow.db' --port 5000" in str(ui_command("sqlite:////x/mlflow.db"))


# -- killed, and behind the real server

_SYNCER = """
import os, sys
from specsweep.orchestrator import tracking_mlflow
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import sync
tracking_mlflow.connect("sqlite:///{root}/warm.db").search_experiments()  # imports all of MLflow
from specsweep.analysis import attempts, figures, pareto
import matplotlib.backends.backend_agg
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        sync(Store({root!r}), "demo")
        os._exit(0)
    print(pid, flush=True)
    os.waitpid(pid, 0)
"""


@pytest.mark.timeout(300)  # two server or MLflow starts, on a machine that may be busy
def test_a_sync_killed_at_any_moment_is_finished_by_the_next_one(store: Store) -> None:
    random.seed(3)
    uri = tracking.tracking_uri(store)
    wide = [axes(batch_size=b, isl=i) for b in (1, 2, 4, 8, 16) for i in (128, 256, 384, 512, 640, 768, 896)]  # more than it can do in time
    store.write_plan(plan("demo", wide))
    for values in wide:
        land(store, values)
    shutil.copy(store.root / "mlflow.db", store.root / "warm.db")
    code = textwrap.dedent(_SYNCER).format(root=str(store.root))
    helper = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert helper.stdin is not None
    assert helper.stdout is not None
    halves = 0
    try:
        for _ in range(12):
            helper.stdin.write("go\n")
            helper.stdin.flush()
            pid = int(helper.stdout.readline())
            time.sleep(random.uniform(0.2, 1.2))
            with contextlib.suppress(ProcessLookupError):  # the machine was fast, and it is done
                os.kill(pid, signal.SIGKILL)
            if client(uri).get_experiment_by_name("demo") is not None:
                halves += any(r.data.tags.get("complete") != "true" for r in children(uri))
    finally:
        helper.kill()
        helper.wait()
    assert halves > 0, "no kill hit a run: the test proves nothing"
    sync(store, "demo", patience_s=10)
    assert_one_complete_run_per_attempt(store, uri)
    assert sync(store, "demo").unchanged == len(wide)


def _server(folder: Path, port: int) -> subprocess.Popen[bytes]:
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        f"sqlite:///{folder}/server.db",
    ]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    log = (folder / "server.log").open("ab")
    child = subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).read()
            return child
        except OSError:
            time.sleep(0.2)
    raise AssertionError((folder / "server.log").read_text())


def _end(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@pytest.mark.timeout(300)  # two server or MLflow starts, on a machine that may be busy
def test_behind_a_real_server_that_dies_and_comes_back(store: Store, tmp_path: Path, closed_port: int, empty_database: Path) -> None:
    shutil.copy(empty_database, tmp_path / "server.db")
    uri = f"http://127.0.0.1:{closed_port}"
    server = _server(tmp_path, closed_port)
    try:
        tracker = Tracker(store, uri, "demo")
        tracker.start()
        assert tracker.attempt(land(store, GRID[0], minute=0))
        _end(server)
        began = time.monotonic()
        assert not tracker.attempt(land(store, GRID[1], minute=1))
        assert not tracker.attempt(land(store, GRID[2], minute=2))
        assert time.monotonic() - began < tracking.ATTEMPT_S + 2
        server = _server(tmp_path, closed_port)
        land(store, GRID[3], minute=3)
        assert tracker.finish()
        assert_one_complete_run_per_attempt(store, uri)
        assert parent(uri).info.status == "FINISHED"
        assert sync(store, "demo", uri).unchanged == 4
        [run] = children(uri, "params.drafter = 'ngram' and params.batch_size = '8'")
        copy = client(uri).download_artifacts(run.info.run_id, "measurement.json", str(tmp_path))
        original = next(a for a in store.attempts() if a.sha256 == run.data.tags["attempt_sha"])
        assert Path(copy).read_bytes() == (original.path / "measurement.json").read_bytes()
    finally:
        _end(server)
