"""What can happen to a server that is ready, and to the cluster under it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from cluster.harness import Cluster, Tenant, until
from cluster.node import NodeSpec
from cluster.rest import RestError
from cluster.servers import fleet, server
from specsweep.k8s.fleet import Pace
from specsweep.k8s.outcomes import Retryable
from specsweep.k8s.server import Server, serve

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ONE = NodeSpec("one")
FORCED = Pace(first_look_s=0.2, longest_look_s=1.0, delete_s=2.0)

DIES = """
import http.server, os, threading
print("its last words", flush=True)
threading.Timer(4, lambda: os.kill(os.getpid(), 9)).start()
http.server.test(http.server.SimpleHTTPRequestHandler, port=8000, bind="0.0.0.0")
"""


# Takes its time to end, so that its being deleted can be seen.
LINGERS = ("sh", "-c", "trap 'sleep 3; exit 143' TERM; python -m http.server {port} --bind {host} & wait")
GONE = re.compile("is being deleted|pod is gone")  # a watch that begins again may find only the latter


async def ends(running: Server) -> str:
    async def ended() -> bool:
        return running.ended() is not None

    await until(ended, "the end of the server")
    return running.ended() or ""


async def deleted(cluster: Cluster, tenant: Tenant, running: Server) -> None:
    async with cluster.admin() as admin:
        await admin.delete(f"/api/v1/namespaces/{tenant.namespace}/pods/{running.pod}")


async def test_deleted_by_hand(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found, serve(found, server(tenant, LINGERS), None) as running:
        await deleted(cluster, tenant, running)
        assert "deleted" in await ends(running)
    assert await tenant.objects() == set()


async def test_evicted_by_its_node(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found, serve(found, server(tenant), None) as running:
        await asyncio.to_thread(cluster.kubelet.evict, tenant.namespace, running.pod)
        assert "low on resource: memory" in await ends(running)
        end = await running.end()
        assert end is not None
        assert end.kind == "evicted"
    assert "Evicted" in running.evidence["events.txt"]
    assert await tenant.objects() == set()


async def test_evicted_over_the_api(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found, serve(found, server(tenant, LINGERS), None) as running:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": running.pod, "namespace": tenant.namespace}}
        async with cluster.admin() as admin:
            await admin.create(f"/api/v1/namespaces/{tenant.namespace}/pods/{running.pod}/eviction", eviction)
        assert "EvictionByEvictionAPI" in await ends(running)
        end = await running.end()
        assert end is not None
        assert end.kind == "evicted"


async def test_killed(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found, serve(found, server(tenant, ("python", "-c", DIES)), None) as running:
        assert "its last words" in (await running.log())
        reason = await ends(running)
        assert "SIGKILL" in reason
    assert "its last words" in running.evidence["log.txt"]


async def test_cut_off_from_the_network(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    template = {"spec": {"containers": [{"name": "main", "readinessProbe": {"failureThreshold": 1, "timeoutSeconds": 1}}]}}
    async with fleet(tenant) as found, serve(found, server(tenant, placement={"template": template}), None) as running:
        cluster.kubelet.set_link(tenant.namespace, running.pod, up=False)
        assert "was ready and is not any more" in await ends(running)
    assert await tenant.objects() == set()


async def test_its_node_is_lost(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE, NodeSpec("two"))
    async with fleet(tenant, pace=FORCED) as found:
        async with serve(found, server(tenant, gpus=8), None) as running:
            await asyncio.to_thread(cluster.kubelet.lose, running.node)
            await ends(running)
            end = await running.end()
            assert end is not None
            assert end.kind in ("node lost", "not ready any more")
        assert await tenant.objects() == set()
        async with serve(found, server(tenant, gpus=8), None) as again:
            assert again.node != running.node


async def test_its_node_starts_again(cluster: Cluster) -> None:
    """So soon that nobody missed it; its pods are said to run, and do not."""
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found, serve(found, server(tenant, gpus=8), None) as running:
        await asyncio.to_thread(cluster.kubelet.lose, running.node)
        await asyncio.to_thread(cluster.kubelet.come_back, running.node)
        await ends(running)
        end = await running.end()
        assert end is not None
        assert (end.kind, type(end)) == ("node lost", Retryable)
    assert await tenant.objects() == set()


async def test_the_api_server_is_away_for_a_while(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found:
        async with serve(found, server(tenant), None) as running:
            await asyncio.to_thread(cluster.plane.stop)
            await asyncio.sleep(2)
            assert running.ended() is None
            await asyncio.to_thread(cluster.plane.restart)
            await deleted(cluster, tenant, running)
            assert GONE.search(await ends(running))
        assert await tenant.objects() == set()


async def test_the_api_server_is_away_at_the_end(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)

    async def restart() -> None:
        await asyncio.sleep(2)
        await asyncio.to_thread(cluster.plane.restart)

    async with fleet(tenant) as found, asyncio.TaskGroup() as group:
        async with serve(found, server(tenant), None):
            await asyncio.to_thread(cluster.plane.stop)
            group.create_task(restart())
        assert await tenant.objects() == set()


async def is_forgotten(cluster: Cluster, tenant: Tenant, version: str) -> bool:
    """Whether a watch could not go on from that version of the pods."""
    async with cluster.admin() as admin:
        path = f"/api/v1/namespaces/{tenant.namespace}/pods"
        try:
            event = await admin.get(path, watch="true", resourceVersion=version, timeoutSeconds="1")
        except RestError as error:
            return error.status == 410
    return bool(event["object"].get("code") == 410)


async def test_it_is_away_while_a_server_starts_and_has_forgotten_all_versions(cluster: Cluster) -> None:
    """The watch's version is not kept (410): all is listed anew, and nothing is missed."""
    tenant = await cluster.tenant(ONE)
    async with cluster.admin() as admin:
        version = (await admin.get(f"/api/v1/namespaces/{tenant.namespace}/pods"))["metadata"]["resourceVersion"]
    spec = server(tenant, ("sh", "-c", "sleep 3; exec python -m http.server {port} --bind {host}"))

    async def restart() -> None:
        await asyncio.sleep(1)
        await asyncio.to_thread(cluster.plane.stop)
        await asyncio.to_thread(cluster.plane.forget_history)
        await asyncio.to_thread(cluster.plane.restart)

    async with fleet(tenant) as found, asyncio.TaskGroup() as group:
        group.create_task(restart())
        async with serve(found, spec, None) as running:
            assert running.ended() is None
            assert await is_forgotten(cluster, tenant, version)
            await deleted(cluster, tenant, running)
            assert GONE.search(await ends(running))
    assert await tenant.objects() == set()


async def test_the_orchestrator_is_killed_and_the_next_one_takes_over(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(ONE)
    said = tmp_path / "ready"
    script = textwrap.dedent(f"""
        import asyncio, pathlib, sys
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from cluster.harness import Tenant
        from cluster.servers import fleet, server
        from specsweep.k8s.server import serve
        tenant = Tenant(None, {tenant.namespace!r}, pathlib.Path({str(tenant.kubeconfig)!r}))
        async def main():
            async with fleet(tenant) as found, serve(found, server(tenant), None) as running:
                pathlib.Path({str(said)!r}).write_text(running.pod)
                await asyncio.sleep(600)
        asyncio.run(main())
    """)
    first = await asyncio.create_subprocess_exec(sys.executable, "-c", script)

    async def ready() -> bool:
        return said.exists() and bool(said.read_text())

    try:
        await until(ready, "the first orchestrator's server")
    finally:
        os.kill(first.pid, signal.SIGKILL)
        await first.wait()
    async with fleet(tenant) as found, serve(found, server(tenant), None) as running:
        assert running.pod == said.read_text()
    assert await tenant.objects() == set()
