"""Ray nodes as pods: what KubeRay makes of a RayCluster comes up, and its workers find their head by a service's name."""

from __future__ import annotations

import secrets

import pytest

from cluster.harness import Cluster, until
from cluster.kuberay import PATH, ray_cluster
from cluster.node import NodeSpec

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(300)]


async def test_a_ray_cluster_of_two_pods_becomes_ready(ray_operator: Cluster) -> None:
    tenant = await ray_operator.tenant(NodeSpec("one", gpus=0), NodeSpec("two", gpus=0))
    place = tenant.placement
    await tenant.secret("ray", auth_token=secrets.token_hex(32))
    where = {"nodeSelector": place["node_selector"], "tolerations": list(place["tolerations"])}
    wanted = ray_cluster("clients", workers=1, token="ray", placement=where)
    path = PATH.format(tenant.namespace)
    async with ray_operator.admin() as admin:
        await admin.create(path, wanted)

        async def ready() -> bool:
            status = (await admin.get(f"{path}/clients")).get("status") or {}
            return status.get("state") == "ready" and status.get("readyWorkerReplicas") == 1

        await until(ready, "the Ray cluster", within_s=180)
        await admin.delete(f"{path}/clients")

        async def gone() -> bool:
            return not await tenant.pods()

        await until(gone, "the end of its pods")
