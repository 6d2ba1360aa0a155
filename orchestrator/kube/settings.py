"""``cluster=kubernetes`` as the config has it, read once and checked: everything that is wrong in it is told before a cluster is asked.

What an engine's pod gets is laid over each other from the general to the particular: ``cluster.pod``, ``engine.pod``, ``target.pod``.
Mappings are merged key by key (a template deeply, as it holds mappings only down to its lists), anything else is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specsweep.orchestrator.admission import Need
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube import kinds

PARTS = ("pod", "sweep", "clients", "deadlines", "results", "weights", "hub_token")


@dataclass(frozen=True, slots=True)
class Volume:
    claim: str
    path: str


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds."""

    queue_s: float = 3600.0
    unfit_s: float = 300.0
    quota_s: float = 86400.0
    pull_s: float = 300.0
    mount_s: float = 300.0
    create_s: float = 3600.0
    startup_s: float = 5400.0
    session_s: float = 86400.0
    silence_s: float = 150.0
    removal_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One sweep has one of these, whatever its sessions are."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    image: str | None
    image_pull_secrets: tuple[str, ...]
    service_account: str
    max_parallel_sessions: int
    gpu_limits: Mapping[str, int]
    queue: str | None
    queue_priority: str | None
    results: Volume | None
    weights: Volume | None
    hub_token: tuple[str, str] | None  # name of the Secret, key in it
    sweep: Mapping[str, Any]
    ray_address: str | None
    deadlines: Deadlines = field(default_factory=Deadlines)

    @property
    def own_image(self) -> str:
        """Raises ConfigError if it is not set."""
        if self.image is None:
            raise ConfigError("cluster.image is not set; name specsweep's own image: cluster.image=REGISTRY/specsweep:TAG")
        return self.image

    @staticmethod
    def of(config: Mapping[str, Any]) -> Settings:
        """Of a whole config whose ``cluster.kind`` is kubernetes. Raises ConfigError that names the field."""
        cluster = config["cluster"]
        parts = {name: _mapping(cluster, name) for name in PARTS}
        kinds.check(cluster, kinds.CLUSTER[""], "cluster")
        for name in (part for part in PARTS if part in kinds.CLUSTER):
            kinds.check(parts[name], kinds.CLUSTER[name], f"cluster.{name}")
        secret = parts["hub_token"].get("secret")
        return Settings(
            kubeconfig=_text(cluster, "kubeconfig"),
            context=_text(cluster, "context"),
            namespace=_text(cluster, "namespace"),
            image=_text(cluster, "image"),
            image_pull_secrets=tuple(map(str, cluster.get("image_pull_secrets") or ())),
            service_account=_text(cluster, "service_account") or "default",
            max_parallel_sessions=int(cluster.get("max_parallel_sessions") or 1),
            gpu_limits=_limits(cluster.get("gpu_limits") or {}),
            queue=_text(cluster, "queue"),
            queue_priority=_text(cluster, "queue_priority"),
            results=_volume(parts["results"]),
            weights=_volume(parts["weights"]),
            hub_token=(str(secret), str(parts["hub_token"].get("key") or "token")) if secret else None,
            sweep=parts["sweep"],
            ray_address=_text(parts["clients"], "ray_address"),
            deadlines=Deadlines(**{name: float(value) for name, value in parts["deadlines"].items() if value is not None}),
        )


def pod_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine's pod of a session's config gets. Raises ConfigError for a key that no pod has."""
    pod: dict[str, Any] = {}
    for group in ("cluster", "engine", "target"):
        layer = _mapping(config[group], "pod", group)
        kinds.check(layer, kinds.POD, f"{group}.pod", advice=f"; everything else of Kubernetes goes into {group}.pod.template")
        pod = _over(pod, layer)
    return pod


def need_of(config: Mapping[str, Any], pod: Mapping[str, Any] | None = None) -> Need:
    """The GPUs that the engine of this session asks for on Kubernetes. ``pod``: that of :func:`pod_of`, where it is at hand."""
    pod = pod_of(config) if pod is None else pod
    wanted = pod.get("gpus")
    return Need(str(pod.get("gpu_product") or ""), int(config["target"].get("gpus") or 0) if wanted is None else int(wanted))


def _over(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fields of a pod, null says nothing; below them (a variable, a label, a field of a template) it takes back what ``base`` says."""
    said = {key: value for key, value in layer.items() if value is not None or key not in base}
    return _deep(base, said)


def _deep(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in layer.items():
        before = merged.get(key)
        merged[key] = _deep(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged


def _mapping(group: Mapping[str, Any], name: str, at: str = "cluster") -> Mapping[str, Any]:
    found = group.get(name) or {}
    if not isinstance(found, Mapping):
        raise ConfigError(f"{at}.{name}={found!r}: a mapping is needed")
    return found


def _text(values: Mapping[str, Any], name: str) -> str | None:
    found = values.get(name)
    return None if found is None or not str(found).strip() else str(found).strip()


def _limits(values: Any) -> dict[str, int]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"cluster.gpu_limits={values!r}: GPUs by product are needed, as in cluster.gpu_limits={{NVIDIA-B200: 16}}")
    for product, count in values.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"cluster.gpu_limits.{product}={count!r}: a number of GPUs of at least 1 is needed")
        if not isinstance(product, str):
            raise ConfigError(f"cluster.gpu_limits: its key {product!r} is no text; put the product's name into quotes")
    return {str(product): int(count) for product, count in values.items()}


def _volume(values: Mapping[str, Any]) -> Volume | None:
    claim, path = _text(values, "claim"), _text(values, "path")
    if claim is None:
        return None
    if path is None or not path.startswith("/"):
        raise ConfigError(f"cluster volume {claim}: path={path!r} must be absolute")
    return Volume(claim, path)
