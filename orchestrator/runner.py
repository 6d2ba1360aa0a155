"""Executes a plan: session by session, point by point, each landing in the store before the next begins.

The runner decides nothing that a plan has decided. Its own rules are those of failure. A point or a session that fails is a
result with a reason, never the end of the sweep. An engine that dies is started again for the points that are left, twice at
most without a success between. A lost client process costs one repetition of the point. And since every landed attempt is
complete on disk, the same command after any kind of end measures exactly what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from specsweep.client.actors import ClientPool
from specsweep.client.dialects import dialect
from specsweep.client.scrape import fetch_json
from specsweep.client.trace import PlannedRequest, Sampling
from specsweep.client.warmup import WARMUP_PROMPT, WARMUP_TOKENS, warm_up
from specsweep.orchestrator.clusters import Cluster, RunningEngine, cluster
from specsweep.orchestrator.engines import EngineSpec, SessionModels, launcher
from specsweep.orchestrator.engines.verdicts import verdict
from specsweep.orchestrator.environment import environment, gpus, provenance, stable
from specsweep.orchestrator.errors import ClientError, EngineError, EngineRetryable, SpecsweepError
from specsweep.orchestrator.identity import env_id
from specsweep.orchestrator.measuring import Measured, measure_point, requests_of
from specsweep.orchestrator.points import Plan, Point, Session
from specsweep.orchestrator.preparation import Preparation
from specsweep.orchestrator.progress import Progress, Tally, label
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import Tracker

STARTS = 2  # of an engine whose failure can heal
DEATHS = 2  # of an engine in a row without a point between
POINT_TRIES = 2  # if a client process is lost
RETRY_PAUSE_S = 2.0
SETTLE_S = 0.3  # until the end of a process is known after its connections broke
WARMUP_TIMEOUT_S = 300.0


@dataclass(slots=True)
class Outcome:
    measured: int = 0
    invalid: int = 0
    failed: int = 0
    worst: SpecsweepError | None = None


@dataclass(slots=True)
class Runner:
    plan: Plan
    store: Store
    tracker: Tracker | None
    progress: Progress
    preparation: Preparation
    tally: Tally
    rerun: str = "failed"
    actors: int | None = None
    outcome: Outcome = field(default_factory=Outcome)
    _env: dict[str, Any] = field(default_factory=dict)

    async def run(self) -> Outcome:
        with contextlib.closing(ClientPool()) as pool:
            clients = asyncio.create_task(asyncio.to_thread(pool.start))  # Ray's start hides behind that of the first engine
            try:
                for session in self.plan.sessions:
                    missing = [point for point in session.points if self.store.needs(point.point_id, self.rerun)]
                    if missing:
                        await self._guarded(session, missing, pool, clients)
            finally:
                with contextlib.suppress(Exception):
                    await clients
        return self.outcome

    async def _guarded(self, session: Session, missing: Sequence[Point], pool: ClientPool, clients: asyncio.Task[None]) -> None:
        """One session; whatever goes wrong in it, its points are accounted for and the next one begins."""
        self.tally.session += 1
        self._env = {}
        self.store.event(self.plan.name, "session_started", session_id=session.session_id, points=[p.point_id for p in missing])
        left = list(missing)
        try:
            await self._session(session, left, pool, clients)
        except SpecsweepError as error:
            self._all_failed(left, error, session)
        except Exception as bug:
            self._all_failed(left, _internal(bug), session)
        self.store.event(self.plan.name, "session_finished", session_id=session.session_id)

    async def _session(self, session: Session, left: list[Point], pool: ClientPool, clients: asyncio.Task[None]) -> None:
        """Takes each point out of ``left`` as it lands or fails. Raises what the points that are still in it fail of."""
        place = cluster(session.config)
        models = await asyncio.to_thread(self.preparation.models, session.config)
        requests = await self._requests(session, left)
        if not left:
            return
        spec = _spec(session, models, await asyncio.to_thread(self.preparation.context_per_slot, left))
        deaths = 0
        while left:
            measured = self.outcome.measured
            try:
                async with AsyncExitStack() as stack:
                    engine = await self._start(stack, place, spec, session)
                    self.tally.started(session.est_start_s)
                    if not clients.done():
                        self.progress.session(session, "waiting for the client processes")
                        await asyncio.wait([clients])
                    await self._points(engine, place, requests, left, session, pool)
            except EngineDied:
                deaths = deaths + 1 if self.outcome.measured == measured else 1
                if deaths >= DEATHS:
                    raise

    async def _requests(self, session: Session, left: list[Point]) -> dict[str, list[PlannedRequest]]:
        """By point_id. A point whose prompts cannot be had fails alone."""
        requests: dict[str, list[PlannedRequest]] = {}
        for point in tuple(left):
            try:
                prompts = await asyncio.to_thread(self.preparation.prompts, point)
                requests[point.point_id] = requests_of(point, prompts, model_name(point))
            except SpecsweepError as error:
                left.remove(point)
                self._failed(point, error, session)
        return requests

    async def _start(self, stack: AsyncExitStack, place: Cluster, spec: EngineSpec, session: Session) -> RunningEngine:
        axes = session.points[0].axes
        words = f"{axes['engine']} · {axes['target']} · {axes['drafter']}" + (f" DL{axes['draft_length']}" if axes["draft_length"] else "")
        self.progress.session(session, f"starting {words}")
        logs = self.store.root / "sweeps" / self.plan.name / "logs"
        for attempt in range(1, STARTS + 1):
            try:
                engine = await stack.enter_async_context(place.start(spec, logs=logs, name=f"{session.session_id[:16]}"))
                break
            except EngineRetryable as error:
                if attempt == STARTS:
                    raise
                self.progress.say(f"engine {spec.engine}: {error.message.splitlines()[0]}; starting it once more")
                await asyncio.sleep(RETRY_PAUSE_S)
        answers = {
            path: await fetch_json(engine.base_url + path, headers=dict(engine.headers)) for path in launcher(spec.engine).fact_paths
        }
        self._env = environment(spec, launcher(spec.engine).facts(answers), place.host_facts())
        self.progress.session(session, f"{words}: ready, warming up")
        await self._warm_up(engine, session)
        return engine

    async def _warm_up(self, engine: RunningEngine, session: Session) -> None:
        wire = dialect(session.config["engine"]["dialect"])
        sampling = Sampling(max_tokens=WARMUP_TOKENS)
        for size in sorted({int(point.axes["batch_size"]) for point in session.points}):
            point = next(p for p in session.points if int(p.axes["batch_size"]) == size)
            ramp = self.preparation.prompts(point).ramp
            prompts = [ramp[i % len(ramp)] for i in range(size)]
            # Short ones: what a long prompt still has to warm up is warmed up by the ramp, which is not measured either.
            texts = [p.ids[:WARMUP_PROMPT] if wire.takes_ids else p.text for p in prompts]
            bodies = [wire.request(text, sampling, model=engine.model_name) for text in texts]
            wrong = await warm_up(engine.base_url + wire.path, bodies, headers=dict(engine.headers), timeout_s=WARMUP_TIMEOUT_S)
            if (how := engine.ended()) is not None:
                raise EngineDied.of(session, how, engine.log())
            if wrong is not None:
                raise EngineError(f"the engine does not answer a warm-up request at batch size {size}: {wrong}", evidence=engine.log())

    async def _points(
        self,
        engine: RunningEngine,
        place: Cluster,
        requests: dict[str, list[PlannedRequest]],
        left: list[Point],
        session: Session,
        pool: ClientPool,
    ) -> None:
        estimates = dict(zip((p.point_id for p in session.points), session.est_points_s, strict=True))
        while left:
            point = left[0]
            self.progress.measuring(point, len(requests[point.point_id]))
            self.store.event(self.plan.name, "point_started", point_id=point.point_id)
            if self.tracker is not None:
                self.tracker.settle()
            busy = await place.quiet()
            began, started = time.monotonic(), _utc()
            gpus_before = gpus()
            error: SpecsweepError | None = None
            measured: Measured | None = None
            try:
                measured = await self._measure(point, requests[point.point_id], engine, pool)
            except SpecsweepError as caught:
                error = caught
            except Exception as bug:  # of ours: it costs this point, and is told in full
                error = _internal(bug)
            if measured is None or any(r.read.outcome != "ok" for r in measured.trace.requests):
                await asyncio.sleep(SETTLE_S)
            if (how := engine.ended()) is not None:
                error = EngineDied.of(session, f"{how} while {label(point)} was measured", engine.log())
            self.tally.spent(estimates[point.point_id], time.monotonic() - began)
            self.tally.requests_done += len(requests[point.point_id])
            left.pop(0)
            if error is not None or measured is None:
                self._failed(point, error or ClientError("no measurement"), session, started)
                if isinstance(error, EngineError):
                    raise error
                continue
            state = {"gpus_before": gpus_before, "gpus_after": gpus(), "background_cpu_share": busy}
            self._landed(point, measured, session, started, state)

    async def _measure(self, point: Point, requests: list[PlannedRequest], engine: RunningEngine, pool: ClientPool) -> Measured:
        for attempt in range(1, POINT_TRIES + 1):
            try:
                return await measure_point(point, requests, engine, pool, found=self._env["engine"], actors=self.actors)
            except RuntimeError as lost:  # LostActor, or Ray itself
                self.store.event(self.plan.name, "actor_lost", point_id=point.point_id, fact=str(lost))
                if attempt == POINT_TRIES or engine.ended() is not None:
                    raise ClientError(f"a client process was lost while {label(point)} was measured: {lost}") from lost
                self.progress.say(f"{label(point)}: {lost}; measuring it once more with fresh clients")
        raise AssertionError("unreachable")

    def _record(self, point: Point, session: Session, started: str) -> dict[str, Any]:
        known = provenance()
        return {
            "point_id": point.point_id,
            "env_id": env_id(stable(self._env)),
            "axes": dict(point.axes),
            "declared": dict(point.declared),
            "config": dict(point.config),
            "env": self._env,
            "baseline_id": point.baseline_id,
            "session_id": session.session_id,
            "started_utc": started,
            "finished_utc": _utc(),
            "git_commit": known["git_commit"],
            "host": known["host"],
            "specsweep_version": known["specsweep_version"],
        }

    def _landed(self, point: Point, measured: Measured, session: Session, started: str, state: dict[str, Any]) -> None:
        record = {**self._record(point, session, started), "status": "measured", "error": None, "machine": state}
        self.store.commit(record, measured.measurement, measured.trace, measured.evidence)
        self.outcome.measured += 1
        self.tally.landed += 1
        if not measured.measurement["validity"]["valid"]:
            self.outcome.invalid += 1
            self.tally.invalid += 1
        self.progress.landed(point, measured.measurement)
        self._track(point)

    def _failed(self, point: Point, error: SpecsweepError, session: Session, started: str | None = None) -> None:
        kind = type(error).__name__
        record = {**self._record(point, session, started or _utc()), "status": "failed", "error": {"kind": kind, "message": error.message}}
        self.store.commit(record, None, None, {"engine.log": error.evidence} if error.evidence else {})
        self.outcome.failed += 1
        self.tally.failed += 1
        self.outcome.worst = self.outcome.worst or error
        self.progress.failed(point, error.message.splitlines()[0])
        self._track(point)

    def _all_failed(self, points: Sequence[Point], error: SpecsweepError, session: Session) -> None:
        for point in points:
            self._failed(point, error, session)

    def _track(self, point: Point) -> None:
        attempt = self.store.latest(point.point_id)
        if attempt is not None and self.tracker is not None:
            self.tracker.attempt(attempt)


class EngineDied(EngineError):
    """An engine that was running and ended. It is worth another start for the points that are left."""

    @classmethod
    def of(cls, session: Session, how: str, log: str) -> EngineDied:
        found = verdict(str(session.points[0].axes["engine"]), how, log)
        return cls(found.message, evidence=found.evidence)


def _internal(bug: Exception) -> ClientError:
    """An error of ours costs a point or a session, and is told in full."""
    return ClientError(f"internal error: {type(bug).__name__}: {bug}", evidence="".join(traceback.format_exception(bug)))


def model_name(point: Point) -> str:
    """The name that the server knows the target by."""
    return str(point.config["cluster"].get("model") or point.config["target"]["name"])


def _spec(session: Session, models: SessionModels, context: int) -> EngineSpec:
    if session.config["cluster"]["kind"] == "attach":
        config = session.config
        name = model_name(session.points[0])
        drafter = {"method": config["drafter"]["method"], "draft_length": session.points[0].axes["draft_length"]}
        return EngineSpec(str(config["engine"]["name"]), (), name, flags={"attached": True}, drafter_flags=drafter)
    return launcher(session.config["engine"]["name"]).spec(session.config, models, n_ctx_per_slot=context)


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
