"""What a cluster has of what a sweep needs, for those who ask before they start: one line a thing, with what to do where it is missing.

A namespaced Role shows little of a cluster: no nodes, no Secrets. What cannot be seen is no error here, it is said to be hidden; those
who have more rights see more. Values of Secrets are never asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specsweep.k8s import rights
from specsweep.k8s.api import Api
from specsweep.k8s.errors import ApiError, Forbidden, NotFound
from specsweep.k8s.quantities import quantity
from specsweep.k8s.resources import CLAIMS, LOCAL_QUEUES, NODES, RAY_CLUSTERS, SECRETS, Request, Resource
from specsweep.k8s.specs import GPU_PRODUCT_LABEL, GPU_RESOURCE

VERSION = Resource("", "", "version", "Info", namespaced=False)


@dataclass(frozen=True, slots=True)
class Needs:
    """What to look for; what is None or empty is not needed."""

    gpu_resource: str = GPU_RESOURCE
    gpu_product_label: str = GPU_PRODUCT_LABEL
    gpus: Mapping[str, int] = field(default_factory=dict)  # by product ("": any) the most that one pod asks for
    claims: tuple[str, ...] = ()
    shared_claims: tuple[str, ...] = ()  # of those, the ones that several nodes load from
    secrets: Mapping[str, str] = field(default_factory=dict)  # by name: the key in it that is used; empty if it has a form of its own
    queue: str | None = None
    ray_cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """``hidden``: our rights do not show it. ``doubtful``: it is there, and may not do."""

    what: str
    state: Literal["there", "missing", "hidden", "doubtful"]
    text: str


async def survey(api: Api, needs: Needs) -> list[Fact]:
    """Raises Unreachable or Unauthorized if nothing can be asked at all; every other trouble is a fact."""
    first = await _version(api)
    looks: list[Awaitable[list[Fact]]] = [
        _rights(api, needs),
        _seen("GPU nodes", _nodes(api, needs)),
        *(_seen(f"volume {name}", _claim(api, name, shared=name in needs.shared_claims)) for name in needs.claims),
        *(_seen(f"secret {name}", _secret(api, name, key)) for name, key in needs.secrets.items()),
    ]
    if needs.queue is not None:
        looks.append(_seen(f"queue {needs.queue}", _condition(api, LOCAL_QUEUES, needs.queue, "Active", "Kueue")))
    if needs.ray_cluster is not None:
        looks.append(_seen(f"Ray cluster {needs.ray_cluster}", _condition(api, RAY_CLUSTERS, needs.ray_cluster, "HeadPodReady", "KubeRay")))
    return [first, *(fact for facts in await asyncio.gather(*looks) for fact in facts)]


async def _version(api: Api) -> Fact:
    found = await api.transport.call(Request("get", VERSION, api.namespace))
    return Fact("API server", "there", f"Kubernetes {found.get('gitVersion', 'of unknown version')}, namespace {api.namespace}")


async def _rights(api: Api, needs: Needs) -> list[Fact]:
    wanted = (*rights.NEEDED, *(rights.FOR_A_QUEUE if needs.queue else ()), *(rights.FOR_RAY if needs.ray_cluster else ()))
    missing = await rights.missing(api, wanted)
    if not missing:
        return [Fact("rights", "there", f"all {len(wanted)} that a sweep needs")]
    return [Fact("rights", "missing", f"{right}: ask for a Role with it, or install the chart") for right in missing]


async def _nodes(api: Api, needs: Needs) -> list[Fact]:
    nodes, _ = await api.find(NODES)
    by_product: dict[str, list[int]] = {}
    for node in nodes:
        gpus = _gpus(node, needs.gpu_resource)
        if gpus and _takes_pods(node):
            product = (node["metadata"].get("labels") or {}).get(needs.gpu_product_label, "no product label")
            by_product.setdefault(product, []).append(gpus)
    there = "; ".join(
        f"{product}: {counted(len(gpus), 'node')} with {counted(sum(gpus), 'GPU')}" for product, gpus in sorted(by_product.items())
    )
    if not by_product:
        return [
            Fact("GPU nodes", "missing", f"none of {len(nodes)} nodes is ready and has {needs.gpu_resource}: does its device plugin run?")
        ]
    return [Fact("GPU nodes", "there", there), *_lacking(by_product, needs, there)]


def _lacking(by_product: Mapping[str, Sequence[int]], needs: Needs, there: str) -> Iterator[Fact]:
    """A pod runs on one node: as many GPUs on two of them are of no use to it."""
    for product, wanted in sorted(needs.gpus.items()):
        sizes = by_product.get(product, ()) if product else [size for of_one in by_product.values() for size in of_one]
        if not sizes:
            yield Fact(f"GPU {product}", "missing", f"no ready node has the label {needs.gpu_product_label}={product}; there is {there}")
        elif max(sizes) < wanted:
            title = f"GPU {product}".strip()
            yield Fact(title, "missing", f"an engine needs {wanted} on one node, and no ready node has more than {max(sizes)}")


async def _claim(api: Api, name: str, *, shared: bool) -> list[Fact]:
    claim = await api.get(CLAIMS, name)
    phase = (claim.get("status") or {}).get("phase")
    modes = (claim.get("spec") or {}).get("accessModes") or []
    if phase not in ("Bound", "Pending"):
        return [Fact(f"volume {name}", "doubtful", f"it is {phase}: kubectl describe pvc {name}")]
    how = f"{phase}, {', '.join(modes) or 'of no known mode'}"
    if shared and not {"ReadOnlyMany", "ReadWriteMany"} & set(modes):
        return [Fact(f"volume {name}", "doubtful", f"{how}: only one node can load from it at a time")]
    return [Fact(f"volume {name}", "there", how)]


async def _secret(api: Api, name: str, key: str) -> list[Fact]:
    if await api.exists(SECRETS, name):
        return [Fact(f"secret {name}", "there", "not read")]
    kind = f"generic {name} --from-file={key}=FILE" if key else f"docker-registry {name} --docker-server=… --docker-username=…"
    return [
        Fact(
            f"secret {name}",
            "missing",
            f"there is none of that name in namespace {api.namespace}: kubectl -n {api.namespace} create secret {kind}",
        )
    ]


async def _condition(api: Api, resource: Resource, name: str, condition: str, what: str) -> list[Fact]:
    title = f"queue {name}" if resource is LOCAL_QUEUES else f"Ray cluster {name}"
    try:
        found = await api.get(resource, name)
    except NotFound as error:
        if "page not found" in error.message:  # the API server does not know the kind
            return [Fact(title, "missing", f"the cluster has no {resource.plural}.{resource.group}: {what} is not installed there")]
        text = f"namespace {api.namespace} has no {resource.kind} of that name: kubectl -n {api.namespace} get {resource.plural}"
        return [Fact(title, "missing", text)]
    conditions = {item.get("type"): item for item in (found.get("status") or {}).get("conditions") or ()}
    told: Mapping[str, Any] = conditions.get(condition) or {}
    if told.get("status") == "True":
        return [Fact(title, "there", f"{condition}")]
    return [Fact(title, "doubtful", f"{what} does not say that it is {condition}: {told.get('message') or 'no such condition'}")]


async def _seen(what: str, look: Awaitable[list[Fact]]) -> list[Fact]:
    """What ``look`` finds, with what it may not see and what is not there as facts too."""
    try:
        return await look
    except Forbidden:
        return [Fact(what, "hidden", "not visible with this Role")]
    except NotFound as error:
        return [Fact(what, "missing", error.message)]
    except ApiError as error:
        return [Fact(what, "doubtful", error.message)]


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _gpus(node: Mapping[str, Any], resource: str) -> int:
    text = ((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")
    return int(quantity(str(text), field=resource))


def _takes_pods(node: Mapping[str, Any]) -> bool:
    conditions: Iterable[Mapping[str, Any]] = (node.get("status") or {}).get("conditions") or ()
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
    return ready and not (node.get("spec") or {}).get("unschedulable")
