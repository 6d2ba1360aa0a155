"""One point on a running engine: a quiet host, the measurement, and the search for what went wrong if it did.

Whatever happens to a point is its :class:`Ending` and no exception, so that the session can account for it and go on; only what would
happen to every other point too (no client process comes up) is none of its own and ends the run. What a failed request cannot say
itself is asked of the engine afterwards: broken connections and an engine that has ended are one fact, and the fact is the engine's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specsweep.client.actors import ClientsUnavailable, Team
from specsweep.client.scrape import is_healthy
from specsweep.client.trace import PlannedRequest
from specsweep.orchestrator.capture import capture_point
from specsweep.orchestrator.capture_logprobs import capture_logprobs
from specsweep.orchestrator.capture_rules import captures_logprobs
from specsweep.orchestrator.clients import Clients, no_clients
from specsweep.orchestrator.clusters import Cluster, RunningEngine
from specsweep.orchestrator.environment import gpus
from specsweep.orchestrator.errors import (
    ClientError,
    ClusterError,
    ClusterRetryable,
    EngineError,
    RequestError,
    RunError,
    SpecsweepError,
)
from specsweep.orchestrator.ledger import Ending, Ledger, internal_error, utc_now
from specsweep.orchestrator.measuring import Measured, measure_point
from specsweep.orchestrator.points import Point, Session
from specsweep.orchestrator.progress import label

POINT_TRIES = 2  # if a client process is lost
SETTLE_S = 0.3  # until the end of a process is known after its connections broke
WELL_S = 5.0  # of answering its health path: vLLM's server answers with errors for a while before it ends, and health last
LOOK_S = 0.05
WATCH_S = 1.0  # how often is looked, while a point is measured, whether its engine runs: nothing is asked for that
LAST_WORDS_S = 5.0  # for requests to end by themselves once it does not: what they say is worth having
VAIN_WAIT_S = 2.0  # for a quiet machine, once a point of the same engine start has waited for it in vain


@dataclass(slots=True)
class Patience:
    """How long the points of one engine start wait for a quiet machine. One that stays busy through a whole wait is not waited for again
    and again: the check ``other_work`` judges the points anyway.
    """

    vain: bool = False

    async def quiet(self, place: Cluster, engine: RunningEngine, point: Point, ledger: Ledger) -> float | None:
        """The share of the host's CPU that others still use, None where nobody looked."""
        asked = 0.0 if point.is_capture else float(point.config["measure"]["quiet_seconds"])  # an untimed point waits for nothing
        wait_s = min(asked, VAIN_WAIT_S) if self.vain else asked
        seen: list[float] = []

        def busy(share: float) -> None:
            if not seen:
                ledger.event("waiting_for_quiet", point_id=point.point_id, busy_share=round(share, 3), at_most_s=wait_s)
            seen.append(share)
            if not self.vain:
                ledger.progress.waiting(f"waiting for a quiet machine (other processes use {100 * share:.0f} %), at most {wait_s:g} s")

        share = await place.quiet(engine, wait_s, busy)
        ledger.progress.waited()
        if seen and share == seen[-1] and not self.vain:
            self.vain = True
            ledger.progress.say(
                f"the machine did not get quiet in {wait_s:g} s (other processes use {100 * share:.0f} %): points of this session may be invalid "
                f"for it, and wait at most {min(asked, VAIN_WAIT_S):g} s from now on"
            )
        return share


@dataclass(frozen=True, slots=True)
class Bench:
    """What the points of one engine start are measured with."""

    session: Session
    place: Cluster
    engine: RunningEngine
    env: Mapping[str, Any]  # what was found of the engine and its host
    clients: Clients
    team: Team
    actors: int | None  # client processes; None: by batch size
    health_path: str = "/health"
    tokenizer: Path | None = None  # the target's, where conversations of several turns are prepared with it
    recorder_files: int = 0  # that one dump of the engine's expert recorder writes
    patience: Patience = field(default_factory=Patience)

    async def is_well(self) -> bool:
        attached = self.place.kind == "attach"  # servers of others may have no such path
        return await is_healthy(self.engine.base_url + self.health_path, headers=dict(self.engine.headers), any_answer=attached)

    async def died(self, while_: str = "") -> EngineDied | EngineTaken | None:
        """None while the engine runs."""
        how = self.engine.ended()
        if how is None:
            return None
        found = await self.engine.end(how + while_)
        kind = EngineTaken if isinstance(found, ClusterError) else EngineDied
        return kind(found.message, evidence=found.evidence, node=self.engine.node)


class EngineDied(EngineError):
    """An engine that was running and ended. It is worth another start for the points that are left."""


class EngineTaken(ClusterRetryable):
    """The place took a running engine away, or cut it off: that says nothing about the point, which is measured again."""


