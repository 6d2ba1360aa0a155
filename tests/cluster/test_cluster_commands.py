"""The commands around a sweep, against the real API server and with a sweep's rights: what they send is taken, what they say is so."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml

from cluster.control_plane import free_ports
from cluster.harness import Cluster, Tenant, until
from cluster.node import NodeSpec
from cluster.sweeps import Sweep, settings, specsweep, submitted

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SLOW = ["sweep=smoke", "engine=sim", "drafter=none,ngram", "batch_size=1,2", "engine.speedup=0.15", "tracking.enabled=false"]


async def status(tenant: Tenant, name: str) -> dict[str, Any]:
    (found,) = json.loads(await specsweep("status", name, *settings_of_the_way(tenant), "--json", kubeconfig=tenant.kubeconfig))["sweeps"]
    return dict(found)


def settings_of_the_way(tenant: Tenant) -> list[str]:
    return ["cluster=kubernetes", f"cluster.namespace={tenant.namespace}"]


@pytest.mark.timeout(500, func_only=True)
async def test_a_sweep_is_looked_after_from_outside(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    (tmp_path / "results").mkdir()
    await tenant.claim("results", tmp_path / "results")
    way, user, sweep = settings_of_the_way(tenant), tenant.kubeconfig, Sweep(tenant, "seen", tmp_path / "results")

    dry = await specsweep("submit", *settings(tenant), "name=seen", *SLOW, "--dry-run", kubeconfig=user)
    (job,) = yaml.safe_load_all(dry.split("note: ")[0])  # what else it says comes after it
    assert job["metadata"]["uid"], "the API server made it, and kept nothing"
    assert await tenant.objects() == set()

    said = await specsweep("submit", *settings(tenant), "name=seen", *SLOW, kubeconfig=user)
    assert "seen (4 points in 2 sessions) was handed over as Job sweep-seen-" in said
    following = asyncio.create_task(specsweep("logs", "seen", *way, "--follow", kubeconfig=user))

    seen: dict[str, Any] = {}

    async def an_engine_speaks() -> bool:
        """Engines come and go meanwhile."""
        seen.update(await status(tenant, "seen"))
        for engine in seen["cluster"]["engines"]:
            said = await specsweep("logs", "seen", *way, "--session", engine["session"], kubeconfig=user, code=None)
            return bool(seen["measured"] and engine["node"] == tenant.node("a") and "listening on" in said)
        return False

    await sweep.until_measured(1)  # by its files, which costs the sweep nothing
    await until(an_engine_speaks, "a status with a measured point and an engine that speaks", within_s=150)
    assert (seen["state"], seen["cluster"]["state"]) == ("running", "runs")
    assert "nothing to resume" in await specsweep("resume", "seen", *way, kubeconfig=user)
    assert "runs already" in await specsweep("submit", *settings(tenant), "name=seen", *SLOW, kubeconfig=user)

    await sweep.finished()
    assert (await status(tenant, "seen"))["state"] == "finished"
    log = await following
    assert "4 points, 0 of them already measured" in log
    assert log.count("points, 0 of them already measured") == 1, "no line twice"
    page = await specsweep("status", "seen", *way, kubeconfig=user)
    assert "4 of 4 points measured" in page

    assert "was handed over as Job" in await specsweep("resume", "seen", *way, kubeconfig=user)
    await sweep.finished()
    assert "4 of them already measured" in await specsweep("logs", "seen", *way, kubeconfig=user)
    assert (await status(tenant, "seen"))["measured"] == 4
    assert "ended, " in await specsweep("cancel", "seen", *way, kubeconfig=user)
    assert await tenant.objects() == set()


@contextmanager
def tracking_server(cluster: Cluster, folder: Path) -> Iterator[str]:
    """MLflow where pods reach it, with artifacts that go through it; its URI."""
    (port,) = free_ports(cluster.plane.address, 1)
    uri = f"http://{cluster.plane.address}:{port}"
    command = [
        *(str(Path(sys.executable).with_name("mlflow")), "server", "--workers", "1", "--allowed-hosts", "*"),
        *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")),
        *("--host", cluster.plane.address, "--port", str(port)),
    ]
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "mlflow.log").open("wb") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not answers(f"{uri}/health"):
            assert server.poll() is None, (folder / "mlflow.log").read_text()
            assert time.monotonic() < deadline, (folder / "mlflow.log").read_text()
            time.sleep(0.5)
        yield uri
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.timeout(500, func_only=True)
async def test_a_pod_without_a_volume_finds_its_results_in_mlflow(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    words = [word for word in settings(tenant) if "results" not in word]
    user, component = tenant.kubeconfig, "app.kubernetes.io/component"
    with tracking_server(cluster, tmp_path) as uri:
        await specsweep("submit", *words, "name=moved", *SLOW[:-1], f"tracking.uri={uri}", kubeconfig=user)
        mlflow.set_tracking_uri(uri)

        async def two_are_kept() -> bool:
            runs = await asyncio.to_thread(mlflow.search_runs, search_all_experiments=True, output_format="list")
            return len([run for run in runs if run.data.tags.get("complete") == "true"]) >= 2

        await until(two_are_kept, "two results in MLflow", 120)
        (pod,) = [pod["metadata"]["name"] for pod in await tenant.pods() if pod["metadata"]["labels"][component] == "sweep"]
        async with cluster.admin() as admin:
            await admin.delete(f"/api/v1/namespaces/{tenant.namespace}/pods/{pod}")

        await Sweep(tenant, "moved", tmp_path).finished(180)
        log = await specsweep("logs", "moved", *settings_of_the_way(tenant), kubeconfig=user)
    assert "results of moved are in MLflow at" in log
    (known,) = re.findall(r"4 points, (\d) of them already measured", log)
    assert int(known) >= 2
    found = await status(tenant, "moved")
    assert (found["measured"], found["missing"]) == (4, 0), f"{found}\n{log}"


async def test_the_users_own_groups_are_folders_in_the_pod(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    (tmp_path / "results").mkdir()
    own = tmp_path / "mine" / "sweep" / "deep" / "own.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(
        "name: own\naxes: {engine: sim, target: tiny, drafter: none, isl: 128, workload: mixed}\nset: {workload.prompts: 6, workload.osl: 16}\n"
    )
    words = ["sweep=deep/own", "measure.quiet_seconds=0", "tracking.enabled=false", "--config-dir", str(tmp_path / "mine")]
    sweep = await submitted(tenant, tmp_path / "results", "own", words)
    await sweep.finished()  # so short a point is not valid
    assert sweep.measured() == 1


async def test_models_are_fetched_onto_the_volume_once(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    (tmp_path / "weights").mkdir()
    await tenant.claim("weights", tmp_path / "weights")
    words = [w for w in settings(tenant) if "results" not in w] + ["cluster.weights.claim=weights", "sweep=smoke", "engine=llamacpp"]
    assert "2 models are on volume weights" in await specsweep("prefetch", *words, kubeconfig=tenant.kubeconfig)
    assert len(list((tmp_path / "weights" / "converted").glob("*/model.f16.gguf"))) == 2
    (first, *_) = [pod["metadata"]["name"] for pod in await tenant.pods()]
    assert "complete: " in await tenant.log(first)
    assert "2 models are on volume weights" in await specsweep("prefetch", *words, kubeconfig=tenant.kubeconfig)
    again = [pod["metadata"]["name"] for pod in await tenant.pods() if pod["metadata"]["name"] != first]
    assert "is there already" in await tenant.log(again[0])


async def test_the_doctor_sees_what_a_sweeps_role_shows(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    (tmp_path / "results").mkdir()
    await tenant.claim("results", tmp_path / "results")
    words = [*settings(tenant), "sweep=smoke", "engine=sim", "cluster.pod.gpus=8", "cluster.pod.gpu_product=NVIDIA-B200", "--json"]
    found = {f["name"]: f for f in json.loads(await specsweep("doctor", *words, kubeconfig=tenant.kubeconfig))}
    assert (found["GPU nodes"]["ok"], found["GPU nodes"]["fatal"]) == (False, False)
    assert found["GPU nodes"]["fact"] == "not visible with this Role"
    assert found["rights"]["ok"]
    assert found["dry run of engine sim, tiny"]["ok"], found["dry run of engine sim, tiny"]["fact"]
    assert found["dry run of the sweep's Job"]["ok"]
    admin = cluster.plane.kubeconfig()
    nodes = {f["name"]: f for f in json.loads(await specsweep("doctor", *words, kubeconfig=admin))}["GPU nodes"]
    assert "NVIDIA-B200: 1 node with 8 GPUs" in nodes["fact"]
