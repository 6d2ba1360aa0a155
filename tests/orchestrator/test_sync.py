"""`specsweep sync` from the outside: what it prints, its exit codes, and its silence about everything else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from store_samples import axes, measurement, plan, record, trace

from specsweep.orchestrator import cli
from specsweep.orchestrator.store import Store

VALUES = axes()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "results")
    made.write_plan(plan("demo", [VALUES]))
    made.commit(record(VALUES), measurement(), trace())
    return made


def test_mlflow_away_is_exit_5_with_the_reason(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert cli.main(["sync", f"store={store.root}", "--uri", f"http://127.0.0.1:{port}", "--json"]) == 5
    printed = capsys.readouterr()
    assert "does not answer" in json.loads(printed.out)["error"]
    assert "does not answer" in printed.err


def test_bad_input_is_exit_2(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sync", "dmeo", f"store={store.root}"]) == 2
    assert "sweep 'dmeo' is not in store=" in capsys.readouterr().err


@pytest.mark.slow
def test_a_first_sync_makes_the_database_and_says_nothing_else(store: Store) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW")}
    command = [sys.executable, "-c", "from specsweep.orchestrator.cli import main; raise SystemExit(main())", "sync", f"store={store.root}"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=env, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, ""), "no migration chatter, no telemetry, no git warning"
    [result] = json.loads(done.stdout)["sweeps"]
    assert (result["created"], result["unchanged"]) == (1, 0)
    assert result["uri"] == f"sqlite:///{store.root}/mlflow.db"
    assert (store.root / "mlartifacts/demo").is_dir()
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mlflow server --backend-store-uri" in done.stdout
