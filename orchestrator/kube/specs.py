"""From an engine's spec to the server that Kubernetes runs: names, labels, image, resources, volumes. Pure.

Names follow from the sweep and the session, so that a sweep that starts again finds the engines that still run. Two sweeps of one
namespace never share an engine: the sweep's name is part of the fingerprint.

Paths are the same everywhere: the weights volume is mounted at one path in the sweep's pod and in every engine's, so a model that the
sweep prepared below it is found by the engine under the path that it was prepared at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from specsweep.k8s import names
from specsweep.k8s.errors import SpecError
from specsweep.k8s.specs import ClaimMount, Placement, Program, SecretRef, ServerSpec
from specsweep.k8s.verdict import Budgets
from specsweep.orchestrator.engines import EngineSpec, launcher
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube import kinds
from specsweep.orchestrator.kube.secrets import refuse_in_config
from specsweep.orchestrator.kube.settings import Deadlines, Settings, need_of, pod_of

PORT = 8000
PROBES_OF_A_START = 60  # at least so many looks at its health within its budget
LONGEST_PROBE_S = 10
GRACE_S = 5  # once nothing is measured there is nothing to finish
HUB_CACHE = "hub"  # below the weights volume, where `specsweep prefetch` and the sweep put what comes from the hub
NEEDED = ("cpu", "memory", "gpu_resource", "gpu_product_label")  # of a pod
NAMESPACE = "default"  # of a spec that is only looked at


def image_of(config: Mapping[str, Any], settings: Settings) -> str:
    """Raises ConfigError naming the field if no image is known that has this engine."""
    engine = config["engine"]
    if engine.get("image"):
        kinds.check({"image": engine["image"]}, {"image": kinds.image}, "engine")
        return str(engine["image"])
    if not launcher(str(engine["name"])).in_our_image:
        raise ConfigError(
            f"engine.image is not set, and on Kubernetes engine {engine['name']} runs from its image; set engine.image=REGISTRY/NAME:TAG"
        )
    return settings.own_image


def server_spec(
    spec: EngineSpec,
    config: Mapping[str, Any],
    settings: Settings,
    *,
    sweep: str,
    session_id: str,
    namespace: str,
    avoid: Iterable[str] = (),
) -> ServerSpec:
    """``avoid``: names of nodes on which this session failed already. Raises ConfigError for what no pod can be made of."""
    pod = pod_of(config)
    for name in NEEDED:
        if pod.get(name) in (None, ""):
            raise ConfigError(
                f"cluster.pod.{name} is not set, and every engine's pod needs it; sweeps/cluster/kubernetes.yaml has a default"
            )
    refuse_in_config(config)
    _refuse_hidden_files(spec, config, settings)
    gpus = need_of(config, pod).gpus
    startup_s = max(settings.deadlines.startup_s, spec.startup_timeout_s if gpus else 0.0)
    try:
        return ServerSpec(
            name=engine_name(config, sweep, session_id),
            namespace=namespace,
            labels=session_labels(sweep, session_id),
            program=Program(
                image=image_of(config, settings),
                argv=spec.argv,
                cpu=str(pod["cpu"]),
                memory=str(pod["memory"]),
                env=_env(spec, config, settings, pod),
                secret_env=hub_token(settings),
                files=spec.files,
                claims=(ClaimMount(settings.weights.claim, settings.weights.path),) if settings.weights else (),
                extra_resources=_texts(pod.get("extra_resources")),
                capabilities=tuple(pod.get("capabilities") or ()),
                run_as_user=pod.get("run_as_user"),
                pull_policy=pod.get("pull_policy"),
            ),
            placement=placement(pod, settings, queue=settings.queue, avoid=avoid),
            annotations=_annotations(config),
            active_deadline_s=max(1, round(settings.deadlines.session_s)),
            grace_s=GRACE_S,
            port=spec.port or PORT,
            health_path=spec.health_path,
            startup_s=round(startup_s),
            probe_period_s=max(1, min(LONGEST_PROBE_S, round(startup_s / PROBES_OF_A_START))),
            gpus=gpus,
            gpu_resource=str(pod["gpu_resource"]),
            gpu_product=pod.get("gpu_product"),
            gpu_product_label=str(pod["gpu_product_label"]),
            shm=str(pod["shm"]) if pod.get("shm") else None,
        )
    except SpecError as error:
        raise ConfigError(f"engine {spec.engine} on Kubernetes: {error.message} (cluster.pod, engine.pod, target.pod)") from error


def _refuse_hidden_files(spec: EngineSpec, config: Mapping[str, Any], settings: Settings) -> None:
    """A model that was prepared in the sweep's pod alone is no file of the engine's."""
    cache = str(config["cache"]).rstrip("/")
    if settings.weights is not None and f"{cache}/".startswith(f"{settings.weights.path.rstrip('/')}/"):
        return
    if any(f"{cache}/" in text for text in (*spec.argv, *spec.files.values(), *spec.env.values())):
        volume = (
            f"volume {settings.weights.claim} cannot be written by the sweep" if settings.weights else "cluster.weights.claim is not set"
        )
        raise ConfigError(
            f"engine {spec.engine} loads a model that lies in {cache}, which only the sweep's own pod has: {volume}; "
            "name a ReadWriteMany volume for models: cluster.weights.claim=NAME"
        )


def session_labels(sweep: str, session_id: str) -> dict[str, str]:
    """Of all objects of a session's engine."""
    return names.labels("engine", sweep=sweep, session=session_id[:16])


