"""Stand-ins for the runner's tests: a place where engines run, a measurement and prompts that fail when told to; and a run over them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from plan_samples import plan_of
from store_samples import measurement, trace

from specsweep.client.workload import Prompt, PromptSet
from specsweep.orchestrator import point_run, runner, session_run
from specsweep.orchestrator.admission import Need
from specsweep.orchestrator.clusters import Launch, Limits
from specsweep.orchestrator.engines import EngineSpec, SessionModels
from specsweep.orchestrator.errors import ConfigError, EngineTerminal, SpecsweepError
from specsweep.orchestrator.ledger import Outcome
from specsweep.orchestrator.measuring import Measured
from specsweep.orchestrator.points import Plan, Point
from specsweep.orchestrator.progress import Progress, Tally
from specsweep.orchestrator.runner import Runner
from specsweep.orchestrator.store import Store


@dataclass
class Engine:
    base_url: str
    how: str | None = None  # it ended
    taken: SpecsweepError | None = None  # by its place
    headers: tuple[tuple[str, str], ...] = ()
    model_name: str = "tiny"
    node: str = ""
    host: dict[str, Any] = field(default_factory=lambda: {"cpu": "fake"})

    def ended(self) -> str | None:
        return self.how

    async def end(self, words: str) -> SpecsweepError:
        return self.taken or EngineTerminal(f"engine {words}", evidence=await self.log())

    def host_facts(self) -> dict[str, Any]:
        return self.host

    async def log(self) -> str:
        return "loading\nGGML_ASSERT failed"

    def cpu_seconds(self) -> float | None:
        return None


# Eight tokens, as llama.cpp streams them.
WARM_ANSWER = 'data: {"index":0,"content":" a","tokens":[5],"stop":false}\n\n' * 8 + (
    'data: {"index":0,"content":"","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":8,"tokens_evaluated":3,'
    '"timings":{"predicted_n":8,"predicted_ms":10.0,"prompt_n":3,"prompt_ms":1.0}}\n\n'
)

Trouble = Callable[[Point, Engine], None]  # raises, or ends the engine


@dataclass
class World:
    """Where engines run and how points are measured."""

    url: str
    warmed: int = 0  # requests that nobody measured
    started: list[Engine] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    host: dict[str, Any] = field(default_factory=lambda: {"cpu": "fake"})
    running: int = 0
    refuse_starts: list[SpecsweepError] = field(default_factory=list)
    trouble: Trouble = lambda point, engine: None
    spoil: Callable[[Point, Measured], Measured] = lambda point, measured: measured
    measured: list[str] = field(default_factory=list)  # point ids, each time one is begun
    kind: str = "fake"
    limits: Limits = field(default_factory=Limits)
    dying_s: float = 0.3
    can_be_cut_off: bool = False
    start_clients: Callable[[], None] = lambda: None  # by Ray
    cores: int = 4
    measure_s: float = 0.0
    most_running: int = 0
    most_cores: int = 0
    _cores_used: int = 0
    start_s: float = 0.0  # of an engine
    busy: float = 0.01  # share of the host's CPU that others use
    waits: list[float] = field(default_factory=list)  # for a quiet host, s
    sessions: set[str] = field(default_factory=set)  # that were said to come
    specs: list[EngineSpec] = field(default_factory=list)

    @asynccontextmanager
    async def opened(self, sweep: str, sessions: Collection[str], say: Callable[[str], None]) -> AsyncIterator[None]:
        self.sessions = set(sessions)
        yield

    def need(self, config: Mapping[str, Any]) -> Need:
        return Need("", 0)

    @asynccontextmanager
    async def start(self, spec: EngineSpec, launch: Launch) -> AsyncIterator[Engine]:
        if self.refuse_starts:
            raise self.refuse_starts.pop(0)
        await asyncio.sleep(self.start_s)
        self.launches.append(launch)
        self.specs.append(spec)
        engine = Engine(self.url, host=self.host)
        self.started.append(engine)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            yield engine
        finally:
            self.running -= 1

    def pool(self, address: str | None = None) -> Any:
        """Instead of Ray."""
        return SimpleNamespace(
            start=self.start_clients, close=lambda: None, team=object, cores=self.cores, processes=lambda size, asked: min(size, 2)
        )

    async def quiet(self, engine: Engine, wait_s: float, busy: Callable[[float], None]) -> float | None:
        self.waits.append(wait_s)
        if self.busy > 0.1:
            busy(self.busy)
        return self.busy

    async def measure_point(self, point: Point, requests: Any, engine: Engine, pool: Any, **_: Any) -> Measured:
        self.measured.append(point.point_id)
        used = min(int(point.axes["batch_size"]), 2)
        self._cores_used += used
        self.most_cores = max(self.most_cores, self._cores_used)
        try:
            await asyncio.sleep(self.measure_s)
        finally:
            self._cores_used -= used
        self.trouble(point, engine)
        return self.spoil(point, Measured(trace(), measurement(drafter=str(point.axes["drafter"])), {}))


def installed(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The runner measures on it, waits for nothing, and starts no Ray."""
    monkeypatch.setattr(session_run, "RETRY_PAUSE_S", 0.0)
    monkeypatch.setattr(point_run, "SETTLE_S", 0.0)
    monkeypatch.setattr(point_run, "measure_point", world.measure_point)
    monkeypatch.setattr(runner, "ClientPool", world.pool)
    return world


