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

from specsweep.orchestrator import cli, tracking
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


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_database_in_a_folder_that_is_not_there_is_refused_and_the_folder_is_not_made(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    folder = store.root / "typo"
    uri = f"sqlite:///{folder}/x.db"
    if by_environment:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert cli.main(["sync", f"store={store.root}", *([] if by_environment else ["--uri", uri])]) == 2
    told = capsys.readouterr().err
    assert f"{'MLFLOW_TRACKING_URI=' if by_environment else '--uri '}{uri}: the folder {folder} does not exist" in told
    assert not folder.exists()


def test_one_broken_plan_keeps_no_other_sweep_out_of_mlflow(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "sync", lambda store, name, uri: tracking.SyncResult(name, uri, "", created=1))
    store.write_plan(plan("broken", [VALUES])).write_text("{")
    assert cli.main(["sync", f"store={store.root}", "--json"]) == 5
    printed = capsys.readouterr()
    facts = json.loads(printed.out)
    assert [(s["sweep"], s["created"]) for s in facts["sweeps"]] == [("demo", 1)]
    assert list(facts["unreadable"]) == ["broken"]
    assert "sweeps/broken/plan.json cannot be read" in printed.err


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