async def run_point(point: Point, requests: Sequence[PlannedRequest], bench: Bench, ledger: Ledger, *, estimate_s: float) -> Ending:
    """Measures the point; does not account for it. If the result is an ``EngineError`` or ``EngineTaken``, the engine can serve no other point.

    Raises ``NoClientsError``, which says nothing about the point.
    """
    async with bench.clients.cores(int(point.axes["batch_size"]), bench.actors):
        count = sum(1 + len(planned.turns) for planned in requests)
        ledger.begin(point, count)
        busy = await bench.patience.quiet(bench.place, bench.engine, point, ledger)
        ledger.progress.measuring(point, count)
        began, started = time.monotonic(), utc_now()
        gpus_before = gpus()
        result = await _result(point, requests, bench, ledger)
        ledger.spent(estimate_s, time.monotonic() - began, count)
        machine = {"gpus_before": gpus_before, "gpus_after": gpus(), "background_cpu_share": busy}
    return Ending(point, bench.session.session_id, bench.env, started, result, machine)


async def _result(point: Point, requests: Sequence[PlannedRequest], bench: Bench, ledger: Ledger) -> Measured | SpecsweepError:
    result: Measured | SpecsweepError
    try:
        result = await _while_it_runs(_measured(point, requests, bench, ledger), bench.engine)
    except RunError:
        raise
    except SpecsweepError as error:
        result = error
    except Exception as bug:  # of ours: it costs this point, and is told in full
        result = internal_error(bug)
    return await fate(result, bench, f" while {label(point)} was measured") or result


async def _while_it_runs(work: Coroutine[Any, Any, Measured], engine: RunningEngine) -> Measured:
    """Ends the measurement if the engine has ended. Requests to a host that is gone, or to a process that hangs, would end one after the
    other, each after its own silence.
    """
    measuring = asyncio.ensure_future(work)
    try:
        while not measuring.done():
            await asyncio.wait({measuring}, timeout=WATCH_S)
            if not measuring.done() and engine.ended() is not None:
                await asyncio.wait({measuring}, timeout=LAST_WORDS_S)
                if not measuring.done() and (how := engine.ended()) is not None:
                    raise RequestError(f"the engine ended: {how}")
        return measuring.result()
    finally:
        if not measuring.done():
            measuring.cancel()
            await asyncio.gather(measuring, return_exceptions=True)


async def fate(result: Measured | SpecsweepError, bench: Bench, while_: str) -> EngineDied | EngineTaken | None:
    """What became of the engine, if something did, after what was seen of it.

    An engine that answers is well (but for the moment after it was killed). One that does not may end within ``dying_s`` of its place;
    one that the place believes to run all that time cannot be reached from here.
    """
    if isinstance(result, RequestError):
        patience_s = bench.place.dying_s
    elif _hurt(result):
        patience_s = bench.place.dying_s if not await bench.is_well() else SETTLE_S
    else:
        patience_s = 0.0
    end = time.monotonic() + patience_s
    well_since: float | None = None
    while (death := await bench.died(while_)) is None and (now := time.monotonic()) < end:
        if patience_s > SETTLE_S:
            well_since = (well_since or now) if await bench.is_well() else None
            if well_since is not None and now - well_since > WELL_S:
                return None
        await asyncio.sleep(LOOK_S)
    if death is None and bench.place.can_be_cut_off and patience_s > SETTLE_S:
        return EngineTaken(
            f"its pod is ready, and it did not answer from here for {patience_s:.0f} s{while_}: the network between them is cut",
            evidence=await bench.engine.log(),
            node=bench.engine.node,
        )
    return death


def _hurt(result: Measured | SpecsweepError) -> bool:
    return isinstance(result, SpecsweepError) or (result.trace is not None and any(r.read.outcome != "ok" for r in result.trace.requests))


async def _measured(point: Point, requests: Sequence[PlannedRequest], bench: Bench, ledger: Ledger) -> Measured:
    """Once more if a client process is lost: that says nothing about the point."""
    tries = 1
    while True:
        try:
            if captures_logprobs(point.config):
                return await capture_logprobs(point, requests, bench.engine, bench.team, found=bench.env["engine"], actors=bench.actors)
            if point.is_capture:
                files = bench.recorder_files
                return await capture_point(
                    point, requests, bench.engine, bench.team, found=bench.env["engine"], files=files, actors=bench.actors
                )
            return await measure_point(
                point,
                list(requests),
                bench.engine,
                bench.team,
                found=bench.env["engine"],
                actors=bench.actors,
                tokenizer=bench.tokenizer,
            )
        except ClientsUnavailable as error:
            if tries == POINT_TRIES:
                raise no_clients(error) from error
            tries += 1
            ledger.progress.say(f"{error}; starting it once more")
        except RuntimeError as lost:  # LostActor, or Ray itself
            ledger.event("actor_lost", point_id=point.point_id, fact=str(lost))
            if tries == POINT_TRIES or bench.engine.ended() is not None:
                raise ClientError(f"a client process was lost while {label(point)} was measured: {lost}") from lost
            tries += 1
            ledger.progress.say(f"{label(point)}: {lost}; measuring it once more with fresh clients")
