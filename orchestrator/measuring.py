"""Measuring one point on a running engine: from prompts to a trace with the engine's counters beside it, and the numbers of both.

The order matters. Everything that costs time (tokenising, serialising, opening connections) comes before the window; counters
are read when the engine is idle, before and after; parsing and statistics come after it.
"""

from __future__ import annotations

import asyncio
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.actors import Endpoint, PointLoad, PointResult, Team
from specsweep.client.conversation import THINKING_END, ChatRecipe
from specsweep.client.dialects import Dialect, dialect
from specsweep.client.load_plan import plan_requests
from specsweep.client.recording import RecordingWriter
from specsweep.client.scrape import GaugeSampler, fetch_text
from specsweep.client.trace import EngineCounters, PlannedRequest, PointTrace, Sampling
from specsweep.client.workload import PromptSet, WorkloadError
from specsweep.orchestrator.clusters import RunningEngine
from specsweep.orchestrator.errors import ConfigError, RequestError
from specsweep.orchestrator.host_cpu import CpuMeter
from specsweep.orchestrator.points import Point
from specsweep.orchestrator.preparation import for_target
from specsweep.orchestrator.workload_rules import no_ids

IDLE_WAIT_S = 30.0
IDLE_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    trace: PointTrace | None  # None of a capture, which is untimed
    measurement: dict[str, Any]
    evidence: dict[str, str | bytes]


def sampling(config: Mapping[str, Any]) -> Sampling:
    workload = config["workload"]
    return Sampling(
        max_tokens=int(workload["osl"]),
        temperature=float(config["temperature"]),
        top_p=float(workload["top_p"]),
        top_k=int(workload["top_k"]),
        seed=int(config["seed"]),
        ignore_eos=bool(workload["ignore_eos"]),
    )


def check_context(point: Point, prompts: PromptSet) -> None:
    """Raises ConfigError if the target's context cannot hold a prompt and its answer.

    Of a conversation that is its first turn. How long the history becomes depends on the answers: a later turn that does not fit is not sent,
    and says so in the trace.
    """
    config = point.config
    limit, osl = config["target"].get("max_model_len"), int(config["workload"]["osl"])
    longest = max((*prompts.main, *prompts.ramp), key=lambda prompt: len(prompt.ids) + prompt.cap(osl))
    osl = longest.cap(osl)
    if limit and len(longest.ids) + osl > int(limit):
        raise ConfigError(
            f"prompt {longest.prompt_id} has {len(longest.ids)} tokens of the target (its ISL of {longest.isl_o200k} counts o200k_base); with "
            f"workload.osl={osl} that is more than target.max_model_len={limit}; use a smaller isl or workload.osl"
        )


