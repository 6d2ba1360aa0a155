"""What a cluster does to a sweep in the middle of its points, and what it lacks from the start: all points come out, or their errors say why.

What the cluster takes away costs no point, and what an engine brings on itself costs the point in flight alone, until it is asked for again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import pytest

from cluster.disturbed import (
    COMMON,
    HASTY,
    ONE_SESSION,
    QUICK,
    TWO_SESSIONS,
    assert_complete,
    assert_only_the_sweep_is_left,
    evict,
    in_a_point,
    interruptions,
    the_pod,
)
from cluster.harness import Cluster, until
from cluster.node import NodeSpec
from cluster.sweeps import Sweep, settings, specsweep, submitted

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]
NODES = tuple(NodeSpec(name) for name in "abc")
AWAY_S = 60.0
POD_MB = 300
HOG = f"a = bytearray({2 * POD_MB} << 20); import time; time.sleep(60)"


async def test_pods_that_are_taken_away_cost_no_point(cluster: Cluster, tmp_path: Path, expected: dict[str, float]) -> None:
    tenant = await cluster.tenant(*NODES)
    (tmp_path / "results").mkdir()

    async def deleted(pod: str) -> None:
        async with cluster.admin() as admin:
            await admin.delete(f"/api/v1/namespaces/{tenant.namespace}/pods/{pod}")

    async def drained(pod: str) -> None:
        await evict(tenant, pod)

    async def under_pressure(pod: str) -> None:
        await asyncio.to_thread(cluster.kubelet.evict, tenant.namespace, pod)

    faults: tuple[tuple[Callable[[str], Awaitable[None]], str], ...] = (
        (deleted, "its pod is being deleted"),
        (drained, "EvictionByEvictionAPI"),
        (under_pressure, "low on resource: memory"),
    )
    sweep = await submitted(tenant, tmp_path / "results", "taken", [*COMMON, *TWO_SESSIONS, *QUICK])
    for times, (fault, words) in enumerate(faults):
        await _interrupted(sweep, fault, words, nth=1 + 2 * times)  # each point is begun twice: it is disturbed, and it is not
    assert await sweep.finished() in ("Complete", "Failed")
    assert_complete(sweep, expected, 4)
    assert len(interruptions(sweep)) == len(faults)
    await assert_only_the_sweep_is_left(sweep)


@pytest.mark.soak
async def test_an_engine_that_hangs_is_started_anew(cluster: Cluster, tmp_path: Path, expected: dict[str, float]) -> None:
    """It takes connections and answers none; its node sees that by its health path."""
    tenant = await cluster.tenant(*NODES)
    (tmp_path / "results").mkdir()

    async def stalled(pod: str) -> None:
        os.kill(await asyncio.to_thread(cluster.kubelet.pid, tenant.namespace, pod), signal.SIGSTOP)

    sweep = await submitted(tenant, tmp_path / "results", "hanging", [*COMMON, *ONE_SESSION, *QUICK])
    await _interrupted(sweep, stalled, "was ready and is not any more", nth=1)
    assert await sweep.finished() in ("Complete", "Failed")
    assert_complete(sweep, expected, 2)
    await assert_only_the_sweep_is_left(sweep)


async def test_an_engine_out_of_reach_is_started_elsewhere(cluster: Cluster, tmp_path: Path, expected: dict[str, float]) -> None:
    """Its pod is well, but the network between it and the clients is cut; and its node is lost, where it never says that it is gone."""
    tenant = await cluster.tenant(*NODES, NodeSpec("home", gpus=0))  # for the sweep's own pod, that it is not lost with its engine
    (tmp_path / "results").mkdir()
    nodes = []

    async def cut_off(pod: str) -> None:
        nodes.append((await the_pod(tenant, "engine"))["spec"]["nodeName"])
        client = (await the_pod(tenant, "sweep"))["metadata"]["name"]
        await asyncio.to_thread(cluster.kubelet.set_way, tenant.namespace, client, pod, up=False)

    async def lost(pod: str) -> None:
        nodes.append((await the_pod(tenant, "engine"))["spec"]["nodeName"])
        await asyncio.to_thread(cluster.kubelet.lose, nodes[-1])

    at_home = f"cluster.sweep.template={{spec: {{nodeSelector: {{kubernetes.io/hostname: {tenant.node('home')}}}}}}}"
    sweep = await submitted(tenant, tmp_path / "results", "elsewhere", [*COMMON, *ONE_SESSION, *QUICK, at_home])
    await _interrupted(sweep, cut_off, "the network between them is cut", nth=1)
    await _interrupted(sweep, lost, "was ready and is not any more", nth=3)
    assert await sweep.finished() in ("Complete", "Failed")
    assert_complete(sweep, expected, 2)
    assert len(interruptions(sweep)) == 2
    nodes += {d["point"]["env"]["unstable"]["node"] for d in sweep.documents()}
    assert len(set(nodes)) == len(NODES), "no node twice"
    await assert_only_the_sweep_is_left(sweep)


async def test_an_api_server_and_an_mlflow_that_are_away_cost_nothing(cluster: Cluster, tmp_path: Path, expected: dict[str, float]) -> None:
    tenant = await cluster.tenant(*NODES)
    (tmp_path / "results").mkdir()
    nobody = f"tracking.uri=http://{cluster.plane.address}:9"
    sweep = await submitted(tenant, tmp_path / "results", "alone", [*COMMON, *ONE_SESSION, *HASTY, nobody])
    await in_a_point(sweep)
    await asyncio.to_thread(cluster.plane.stop)
    await asyncio.sleep(AWAY_S)
    await asyncio.to_thread(cluster.plane.restart)
    assert await sweep.finished() in ("Complete", "Failed")
    assert_complete(sweep, expected, 2)
    assert interruptions(sweep) == []
    assert len(sweep.events("point_started")) == 2
    assert "was away or failed and does not hold everything; afterwards: specsweep resume alone cluster=kubernetes" in await sweep.logs()
    await assert_only_the_sweep_is_left(sweep)

    database = f"sqlite:///{tmp_path / 'mlflow.db'}"
    await specsweep("sync", "alone", f"store={sweep.store.root}", "--uri", database, kubeconfig=tenant.kubeconfig)
    mlflow.set_tracking_uri(database)
    runs = mlflow.search_runs(experiment_names=["alone"], output_format="list")
    assert {run.data.tags["point_id"] for run in runs if "point_id" in run.data.tags} == {
        document["point"]["point_id"] for document in sweep.documents()
    }


@pytest.mark.soak  # the verdict has a test that takes seconds, in test_cluster_start.py
async def test_an_engine_out_of_host_memory_costs_its_point_until_it_is_asked_for_again(
    cluster: Cluster, tmp_path: Path, expected: dict[str, float]
) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    (tmp_path / "results").mkdir()
    words = [*COMMON, *ONE_SESSION, *QUICK, f"cluster.pod.memory={POD_MB}Mi"]
    sweep = await submitted(tenant, tmp_path / "results", "hungry", words)
    await in_a_point(sweep)
    engine = (await the_pod(tenant, "engine"))["metadata"]["name"]
    with _hungry_neighbour(await asyncio.to_thread(cluster.kubelet.pid, tenant.namespace, engine)):
        assert await sweep.finished() == "Failed"
    failed, measured = sorted(sweep.documents(), key=lambda document: str(document["point"]["status"]))
    assert measured["point"]["status"] == "measured"
    assert failed["point"]["error"]["kind"] == "EngineDied"
    assert f"killed for using more host memory than its limit (memory={POD_MB}Mi" in failed["point"]["error"]["message"]

    await specsweep("submit", *settings(tenant), "name=hungry", *words, kubeconfig=tenant.kubeconfig)
    await _measured(sweep, 2)
    assert await sweep.finished() in ("Complete", "Failed")
    assert_complete(sweep, expected, 2)
    assert len(sweep.events("point_started")) == 3
    await assert_only_the_sweep_is_left(sweep)


async def test_a_full_volume_ends_the_sweep_and_more_room_finishes_it(cluster: Cluster, tmp_path: Path, expected: dict[str, float]) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    words = [*COMMON, *ONE_SESSION, *QUICK, "cluster.sweep.retries=0"]
    with _small_disk(tmp_path / "results") as folder:
        sweep = await submitted(tenant, folder, "full", words)
        await sweep.until_measured(1)
        ballast = folder / "ballast"
        _fill(ballast)
        assert await sweep.finished() == "Failed"
        (pod,) = [pod for pod in await tenant.pods() if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "sweep"]
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 6
        assert "No space left on device" in await sweep.logs()
        before = sweep.documents()
        assert [document["point"]["status"] for document in before] == ["measured"]
        await assert_only_the_sweep_is_left(sweep)

        ballast.unlink()
        await specsweep("submit", *settings(tenant), "name=full", *words, kubeconfig=tenant.kubeconfig)
        await _measured(sweep, 2)
        assert await sweep.finished() in ("Complete", "Failed")
        assert_complete(sweep, expected, 2)
        assert before[0] in sweep.documents(), "what was measured is kept as it was"
        await assert_only_the_sweep_is_left(sweep)


async def test_what_is_missing_is_told(cluster: Cluster, tmp_path: Path) -> None:
    """By `submit` and `doctor` where it can be seen, by `status` in the words of the cluster where it cannot."""
    tenant = await cluster.tenant(NodeSpec("a"))
    grid = [*COMMON, *ONE_SESSION, *QUICK]
    ways = ["cluster=kubernetes", f"cluster.namespace={tenant.namespace}"]
    user = tenant.kubeconfig
    doctor = await specsweep("doctor", *settings(tenant), *grid, kubeconfig=user, code=3)
    assert 'persistentvolumeclaims "results" not found' in doctor
    said = await specsweep("submit", *settings(tenant), "name=claimless", *grid, kubeconfig=user, code=None)
    assert "results" in said

    (tmp_path / "results").mkdir()
    await tenant.claim("results", tmp_path / "results")
    for name, word, reason in (
        ("tokenless", "cluster.hub_token.secret=nowhere", 'secret "nowhere" not found'),
        ("nobodys", "cluster.service_account=nobody", 'serviceaccount "nobody" not found'),
    ):
        await specsweep("submit", *settings(tenant), f"name={name}", *grid, word, kubeconfig=user)

        async def told(name: str = name, reason: str = reason) -> bool:
            return reason in json.loads(await specsweep("status", name, *ways, "--json", kubeconfig=user))["sweeps"][0]["cluster"]["state"]

        await until(told, f"`status` of {name} to say {reason}")
        await specsweep("cancel", name, *ways, kubeconfig=user)


async def _interrupted(sweep: Sweep, fault: Callable[[str], Awaitable[None]], words: str, *, nth: int) -> None:
    """``fault`` in the middle of that start of a point; returns when the sweep has seen it and said so."""
    before = len(interruptions(sweep))
    await in_a_point(sweep, nth)
    await fault((await the_pod(sweep.tenant, "engine"))["metadata"]["name"])

    async def seen() -> bool:
        return len(interruptions(sweep)) > before

    try:
        await until(seen, f"the interruption by {fault.__name__}", 120)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; the sweep's pods wrote:\n{await sweep.logs()}") from None
    assert words in interruptions(sweep)[-1]


async def _measured(sweep: Sweep, points: int) -> None:
    """The end of the new Job, and not that of the one before."""

    async def there() -> bool:
        return await asyncio.to_thread(sweep.measured) >= points

    await until(there, f"{points} measured points", 120)


@contextmanager
def _hungry_neighbour(pid: int) -> Iterator[None]:
    """A process in the same container that takes all its memory; the kernel ends the first one for it."""
    groups = dict(line.split(":")[1:3] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    procs = next(path for path in _control_files(groups) if path.exists())
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    script = f'echo 0 > {procs}; exec {sys.executable} -c "{HOG}"'
    process = subprocess.Popen(["sh", "-c", script])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _control_files(groups: dict[str, str]) -> Iterator[Path]:
    root = Path("/sys/fs/cgroup")
    for controllers, path in groups.items():
        if controllers in ("memory", ""):
            yield root / controllers / path.lstrip("/") / "cgroup.procs"


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(ballast: Path) -> None:
    """To the last byte."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue
