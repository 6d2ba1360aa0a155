"""One session: an engine is started, warmed up, and measured at each of its points, and started again if it dies between.

The rules of failure live here. Prompts that cannot be had cost their point alone. A start that can heal is tried once more. An engine
that dies costs the point in flight and is started again for the points that are left, until it dies twice in a row without a point
between. What its place does to an engine (a lost node, a preemption, a cut network) costs no point: it is started again, elsewhere if
there is an elsewhere, until that happens several times in a row. What then remains, or anything that nobody foresaw, fails the points
that are left, each with the reason; the session itself never raises, unless there is no going on for any session (a full disk, no client
process). It owns everything that it knows of its engine, so that sessions do not meet in anything but the ledger, the place and the clients.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from specsweep.analysis.axis_words import capture_words
from specsweep.client.actors import Team
from specsweep.client.dialects import dialect
from specsweep.client.scrape import fetch_json
from specsweep.client.sim.truth import prompt_key
from specsweep.client.sim.wire import ABOUT_PATH
from specsweep.client.trace import PlannedRequest, Sampling
from specsweep.client.warmup import WARMUP_PROMPT, WARMUP_TOKENS, warm_up
from specsweep.client.workload import Prompt, PromptSet
from specsweep.orchestrator.capture import capture_requests
from specsweep.orchestrator.clients import Clients
from specsweep.orchestrator.clusters import Cluster, Launch, RunningEngine
from specsweep.orchestrator.engines import EngineSpec, SessionModels, launcher
from specsweep.orchestrator.engines.verdicts import false_start
from specsweep.orchestrator.environment import environment
from specsweep.orchestrator.errors import (
    ClusterRetryable,
    EngineError,
    EngineRetryable,
    RequestError,
    RunError,
    SpecsweepError,
)
from specsweep.orchestrator.ledger import Ending, Ledger, internal_error, utc_now
from specsweep.orchestrator.measuring import Measured, requests_of
from specsweep.orchestrator.point_run import Bench, EngineDied, EngineTaken, fate, run_point
from specsweep.orchestrator.points import Point, Session
from specsweep.orchestrator.preparation import Preparation
from specsweep.orchestrator.random_answers import sends_noise, tell_modes

STARTS = 2  # of an engine whose failure can heal
DEATHS = 2  # of an engine in a row without a point between
INTERRUPTIONS = 6  # by its place, likewise
RETRY_PAUSE_S = 2.0
WARMUP_TIMEOUT_S = 300.0


@dataclass(slots=True)
class SessionRun:
    session: Session
    left: list[Point]  # each point is taken out as it is accounted for
    place: Cluster
    ledger: Ledger
    preparation: Preparation
    clients: Clients
    actors: int | None = None
    _requests: dict[str, list[PlannedRequest]] = field(default_factory=dict)  # by point_id
    _env: dict[str, Any] = field(default_factory=dict)  # of the engine that was started last
    _avoid: set[str] = field(default_factory=set)  # nodes where it failed
    measured: int = 0  # points of this session

    async def run(self) -> None:
        """Whatever goes wrong, every point that was left is accounted for at the end. Raises RunError alone: there is no going on."""
        self.ledger.event("session_started", session_id=self.session.session_id, points=[p.point_id for p in self.left])
        try:
            await self._serve()
        except RunError:
            raise
        except SpecsweepError as error:
            self._fail_what_is_left(error)
        except Exception as bug:
            self._fail_what_is_left(internal_error(bug))
        self.ledger.event("session_finished", session_id=self.session.session_id)

    async def _serve(self) -> None:
        models = await asyncio.to_thread(self.preparation.models, self.session.config)
        missing = {point.point_id for point in self.left}
        await self._plan_requests()
        if not self.left:
            return
        # Of the whole session, what is measured already included: an engine does not depend on how far an earlier run came.
        points = [p for p in self.session.points if p.point_id in self._requests or p.point_id not in missing]
        spec = _spec(self.session, models, await asyncio.to_thread(self.preparation.context_per_slot, points))
        if getattr(launcher(spec.engine), "wants_prompts", False):
            sets = [await asyncio.to_thread(self.preparation.prompts, point) for point in points]
            spec = replace(spec, files={**spec.files, "prompts.json": json.dumps(prompt_facts(sets))})
        deaths = interruptions = 0
        while self.left:
            measured = self.measured
            try:
                await self._serve_with_one_engine(spec)
            except EngineDied as death:
                self._avoid.add(death.node)
                deaths = deaths + 1 if self.measured == measured else 1
                if deaths >= DEATHS:
                    raise
            except ClusterRetryable as interruption:
                interruptions = interruptions + 1 if self.measured == measured else 1
                if interruptions >= INTERRUPTIONS:
                    raise
                await self._interrupted(interruption, interruptions)

    async def _interrupted(self, error: ClusterRetryable, times: int) -> None:
        self._avoid.add(error.node)
        words = error.message.splitlines()[0]
        self.ledger.event("session_interrupted", session_id=self.session.session_id, reason=words, node=error.node)
        self.ledger.progress.say(f"{_words(self.session)}: {words}; starting it again")
        await asyncio.sleep(RETRY_PAUSE_S * times)

    async def _plan_requests(self) -> None:
        """A point whose prompts cannot be had fails alone, whatever the reason, an error of ours included."""
        for point in tuple(self.left):
            try:
                prompts = await asyncio.to_thread(self.preparation.prompts, point)
                plan = capture_requests if point.is_capture else requests_of
                self._requests[point.point_id] = plan(point, prompts, model_name(point))
            except RunError:
                raise
            except SpecsweepError as error:
                self._fail(point, error)
            except Exception as bug:
                self._fail(point, internal_error(bug))

    async def _serve_with_one_engine(self, spec: EngineSpec) -> None:
        """Raises EngineError once the engine can serve no other point; the one it failed at is accounted for. EngineTaken costs none."""
        estimates = dict(zip((p.point_id for p in self.session.points), self.session.est_points_s, strict=True))
        async with AsyncExitStack() as stack:
            engine = await self._start(stack, spec)
            bench = await self._ready(engine, spec, stack.enter_context(self.clients.team()))
            while self.left:
                point = self.left[0]
                requests = self._requests[point.point_id]
                ending = await run_point(point, requests, bench, self.ledger, estimate_s=estimates[point.point_id])
                if isinstance(ending.result, EngineTaken):
                    raise ending.result
                if isinstance(ending.result, Measured) and sends_noise(point):
                    tell_modes(ending.result, await asyncio.to_thread(self.preparation.prompts, point))
                self._account(point, ending)
                if isinstance(ending.result, EngineError):
                    raise ending.result

    async def _start(self, stack: AsyncExitStack, spec: EngineSpec) -> RunningEngine:
        """Raises what keeps it from starting; ClusterRetryable is for the caller to count."""
        progress = self.ledger.progress
        progress.session(self.session, f"starting {_words(self.session)}")
        fresh = launcher(spec.engine).stateful(self.session.config["drafter"])
        tries = 1
        while True:
            launch = Launch(
                logs=self._logs,
                name=self.session.session_id[:16],
                config=self.session.config,
                session_id=self.session.session_id,
                fresh=fresh,
                avoid=frozenset(self._avoid - {""}),
                say=progress.say,
            )
            try:
                return await stack.enter_async_context(self.place.start(spec, launch))
            except EngineRetryable as error:
                if tries == STARTS:
                    raise
                tries += 1
                self._avoid.add(error.node)
                progress.say(f"engine {spec.engine}: {error.message.splitlines()[0]}; starting it once more")
                await asyncio.sleep(RETRY_PAUSE_S)

    @property
    def _logs(self) -> Path:
        return self.ledger.store.root / "sweeps" / self.ledger.sweep / "logs"

    async def _ready(self, engine: RunningEngine, spec: EngineSpec, team: Team) -> Bench:
        """Asks the engine what it is, warms it up, and waits for the clients if they are slower than it was."""
        if spec.gpus and (fallen_back := false_start(spec.engine, await engine.log())) is not None:
            raise fallen_back
        engine_side = launcher(spec.engine)
        answers = {path: await fetch_json(engine.base_url + path, headers=dict(engine.headers)) for path in engine_side.fact_paths}
        facts = engine_side.facts(answers)
        if self.session.config["cluster"]["kind"] == "attach":
            about = await fetch_json(engine.base_url + ABOUT_PATH, headers=dict(engine.headers))
            if isinstance(about, dict) and about.get("simulated"):
                facts["simulated"] = True
        self._env = environment(spec, facts, engine.host_facts())
        bench = Bench(
            self.session,
            self.place,
            engine,
            self._env,
            self.clients,
            team,
            self.actors,
            spec.health_path,
            tokenizer=await asyncio.to_thread(self._tokenizer_of_conversations),
            recorder_files=spec.recorder_files,
        )
        self.ledger.progress.session(self.session, f"{_words(self.session)}: ready, warming up")
        await self._warm_up(bench)
        self.ledger.tally.started(self.session.est_start_s)
        if not self.clients.starting.done():
            self.ledger.progress.session(self.session, "waiting for the client processes")
        await self.clients.ready()
        return bench

    def _tokenizer_of_conversations(self) -> Path | None:
        several = any(planned.turns for requests in self._requests.values() for planned in requests)
        return self.preparation.tokenizer_source(self.session.config) if several else None

    async def _warm_up(self, bench: Bench) -> None:
        engine, wire = bench.engine, dialect(self.session.config["engine"]["dialect"])
        for size, bodies in self._warm_up_bodies(engine.model_name).items():
            wrong = await warm_up(
                engine.base_url + wire.path,
                bodies,
                partial(wire.read, draft_length=None, n_prompt=None),
                exactly=wire.takes_ids,
                headers=dict(engine.headers),
                timeout_s=WARMUP_TIMEOUT_S,
            )
            if (death := await bench.died(" while it was warmed up")) is not None:
                raise death
            if wrong is not None:
                if (end := await fate(RequestError(wrong), bench, " while it was warmed up")) is not None:
                    raise end
                raise EngineError(
                    f"the engine does not answer a warm-up request at batch size {size}: {wrong}", evidence=await engine.log()
                )

    def _warm_up_bodies(self, model: str) -> dict[int, list[bytes]]:
        """By batch size that is still to be measured, ascending. Short ones: what a long prompt has to warm up, the ramp does."""
        wire = dialect(self.session.config["engine"]["dialect"])
        sampling = Sampling(max_tokens=WARMUP_TOKENS, ignore_eos=wire.takes_ids)  # servers that take ids can all do that
        by_size = {int(point.axes["batch_size"]): point for point in reversed(self.left)}
        bodies = {}
        for size, point in sorted(by_size.items()):
            ramp = self.preparation.prompts(point).ramp
            texts = [prompt.ids[:WARMUP_PROMPT] if wire.takes_ids else prompt.text for prompt in ramp]
            bodies[size] = [wire.request(texts[i % len(texts)], sampling, model=model) for i in range(size)]
        return bodies

    def _fail_what_is_left(self, error: SpecsweepError) -> None:
        for point in tuple(self.left):
            self._fail(point, error)

    def _fail(self, point: Point, error: SpecsweepError) -> None:
        self._account(point, Ending(point, self.session.session_id, self._env, utc_now(), error))

    def _account(self, point: Point, ending: Ending) -> None:
        """In this order: a point that is not accounted for is still left, and whatever ends the session accounts for it."""
        self.ledger.account(ending)
        self.measured += isinstance(ending.result, Measured)
        self.left.remove(point)


def prompt_facts(sets: Iterable[PromptSet]) -> dict[str, dict[str, Any]]:
    """Prompt key → what a simulated engine has to know of a prompt and cannot learn from a request: its ``category`` (SpecBench's after
    ``specbench/``, since drafters fare differently there), and its length in tokens of its bucket for each token that is sent
    (``length_ratio``), since the tokenizer at hand need not be that of the simulated target."""
    return {prompt_key(p.ids): _prompt_facts(p) for found in sets for p in (*found.main, *found.ramp) if p.ids}


def _prompt_facts(prompt: Prompt) -> dict[str, Any]:
    benchmark = "specbench/" if prompt.source.startswith("SpecBench") else ""
    length = prompt.isl_target if prompt.category == "random" else prompt.isl_o200k
    return {"category": benchmark + prompt.category, "length_ratio": round(length / len(prompt.ids), 4) if length > 0 else 1.0}


def _words(session: Session) -> str:
    axes = session.points[0].axes
    length = f" DL{axes['draft_length']}" if axes["draft_length"] else ""
    return f"{axes['engine']} · {axes['target']} · {axes['drafter']}{length}" + (f" · {words}" if (words := capture_words(axes)) else "")


def model_name(point: Point) -> str:
    """The name that the server knows the target by."""
    return str(point.config["cluster"].get("model") or point.config["target"]["name"])


def _spec(session: Session, models: SessionModels, context: int) -> EngineSpec:
    config = session.config
    if config["cluster"]["kind"] == "attach":
        drafter = {"method": config["drafter"]["method"], "draft_length": session.points[0].axes["draft_length"]}
        return EngineSpec(str(config["engine"]["name"]), (), model_name(session.points[0]), flags={"attached": True}, drafter_flags=drafter)
    return launcher(config["engine"]["name"]).spec(config, models, n_ctx_per_slot=context)
