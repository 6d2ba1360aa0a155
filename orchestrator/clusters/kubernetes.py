"""Engines as pods of a Kubernetes cluster.

Only a run that is itself in the cluster may measure there: through a port-forward it would measure the API server. All that it starts
belongs to the sweep's Job, so deleting that Job removes everything, whoever is still alive; without one (a shell in a pod) it belongs
to a ConfigMap that this run makes and removes.

What Kubernetes knows of an engine's end comes through one watch for the whole sweep. Who brought the end about decides what it is
here: what the cluster did (a lost node, an eviction, a preemption, a deletion) is a ``ClusterError`` and says nothing about the engine.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from specsweep.orchestrator.admission import Need
from specsweep.orchestrator.clusters import Launch, Limits, RunningEngine
from specsweep.orchestrator.engines import EngineSpec
from specsweep.orchestrator.errors import ClusterTerminal, ConfigError, SpecsweepError
from specsweep.orchestrator.kube.access import api_of
from specsweep.orchestrator.kube.outcomes import as_error, cause, from_verdict, joined
from specsweep.orchestrator.kube.settings import Settings, need_of
from specsweep.orchestrator.kube.specs import budgets, server_spec

if TYPE_CHECKING:  # the official client takes a second to load, and a plan needs none of it
    from specsweep.k8s.fleet import Fleet
    from specsweep.k8s.outcomes import Starting
    from specsweep.k8s.server import Server
    from specsweep.k8s.specs import Owner

JOB_VARIABLE = "SPECSWEEP_JOB"  # in the sweep's pod: the name of its Job
FRESH = "specsweep.io/start"
AWAY_PAUSE_S = 2.0  # after each vain start, which was patient itself


@dataclass(slots=True)
class KubernetesEngine:
    server: Server
    spec: EngineSpec
    host: Mapping[str, Any]
    headers: tuple[tuple[str, str], ...] = ()
    files: None = None

    @property
    def base_url(self) -> str:
        return self.server.url

    @property
    def model_name(self) -> str:
        return self.spec.model_name

    @property
    def node(self) -> str:
        return self.server.node

    def ended(self) -> str | None:
        from specsweep.k8s.errors import ApiError

        try:
            return self.server.ended()
        except ApiError:
            return None  # not known: the cluster cannot be asked, and the engine may serve all the same

    async def end(self, words: str) -> SpecsweepError:
        from specsweep.k8s.errors import KubernetesError

        with suppress(KubernetesError):
            await self.server.take_evidence()
            if (found := await self.server.end()) is not None:
                return from_verdict(found, f"engine {self.spec.engine} on {self.node or 'an unknown node'}", self.server.evidence)
        return ClusterTerminal(f"engine {self.spec.engine}: {words}", evidence=joined(self.server.evidence))

    async def log(self) -> str:
        return await self.server.log()

    def cpu_seconds(self) -> None:
        """Its host is another one."""

    def host_facts(self) -> dict[str, Any]:
        where = {"node": self.node, "pod": self.server.pod}
        return {**self.host, "image_digest": self.server.image_digest, "unstable": where}


@dataclass(slots=True)
class KubernetesCluster:
    settings: Settings
    kind: str = "kubernetes"
    dying_s: float = 150.0
    can_be_cut_off: bool = True
    limits: Limits = field(default_factory=Limits)
    _sweep: str = ""
    _fleet: Fleet | None = None
    _owner: Owner | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> KubernetesCluster:
        """Raises ConfigError for settings that cannot be right."""
        settings = Settings.of(config)
        return cls(settings, dying_s=settings.deadlines.silence_s, limits=Limits(settings.max_parallel_sessions, settings.gpu_limits))

    def need(self, config: Mapping[str, Any]) -> Need:
        return need_of(config)

    @asynccontextmanager
    async def opened(self, sweep: str, sessions: Collection[str], say: Callable[[str], None]) -> AsyncIterator[None]:
        """Raises ConfigError outside a cluster, ClusterError if this one cannot be asked."""
        if not os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise ConfigError(
                "cluster=kubernetes measures from inside the cluster, and this is no pod of one; "
                "`specsweep submit` with the same words starts the sweep there (through a port-forward the API server would be measured)"
            )
        from specsweep.k8s import names
        from specsweep.k8s.errors import KubernetesError
        from specsweep.k8s.fleet import Fleet, Pace
        from specsweep.k8s.watch import Patience
        from specsweep.orchestrator.kube.ownership import end_others, owned_by
        from specsweep.orchestrator.kube.volumes import at_once

        settings = self.settings
        try:
            async with (
                api_of(settings) as api,
                owned_by(api, sweep, os.environ.get(JOB_VARIABLE)) as owner,
                Fleet(
                    api,
                    names.labels("engine", sweep=sweep),
                    pace=Pace(delete_s=settings.deadlines.removal_s),
                    patience=Patience(away_s=settings.deadlines.session_s),  # without the API server points are measured all the same
                ) as fleet,
            ):
                self._sweep, self._fleet, self._owner = sweep, fleet, owner
                await end_others(fleet, sweep, sessions, say)
                self.limits = replace(self.limits, sessions=await at_once(api, settings, say))
                yield
        except KubernetesError as error:
            raise as_error(error) from error
        finally:
            self._fleet = None

    @asynccontextmanager
    async def start(self, spec: EngineSpec, launch: Launch) -> AsyncIterator[KubernetesEngine]:
        """Raises ClusterError or EngineError, evidence attached. An API server that is away is waited for: that says nothing of the engine."""
        from specsweep.k8s.errors import KubernetesError

        need = need_of(launch.config)
        host = {"kubernetes": True, "gpu_product": need.product, "gpus": need.gpus}
        ready = False
        try:
            async with AsyncExitStack() as stack:
                engine = KubernetesEngine(await self._server(stack, spec, launch), spec, host)
                ready = True
                try:
                    yield engine
                finally:
                    await self._keep_log(engine, launch)
        except KubernetesError as error:
            if not ready:
                raise as_error(error) from error
            launch.say(f"clean-up: {error.message}")  # the points are measured, and nothing is to be done about them

    async def _server(self, stack: AsyncExitStack, spec: EngineSpec, launch: Launch) -> Server:
        from specsweep.k8s.errors import Unreachable
        from specsweep.k8s.server import serve

        if self._fleet is None:
            raise RuntimeError("started before the cluster was opened")
        wanted = server_spec(
            spec,
            launch.config,
            self.settings,
            sweep=self._sweep,
            session_id=launch.session_id,
            namespace=self._fleet.api.namespace,
            avoid=launch.avoid,
        )
        if launch.fresh:  # another object than the one that an earlier life of this sweep left: that one is replaced
            wanted = replace(wanted, annotations={**wanted.annotations, FRESH: uuid.uuid4().hex[:16]})

        def progress(starting: Starting) -> None:
            launch.say(f"{wanted.name} waits for {starting.waits_for}")

        deadlines = self.settings.deadlines
        give_up = time.monotonic() + deadlines.session_s
        while True:
            serving = serve(self._fleet, wanted, self._owner, budgets=budgets(deadlines), classify=cause, progress=progress)
            try:
                return await stack.enter_async_context(serving)
            except Unreachable as error:
                if time.monotonic() > give_up:
                    raise
                launch.say(f"{wanted.name}: {error.message}; it is waited for")
                await asyncio.sleep(AWAY_PAUSE_S)

    async def _keep_log(self, engine: KubernetesEngine, launch: Launch) -> None:
        """Beside the other engines' logs; one that cannot be had is none."""
        log = joined(engine.server.evidence) if engine.server.evidence else await engine.log()
        launch.logs.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread((launch.logs / f"{launch.name}.log").write_text, log)

    async def quiet(self, engine: RunningEngine, wait_s: float, busy: Callable[[float], None] = lambda share: None) -> None:
        """What else keeps the engine's node busy cannot be seen from here; its own CPUs are guaranteed to it."""
