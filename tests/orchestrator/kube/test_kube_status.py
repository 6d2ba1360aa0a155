"""What a sweep said of itself and what its pods do, as one page; the cluster is believed for what runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from k8s_fake_api import Server
from k8s_pods import condition, ended, pod, up

from specsweep.k8s.names import labels
from specsweep.orchestrator.kube import publisher, status_document, submission
from specsweep.orchestrator.kube.status_document import nothing_known
from specsweep.orchestrator.sweep_status import SweepStatus

Command = Callable[..., Any]
WORDS = ("sweep=smoke", "cluster=kubernetes", "engine=sim", "cluster.image=reg/specsweep:1")
JOB = submission.job_name("smoke")
HERE = ("smoke", "cluster=kubernetes")


async def submitted(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("submit", *WORDS) == 0
    capsys.readouterr()


def show(api_server: Server, job: str, state: dict[str, Any], component: str = "sweep", session: str | None = None) -> None:
    uid = api_server.objects["jobs", job]["metadata"]["uid"]
    metadata = {
        **state["metadata"],
        "name": f"{job}-x7k2p",
        "uid": f"pod-{job}",
        "labels": labels(component, sweep="smoke", session=session),
    }
    metadata["ownerReferences"] = [{"kind": "Job", "name": job, "uid": uid}]
    api_server.put("pods", {**state, "metadata": metadata})


def engine(api_server: Server, name: str, session: str) -> None:
    metadata = {"name": name, "labels": labels("engine", sweep="smoke", session=session), "annotations": {"specsweep.io/drafter": "eagle3"}}
    container = {"name": "main", "resources": {"limits": {"cpu": "8", "nvidia.com/gpu": "8"}}}
    spec = {"template": {"spec": {"containers": [container]}}}
    api_server.put("jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def publish(api_server: Server, **facts: Any) -> None:
    import dataclasses

    status: SweepStatus = dataclasses.replace(nothing_known("smoke", 4), **facts)
    text = status_document.document(status, datetime.now(UTC).isoformat())
    metadata = {"name": publisher.status_name("smoke"), "labels": labels("status", sweep="smoke")}
    api_server.put("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"status.json": text}})


async def as_json(specsweep: Command, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert await specsweep("status", *(words or HERE), "--json") == 0
    (sweep,) = json.loads(capsys.readouterr().out)["sweeps"]
    return dict(sweep)


async def test_a_sweep_that_waits_says_for_what(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    await submitted(api_server, specsweep, capsys)
    words = "0/12 nodes are available: 12 Insufficient cpu."
    show(api_server, JOB, pod("Pending", node=None, conditions=[condition("PodScheduled", "False", 5, "Unschedulable", words)]))
    found = await as_json(specsweep, capsys)
    assert (found["state"], found["points"], found["missing"]) == ("not started", 4, 4)
    assert found["cluster"]["state"] == f"waits for a node ({words})"


async def test_a_sweep_that_runs(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    await submitted(api_server, specsweep, capsys)
    show(api_server, JOB, up(started=5, ready=True))
    engine(api_server, "sim-eagle3-dl4-1", "abcdef0123456789")
    show(api_server, "sim-eagle3-dl4-1", up(started=5, ready=True), "engine", "abcdef0123456789")
    engine(api_server, "sim-none-2", "1234567890123456")
    publish(api_server, state="running", measured=1, missing=3, now="ngram DL4 BS2", now_s=3.0, left_s=100.0)
    assert await specsweep("status", *HERE) == 0
    page = capsys.readouterr().out
    assert re.search(r"smoke  running · 1 of 4 points measured · 3 missing · about \d+:\d\d left", page)
    assert re.search(r"now: ngram DL4 BS2, for \d+:\d\d", page)
    assert f"in namespace bench: Job {JOB}, pod {JOB}-x7k2p on gpu-node-7: runs" in page
    rows = [line.split() for line in page.splitlines() if line.startswith("sim-")]
    assert rows[0][:6] == ["sim-eagle3-dl4-1", "eagle3", "8", "gpu-node-7", "abcdef0123456789", "ready"]
    assert " ".join(rows[1][4:]).startswith("1234567890123456 waits for the Job controller")


@pytest.mark.parametrize(
    ("code", "condition_name", "state", "words"),
    [
        (0, "Complete", "finished", "done"),
        (5, "Failed", "stopped", "done, with points that failed or are not valid"),
        (2, "Failed", "stopped", "refused its input"),
        (137, "Failed", "stopped", "failed (BackoffLimitExceeded): m"),
    ],
)
async def test_a_sweep_that_is_over(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], code: int, condition_name: str, state: str, words: str
) -> None:
    await submitted(api_server, specsweep, capsys)
    show(api_server, JOB, ended(code))
    job = api_server.objects["jobs", JOB]
    api_server.put("jobs", {**job, "status": {"conditions": [condition(condition_name, "True", 1, "BackoffLimitExceeded", "m")]}})
    publish(api_server, state="running", measured=4 if not code else 3, missing=0 if not code else 1, now="x", now_s=1.0)
    found = await as_json(specsweep, capsys)
    assert (found["state"], found["now"], found["cluster"]["state"]) == (state, None, words)


async def test_a_pod_that_died_is_started_again(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    await submitted(api_server, specsweep, capsys)
    show(api_server, JOB, ended(137))
    publish(api_server, state="running", measured=1, missing=3)
    found = await as_json(specsweep, capsys)
    assert found["state"] == "stopped"
    assert found["cluster"]["state"] == "its pod ended with code 137; Kubernetes starts another one"


async def test_all_sweeps_of_the_namespace(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("status", "cluster=kubernetes") == 0
    assert "no sweep in namespace bench" in capsys.readouterr().out
    await submitted(api_server, specsweep, capsys)
    assert await specsweep("submit", *WORDS, "name=second") == 0
    capsys.readouterr()
    asked = len(api_server.requests)
    assert await specsweep("status", "cluster=kubernetes", "--json") == 0
    assert [s["sweep"] for s in json.loads(capsys.readouterr().out)["sweeps"]] == ["second", "smoke"]
    assert len([r for r in api_server.requests[asked:] if not r.path.endswith("events")]) == 3, "whatever the number of sweeps"
    assert await specsweep("status", "third", "cluster=kubernetes") == 2
    assert "sweep 'third' is not in namespace bench; sweeps there: second, smoke" in capsys.readouterr().err


async def test_invalid_points_are_measured_again_by_a_submit(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    await submitted(api_server, specsweep, capsys)
    publish(api_server, measured=4, invalid=1, missing=0, measure_invalid="specsweep run sweep=smoke store=/results/smoke rerun=invalid")
    found = await as_json(specsweep, capsys)
    assert found["measure_invalid"] == f"specsweep submit {' '.join(WORDS)} rerun=invalid"


async def test_watching_ends_with_the_sweep(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    await submitted(api_server, specsweep, capsys)
    show(api_server, JOB, ended(0))
    job = api_server.objects["jobs", JOB]
    api_server.put("jobs", {**job, "status": {"conditions": [condition("Complete", "True", 1, "CompletionsReached", "m")]}})
    publish(api_server, state="running", measured=4, missing=0)
    assert await specsweep("status", *HERE, "--watch") == 0
    assert "finished" in capsys.readouterr().out