class Prepared:
    """Prompts without a corpus, models without files."""

    def __init__(self) -> None:
        self.bad: Callable[[Point], bool] = lambda point: False

    def models(self, config: Mapping[str, Any]) -> SessionModels:
        return SessionModels(Path("target.gguf"), "a" * 64, Path("drafter.gguf"), "b" * 64)

    def prompts(self, point: Point) -> PromptSet:
        if self.bad(point):
            raise ConfigError("workload.prompts=9, but the corpus has 8")
        main, ramp = (tuple(Prompt(f"{kind}{i}", "c", (1, 2, 3), "text", 3) for i in range(6)) for kind in "mr")
        return PromptSet(main, ramp)

    def context_per_slot(self, points: Any) -> int:
        return 256 * max(int(point.axes["batch_size"]) for point in points)


@functools.cache
def composed(drafters: str, batch_sizes: str) -> Plan:
    return plan_of("sweep=smoke", f"drafter={drafters}", f"batch_size={batch_sizes}")


def run(plan: Plan, store: Store, world: World, prepared: Prepared) -> Outcome:
    return asyncio.run(run_in_loop(plan, store, world, prepared))


async def run_in_loop(plan: Plan, store: Store, world: World, prepared: Prepared) -> Outcome:
    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            world.warmed += 1
            return web.Response(text=WARM_ANSWER, content_type="text/event-stream")
        return web.json_response({"build_info": "b1"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = web.AppRunner(app)
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    host, port = server.addresses[0][:2]
    world.url = f"http://{host}:{port}"
    try:
        tally = Tally(sessions=len(plan.sessions), points=len(plan.points), requests=0, est_left_s=plan.est_s)
        return await Runner(plan, world, store, None, Progress(tally), prepared, tally).run()  # type: ignore[arg-type]
    finally:
        await server.cleanup()


def states(store: Store, plan: Plan) -> list[str]:
    """Of the plan's points in order: ``measured``, or the error they failed with."""
    found = []
    for point in plan.points:
        attempt = store.latest(point.point_id)
        assert attempt is not None, "every point of a run is accounted for"
        found.append("measured" if attempt.measured else f"{attempt.point['error']['kind']}: {attempt.point['error']['message']}")
    return found


def kinds(store: Store, plan: Plan) -> list[str]:
    return [event["kind"] for event in store.sweep(plan.name).events]
