"""What `specsweep doctor` asks of a cluster: all that a sweep with this config will need there, and whether its objects would be taken.

The objects are those that a run makes, checked by the API server as if they were kept (admission included). Where the models are not on
this machine, an engine's command line names them by where they will lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from specsweep.k8s.errors import AccessError, ApiError, Conflict, KubernetesError, SpecError
from specsweep.orchestrator.engines import EngineSpec, SessionModels, launcher
from specsweep.orchestrator.errors import SpecsweepError
from specsweep.orchestrator.kube.access import api_of
from specsweep.orchestrator.kube.settings import Settings, need_of, pod_of
from specsweep.orchestrator.kube.specs import server_spec
from specsweep.orchestrator.kube.submission import sweep_spec

if TYPE_CHECKING:
    from specsweep.k8s.api import Api
    from specsweep.k8s.manifests import Manifest
    from specsweep.k8s.survey import Fact, Needs

Config = Mapping[str, Any]
MOST_ENGINES = 8  # of which objects are checked; more are more of the same
CONTEXT_TOKENS = 4096  # of a command line that is only checked
_RAY_SERVICE = re.compile(r"(?P<name>[a-z0-9]([-a-z0-9]*[a-z0-9])?)-head-svc(?:[.:]|$)")


async def examine(settings: Settings, name: str, configs: Sequence[Config], overrides: Sequence[str]) -> list[Fact]:
    """``configs``: of the sessions, at least one. Raises nothing for what the cluster lacks: that is what the facts are for."""
    from specsweep.k8s.config import find_access
    from specsweep.k8s.survey import Fact, survey

    try:
        access = await find_access(kubeconfig=settings.kubeconfig, context=settings.context, namespace=settings.namespace)
    except AccessError as error:
        return [Fact("context", "missing", error.message)]
    facts = [Fact("context", "there", f"{access.context}, namespace {access.namespace}")]
    needs = needs_of(settings, configs)
    try:
        async with api_of(settings) as api:
            facts += [
                fact for fact in await survey(api, needs) if fact.what != "GPU nodes" or _wants_gpus(configs) or fact.state == "there"
            ]
            facts += await _dry_runs(api, settings, name, configs, overrides)
    except KubernetesError as error:
        facts.append(Fact("API server", "missing", error.message))
    return facts


def needs_of(settings: Settings, configs: Sequence[Config]) -> Needs:
    """Raises ConfigError for a pod that cannot be right."""
    from specsweep.k8s.survey import Needs

    pods = [pod_of(config) for config in configs]
    gpus: dict[str, int] = {}
    for config, pod in zip(configs, pods, strict=True):
        need = need_of(config, pod)
        if need.gpus:
            gpus[need.product] = max(need.gpus, gpus.get(need.product, 0))
    return Needs(
        gpu_resource=str(pods[0].get("gpu_resource") or "nvidia.com/gpu"),
        gpu_product_label=str(pods[0].get("gpu_product_label") or "nvidia.com/gpu.product"),
        gpus=gpus,
        claims=tuple(dict.fromkeys(volume.claim for volume in (settings.results, settings.weights) if volume is not None)),
        shared_claims=(settings.weights.claim,) if settings.weights is not None else (),
        secrets={**dict.fromkeys(settings.image_pull_secrets, ""), **(dict([settings.hub_token]) if settings.hub_token else {})},
        queue=settings.queue,
        ray_cluster=ray_cluster(settings.ray_address),
    )


def ray_cluster(address: str | None) -> str | None:
    """The RayCluster whose head an address names, as KubeRay's operator calls its service; None for a Ray of somebody else."""
    found = _RAY_SERVICE.match(address or "")
    return found["name"] if found else None


def _wants_gpus(configs: Iterable[Config]) -> bool:
    return any(need_of(config).gpus for config in configs)


async def _dry_runs(api: Api, settings: Settings, name: str, configs: Sequence[Config], overrides: Sequence[str]) -> list[Fact]:
    from specsweep.k8s.manifests import server_objects, sweep_objects

    kinds: dict[tuple[str, str], Config] = {}
    for config in configs:
        kinds.setdefault((str(config["engine"]["name"]), str(config["target"]["name"])), config)
    facts = [await _dry_run(api, "the sweep's Job", lambda: sweep_objects(sweep_spec(name, overrides, settings, namespace=api.namespace)))]
    for (engine, target), config in list(kinds.items())[:MOST_ENGINES]:

        def objects(config: Config = config) -> list[Manifest]:
            spec = server_spec(engine_spec(config, settings), config, settings, sweep=name, session_id="doctor", namespace=api.namespace)
            return server_objects(spec, None)

        facts.append(await _dry_run(api, f"engine {engine}, {target}", objects))
    return facts


async def _dry_run(api: Api, what: str, make: Any) -> Fact:
    from specsweep.k8s.survey import Fact

    title = f"dry run of {what}"
    try:
        objects = make()
        for obj in objects:
            try:
                await api.create(obj, dry_run=True)
            except Conflict:  # it is there: an earlier submit's
                continue
    except (SpecsweepError, SpecError, ApiError) as error:
        return Fact(title, "missing", error.message)
    return Fact(title, "there", f"{', '.join(str(obj['kind']) for obj in objects)}: the API server would take them")


def engine_spec(config: Config, settings: Settings) -> EngineSpec:
    """As the launcher makes it for models that lie where they will lie; the engine's name alone if it has to look into them."""
    engine = str(config["engine"]["name"])
    home = Path(settings.weights.path if settings.weights else "/scratch/cache")
    models = SessionModels(home / "target", "0" * 64, home / "drafter" if config["drafter"].get("model") else None, "0" * 64)
    try:
        return launcher(engine).spec(config, models, n_ctx_per_slot=CONTEXT_TOKENS)
    except (SpecsweepError, OSError, ValueError, KeyError, TypeError):  # also where the plan was refused, and no session is complete
        return EngineSpec(engine, (engine,), engine)


def severity(fact: Fact) -> Literal["ok", "note", "failure"]:
    """What our rights hide is no failure: those who have more rights see more."""
    return "ok" if fact.state == "there" else "failure" if fact.state == "missing" else "note"
