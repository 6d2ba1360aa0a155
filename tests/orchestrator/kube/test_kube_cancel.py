"""After `cancel` nothing of the sweep is left, and nothing of others is touched; what stays is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from k8s_fake_api import Pods, Server
from k8s_pods import up

from specsweep.k8s.names import labels
from specsweep.orchestrator.kube import submission

Command = Callable[..., Any]
WORDS = ("sweep=smoke", "cluster=kubernetes", "engine=sim", "cluster.image=reg/specsweep:1")
JOB = submission.job_name("smoke")


def put(api_server: Server, plural: str, name: str, kind: str, *, sweep: str = "smoke", component: str = "engine") -> None:
    api_version = "batch/v1" if plural == "jobs" else "v1"
    metadata = {"name": name, "labels": labels(component, sweep=sweep), "annotations": {}}
    spec = {"template": {"metadata": {"labels": labels(component, sweep=sweep)}}}
    api_server.put(plural, {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})


async def started(api_server: Server, specsweep: Command, **more: Any) -> Pods:
    pods = Pods(api_server, up(started=5, ready=True), **more)
    assert await specsweep("submit", *WORDS) == 0
    for plural, kind in (("jobs", "Job"), ("services", "Service"), ("configmaps", "ConfigMap")):
        put(api_server, plural, "sim-none-1", kind)
    put(api_server, "jobs", "of-another", "Job", sweep="other")
    while len([key for key in api_server.objects if key[0] == "pods"]) < 3:
        await asyncio.sleep(0.01)
    return pods


async def test_all_of_it_goes_and_others_stay(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    pods = await started(api_server, specsweep)
    assert await specsweep("cancel", "smoke", "cluster=kubernetes") == 0
    await pods.stop()
    assert sorted(api_server.objects) == [("jobs", "of-another"), ("pods", "of-another-x7k2p")]
    first = api_server.seen("DELETE")[0]
    assert first.path.endswith(f"/jobs/{JOB}"), "what it would start again is not taken away under it"
    told = capsys.readouterr()
    assert "smoke: ended, 6 objects are gone" in told.out
    assert "`specsweep submit` with the same words goes on" in told.out


async def test_what_went_as_json(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    pods = await started(api_server, specsweep)
    capsys.readouterr()
    assert await specsweep("cancel", "smoke", "cluster=kubernetes", "--json") == 0
    await pods.stop()
    told = json.loads(capsys.readouterr().out)
    assert (told["sweep"], told["left"]) == ("smoke", [])
    assert told["removed"] > 0


async def test_what_stays_is_named(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    pods = await started(api_server, specsweep, stuck=True)
    assert await specsweep("cancel", "smoke", "cluster=kubernetes", "--timeout", "1.5") == 3
    await pods.stop()
    told = capsys.readouterr().err
    assert f"pod/{JOB}-x7k2p" in told
    assert "kubectl delete --force pod/" in told


async def test_a_sweep_that_is_not_there(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("cancel", "smok", "cluster=kubernetes") == 0
    assert "smok: nothing of it is in namespace bench" in capsys.readouterr().out


async def test_a_time_that_is_no_number(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("cancel", "smoke", "cluster=kubernetes", "--timeout", "nan") == 2
    assert "--timeout nan: a time above 0 is needed" in capsys.readouterr().err


async def test_a_misspelt_name_shows_those_that_are_there(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await specsweep("submit", "sweep=smoke", "cluster=kubernetes", "engine=sim", "cluster.image=reg/specsweep:1", "name=A.b+C") == 0
    assert await specsweep("cancel", "A.b", "cluster=kubernetes") == 0
    assert "A.b: nothing of it is in namespace bench; sweeps there: A.b+C" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("smoke",), "ended where it runs, with Ctrl-C"),
        (("cluster=kubernetes",), "cancel takes one sweep, not none"),
        (("smoke", "cluster=kubernetes", "store=/r"), "store=/r: not a setting of this command"),
        (("smoke", "cluster=local"), "is of kind local"),
    ],
)
async def test_bad_words(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], words: Any, told: str) -> None:
    assert await specsweep("cancel", *words) == 2
    assert told in capsys.readouterr().err
    assert api_server.requests == []
