"""What somebody wants to run, in plain words: no API object yet, and nothing of any engine.

Three things are run: a *server* (a Job of one GPU pod that serves HTTP until it is ended), the *sweep* itself (a Job that starts
servers and measures them) and a *prefetch* (a Job that fills the weights volume once). They share a :class:`Program` (what runs)
and a :class:`Placement` (where, and how it is admitted). A spec checks itself when it is made, so that what cannot be right is
refused in words before anything is sent; whether a cluster can hold it, only the cluster knows.

Quantities are Kubernetes' texts (``64Gi``, ``500m``); times are in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specsweep.k8s.errors import SpecError
from specsweep.k8s.names import MAX_LENGTH, is_dns_label, is_label_value
from specsweep.k8s.quantities import quantity
from specsweep.k8s.redaction import is_secret_name, looks_secret

GPU_RESOURCE = "nvidia.com/gpu"
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"  # from NVIDIA's GPU feature discovery
MAX_FILES_BYTES = 1_000_000  # of a ConfigMap: 1 MiB with its metadata

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_FILE_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_\-][A-Za-z0-9._\-]*(/[A-Za-z0-9_\-][A-Za-z0-9._\-]*)*")
_LONGEST_KEY = 253  # of a ConfigMap


def file_key(name: str) -> str:
    """What a file is called in its ConfigMap, whose keys have no folders. No file's name has ``..`` in it, so no two files share a key."""
    return name.replace("/", "..")


def file_name(key: str) -> str:
    """The file of a key that :func:`file_key` gave."""
    return key.replace("..", "/")


def check_files(files: Mapping[str, str]) -> None:
    """Raises SpecError for names or a size that no ConfigMap can have."""
    for name in files:
        fits = _FILE_NAME.fullmatch(name) is not None and len(file_key(name)) <= _LONGEST_KEY
        _need(fits, "files", name, "names of files and folders have letters, digits, '.', '_' and '-', begin with no '.', and have no '..'")
    size = sum(len(name) + len(text.encode()) for name, text in files.items())
    _need(size <= MAX_FILES_BYTES, "files", f"{size} bytes", f"a ConfigMap holds {MAX_FILES_BYTES}; put large files on a volume")


@dataclass(frozen=True, slots=True)
class SecretRef:
    name: str
    key: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ClaimMount:
    """A PersistentVolumeClaim that exists already, as a folder of the container."""

    claim: str
    mount_path: str
    read_only: bool = True
    sub_path: str | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """What one container runs. In ``argv`` and ``env``, ``{files}`` is the folder of ``files``; servers also have ``{host}`` and ``{port}``."""

    image: str
    argv: tuple[str, ...]
    cpu: str
    memory: str
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, SecretRef] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # name, which may have folders in it → text
    claims: tuple[ClaimMount, ...] = ()
    extra_resources: Mapping[str, str] = field(default_factory=dict)  # ephemeral-storage, rdma/…
    capabilities: tuple[str, ...] = ()  # added to none: IPC_LOCK for RDMA
    run_as_user: int | None = None  # None: as the image says
    pull_policy: str | None = None

    def __post_init__(self) -> None:
        _need(bool(self.image) and not re.search(r"\s", self.image), "image", self.image, "name an image: registry/name:tag or …@sha256:…")
        _need(bool(self.argv) and bool(self.argv[0]), "argv", self.argv, "give the command that the container runs")
        for name, value in {"cpu": self.cpu, "memory": self.memory, **self.extra_resources}.items():
            _need(quantity(value, field=name) > 0, name, value, "it must be above 0")
        for name in (*self.env, *self.secret_env):
            _need(_ENV_NAME.fullmatch(name) is not None, "env", name, "that is no name of a variable")
        for name in self.env.keys() & self.secret_env.keys():
            raise SpecError(f"env.{name} is given as a value and as a Secret; leave one out")
        for name, value in self.env.items():
            if value and (is_secret_name(name) or looks_secret(value)):
                raise SpecError(
                    f"env.{name} holds a secret as a plain value, which everybody could read in the pod; put it into a Secret "
                    f"(kubectl create secret generic NAME --from-literal=KEY=…) and refer to it by name and key"
                )
        check_files(self.files)
        paths = [mount.mount_path for mount in self.claims]
        for path in paths:
            _need(path.startswith("/") and ":" not in path, "claims.mount_path", path, "give an absolute path")
            _need(paths.count(path) == 1, "claims.mount_path", path, "two volumes cannot be mounted at one path")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod may run and how it gets there. ``template`` is a pod template (metadata, spec) that is merged over ours."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()  # added to ours
    runtime_class: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    priority_class: str | None = None
    queue: str | None = None  # of Kueue; None: straight to the scheduler
    queue_priority: str | None = None  # Kueue's WorkloadPriorityClass
    avoid_nodes: tuple[str, ...] = ()  # taken only if no other node will do
    template: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in self.node_selector.items():
            _need(is_label_value(value), f"node_selector.{key}", value, "that is no label value; look at: kubectl get nodes --show-labels")
        _need(self.queue is not None or self.queue_priority is None, "queue_priority", self.queue_priority, "it needs a queue")


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    namespace: str
    labels: Mapping[str, str]
    program: Program
    placement: Placement = field(default_factory=Placement)
    annotations: Mapping[str, str] = field(default_factory=dict)
    active_deadline_s: int | None = None  # after that long Kubernetes ends it whatever happens
    ttl_s: int | None = None  # kept that long after its end, for those who look
    grace_s: int = 30  # from TERM to KILL
    shm: str | None = None  # size of /dev/shm, out of ``memory``; None: the runtime's 64 MiB

    def __post_init__(self) -> None:
        _need(is_dns_label(self.name), "name", self.name, f"a name is a-z, 0-9 and '-', begins with a letter, at most {MAX_LENGTH} long")
        for key, value in self.labels.items():
            _need(is_label_value(value), f"labels.{key}", value, "that is no label value")
        for name in ("active_deadline_s", "ttl_s", "grace_s"):
            value = getattr(self, name)
            _need(value is None or value >= 0, name, value, "it must not be below 0")
        if self.shm is not None:
            fits = quantity(self.shm, field="shm") < quantity(self.program.memory, field="memory")
            _need(fits, "shm", self.shm, f"/dev/shm counts against the memory limit, and memory={self.program.memory} would leave none")


