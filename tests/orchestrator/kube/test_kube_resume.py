"""A sweep is gone on with as it was asked for: here from its plan, in a cluster from its Job."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from k8s_fake_api import Server
from k8s_pods import condition
from plan_samples import write_groups
from store_samples import axes, plan

from specsweep.orchestrator import cli
from specsweep.orchestrator.cli import run as run_here
from specsweep.orchestrator.kube import submission
from specsweep.orchestrator.store import Store

Command = Callable[..., Any]
WORDS = ("sweep=own", "cluster=kubernetes", "cluster.image=reg/specsweep:1")
JOB = submission.job_name("own")


async def over(api_server: Server, specsweep: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    mine = write_groups(tmp_path / "mine", {"sweep/own": "name: own\naxes: {engine: sim, drafter: [none, ngram], target: tiny}\n"})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert await specsweep("submit", *WORDS, "--config-dir", str(mine)) == 0
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    (mine / "sweep/own.yaml").unlink()
    job = api_server.objects["jobs", JOB]
    return api_server.put("jobs", {**job, "status": {"conditions": [condition("Failed", "True", 1, "BackoffLimitExceeded", "m")]}})


async def test_a_job_that_is_over_is_handed_over_again_as_it_was(
    api_server: Server, specsweep: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await over(api_server, specsweep, tmp_path, monkeypatch)
    assert await specsweep("resume", "own", "cluster=kubernetes") == 0
    after = api_server.objects["jobs", JOB]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["template"] == before["spec"]["template"]
    assert api_server.objects["configmaps", JOB]["data"]


async def test_a_job_that_runs_is_left_alone(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("submit", "sweep=smoke", "engine=sim", *WORDS[1:]) == 0
    sent = len(api_server.seen("POST"))
    assert await specsweep("resume", "smoke", "cluster=kubernetes") == 0
    assert "nothing to resume" in capsys.readouterr().out
    assert len(api_server.seen("POST")) == sent


async def test_what_says_nothing_cannot_be_resumed(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("resume", "smoke", "cluster=kubernetes") == 2
    assert "after `cancel`, `specsweep submit` with the words it was started with" in capsys.readouterr().err
    name = submission.job_name("smoke")
    api_server.put("jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": {}}}})
    assert await specsweep("resume", "smoke", "cluster=kubernetes") == 2
    assert "does not say how sweep smoke was asked for" in capsys.readouterr().err


def test_here_the_plan_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "results")
    store.write_plan(plan("demo", [axes()]), ["sweep=demo", "store=elsewhere", "batch_size=8"])
    asked: list[argparse.Namespace] = []

    def remember(args: argparse.Namespace) -> int:
        asked.append(args)
        return 0

    monkeypatch.setattr(run_here, "run", remember)
    assert cli.main(["resume", f"store={store.root}", "--config-dir", "mine"]) == 0
    (args,) = asked
    assert args.overrides == ["sweep=demo", "batch_size=8", f"store={store.root}"]
    assert args.config_dir == ["mine"]


def test_here_what_runs_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "results")
    store.write_plan(plan("demo", [axes()]), ["sweep=demo"])
    with store.lock():
        assert cli.main(["resume", "demo", f"store={store.root}"]) == 2
    assert "something runs there already" in capsys.readouterr().err
