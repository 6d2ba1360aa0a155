"""Who uses the CPU of the host that an engine runs on: the engine, and whoever else.

Before a point it decides whether the machine is quiet, in its window whether others disturbed it; both look with the same eyes. An engine
may be busy though nothing is asked of it (vLLM's worker spins for a while after each request): that is the engine's own, and no reason to wait.
"""

from __future__ import annotations

import os
import time

import psutil

from specsweep.orchestrator.clusters import RunningEngine


class CpuMeter:
    """Whose CPU time a window took, on the host of an engine that runs here."""

    def __init__(self, engine: RunningEngine) -> None:
        self._engine = engine
        self._began = time.monotonic()
        self._engine_s = engine.cpu_seconds()
        self._busy_s = _busy_seconds()

    def others(self, client_s: float) -> float | None:
        """The share of all cores that neither the engine nor the clients (``client_s`` seconds) used; None if the engine cannot be seen."""
        engine_s = self._engine.cpu_seconds()
        if engine_s is None or self._engine_s is None:
            return None
        spent = _busy_seconds() - self._busy_s - (engine_s - self._engine_s) - client_s
        return max(0.0, spent / ((time.monotonic() - self._began) * (os.cpu_count() or 1)))


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)
