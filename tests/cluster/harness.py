"""A cluster for tests: control plane, network and nodes together, and namespaces in which a test works with a sweep's rights only.

Each test has a namespace of its own, and nodes that only it may use (by a label that the namespace's pods are made to select and a taint
that keeps others off), so that tests do not take each other's GPUs and one may lose a node.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster import memory
from cluster.control_plane import ControlPlane
from cluster.disks import disk
from cluster.kubelet import Kubelet
from cluster.network import Network
from cluster.node import NodeSpec
from cluster.rest import Json, Rest, RestError
from cluster.view import tool
from specsweep.k8s.api import Api

ACCOUNT = "specsweep"
POOL = "specsweep.io/test-pool"
CHANGE = ["create", "get", "list", "watch", "patch", "delete"]
LOOK = ["get", "list", "watch"]
# What a sweep may do: in its namespace, and nothing beyond.
RULES: tuple[Mapping[str, Any], ...] = (
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": CHANGE},
    {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": CHANGE},
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*LOOK, "delete"]},
    {"apiGroups": [""], "resources": ["pods/log", "events"], "verbs": LOOK},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]},
)
FOLDER = "specsweep-cluster-"
WAIT_S = 60.0  # a hang guard
LEFT_BY_KUBERNETES = {("configmaps", "kube-root-ca.crt")}


@dataclass
class Cluster:
    """A control plane that runs, with its network and kubelet."""

    plane: ControlPlane
    network: Network
    kubelet: Kubelet
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def tenant(self, *nodes: NodeSpec, rules: tuple[Mapping[str, Any], ...] = RULES) -> Tenant:
        """A namespace with a service account that may do ``rules``, and nodes for it alone (names and labels are completed)."""
        name = f"bench-{next(self._numbers)}"
        async with self.admin() as admin:
            await admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
            core = f"/api/v1/namespaces/{name}"
            await admin.create(f"{core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
            await _given(admin, name, rules)
            await until(lambda: _is_there(admin, f"{core}/serviceaccounts/default"), "the default service account")
            token = (await admin.create(f"{core}/serviceaccounts/{ACCOUNT}/token", {"spec": {"expirationSeconds": 7200}}))["status"][
                "token"
            ]
            pool = [replace(node, name=f"{name}-{node.name}", **_pool(name, node)) for node in nodes]
            await asyncio.to_thread(self.kubelet.add, *pool)
            await until(lambda: _ready(admin, [node.name for node in pool]), "ready nodes")
        return Tenant(self, name, self.plane.kubeconfig(ACCOUNT, token=token, namespace=name))

    def admin(self) -> Rest:
        return Rest(self.plane.credentials(), patient=False)


@dataclass
class Tenant:
    """One test's part of the cluster. ``kubeconfig``: with a sweep's rights."""

    cluster: Cluster
    namespace: str
    kubeconfig: Path

    def node(self, name: str) -> str:
        """The full name of a node of it."""
        return f"{self.namespace}-{name}"

    @property
    def placement(self) -> dict[str, Any]:
        """Of pods that are to run on its nodes."""
        return {
            "node_selector": {POOL: self.namespace},
            "tolerations": ({"key": POOL, "operator": "Equal", "value": self.namespace, "effect": "NoSchedule"},),
        }

    async def secret(self, name: str, **data: str) -> None:
        async with self.cluster.admin() as admin:
            await admin.create(f"/api/v1/namespaces/{self.namespace}/secrets", {"metadata": {"name": name}, "stringData": data})

    async def claim(self, name: str, folder: Path, *, one_node: bool = False) -> None:
        """A PersistentVolumeClaim that stands for a folder of this machine, bound by the controller. ``one_node``: at a time (ReadWriteOnce)."""
        access = {"accessModes": ["ReadWriteOnce" if one_node else "ReadWriteMany"], "storageClassName": ""}
        volume = f"{self.namespace}-{name}"
        claimed = {"namespace": self.namespace, "name": name}
        async with self.cluster.admin() as admin:
            path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
            source = disk(volume, str(folder)) if one_node else {"hostPath": {"path": str(folder)}}
            held = {**access, **source, "capacity": {"storage": "1Gi"}, "claimRef": claimed}
            await admin.create("/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": held})
            wanted = {**access, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume}
            await admin.create(path, {"metadata": {"name": name}, "spec": wanted})

            async def bound() -> bool:
                return bool((await admin.get(f"{path}/{name}"))["status"].get("phase") == "Bound")

            await until(bound, f"claim {name} to be bound")

    async def objects(self) -> set[tuple[str, str]]:
        """What is there of what a sweep makes: (plural, name)."""
        kinds = {"jobs": "/apis/batch/v1", "pods": "/api/v1", "services": "/api/v1", "configmaps": "/api/v1"}
        async with self.cluster.admin() as admin:
            found = {kind: await admin.find(f"{group}/namespaces/{self.namespace}/{kind}") for kind, group in kinds.items()}
        return {(kind, obj["metadata"]["name"]) for kind, items in found.items() for obj in items} - LEFT_BY_KUBERNETES

    async def account(self, name: str) -> Path:
        """A kubeconfig with the rights of that service account."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
        async with self.cluster.admin() as admin:
            token = (await admin.create(path, {"spec": {"expirationSeconds": 7200}}))["status"]["token"]
        return self.cluster.plane.kubeconfig(name, token=token, namespace=self.namespace)

    async def log(self, pod: str) -> str:
        """What the pod's only container wrote so far."""
        async with Api.connect(kubeconfig=str(self.cluster.plane.kubeconfig()), namespace=self.namespace) as api:
            return await api.log(pod, "main")

    async def pods(self) -> list[Json]:
        async with self.cluster.admin() as admin:
            return await admin.find(f"/api/v1/namespaces/{self.namespace}/pods")

    async def forbid(self, verb: str, resource: str) -> None:
        """Takes a right away from the service account."""
        rules = [
            {**rule, "verbs": [each for each in rule["verbs"] if each != verb]} if resource in rule["resources"] else dict(rule)
            for rule in RULES
        ]
        async with self.cluster.admin() as admin:
            await admin.patch(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}/roles/{ACCOUNT}", {"rules": rules})


