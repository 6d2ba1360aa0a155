"""What a plan will take of a cluster: GPUs at once, GPU-hours and time, by letting its sessions run on paper under the limits.

The sessions are admitted as a run admits them (:class:`~specsweep.orchestrator.admission.Admission`), each for as long as it is estimated
to take. How long a session waits for a node that others hold is not known here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specsweep.orchestrator.admission import Admission, Need
from specsweep.orchestrator.kube.settings import Settings, need_of
from specsweep.orchestrator.points import Session


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one product of GPU."""

    product: str  # empty where none is named
    sessions: int
    gpu_s: float
    most_gpus: int  # at once


@dataclass(slots=True)
class Forecast:
    """Seconds; ``usage`` by product, those without GPUs left out."""

    elapsed_s: float = 0.0
    most_sessions: int = 0  # at once
    usage: list[Usage] = field(default_factory=list)


def shown(need: Need) -> str:
    """``8 × NVIDIA-B200``."""
    return f"{need.gpus} × {need.product or 'GPU'}" if need.gpus else "–"


def forecast(sessions: Sequence[Session], settings: Settings, seconds: Callable[[Session], float]) -> Forecast:
    """``seconds``: what is left to do of a session; one with nothing left takes no part."""
    lengths = {s.session_id: length for s in sessions if (length := seconds(s)) > 0}
    needs = {s.session_id: need_of(s.config) for s in sessions if s.session_id in lengths}
    waiting = dict(needs)
    admission = Admission(settings.max_parallel_sessions, settings.gpu_limits)
    found = Forecast()
    most: dict[str, int] = {}
    running: list[tuple[float, str]] = []  # by its end
    while waiting or running:
        for name in admission.admit(waiting):
            del waiting[name]
            heapq.heappush(running, (found.elapsed_s + lengths[name], name))
        found.most_sessions = max(found.most_sessions, len(running))
        held: dict[str, int] = {}
        for _, name in running:
            held[needs[name].product] = held.get(needs[name].product, 0) + needs[name].gpus
        for product, gpus in held.items():
            most[product] = max(most.get(product, 0), gpus)
        found.elapsed_s, ended = heapq.heappop(running)
        admission.ended(ended)
    for product in dict.fromkeys(need.product for need in needs.values() if need.gpus):
        own = [name for name, need in needs.items() if need.product == product and need.gpus]
        gpu_s = sum(lengths[name] * needs[name].gpus for name in own)
        found.usage.append(Usage(product, len(own), gpu_s, most[product]))
    return found