def engine_name(config: Mapping[str, Any], sweep: str, session_id: str) -> str:
    """What people see in ``kubectl get pods``: engine, drafter and draft length, then what tells it from others."""
    length = f"-dl{config['draft_length']}" if config["draft_length"] else ""
    return names.object_name(
        f"{config['engine']['name']}-{config['drafter']['method']}{length}".replace("_", "-"), fingerprint(sweep, session_id)
    )


def fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]


def placement(pod: Mapping[str, Any], settings: Settings, *, queue: str | None = None, avoid: Iterable[str] = ()) -> Placement:
    return Placement(
        node_selector=_texts(pod.get("node_selector")),
        tolerations=tuple(pod.get("tolerations") or ()),
        runtime_class=pod.get("runtime_class") or None,
        image_pull_secrets=settings.image_pull_secrets,
        priority_class=pod.get("priority_class"),
        queue=queue,
        queue_priority=settings.queue_priority if queue else None,
        avoid_nodes=tuple(sorted(avoid)),
        template=pod.get("template") or {},
    )


def budgets(deadlines: Deadlines) -> Budgets:
    """Of waiting. How long a start may take until health is a server's own."""
    return Budgets(
        queue_s=deadlines.queue_s,
        unfit_s=deadlines.unfit_s,
        quota_s=deadlines.quota_s,
        pull_s=deadlines.pull_s,
        mount_s=deadlines.mount_s,
        create_s=deadlines.create_s,
        startup_s=inf,
    )


def hub_token(settings: Settings) -> dict[str, SecretRef]:
    return {"HF_TOKEN": SecretRef(*settings.hub_token)} if settings.hub_token else {}


def _env(spec: EngineSpec, config: Mapping[str, Any], settings: Settings, pod: Mapping[str, Any]) -> dict[str, str]:
    cache = {}
    if settings.weights is not None:
        # The volume is read-only here and complete: the sweep, or a prefetch before it, fetched what the engine loads.
        cache = {"HF_HUB_CACHE": f"{settings.weights.path}/{HUB_CACHE}", "HF_HUB_OFFLINE": "1"}
    return {**spec.env, **cache, **_texts(pod.get("env"))}


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Without what is null, which takes back what a more general layer says; flags as YAML writes them."""
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in (values or {}).items() if v is not None}


def _annotations(config: Mapping[str, Any]) -> dict[str, str]:
    """For people: the names that labels cannot hold."""
    return {"specsweep.io/target": str(config["target"]["name"]), "specsweep.io/drafter": str(config["drafter"]["name"])}
