"""Whose the objects of a run are, and how many engines the volumes allow at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from specsweep.k8s import names
from specsweep.k8s.api import Api
from specsweep.k8s.errors import Forbidden, NotFound
from specsweep.k8s.resources import CLAIMS, CONFIG_MAPS, JOBS
from specsweep.k8s.specs import Owner
from specsweep.orchestrator.kube.settings import Settings
from specsweep.orchestrator.kube.specs import fingerprint

SHARED_MODES = {"ReadOnlyMany", "ReadWriteMany"}


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


async def at_once(api: Api, settings: Settings, say: Callable[[str], None]) -> int:
    """How many engines may be up: as many as the user said, or one if they read their weights from a volume of a single node."""
    wanted = settings.max_parallel_sessions
    if wanted == 1 or settings.weights is None:
        return wanted
    try:
        claim = await api.get(CLAIMS, settings.weights.claim)
    except (NotFound, Forbidden):
        return wanted  # the engine's pod will say it
    modes = set((claim.get("spec") or {}).get("accessModes") or ())
    if modes & SHARED_MODES:
        return wanted
    say(
        f"volume {settings.weights.claim} is {', '.join(sorted(modes)) or 'of no known mode'}: one node at a time, so one session at a time "
        f"instead of {wanted}; a ReadOnlyMany or ReadWriteMany volume allows more"
    )
    return 1
