"""A sweep whose own process is killed, again and again: what is measured is kept, engines that run are taken over, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.disturbed import (
    COMMON,
    ONE_SESSION,
    QUICK,
    TWO_SESSIONS,
    assert_complete,
    assert_only_the_sweep_is_left,
    evict,
    in_a_point,
    pods,
    the_pod,
    undisturbed,
)
from cluster.harness import Cluster, until
from cluster.node import NodeSpec
from cluster.sweeps import Sweep, submitted

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]
NODES = (NodeSpec("a"), NodeSpec("b"))


async def test_a_sweep_that_is_killed_at_random_moments_ends_as_if_nothing_had_been(
    cluster: Cluster, tmp_path: Path, expected: dict[str, float]
) -> None:
    await _killed_at_random(cluster, tmp_path, TWO_SESSIONS, expected, points=4, kills=3, longest_s=14.0)


@pytest.mark.soak
@pytest.mark.timeout(1500)
async def test_a_sweep_that_is_killed_ten_times(cluster: Cluster, tmp_path: Path) -> None:
    grid = ("drafter=none,ngram,draft_model", "batch_size=1,2,3,4")
    home = await undisturbed(tmp_path / "home", cluster.plane.kubeconfig(), grid)
    await _killed_at_random(cluster, tmp_path, grid, home, points=12, kills=10, longest_s=25.0)


async def _killed_at_random(
    cluster: Cluster, folder: Path, grid: Sequence[str], expected: dict[str, float], *, points: int, kills: int, longest_s: float
) -> None:
    """Each moment is counted from the start of the sweep's pod: while it plans, starts clients and engines, measures, or ends one."""
    tenant = await cluster.tenant(*NODES)
    (folder / "results").mkdir()
    sweep = await submitted(tenant, folder / "results", "killed", [*COMMON, *grid, *QUICK, "cluster.max_parallel_sessions=2"])
    moments = random.Random(kills)
    for nth in range(kills):
        await _killed(sweep, nth=nth + 1, after_s=moments.uniform(0.0, longest_s))
    assert await sweep.finished(600) in ("Complete", "Failed")  # failed: points that are not valid on a busy machine
    assert_complete(sweep, expected, points)
    await assert_only_the_sweep_is_left(sweep)


async def test_a_sweep_that_is_killed_in_the_middle_of_a_point_takes_its_engine_over(
    cluster: Cluster, tmp_path: Path, expected: dict[str, float]
) -> None:
    """And one that is told to go (its node is drained) ends its engine itself, and goes on elsewhere."""
    tenant = await cluster.tenant(*NODES)
    (tmp_path / "results").mkdir()
    sweep = await submitted(tenant, tmp_path / "results", "moved", [*COMMON, *ONE_SESSION, *QUICK])
    await in_a_point(sweep, 2)  # one is measured: that must not make another engine of it
    engine = (await the_pod(tenant, "engine"))["metadata"]["uid"]
    await _killed(sweep, nth=1)
    await in_a_point(sweep, 3)
    assert (await the_pod(tenant, "engine"))["metadata"]["uid"] == engine
    first = await the_pod(tenant, "sweep")
    await evict(tenant, first["metadata"]["name"])

    async def ended() -> bool:
        alive = await pods(tenant, "engine")
        return engine not in {pod["metadata"]["uid"] for pod in alive}

    await until(ended, "the end of the engine")
    assert await sweep.finished() in ("Complete", "Failed")
    assert_complete(sweep, expected, 2)
    await assert_only_the_sweep_is_left(sweep)


async def _killed(sweep: Sweep, nth: int, after_s: float = 0.0) -> None:
    """Its process, without a word; returns when the Job has counted that. The next pod comes at once."""
    tenant = sweep.tenant
    pod = await the_pod(tenant, "sweep")
    await asyncio.sleep(after_s)
    pid = await asyncio.to_thread(tenant.cluster.kubelet.pid, tenant.namespace, pod["metadata"]["name"])
    os.kill(pid, signal.SIGKILL)

    async def counted() -> bool:
        status = (await sweep.job() or {}).get("status") or {}
        return bool(status.get("failed", 0) >= nth and not any((status.get("uncountedTerminatedPods") or {}).values()))

    await until(counted, f"failure {nth} of the sweep's pod")
    await asyncio.to_thread(tenant.cluster.plane.restart_controllers)
