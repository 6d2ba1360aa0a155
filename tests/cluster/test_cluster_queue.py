"""Kueue in front of the scheduler: its quota is waited for, and what it takes away is seen."""

from __future__ import annotations

import asyncio

import pytest

from cluster.harness import Cluster, Tenant, until
from cluster.kueue import priority, queue
from cluster.node import NodeSpec
from cluster.servers import fleet, server
from specsweep.k8s.fleet import Fleet
from specsweep.k8s.server import Server, serve
from specsweep.k8s.specs import ServerSpec

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ONE, TWO = NodeSpec("one"), NodeSpec("two")
QUEUE = "gpus"


async def with_queue(cluster: Cluster, gpus: int) -> Tenant:
    tenant = await cluster.tenant(ONE, TWO)
    async with cluster.admin() as admin:
        for path, obj in queue(QUEUE, tenant.namespace, gpus=gpus):
            await admin.create(path, obj)
    return tenant


def queued(tenant: Tenant, name: str, **placement: str) -> ServerSpec:
    return server(tenant, name=name, gpus=8, placement={"queue": QUEUE, **placement})


async def test_a_quota_for_one_session_at_a_time_is_waited_for(queued_cluster: Cluster) -> None:
    tenant = await with_queue(queued_cluster, gpus=8)
    waited: list[str] = []
    ready = asyncio.Event()

    async def second(found: Fleet) -> None:
        async with serve(found, queued(tenant, "second"), None, progress=lambda starting: waited.append(starting.waits_for)):
            ready.set()

    async def waits() -> bool:
        return any("queue's quota" in words for words in waited)

    async with fleet(tenant) as found, asyncio.TaskGroup() as group:
        async with serve(found, queued(tenant, "first"), None):
            group.create_task(second(found))
            await until(waits, "the second to wait for quota")
            assert not ready.is_set()
        await asyncio.wait_for(ready.wait(), 60)
    assert await tenant.objects() == set()


async def test_what_its_queue_takes_away_has_ended_and_can_be_tried_again(queued_cluster: Cluster) -> None:
    tenant = await with_queue(queued_cluster, gpus=8)
    low, high = f"{tenant.namespace}-low", f"{tenant.namespace}-high"
    async with queued_cluster.admin() as admin:
        for path, obj in (priority(low, 1), priority(high, 100)):
            await admin.create(path, obj)
    async with (
        fleet(tenant) as found,
        serve(found, queued(tenant, "low", queue_priority=low), None) as running,
        serve(found, queued(tenant, "high", queue_priority=high), None),
    ):
        await until(lambda: _ended(running), "the end of the preempted one")
        end = await running.end()
        assert end is not None
        assert end.kind == "preempted"
    assert await tenant.objects() == set()


async def _ended(running: Server) -> bool:
    return running.ended() is not None