@dataclass(frozen=True, slots=True)
class ServerSpec(_Job):
    """One HTTP server in one pod. It is taken to be ready when ``health_path`` answers 200 within ``startup_s`` of its start."""

    port: int = 8000
    health_path: str = "/health"
    startup_s: int = 5400
    probe_period_s: int = 10
    gpus: int = 0
    gpu_resource: str = GPU_RESOURCE
    gpu_product: str | None = None
    gpu_product_label: str = GPU_PRODUCT_LABEL
    node_lost_s: int = 60  # a node that is silent for that long has lost the pod; Kubernetes' own is 300

    def __post_init__(self) -> None:
        _Job.__post_init__(self)
        _need(1 <= self.port <= 65535, "port", self.port, "a port is 1 to 65535")
        _need(self.health_path.startswith("/"), "health_path", self.health_path, "it begins with '/'")
        _need(self.startup_s > 0, "startup_s", self.startup_s, "it must be above 0")
        _need(self.probe_period_s > 0, "probe_period_s", self.probe_period_s, "it must be above 0")
        _need(self.gpus >= 0, "gpus", self.gpus, "it must not be below 0")
        _need("/" in self.gpu_resource, "gpu_resource", self.gpu_resource, "name it as nodes do: nvidia.com/gpu, amd.com/gpu")


@dataclass(frozen=True, slots=True)
class SweepSpec(_Job):
    """The sweep as a Job of the cluster. It is started again after a crash (``retries`` times), but not after one of ``final_codes``."""

    service_account: str = "default"
    retries: int = 6
    final_codes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _Job.__post_init__(self)
        _need(self.retries >= 0, "retries", self.retries, "it must not be below 0")
        _need(0 not in self.final_codes, "final_codes", self.final_codes, "0 is success")


@dataclass(frozen=True, slots=True)
class PrefetchSpec(_Job):
    """A download into a volume that servers read afterwards. It is tried again (``retries`` times), but not after one of ``final_codes``."""

    retries: int = 3
    final_codes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _Job.__post_init__(self)
        _need(self.retries >= 0, "retries", self.retries, "it must not be below 0")
        _need(0 not in self.final_codes, "final_codes", self.final_codes, "0 is success")


@dataclass(frozen=True, slots=True)
class Owner:
    """The object whose deletion takes ours with it."""

    api_version: str
    kind: str
    name: str
    uid: str

    @staticmethod
    def of(obj: Mapping[str, Any]) -> Owner:
        """Of an object that the API returned."""
        return Owner(obj["apiVersion"], obj["kind"], obj["metadata"]["name"], obj["metadata"]["uid"])


def _need(holds: bool, name: str, value: object, advice: str) -> None:
    if not holds:
        raise SpecError(f"{name}={value!r}: {advice}")
