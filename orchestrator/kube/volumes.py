"""What the volumes that a config names allow. Before a sweep is handed over it is asked whether they are there: a pod that waits for one says it late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.settings import Settings, Volume

if TYPE_CHECKING:
    from specsweep.k8s.api import Api

SHARED = {"ReadOnlyMany", "ReadWriteMany"}


@dataclass(slots=True)
class Volumes:
    """``weights_writable``: whether a pod may mount the weights to write, so that the sweep can fetch what is not there."""

    weights_writable: bool = True
    notes: list[str] = field(default_factory=list)


async def look_at(api: Api, settings: Settings) -> Volumes:
    """Raises ConfigError for a claim that is not there. What our rights do not show is taken to be right."""
    found = Volumes()
    if settings.results is not None:
        await _modes(api, "cluster.results.claim", settings.results)
    if settings.weights is not None:
        modes = await _modes(api, "cluster.weights.claim", settings.weights)
        found.weights_writable = modes is None or modes != {"ReadOnlyMany"}
        if modes is not None and not modes & SHARED:
            found.notes.append(
                f"volume {settings.weights.claim} is {', '.join(sorted(modes)) or 'of no known mode'}: the sweep's pod and its engines must "
                "all be on one node; a ReadWriteMany volume serves several"
            )
    return found


async def at_once(api: Api, settings: Settings, say: Callable[[str], None]) -> int:
    """How many engines may be up: as many as the user said, or one if they read their weights from a volume of a single node."""
    wanted = settings.max_parallel_sessions
    if wanted == 1 or settings.weights is None:
        return wanted
    try:
        modes = await _modes(api, "cluster.weights.claim", settings.weights)
    except ConfigError:
        return wanted  # the engine's pod will say it
    if modes is None or modes & SHARED:
        return wanted
    say(
        f"volume {settings.weights.claim} is {', '.join(sorted(modes)) or 'of no known mode'}: one node at a time, so one session at a time "
        f"instead of {wanted}; a ReadOnlyMany or ReadWriteMany volume allows more"
    )
    return 1


async def _modes(api: Api, field_name: str, volume: Volume) -> set[str] | None:
    """None: our rights do not show it. Raises ConfigError if it is not there."""
    from specsweep.k8s.errors import Forbidden, NotFound
    from specsweep.k8s.resources import CLAIMS

    try:
        claim = await api.get(CLAIMS, volume.claim)
    except Forbidden:
        return None
    except NotFound:
        raise ConfigError(
            f"{field_name}={volume.claim}: namespace {api.namespace} has no PersistentVolumeClaim of that name; look at: kubectl get pvc"
        ) from None
    return set((claim.get("spec") or {}).get("accessModes") or ())
