"""One point on a running engine: a quiet host, the measurement, and the search for what went wrong if it did.

Whatever happens to a point is its :class:`Ending` and no exception, so that the session can account for it and go on; only what would
happen to every other point too (no client process comes up) is none of its own and ends the run. What a failed request cannot say
itself is asked of the engine afterwards: broken connections and an engine that has ended are one fact, and the fact is the engine's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specsweep.client.actors import ClientPool, ClientsUnavailable
from specsweep.client.trace import PlannedRequest
from specsweep.orchestrator.capture import capture_point
from specsweep.orchestrator.clusters import Cluster, RunningEngine
from specsweep.orchestrator.engines.verdicts import verdict
from specsweep.orchestrator.environment import gpus
from specsweep.orchestrator.errors import ClientError, EngineError, NoClientsError, RequestError, RunError, SpecsweepError
from specsweep.orchestrator.ledger import Ending, Ledger, internal_error, utc_now
from specsweep.orchestrator.measuring import Measured, measure_point
from specsweep.orchestrator.points import Point, Session
from specsweep.orchestrator.progress import label

POINT_TRIES = 2  # if a client process is lost
SETTLE_S = 0.3  # until the end of a process is known after its connections broke
DYING_S = 5.0  # and after no request succeeded: vLLM's server answers with errors for a while before it ends
LOOK_S = 0.05
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
    pool: ClientPool
    actors: int | None  # client processes; None: by batch size
    recorder_files: int = 0  # that one dump of the engine's expert recorder writes
    patience: Patience = field(default_factory=Patience)

    def died(self, while_: str = "") -> EngineDied | None:
        """None while the engine runs."""
        how = self.engine.ended()
        return None if how is None else EngineDied.of(self.session, how + while_, self.engine.log())


class EngineDied(EngineError):
    """An engine that was running and ended. It is worth another start for the points that are left."""

    @classmethod
    def of(cls, session: Session, how: str, log: str) -> EngineDied:
        found = verdict(str(session.points[0].axes["engine"]), how, log)
        return cls(found.message, evidence=found.evidence)


async def run_point(point: Point, requests: Sequence[PlannedRequest], bench: Bench, ledger: Ledger, *, estimate_s: float) -> Ending:
    """Measures the point; does not account for it. If the result is an ``EngineError``, the engine can serve no other point.

    Raises ``NoClientsError``, which says nothing about the point.
    """
    ledger.begin(point, len(requests))
    busy = await bench.patience.quiet(bench.place, bench.engine, point, ledger)
    ledger.progress.measuring(point, len(requests))
    began, started = time.monotonic(), utc_now()
    gpus_before = gpus()
    result = await _result(point, requests, bench, ledger)
    ledger.spent(estimate_s, time.monotonic() - began, len(requests))
    machine = {"gpus_before": gpus_before, "gpus_after": gpus(), "background_cpu_share": busy}
    return Ending(point, bench.session.session_id, bench.env, started, result, machine)


async def _result(point: Point, requests: Sequence[PlannedRequest], bench: Bench, ledger: Ledger) -> Measured | SpecsweepError:
    result: Measured | SpecsweepError
    try:
        result = await _measured(point, requests, bench, ledger)
    except RunError:
        raise
    except SpecsweepError as error:
        result = error
    except Exception as bug:  # of ours: it costs this point, and is told in full
        result = internal_error(bug)
    end = time.monotonic() + _patience(result)
    while (death := bench.died(f" while {label(point)} was measured")) is None and time.monotonic() < end:
        await asyncio.sleep(LOOK_S)
    return death or result


def _patience(result: Measured | SpecsweepError) -> float:
    """Seconds in which an engine may still turn out to have ended, after what was seen of it."""
    if isinstance(result, RequestError):
        return DYING_S
    failed = isinstance(result, SpecsweepError) or (result.trace is not None and any(r.read.outcome != "ok" for r in result.trace.requests))
    return SETTLE_S if failed else 0.0


async def _measured(point: Point, requests: Sequence[PlannedRequest], bench: Bench, ledger: Ledger) -> Measured:
    """Once more if a client process is lost: that says nothing about the point."""
    tries = 1
    while True:
        try:
            if point.is_capture:
                files = bench.recorder_files
                return await capture_point(
                    point, requests, bench.engine, bench.pool, found=bench.env["engine"], files=files, actors=bench.actors
                )
            return await measure_point(point, list(requests), bench.engine, bench.pool, found=bench.env["engine"], actors=bench.actors)
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


def no_clients(error: ClientsUnavailable) -> NoClientsError:
    return NoClientsError(
        f"no client process can be started, so nothing can be measured: {error}; points that are left stay missing, and the same "
        "command measures them once Ray starts"
    )
