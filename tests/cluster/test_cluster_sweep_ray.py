"""A sweep whose clients run on the nodes of a Ray cluster: the chart's RayCluster, made by KubeRay's operator, on two hosts.

One of them has a monotonic clock of its own, as any second host has: a stamp that was taken there means nothing here until it is translated.
The sweep, its engine and the head of the Ray cluster are on the other one, so that the second can be lost without them.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster import charts
from cluster.charts import install
from cluster.disturbed import in_a_point
from cluster.harness import Cluster, Tenant, until
from cluster.kuberay import PATH
from cluster.node import NodeSpec
from cluster.sweeps import Sweep, settings, specsweep, submitted
from cluster.view import tool
from specsweep.client.trace import PointTrace, read_trace
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]

AHEAD_S = 100_000
RAY = f"{charts.ACCOUNT}-ray"
ADDRESS = f"{RAY}-head-svc:6379"
GRID = (
    "sweep=smoke",
    "engine=sim",
    "drafter=ngram",
    "draft_length=3",
    "batch_size=8,16,32",
    "workload.osl=64",
    "target.pod={gpus: 8}",
    "engine.max_batch=32",
    "engine.speedup=0.2",  # slow enough for it and its clients to be on time on two cores
    "measure.client_processes=2",
    "measure.stall_seconds=15",
    "tracking.enabled=false",
)
POINTS = 3
LARGE = (
    *(setting for setting in GRID if not setting.startswith(("batch_size", "engine."))),
    "batch_size=512",
    "workload.prompts=64",
    "engine.max_batch=512",
    "engine.speedup=0.1",
)


@pytest.fixture(scope="module", autouse=True)
def second_clock() -> None:
    """Newer kernels only: older ones give a time namespace to children, and what a container runs is the process itself."""
    clock = [sys.executable, "-c", "import time; print(time.monotonic())"]
    begin = time.monotonic()
    done = subprocess.run([tool("unshare"), "--time", "--monotonic", str(AHEAD_S), *clock], capture_output=True, text=True, check=False)
    if done.returncode or float(done.stdout) < begin + AHEAD_S:
        pytest.skip(f"a host with a clock of its own needs a kernel whose exec enters time namespaces: {done.stderr}")


async def test_clients_on_two_hosts_measure_what_those_of_one_host_do(ray_operator: Cluster, tmp_path: Path) -> None:
    tenant, user = await _two_hosts(ray_operator, tmp_path / "results")
    assert re.search(rf"ok +Ray cluster {RAY} HeadPodReady", await _doctor(tenant, user, ADDRESS, code=0))
    assert re.search(r"Ray cluster nobody .*has no RayCluster of that name", await _doctor(tenant, user, "nobody-head-svc:6379", code=3))
    sweep = await submitted(tenant, tmp_path / "results", "two", [*GRID, *_place(tenant)], user=user)
    assert await sweep.finished() in ("Complete", "Failed")  # failed: points that are not valid on a busy machine
    there, here = _measured(sweep.store, "two"), await _at_home(tmp_path / "home", user, GRID)
    assert there.keys() == here.keys()
    assert len(there) == POINTS
    for point_id, document in there.items():
        _assert_alike(document, here[point_id])
        _assert_one_time_line(document, _trace(sweep, document), AHEAD_S)


async def test_a_host_of_clients_that_is_lost_takes_no_point_with_it(ray_operator: Cluster, tmp_path: Path) -> None:
    """But the one that is being measured, for the moment."""
    tenant, user = await _two_hosts(ray_operator, tmp_path / "results")
    sweep = await submitted(tenant, tmp_path / "results", "lost", [*GRID, *_place(tenant)], user=user)
    await in_a_point(sweep, 2)  # its clients are there since the first
    await asyncio.to_thread(ray_operator.kubelet.lose, tenant.node("far"))
    assert await sweep.finished() in ("Complete", "Failed")
    (lost,) = sweep.events("actor_lost")
    assert "was lost" in lost["fact"]
    found, here = _measured(sweep.store, "lost"), await _at_home(tmp_path / "home", user, GRID)
    assert found.keys() == here.keys()
    for point_id, document in found.items():
        _assert_alike(document, here[point_id])
    hosts = {d["point"]["axes"]["batch_size"]: {actor.host for actor in _trace(sweep, d).actors} for d in found.values()}
    assert {size: len(names) for size, names in hosts.items()} == {8: 2, 16: 1, 32: 1}


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_a_large_batch_over_two_hosts_is_that_of_one(ray_operator: Cluster, tmp_path: Path) -> None:
    tenant, user = await _two_hosts(ray_operator, tmp_path / "results")
    sweep = await submitted(tenant, tmp_path / "results", "large", [*LARGE, *_place(tenant)], user=user)
    assert await sweep.finished() in ("Complete", "Failed")
    (there,), (here,) = _measured(sweep.store, "large").values(), (await _at_home(tmp_path / "home", user, LARGE)).values()
    _assert_one_time_line(there, _trace(sweep, there), AHEAD_S)
    ours, theirs = (document["measurement"]["metrics"] for document in (there, here))
    assert ours["al_decode"] == pytest.approx(theirs["al_decode"], rel=0.05)
    for name in ("output_tps", "user_tps_mean"):
        assert ours[name] == pytest.approx(theirs[name], rel=0.1), name
        assert ours[f"{name}_ci_low"] <= theirs[f"{name}_ci_high"], name
        assert theirs[f"{name}_ci_low"] <= ours[f"{name}_ci_high"], name


async def _two_hosts(cluster: Cluster, results: Path) -> tuple[Tenant, Path]:
    """A namespace with the chart in it, whose Ray cluster is ready, and a kubeconfig with the chart's rights."""
    tenant = await cluster.tenant(NodeSpec("home"), NodeSpec("far", gpus=0, ahead_s=AHEAD_S), rules=())
    results.mkdir()
    await tenant.claim("results", results)
    host = "kubernetes\\.io/hostname"
    user = await install(
        tenant,
        "results.existingClaim=results",
        "ray.enabled=true",
        "ray.workers.replicas=2",
        *(f"ray.{part}.resources.{amount}" for part in ("head", "workers") for amount in ("cpu=2", "memory=2Gi")),
        f"ray.head.podTemplate.spec.nodeSelector.{host}={tenant.node('home')}",
    )
    async with cluster.admin() as admin:

        async def ready() -> bool:
            status = (await admin.get(f"{PATH.format(tenant.namespace)}/{RAY}")).get("status") or {}
            return status.get("state") == "ready" and status.get("readyWorkerReplicas") == 2

        await until(ready, "the Ray cluster", within_s=240)
    return tenant, user


