"""Waiting for a node: others may leave it, or it may be one that this cluster does not have. The scheduler's words tell which."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.harness import Cluster, until
from cluster.node import NodeSpec
from cluster.servers import fleet, server
from specsweep.k8s.errors import StartTerminal
from specsweep.k8s.resources import JOBS
from specsweep.k8s.server import serve
from specsweep.k8s.specs import ClaimMount
from specsweep.k8s.verdict import Budgets

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ONE = NodeSpec("one")
UNFIT = Budgets(unfit_s=2)


async def test_eight_gpus_are_waited_for_and_taken_when_they_are_free(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    first, second = (server(tenant, name=name, gpus=8) for name in ("first", "second"))
    waited: list[str] = []
    ready = asyncio.Event()

    async def later() -> None:
        async with serve(found, second, None, budgets=UNFIT, progress=lambda starting: waited.append(starting.waits_for)):
            ready.set()

    async def waits() -> bool:
        return any("Insufficient nvidia.com/gpu" in words for words in waited)

    async with fleet(tenant) as found, serve(found, first, None), asyncio.TaskGroup() as group:
        group.create_task(later())
        await until(waits, "the scheduler's words")
        await asyncio.sleep(3)  # longer than what fits nowhere is waited for
        assert not ready.is_set()
        await found.api.delete(JOBS, first.name)  # as at the end of its session
        await asyncio.wait_for(ready.wait(), 60)
    assert await tenant.objects() == set()


async def test_taken_gpus_are_waited_for_until_the_deadline(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found, serve(found, server(tenant, name="first", gpus=8), None):
        with pytest.raises(StartTerminal, match=r"waited 6 s for a node .*1 Insufficient nvidia\.com/gpu.*or wait longer") as failure:
            async with serve(found, server(tenant, gpus=1), None, budgets=Budgets(queue_s=6)):
                pytest.fail("it came")
        assert {name for _, name in await tenant.objects() if name == "engine"} == set()
    assert failure.value.kind == "no node"
    assert "FailedScheduling" in failure.value.evidence["events.txt"]


@pytest.mark.parametrize(
    ("node", "fields", "words", "advice"),
    [
        (NodeSpec("one", gpus=0), {"gpus": 8}, "1 Insufficient nvidia.com/gpu", "no node offers what the pod asks for"),
        (NodeSpec("one", gpus=4), {"gpus": 8}, "1 Insufficient nvidia.com/gpu", "no node offers what the pod asks for"),
        (
            ONE,
            {"gpus": 8, "gpu_product": "NVIDIA-H300"},
            "didn't match Pod's node affinity/selector",
            "kubectl get nodes -L nvidia.com/gpu.product",
        ),
        (NodeSpec("one", taints=({"key": "team", "effect": "NoSchedule"},)), {"gpus": 8}, "untolerated taint", "add it to the tolerations"),
        (ONE, {"claims": (ClaimMount("weights", "/weights"),)}, 'persistentvolumeclaim "weights" not found', "correct its name"),
    ],
    ids=["no-gpus", "too-few", "product", "taint-without-value", "no-claim"],
)
async def test_what_fits_nowhere_is_not_waited_for_long(
    cluster: Cluster, node: NodeSpec, fields: dict[str, Any], words: str, advice: str
) -> None:
    tenant = await cluster.tenant(node)
    async with fleet(tenant) as found:
        with pytest.raises(StartTerminal) as failure:
            async with serve(found, server(tenant, **fields), None, budgets=UNFIT):
                pytest.fail("it came")
        assert await tenant.objects() == set()
    assert failure.value.kind == "no node"
    assert "waited 2 s for a node" in str(failure.value)
    assert words in str(failure.value)
    assert advice in str(failure.value)


async def test_a_node_that_failed_is_avoided_where_there_is_another(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE, NodeSpec("two"))
    one, two = tenant.node("one"), tenant.node("two")
    async with fleet(tenant) as found:
        for avoided, taken in (((one,), two), ((two,), one)):
            async with serve(found, server(tenant, gpus=1, placement={"avoid_nodes": avoided}), None) as running:
                assert running.node == taken
        async with serve(found, server(tenant, gpus=1, placement={"avoid_nodes": (one, two)}), None) as running:
            assert running.node in (one, two)