def no_namespaces() -> str:
    """Why this process may not make network and mount namespaces (a container without the right to); empty if it may."""
    done = subprocess.run([tool("unshare"), "--net", "--mount", "--uts", "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Ready inside; afterwards nothing of it is left."""
    _remove_left_over()
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))
    folder.chmod(0o755)  # a pod's user may be anybody
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        network = stack.enter_context(Network())
        plane = stack.enter_context(ControlPlane(folder, network.host))
        kubelet = stack.enter_context(Kubelet(plane, network, folder / "pods"))
        yield Cluster(plane, network, kubelet)


def _remove_left_over() -> None:
    """What runs that were killed left: no process, that is seen to by the kernel."""
    memory.remove_left_over()
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        process = folder.name.removeprefix(FOLDER).split("-")[0]
        if process.isdecimal() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(folder, ignore_errors=True)


async def until(there: Callable[[], Awaitable[bool]], what: str, within_s: float = WAIT_S) -> None:
    """Raises TimeoutError that says what did not come."""
    deadline = time.monotonic() + within_s
    while not await there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {within_s:.0f} s")
        await asyncio.sleep(0.1)


async def _given(admin: Rest, namespace: str, rules: tuple[Mapping[str, Any], ...]) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    await admin.create(f"{rbac}/roles", {"metadata": {"name": ACCOUNT}, "rules": list(rules)})
    binding = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }
    await admin.create(f"{rbac}/rolebindings", binding)


def _pool(namespace: str, node: NodeSpec) -> dict[str, Any]:
    taint = {"key": POOL, "value": namespace, "effect": "NoSchedule"}
    return {"labels": {**node.labels, POOL: namespace}, "taints": (*node.taints, taint)}


async def _is_there(admin: Rest, path: str) -> bool:
    try:
        await admin.get(path)
    except RestError as error:
        if error.status == 404:
            return False
        raise
    return True


async def _ready(admin: Rest, nodes: list[str]) -> bool:
    """Whether new pods may go there: the taint that a new node begins with is gone."""
    for name in nodes:
        node = await admin.get(f"/api/v1/nodes/{name}")
        if any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints") or ()):
            return False
    return True
