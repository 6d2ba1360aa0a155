"""Which sessions run at once: in the order of the plan, as far as the place's limits allow.

A session that does not fit lets a later one pass that does (other GPUs may be idle), but not for ever: the first one of the plan that
waits for a product of GPU is also the first that gets it, so no session is overtaken by one that asks for the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Need:
    """GPUs of one product; product "" and 0 GPUs if none."""

    product: str
    gpus: int


@dataclass(slots=True)
class Admission:
    """``sessions``: how many at most; ``gpus``: how many of each product, where there is a limit."""

    sessions: int
    gpus: Mapping[str, int]
    _running: dict[str, Need] = field(default_factory=dict)

    def admit(self, waiting: Mapping[str, Need]) -> list[str]:
        """Names of those of ``waiting`` (in order) that may start now; they count as running from now on."""
        started: list[str] = []
        held_back: set[str] = set()
        for name, need in waiting.items():
            if len(self._running) >= self.sessions:
                break
            if need.product in held_back or not self._fits(need):
                held_back.add(need.product)
                continue
            self._running[name] = need
            started.append(name)
        return started

    def ended(self, name: str) -> None:
        del self._running[name]

    def _fits(self, need: Need) -> bool:
        """Also, alone, what is more than the limit: it can never fit otherwise, and whoever set the limit hears of it in the plan."""
        limit = self.gpus.get(need.product)
        used = sum(running.gpus for running in self._running.values() if running.product == need.product)
        return limit is None or not used or used + need.gpus <= limit
