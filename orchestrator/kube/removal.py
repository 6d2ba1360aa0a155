"""The end of a sweep in the cluster: all that carries its label is removed, and said to be gone when it is.

Its own Job first, and its pod's end is waited for: as long as that runs, it would start again what is taken away under it. What is then
left has lost its owner, or never had one (a submit that was interrupted, a run from a shell), and is deleted by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specsweep.k8s import names
from specsweep.k8s.resources import CONFIG_MAPS, JOBS, PODS, SERVICES, Resource
from specsweep.orchestrator.kube.resumption import sweeps_there
from specsweep.orchestrator.kube.submission import job_name

if TYPE_CHECKING:
    from specsweep.k8s.api import Api

KINDS = (JOBS, PODS, SERVICES, CONFIG_MAPS)
LOOK_S = 1.0
SHARE_OF_THE_END = 0.5  # of the time, that the sweep's own pod may take to end in good order


@dataclass(slots=True)
class Removal:
    """``removed``: how many objects there were; ``left``: those that are still there, as kubectl names them.

    ``others``: where nothing was, the sweeps that are there, since a name that is misspelt looks the same as one that is gone.
    """

    removed: int = 0
    left: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    namespace: str = ""


async def remove(api: Api, sweep: str, *, within_s: float, say: Callable[[str], None], look_s: float = LOOK_S) -> Removal:
    """Returns when nothing is left, or after ``within_s``."""
    selector = names.selector({names.MANAGED_BY: names.APP, names.SWEEP: names.label_value(sweep)})
    loop = asyncio.get_running_loop()
    began = loop.time()
    there = await _there(api, selector)
    total = len(there)
    if not there:
        return Removal(others=await sweeps_there(api), namespace=api.namespace)
    for resource, obj in there:
        if resource is JOBS and obj["metadata"]["name"] == job_name(sweep):
            await _delete(api, resource, obj)
    told = ""
    while there and (passed_s := loop.time() - began) < within_s:
        ends = any(resource is PODS and names.label_of(obj, names.COMPONENT) == "sweep" for resource, obj in there)
        if not ends or passed_s > SHARE_OF_THE_END * within_s:
            await asyncio.gather(*(_delete(api, resource, obj) for resource, obj in there))
        text = f"waiting for {_counted(there)}"
        if text != told:
            say(text)
            told = text
        await asyncio.sleep(look_s)
        there = await _there(api, selector)
    return Removal(total - len(there), [f"{resource.kind.lower()}/{obj['metadata']['name']}" for resource, obj in there])


async def _there(api: Api, selector: str) -> list[tuple[Resource, dict[str, Any]]]:
    found = await asyncio.gather(*(api.find(resource, selector=selector) for resource in KINDS))
    return [(resource, obj) for resource, (items, _) in zip(KINDS, found, strict=True) for obj in items]


async def _delete(api: Api, resource: Resource, obj: dict[str, Any]) -> None:
    """Pods end with their Job; one that is on its way is not asked again."""
    if resource is not PODS and not obj["metadata"].get("deletionTimestamp"):
        await api.delete(resource, obj["metadata"]["name"], uid=obj["metadata"]["uid"])


def _counted(there: list[tuple[Resource, dict[str, Any]]]) -> str:
    counts: dict[str, int] = {}
    for resource, _ in there:
        counts[resource.plural] = counts.get(resource.plural, 0) + 1
    return ", ".join(f"{count} {plural if count > 1 else plural.removesuffix('s')}" for plural, count in counts.items()) + " to go"
