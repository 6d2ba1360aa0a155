"""A volume that only one node has at a time, in the words of the controller that attaches it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.harness import Cluster, Tenant, until
from cluster.node import NodeSpec
from cluster.servers import fleet, server
from specsweep.k8s.errors import StartTerminal
from specsweep.k8s.resources import JOBS
from specsweep.k8s.server import serve
from specsweep.k8s.specs import ClaimMount, ServerSpec
from specsweep.k8s.verdict import Budgets

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ONE, TWO = NodeSpec("one"), NodeSpec("two")


def on(tenant: Tenant, node: str) -> ServerSpec:
    """A server on that node, with the disk."""
    template = {"spec": {"nodeSelector": {"kubernetes.io/hostname": tenant.node(node)}}}
    return server(tenant, name=f"on-{node}", claims=(ClaimMount("disk", "/disk", read_only=False),), placement={"template": template})


async def test_a_disk_that_another_node_holds_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(ONE, TWO)
    await tenant.claim("disk", tmp_path, one_node=True)
    waited: list[str] = []
    ready = asyncio.Event()

    async def later() -> None:
        async with serve(found, on(tenant, "two"), None, progress=lambda starting: waited.append(starting.waits_for)) as running:
            assert running.node == tenant.node("two")
            ready.set()

    async def waits() -> bool:
        return any("already used by pod(s)" in words for words in waited)

    async with fleet(tenant) as found, serve(found, on(tenant, "one"), None) as first, asyncio.TaskGroup() as group:
        group.create_task(later())
        await until(waits, "the controller's words")
        assert any(f"already used by pod(s) {first.pod}" in words for words in waited)
        assert not ready.is_set()
        await found.api.delete(JOBS, "on-one")
        await asyncio.wait_for(ready.wait(), 60)
    assert await tenant.objects() == set()


async def test_a_disk_that_stays_elsewhere_is_not_waited_for_for_ever(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(ONE, TWO)
    await tenant.claim("disk", tmp_path, one_node=True)
    async with fleet(tenant) as found, serve(found, on(tenant, "one"), None) as first:
        with pytest.raises(StartTerminal, match="one node at a time") as failure:
            async with serve(found, on(tenant, "two"), None, budgets=Budgets(mount_s=2)):
                pytest.fail("it came")
        assert first.ended() is None
    assert failure.value.kind == "mount"
    assert f"already used by pod(s) {first.pod}" in str(failure.value)
    assert await tenant.objects() == set()
