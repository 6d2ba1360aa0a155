"""What becomes of a point, and who is told.

A point ends in one of two ways, measured or failed, and either is a result: it is committed to the store first, because that is the
truth, and then counted, shown and projected to MLflow. Everything that ends a point goes through :meth:`Ledger.account`, so that no
point of a run is lost or counted twice, whoever ended it: the measurement itself, its prompts, or the session it was part of.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from specsweep.orchestrator.environment import provenance, stable
from specsweep.orchestrator.errors import ClientError, SpecsweepError
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
        if isinstance(ending.result, SpecsweepError):
            self._failed(ending, ending.result)
        else:
            self._measured(ending, ending.result)
        if self.tracker is not None and (attempt := self.store.latest(ending.point.point_id)) is not None:
            self.tracker.attempt(attempt)

    def _measured(self, ending: Ending, measured: Measured) -> None:
        record = {**_record(ending), "status": "measured", "error": None, "machine": dict(ending.machine)}
        self.store.commit(record, measured.measurement, measured.trace, measured.evidence)
        self.outcome.measured += 1
        self.tally.landed += 1
        if not measured.measurement["validity"]["valid"]:
            self.outcome.invalid += 1
            self.tally.invalid += 1
        self.progress.landed(ending.point, measured.measurement)

    def _failed(self, ending: Ending, error: SpecsweepError) -> None:
        record = {**_record(ending), "status": "failed", "error": {"kind": type(error).__name__, "message": error.message}}
        self.store.commit(record, None, None, {"engine.log": error.evidence} if error.evidence else {})
        self.outcome.failed += 1
        self.tally.failed += 1
        self.outcome.worst = self.outcome.worst or error
        self.progress.failed(ending.point, error.message.splitlines()[0])


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