def _place(tenant: Tenant) -> list[str]:
    return [
        f"cluster.clients.ray_address={ADDRESS}",
        f"cluster.service_account={charts.ACCOUNT}",
        f"cluster.sweep.template={{spec: {{nodeSelector: {{kubernetes.io/hostname: {tenant.node('home')}}}}}}}",
    ]


async def _doctor(tenant: Tenant, user: Path, address: str, *, code: int) -> str:
    words = (*settings(tenant), *_place(tenant), f"cluster.clients.ray_address={address}", "engine=sim", "target=tiny")
    return await specsweep("doctor", *words, kubeconfig=user, code=code)


async def _at_home(home: Path, kubeconfig: Path, grid: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The same points on this machine alone."""
    await specsweep("run", *grid, "cluster=local", "name=home", f"store={home}", kubeconfig=kubeconfig, code=None)
    return _measured(Store(home), "home")


def _measured(store: Store, sweep: str) -> dict[str, dict[str, Any]]:
    found = {document["point"]["point_id"]: document for document in store.sweep(sweep).records()}
    assert [d["point"]["error"] for d in found.values() if d["point"]["status"] != "measured"] == []
    return found


def _trace(sweep: Sweep, document: dict[str, Any]) -> PointTrace:
    attempt = sweep.store.latest(document["point"]["point_id"])
    assert attempt is not None
    return read_trace(attempt.path / "trace.parquet")


def _assert_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """As far as a machine that does something else besides lets them be. What is accepted does not depend on time."""
    ours, theirs = (document["measurement"]["metrics"] for document in (one, other))
    assert ours["al_decode"] == pytest.approx(theirs["al_decode"], rel=0.1)
    assert theirs["output_tps"] / 3 < ours["output_tps"] < 3 * theirs["output_tps"]


def _assert_one_time_line(document: dict[str, Any], trace: PointTrace, ahead_s: int) -> None:
    """Half of the point was measured on either host, and the stamps of both are stamps of one clock."""
    near, far = sorted(trace.actors, key=lambda actor: actor.clock)
    assert near.host != far.host
    assert (near.clock, near.clock_bound_ns) == ("", 0)
    assert far.clock
    assert abs(far.clock_offset_ns - ahead_s * 10**9) <= far.clock_bound_ns
    assert near.slots == far.slots == document["point"]["axes"]["batch_size"] // 2
    (check,) = (c for c in document["measurement"]["checks"] if c["name"] == "clock_bound")
    assert check["ok"], check
