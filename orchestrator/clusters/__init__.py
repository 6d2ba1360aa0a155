"""Where engines run. A cluster starts one engine from its spec and gives back something that has a URL and a log, until the
context ends; then nothing of it is left. The runner knows no more than that of any place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from specsweep.orchestrator.engines import EngineSpec
from specsweep.orchestrator.errors import ConfigError


class RunningEngine(Protocol):
    @property
    def base_url(self) -> str: ...

    @property
    def headers(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def model_name(self) -> str: ...

    @property
    def files(self) -> Path | None:
        """The folder of its files, to which its recorders write; None where it cannot be read from here."""
        ...

    def ended(self) -> str | None:
        """How it ended, in words; None while it runs (or where that cannot be known)."""
        ...

    def log(self) -> str: ...

    def cpu_seconds(self) -> float | None:
        """CPU time of the engine's processes so far; None where they cannot be seen."""
        ...


class Cluster(Protocol):
    @property
    def kind(self) -> str: ...

    def start(self, spec: EngineSpec, *, logs: Path, name: str) -> AbstractAsyncContextManager[RunningEngine]: ...

    async def quiet(self, engine: RunningEngine, wait_s: float, busy: Callable[[float], None] = ...) -> float | None:
        """Waits, at most so long, until the engine's host is quiet; the share of its CPU that others still use, None where nobody looked.

        ``busy`` is told that share whenever it was looked at and the host was not quiet.
        """
        ...

    def host_facts(self) -> dict[str, Any]: ...


def cluster(config: Mapping[str, Any]) -> Cluster:
    """The cluster of a resolved config. Raises ConfigError for an unknown kind or missing fields."""
    from specsweep.orchestrator.clusters.attach import AttachCluster
    from specsweep.orchestrator.clusters.local import LocalCluster

    kind = config["cluster"]["kind"]
    if kind == "local":
        return LocalCluster()
    if kind == "attach":
        return AttachCluster.from_config(config)
    raise ConfigError(f"cluster.kind={kind!r} is not known; choose local or attach")
