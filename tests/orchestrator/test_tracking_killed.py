"""A sync that is killed, and a server that dies: whatever was half done is put right by the next one."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import pytest
from store_samples import axes, plan
from tracking_samples import GRID, PATIENCE_S, assert_one_complete_run_per_attempt, children, client, land, parent

from specsweep.orchestrator import tracking
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import Tracker, sync

pytestmark = pytest.mark.slow  # importing MLflow and making its schema take 15 s; what a run holds is tested without MLflow


@pytest.fixture
def store(mlflow_store: Store) -> Store:
    return mlflow_store


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
        assert tracker.attempt(land(store, GRID[0], minute=0), PATIENCE_S)
        _end(server)
        began = time.monotonic()
        assert not tracker.attempt(land(store, GRID[1], minute=1))
        assert not tracker.attempt(land(store, GRID[2], minute=2))
        assert time.monotonic() - began < 60, "MLflow's own patience is minutes"
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
