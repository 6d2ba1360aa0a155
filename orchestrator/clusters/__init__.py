"""Where engines run. A cluster starts one engine from its spec and gives back something that has a URL and a log, until the
context ends; then nothing of it is left. The runner knows no more than that of any place.

A place is opened once a run (:meth:`Cluster.opened`): what it watches, it watches for all sessions together. How many sessions it
takes at once it says by :class:`Limits`, which the runner keeps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from specsweep.orchestrator.admission import Need
from specsweep.orchestrator.engines import EngineSpec
from specsweep.orchestrator.errors import ConfigError, SpecsweepError


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of one session's engine."""

    logs: Path  # folder
    name: str  # of this session, in file names
    config: Mapping[str, Any] = field(default_factory=dict)  # of the session's points
    session_id: str = ""
    fresh: bool = False  # one that runs already, from an earlier life of this sweep, will not do
    avoid: frozenset[str] = frozenset()  # places (RunningEngine.node) where this session failed already
    say: Callable[[str], None] = lambda words: None  # what it waits for


class RunningEngine(Protocol):
    @property
    def base_url(self) -> str: ...

    @property
    def headers(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def model_name(self) -> str: ...

    @property
    def node(self) -> str:
        """Where it runs, as the place names its hosts; empty if there is only one, or none is known."""
        ...

    @property
    def files(self) -> Path | None:
        """The folder of its files, to which its recorders write; None where it cannot be read from here."""
        ...

    def ended(self) -> str | None:
        """How it ended, in words; None while it runs (or where that cannot be known)."""
        ...

    async def end(self, words: str) -> SpecsweepError:
        """Of one that ended, the error that says why: an ``EngineError``, or a ``ClusterError`` if the place took it away. ``words``: how and when."""
        ...

    async def log(self) -> str: ...

    def cpu_seconds(self) -> float | None:
        """CPU time of the engine's processes so far; None where they cannot be seen."""
        ...

    def host_facts(self) -> dict[str, Any]:
        """What its host is, as part of the environment of its points; under ``unstable`` what is only recorded (a host's name)."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What runs at once. ``gpus``: by product; a product that is not named has no limit of its own."""

    sessions: int = 1
    gpus: Mapping[str, int] = field(default_factory=dict)


class Cluster(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def dying_s(self) -> float:
        """How long after an engine stopped answering its end may still become known."""
        ...

    @property
    def can_be_cut_off(self) -> bool:
        """Whether an engine may run well where it is and be out of reach from here."""
        ...

    def opened(self, sweep: str, sessions: Collection[str], say: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """To be entered once, around all engines of a run of this sweep. ``sessions``: ids of those to come.

        What an earlier run that was killed left of others is ended.
        """
        ...

    def need(self, config: Mapping[str, Any]) -> Need:
        """The GPUs that a session takes here."""
        ...

    def start(self, spec: EngineSpec, launch: Launch) -> AbstractAsyncContextManager[RunningEngine]: ...

    async def quiet(self, engine: RunningEngine, wait_s: float, busy: Callable[[float], None] = ...) -> float | None:
        """Waits, at most so long, until the engine's host is quiet; the share of its CPU that others still use, None where nobody looked.

        ``busy`` is told that share whenever it was looked at and the host was not quiet.
        """
        ...


class OnePlace:
    """What is common to places that have one engine at a time and nothing to open."""

    limits = Limits()
    dying_s = 5.0  # vLLM's server answers with errors for a while before it ends
    can_be_cut_off = False

    @asynccontextmanager
    async def opened(self, sweep: str, sessions: Collection[str], say: Callable[[str], None]) -> AsyncIterator[None]:
        yield

    def need(self, config: Mapping[str, Any]) -> Need:
        return Need("", int(config["target"].get("gpus") or 0))


def cluster(config: Mapping[str, Any]) -> Cluster:
    """The cluster of a resolved config. Raises ConfigError for an unknown kind, and for missing or wrong fields."""
    kind = config["cluster"]["kind"]
    if kind == "local":
        from specsweep.orchestrator.clusters.local import LocalCluster

        return LocalCluster()
    if kind == "attach":
        from specsweep.orchestrator.clusters.attach import AttachCluster

        return AttachCluster.from_config(config)
    if kind == "kubernetes":
        from specsweep.orchestrator.clusters.kubernetes import KubernetesCluster

        return KubernetesCluster.from_config(config)
    raise ConfigError(f"cluster.kind={kind!r} is not known; choose local, attach or kubernetes")
