"""A node as the cluster knows it: its capacity, its labels, its heartbeats, and the pods that are bound to it.

Losing one is what it is in a data centre: its processes end, its heartbeats stop, its log server does not answer, and nobody is told. The
cluster finds out by itself. Coming back, it finds pods that are said to run and do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cluster.certificates import Pair
from cluster.images import LOCAL, digest
from cluster.logs import LogServer
from cluster.place import Place
from cluster.pod import PodWorker
from cluster.rest import STRATEGIC, Json, RestError
from cluster.status import Taken, now

VERSION = "v1.37.2"
LEASE_S = 40
ATTACHED_BY_CONTROLLER = "volumes.kubernetes.io/controller-managed-attach-detach"
_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Nothing is checked against this machine: the capacity is what the scheduler is told."""

    name: str
    gpus: int = 8
    product: str = "NVIDIA-B200"
    cpu: str = "64"
    memory: str = "1Ti"
    ahead_s: int = 0  # of its CLOCK_MONOTONIC, to this machine's: every host's begins when it was started
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()


class Node:
    def __init__(self, spec: NodeSpec, place: Place, address: str, pair: Pair) -> None:
        self.spec = spec
        self.lost = False
        self._place = place
        self._address = address
        self._workers: dict[str, PodWorker] = {}
        self._logs = LogServer(address, pair, self._find)

    async def register(self) -> None:
        await self._logs.start()
        spec, rest = self.spec, self._place.rest
        gpu = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": spec.product} if spec.gpus else {}
        labels = {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", **gpu, **spec.labels}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": spec.name, "labels": labels, "annotations": {ATTACHED_BY_CONTROLLER: "true"}},
            "spec": {"taints": [dict(taint) for taint in spec.taints]},
        }
        await rest.create("/api/v1/nodes", node)
        await self._tell_status()
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": spec.name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": spec.name, "leaseDurationSeconds": LEASE_S, "renewTime": _micro()},
        }
        await rest.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)

    async def beat(self) -> None:
        """One heartbeat."""
        if not self.lost:
            path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.spec.name}"
            with suppress(RestError):  # the node was deleted
                await self._place.rest.patch(path, {"spec": {"renewTime": _micro()}})

    async def see(self, kind: str, pod: Json) -> None:
        """A pod that is bound to it was added, changed or deleted."""
        if self.lost:
            return
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if kind == "DELETED":
            if worker is not None:
                await self._workers.pop(uid).gone()
        elif worker is not None:
            worker.update(pod)
        elif not _is_over(pod) or pod["metadata"].get("deletionTimestamp"):
            status = pod.get("status") or {}
            self._workers[uid] = PodWorker(
                pod, self._place, self._address, ahead_s=self.spec.ahead_s, lost=bool(status.get("containerStatuses"))
            )

    async def lose(self) -> None:
        self.lost = True
        await self._logs.stop()
        for worker in list(self._workers.values()):
            await worker.crash()
        self._workers.clear()

    async def come_back(self) -> None:
        self.lost = False
        await self._logs.start()
        await self._tell_status()
        await self.beat()
        for pod in await self._place.rest.find("/api/v1/pods", fieldSelector=f"spec.nodeName={self.spec.name}"):
            await self.see("ADDED", pod)

    def evict(self, namespace: str, name: str, message: str) -> None:
        """As under pressure: the pod is ended at once and says why."""
        worker = self._find(namespace, name)
        assert worker is not None, f"node {self.spec.name} runs no pod {namespace}/{name}"
        condition = {"reason": "TerminationByKubelet", "message": message}
        worker.take(Taken("Evicted", message, condition))

    def uid_of(self, namespace: str, name: str) -> str | None:
        worker = self._find(namespace, name)
        return worker.uid if worker is not None else None

    def pid_of(self, namespace: str, name: str) -> int | None:
        worker = self._find(namespace, name)
        return worker.pid("main") if worker is not None else None

    async def leave(self) -> None:
        await self.lose()
        with suppress(RestError):
            await self._place.rest.delete(f"/api/v1/nodes/{self.spec.name}")

    def _find(self, namespace: str, name: str) -> PodWorker | None:
        return next((worker for worker in self._workers.values() if worker.key == (namespace, name)), None)

    async def _tell_status(self) -> None:
        spec = self.spec
        amounts = {"cpu": spec.cpu, "memory": spec.memory, "pods": "110", "ephemeral-storage": "1Ti"}
        if spec.gpus:
            amounts["nvidia.com/gpu"] = str(spec.gpus)
        conditions = [
            {"type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now(), "lastTransitionTime": now()}
            for kind, (status, reason, message) in _HEALTHY.items()
        ]
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": self._address}, {"type": "Hostname", "address": spec.name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.port}},
            "images": [{"names": [digest(LOCAL)], "sizeBytes": 1}],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "process://1",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": VERSION,
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "",
                "systemUUID": "",
            },
        }
        await self._place.rest.patch(f"/api/v1/nodes/{spec.name}/status", {"status": status}, kind=STRATEGIC)


def _is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
