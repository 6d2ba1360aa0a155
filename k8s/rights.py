"""Which rights a sweep needs in its namespace, and which of them are missing: asked before anything is started.

A right that is missing would else be found in the middle of a sweep, on the first pod that fails. No right on Secrets is needed
(pods name them, the kubelet reads them), and none outside the namespace.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from specsweep.k8s.api import Api
from specsweep.k8s.resources import (
    ACCESS_REVIEWS,
    CLAIMS,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    RAY_CLUSTERS,
    SERVICES,
    Request,
    Resource,
    Verb,
)

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Right:
    verb: Verb
    resource: Resource
    subresource: str | None = None

    def request(self, namespace: str) -> Request:
        return Request(self.verb, self.resource, namespace, subresource=self.subresource)


def _rights(verbs: tuple[Verb, ...], *resources: Resource, subresource: str | None = None) -> tuple[Right, ...]:
    return tuple(Right(verb, resource, subresource) for resource in resources for verb in verbs)


NEEDED = (
    *_rights(("create", "get", "list", "watch", "patch", "delete"), JOBS, SERVICES, CONFIG_MAPS),
    *_rights(("get", "list", "watch", "delete"), PODS),
    *_rights(("get", "list", "watch"), PODS, subresource="log"),
    *_rights(("get", "list", "watch"), EVENTS),
    *_rights(("get",), CLAIMS),
)
FOR_A_QUEUE = _rights(("get",), LOCAL_QUEUES)
FOR_RAY = _rights(("get",), RAY_CLUSTERS)


async def missing(api: Api, rights: tuple[Right, ...] = NEEDED) -> list[str]:
    """Those of ``rights`` that we do not have, each in words: ``create jobs.batch in namespace bench``."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def allowed(right: Right) -> bool:
        attributes = {
            "namespace": api.namespace,
            "verb": right.verb,
            "group": right.resource.group,
            "resource": right.resource.plural,
            **({"subresource": right.subresource} if right.subresource else {}),
        }
        kind = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind}
        async with gate:
            review = await api.create({**kind, "metadata": {}, "spec": {"resourceAttributes": attributes}})
        return bool((review.get("status") or {}).get("allowed"))

    answers = await asyncio.gather(*(allowed(right) for right in rights))
    return [right.request(api.namespace).right for right, yes in zip(rights, answers, strict=True) if not yes]