def chat_recipe(point: Point, tokenizer: Path | None, model: str) -> ChatRecipe:
    """How later turns of the point's conversations are made. Raises ConfigError for an engine that takes no ids, and for a field that
    cannot be used.
    """
    config = point.config
    workload = for_target(config["workload"], config["target"])
    wire, limit, length = dialect(config["engine"]["dialect"]), config["target"].get("max_model_len"), point.axes["draft_length"]
    if tokenizer is None or not wire.takes_ids:
        raise ConfigError(no_ids(config))
    try:
        return ChatRecipe(
            tokenizer=str(tokenizer),
            dialect=wire.name,
            model=model,
            sampling=sampling(config),
            chat=bool(workload["chat"]),
            system=str(workload.get("system") or ""),
            template_args=dict(workload.get("template_args") or {}),
            thinking=workload.get("thinking") or "keep",
            thinking_end=str(workload.get("thinking_end") or THINKING_END),
            max_model_len=int(limit) if limit else None,
            draft_length=0 if point.is_baseline else None if length is None else int(length),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def requests_of(point: Point, prompts: PromptSet, model: str) -> list[PlannedRequest]:
    """Raises ConfigError if the workload has too few prompts, one that the target's context cannot hold, or conversations of several turns
    that cannot be had on this engine.
    """
    config = point.config
    check_context(point, prompts)
    if any(prompt.turns for prompt in (*prompts.main, *prompts.ramp)):
        chat_recipe(point, Path(), model)  # refused before an engine starts, if at all
    try:
        return plan_requests(
            prompts.main,
            prompts.ramp,
            batch_size=int(point.axes["batch_size"]),
            sampling=sampling(config),
            dialect=dialect(config["engine"]["dialect"]),
            model=model,
            stateful=bool(config["drafter"].get("stateful")),
            requests_per_slot=int(config["measure"]["requests_per_slot"]),
        )
    except ValueError as error:
        raise ConfigError(f"workload {config['workload']['name']}: {error}") from error


@dataclass(frozen=True, slots=True)
class Page:
    """One look at the engine's metrics page. ``counters`` is None where the engine has none."""

    text: str = ""
    counters: EngineCounters | None = None


async def look(wire: Dialect, engine: RunningEngine) -> Page:
    if wire.metrics_path is None:
        return Page()
    text = await fetch_text(engine.base_url + wire.metrics_path, headers=dict(engine.headers))
    return Page() if text is None else Page(text, wire.counters(text))


async def until_idle(wire: Dialect, engine: RunningEngine) -> Page:
    """The metrics page once nothing runs and its counters stand still (llama.cpp adds a slot's share when the slot is released)."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + IDLE_WAIT_S
    before = await look(wire, engine)
    while before.counters is not None:
        await asyncio.sleep(IDLE_POLL_S)
        now = await look(wire, engine)
        found = now.counters
        if found is None or (found == before.counters and not found.running and not found.waiting):
            return now
        if loop.time() > deadline:
            raise RequestError(
                f"the engine still has {found.running or 0:.0f} requests running and {found.waiting or 0:.0f} waiting after "
                f"{IDLE_WAIT_S:.0f} s; does another client use it?"
            )
        before = now
    return before


async def measure_point(
    point: Point, requests: list[PlannedRequest], engine: RunningEngine, team: Team, *, found: Mapping[str, Any], actors: int | None,
    tokenizer: Path | None = None,
) -> Measured:  # fmt: skip
    """Raises RequestError if not one request succeeded, LostActor if a client process died; the engine's end is the caller's to find.

    ``found``: what is known of the running engine (``version``, ``slots`` and ``simulated`` where it says). ``tokenizer``: the target's, for
    conversations of several turns; ConfigError if they cannot be had with it.
    """
    config = point.config
    engine_version = str(found.get("version", "unknown"))
    max_batch = config["engine"].get("max_batch") or found.get("slots")
    wire = dialect(config["engine"]["dialect"])
    length = point.axes["draft_length"]
    drafting = None if length is None else int(length)
    before = await until_idle(wire, engine)
    load = PointLoad(
        endpoint=Endpoint(engine.base_url, engine.headers),
        path=wire.path,
        dialect=wire.name,
        batch_size=int(point.axes["batch_size"]),
        requests=requests,
        draft_length=0 if point.is_baseline else drafting,  # 0: nothing is drafted, so a chunk of two tokens is two steps
        stall_s=float(config["measure"]["stall_seconds"]),
        retries=int(config["measure"].get("retries") or 0),
        record_raw=bool(config.get("record_raw")),
        processes=actors,
        chat=chat_recipe(point, tokenizer, engine.model_name) if any(planned.turns for planned in requests) else None,
    )
    meter = CpuMeter(engine)
    async with GaugeSampler(engine.base_url, wire, headers=dict(engine.headers)) as gauges:
        result = await in_thread(team, load)
    others = meter.others(sum(actor.cpu_s + actor.worker_cpu_s for actor in result.trace.actors if actor.host == platform.node()))
    trace = result.trace
    main = [r.read for r in trace.requests if r.phase == "main"]
    if not any(read.outcome == "ok" for read in main):
        raise RequestError(f"none of {len(main)} measured requests succeeded; the first: {main[0].error_kind}: {main[0].error}")
    after = await until_idle(wire, engine) if before.counters is not None else Page()
    if after.counters is not None and before.counters is not None:
        trace.counters = after.counters - before.counters
    trace.running_max, trace.gauges = gauges.running_max, gauges.samples
    trace.simulated = bool(found.get("simulated"))
    trace.meta |= {"dialect": wire.name, "engine_version": engine_version, "point_id": point.point_id}
    facts = PointFacts(
        batch_size=int(point.axes["batch_size"]),
        draft_length=drafting,
        drafter=str(config["drafter"]["method"]),
        stateful=bool(config["drafter"].get("stateful")),
        gpus=int(config["target"].get("gpus") or 0),
        step_clock=config["engine"]["step_clock"],
        max_batch=int(max_batch) if max_batch else None,
        other_cpu_share=others,
    )
    numbers = await asyncio.to_thread(measure, trace, facts)
    evidence: dict[str, str | bytes] = {}
    if result.raw is not None:
        evidence["raw.jsonl.gz"] = await asyncio.to_thread(recording, point, wire, found, result.raw, before.text, after.text)
    return Measured(trace, numbers, evidence)


async def in_thread(team: Team, load: PointLoad) -> PointResult:
    """Measures off the loop; a cancelled wait ends the measurement."""
    try:
        return await asyncio.to_thread(team.measure, load)
    except WorkloadError as error:
        raise ConfigError(f"workload: {error}") from error
    except asyncio.CancelledError:
        team.abort()  # the thread ends with the clients
        raise


def recording(point: Point, wire: Dialect, found: Mapping[str, Any], raw: Any, before: str, after: str) -> bytes:
    """The raw exchanges of a point in the recording format, as ``specsweep inspect`` reads it."""
    with tempfile.TemporaryDirectory(prefix="specsweep-raw-") as folder:
        path = Path(folder, "raw.jsonl.gz")
        with RecordingWriter(path) as writer:
            writer.meta(
                label=f"{point.short_id} {point.axes['engine']} {point.axes['drafter']}",
                dialect=wire.name,
                version=str(found.get("version", "unknown")),
                draft_length=0 if point.is_baseline else point.axes["draft_length"],
                **({"simulated": True} if found.get("simulated") else {}),
            )
            writer.metrics("before", before)
            for name, planned, exchange in raw:
                plan = {"phase": planned.phase, "prompt_id": planned.prompt_id, **({"turn": planned.turn} if planned.turn else {})}
                writer.request(str(name), wire.path, planned.body, exchange, plan=plan)
            writer.metrics("after", after)
        return path.read_bytes()
