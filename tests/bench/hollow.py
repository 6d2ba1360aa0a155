"""Nodes that run nothing: a pod that is bound to one of them is ready at once, and gone as soon as it is deleted.

What is left of a session's start is what the control plane and the orchestrator themselves take. All pods have addresses of this machine's
loopback network, so that one simulated server answers for all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from cluster.node import NodeSpec
from cluster.rest import STRATEGIC, Json, Rest, RestError
from cluster.status import now

BEAT_S = 5.0


@dataclass
class Hollow:
    rest: Rest
    gpus: int = 8
    held_gpu_s: float = 0.0  # GPUs × seconds from a pod's binding to its end
    pods: int = 0
    _since: dict[str, float] = field(default_factory=dict)
    _addresses: itertools.count[int] = field(default_factory=lambda: itertools.count(2))

    @asynccontextmanager
    async def nodes(self, count: int) -> AsyncIterator[None]:
        names = [f"hollow-{i}" for i in range(count)]
        for name in names:
            await self._register(NodeSpec(name, gpus=self.gpus))
        tasks = [asyncio.create_task(self._beat(names)), asyncio.create_task(self._run_pods())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _register(self, spec: NodeSpec) -> None:
        labels = {"kubernetes.io/hostname": spec.name, "nvidia.com/gpu.product": spec.product}
        await self.rest.create("/api/v1/nodes", {"metadata": {"name": spec.name, "labels": labels}})
        amounts = {"cpu": spec.cpu, "memory": spec.memory, "pods": "110", "nvidia.com/gpu": str(spec.gpus)}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now(), "lastTransitionTime": now()}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        await self.rest.patch(f"/api/v1/nodes/{spec.name}/status", {"status": status}, kind=STRATEGIC)
        lease = {
            "metadata": {"name": spec.name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": spec.name, "renewTime": _micro()},
        }
        await self.rest.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)

    async def _beat(self, names: list[str]) -> None:
        while True:
            for name in names:
                await self.rest.patch(
                    f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}", {"spec": {"renewTime": _micro()}}
                )
            await asyncio.sleep(BEAT_S)

    async def _run_pods(self) -> None:
        async for kind, pod in self.rest.follow("/api/v1/pods"):
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}"
            if kind == "DELETED":
                self.held_gpu_s += self.gpus * (time.monotonic() - self._since.pop(uid, time.monotonic()))
            elif pod["metadata"].get("deletionTimestamp"):
                with suppress(RestError):
                    await self.rest.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
            elif pod["spec"].get("nodeName") and uid not in self._since:
                self._since[uid] = time.monotonic()
                self.pods += 1
                await self.rest.patch(f"{path}/status", {"status": self._ready(pod)}, kind=STRATEGIC)

    def _ready(self, pod: Json) -> Json:
        number = next(self._addresses)
        address = f"127.{1 + number // 60000 % 200}.{number // 250 % 240}.{number % 250 + 1}"
        conditions = [
            {"type": t, "status": "True", "lastTransitionTime": now()} for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        container = {
            "name": "main",
            "image": pod["spec"]["containers"][0]["image"],
            "imageID": "hollow@sha256:" + "0" * 64,
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now()}},
        }
        return {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": conditions,
            "containerStatuses": [container],
        }


def _micro() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
