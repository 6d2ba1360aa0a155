"""Whose the objects of a run are, and what becomes of those of an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from specsweep.k8s import names
from specsweep.k8s.api import Api
from specsweep.k8s.errors import KubernetesError
from specsweep.k8s.fleet import Fleet
from specsweep.k8s.manifests import Manifest
from specsweep.k8s.resources import CONFIG_MAPS, JOBS, SERVICES
from specsweep.k8s.specs import Owner
from specsweep.orchestrator.kube.specs import fingerprint, session_labels


@asynccontextmanager
async def owned_by(api: Api, sweep: str, job: str | None) -> AsyncIterator[Owner]:
    """The sweep's Job, else a ConfigMap that is there as long as this run: whoever deletes it removes all that the run started."""
    if job is not None:
        yield Owner.of(await api.get(JOBS, job))
        return
    name = names.object_name("run", fingerprint(sweep))
    anchor = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": api.namespace, "labels": names.labels("sweep", sweep=sweep), "annotations": {}},
        "data": {"sweep": sweep, "about": "delete this to remove everything that a run of specsweep from a shell has started"},
    }
    found, _ = await api.create_or_adopt(anchor)
    try:
        yield Owner.of({**found, "apiVersion": "v1", "kind": "ConfigMap"})
    finally:
        await api.delete(CONFIG_MAPS, name, uid=found["metadata"]["uid"])


async def end_others(fleet: Fleet, sweep: str, sessions: Collection[str], say: Callable[[str], None]) -> None:
    """A run that is killed leaves its engines. Those of ``sessions`` will be taken over; of the others nobody would ever think again."""
    wanted = [session_labels(sweep, session) for session in sessions]
    left: dict[str, dict[str, str]] = {}
    for resource in (JOBS, SERVICES, CONFIG_MAPS):
        found, _ = await fleet.api.find(resource, selector=names.selector(names.labels("engine", sweep=sweep)))
        left |= {obj["metadata"]["name"]: obj["metadata"]["labels"] for obj in found}
    others = {name: ours for name, ours in left.items() if not any(names.carries(ours, labels) for labels in wanted)}
    if others:
        say(f"ending what an earlier run left of sessions that are measured: {', '.join(sorted(others))}")
    ends = (fleet.remove(_engine_objects(name, fleet.api.namespace, labels)) for name, labels in others.items())
    for error in await asyncio.gather(*ends, return_exceptions=True):
        if isinstance(error, KubernetesError):
            say(f"clean-up: {error.message}")
        elif error is not None:
            raise error


def _engine_objects(name: str, namespace: str, labels: dict[str, str]) -> list[Manifest]:
    """As much of them as their removal needs."""
    metadata = {"name": name, "namespace": namespace, "labels": {key: labels[key] for key in names.labels("engine", sweep="")}}
    job: Manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": {}}}}
    return [{"apiVersion": "v1", "kind": kind, "metadata": metadata} for kind in ("ConfigMap", "Service")] + [job]
