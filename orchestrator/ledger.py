"""What becomes of a point, and who is told.

A point ends in one of two ways, measured or failed, and either is a result: it is committed to the store first, because that is the
truth, and then counted, shown and projected to MLflow. Everything that ends a point goes through :meth:`Ledger.account`, so that no
point of a run is lost or counted twice, whoever ended it: the measurement itself, its prompts, or the session it was part of.

A measurement that the store will not take (a number that is none, say) makes its point a failed one, with the reason. Should even
that be refused, the point is counted as unrecorded, and the run says so and does not end well. What goes wrong after a point is in
the store costs nothing but what was to be shown.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from specsweep.orchestrator.environment import provenance, stable
from specsweep.orchestrator.errors import ClientError, RunError, SpecsweepError
from specsweep.orchestrator.identity import env_id
from specsweep.orchestrator.measuring import Measured
from specsweep.orchestrator.points import Point
from specsweep.orchestrator.progress import Progress, Tally
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import Tracker


@dataclass(frozen=True, slots=True)
class Ending:
    """How one point ended. ``env``: what was found of the engine, empty if none was running."""

    point: Point
    session_id: str
    env: Mapping[str, Any]
    started_utc: str
    result: Measured | SpecsweepError
    machine: Mapping[str, Any] = field(default_factory=dict)  # of a measured point: its host before and after


@dataclass(slots=True)
class Outcome:
    """Counts of one run, and the first error of those that cost a point."""

    measured: int = 0
    invalid: int = 0
    failed: int = 0
    unrecorded: int = 0  # of the failed ones, those that the store did not take: they are missing there
    worst: SpecsweepError | None = None


@dataclass(slots=True)
class Ledger:
    sweep: str
    store: Store
    tracker: Tracker | None
    progress: Progress
    tally: Tally
    outcome: Outcome = field(default_factory=Outcome)

    def event(self, kind: str, **facts: Any) -> None:
        self.store.event(self.sweep, kind, **facts)

    def begin(self, point: Point, requests: int) -> None:
        """Said before the engine is left alone with its point: nothing of ours may run beside it, MLflow's writer included."""
        self.progress.measuring(point, requests)
        self.event("point_started", point_id=point.point_id)
        if self.tracker is not None:
            self.tracker.settle()

    def spent(self, estimated_s: float, seconds: float, requests: int) -> None:
        self.tally.spent(estimated_s, seconds)
        self.tally.requests_done += requests

    def account(self, ending: Ending) -> None:
        """Lands the point. Raises ``RunError`` alone (the disk is full); every other trouble is told with the point that met it."""
        ending, recorded = self._committed(ending)
        self._count(ending.result, recorded)
        try:
            self._tell(ending)
        except Exception as bug:  # the point is safe in the store
            self.event("not_told", point_id=ending.point.point_id, reason=internal_error(bug).evidence)

    def _committed(self, ending: Ending) -> tuple[Ending, bool]:
        """How the point ends in the store, and whether the store took even that."""
        while True:
            try:
                self._commit(ending)
                return ending, True
            except RunError:
                raise
            except Exception as refusal:
                self.event("not_recorded", point_id=ending.point.point_id, reason=internal_error(refusal).evidence)
                simpler = _simpler(ending, refusal)
                if simpler is None:
                    return ending, False
                ending = simpler

    def _commit(self, ending: Ending) -> None:
        result, record = ending.result, _record(ending)
        if isinstance(result, SpecsweepError):
            record |= {"status": "failed", "error": {"kind": type(result).__name__, "message": result.message}}
            self.store.commit(record, None, None, {"engine.log": result.evidence} if result.evidence else {})
        else:
            record |= {"status": "measured", "error": None, "machine": dict(ending.machine)}
            self.store.commit(record, result.measurement, result.trace, result.evidence)

    def _count(self, result: Measured | SpecsweepError, recorded: bool) -> None:
        if isinstance(result, SpecsweepError):
            self.outcome.failed += 1
            self.outcome.unrecorded += not recorded
            self.tally.failed += 1
            self.outcome.worst = self.outcome.worst or result
            return
        self.outcome.measured += 1
        self.tally.landed += 1
        if not result.measurement.get("validity", {}).get("valid"):  # as the store reads it
            self.outcome.invalid += 1
            self.tally.invalid += 1

    def _tell(self, ending: Ending) -> None:
        if isinstance(ending.result, SpecsweepError):
            self.progress.failed(ending.point, ending.result.message.splitlines()[0])
        else:
            self.progress.landed(ending.point, ending.result.measurement)
        if self.tracker is not None and (attempt := self.store.latest(ending.point.point_id)) is not None:
            self.tracker.attempt(attempt)


def _simpler(ending: Ending, refusal: Exception) -> Ending | None:
    """What is left to record of a point after the store refused ``ending``: the failure, then the failure alone, then nothing."""
    if isinstance(ending.result, Measured):
        why = internal_error(refusal)
        error = ClientError(f"it was measured, but the result cannot be kept: {why.message}", evidence=why.evidence)
        return replace(ending, result=error)
    if ending.env:
        return replace(ending, env={})
    return None


def _record(ending: Ending) -> dict[str, Any]:
    point, env, known = ending.point, dict(ending.env), provenance()
    return {
        "point_id": point.point_id,
        "env_id": env_id(stable(env)),
        "axes": dict(point.axes),
        "declared": dict(point.declared),
        "config": dict(point.config),
        "env": env,
        "baseline_id": point.baseline_id,
        "session_id": ending.session_id,
        "started_utc": ending.started_utc,
        "finished_utc": utc_now(),
        "git_commit": known["git_commit"],
        "host": known["host"],
        "specsweep_version": known["specsweep_version"],
    }


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def internal_error(bug: Exception) -> ClientError:
    """An error of ours costs a point or a session, and is told in full."""
    return ClientError(f"internal error: {type(bug).__name__}: {bug}", evidence="".join(traceback.format_exception(bug)))
