"""How far a sweep is, from what lies in the store. Pure: the lock's holder and the time are passed in.

A sweep runs if its last event says so *and* somebody holds the writer's lock: a killed runner writes no last event, but the
kernel takes its lock away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from specsweep.analysis.axis_words import capture_words
from specsweep.analysis.check_units import by_cause
from specsweep.analysis.error_words import what_failed
from specsweep.orchestrator.attempt import SHOWN, Attempt
from specsweep.orchestrator.run_command import continue_command
from specsweep.orchestrator.sweep_record import SweepView
from specsweep.orchestrator.tracking_projection import error_line, run_name

State = Literal["running", "finished", "stopped", "not started"]
PointState = Literal["valid", "invalid", "failed", "missing"]


@dataclass(frozen=True, slots=True)
class Problem:
    point_id: str
    point: str  # as people read it
    state: PointState
    reason: str
    path: str  # folder of the attempt, with its evidence


@dataclass(frozen=True, slots=True)
class SessionStatus:
    session_id: str
    what: str
    points: int
    measured: int
    failed: int
    missing: int


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """Counts are of the latest plan; ``earlier`` are measured points of earlier plans that the report still shows."""

    sweep: str
    state: State
    points: int
    measured: int  # valid and invalid ones
    invalid: int
    failed: int
    missing: int
    repeat: int  # of the missing ones: failed before this run began, which measures them again
    earlier: int
    left_s: float | None  # estimate: of the run that goes on, or of the next one; None if nothing is left
    writer: Mapping[str, Any] | None
    now: str | None  # what is being measured
    now_s: float | None  # for how long
    sessions: tuple[SessionStatus, ...]
    problems: tuple[Problem, ...]
    events: tuple[Mapping[str, Any], ...]
    simulated: bool
    mlflow_behind: str | None  # the command that catches up, if MLflow was away and has not come back
    damaged: tuple[str, ...]
    measure_invalid: str | None  # the command that measures the invalid points again, if there are any


def sweep_status(view: SweepView, *, writer: Mapping[str, Any] | None, now: datetime, last_events: int = 5) -> SweepStatus:
    states = {i: point_state(view.latest.get(i)) for i in view.current}
    running = writer is not None and not view.ended
    again = _failed_before(view, states) if running else set()
    states = {i: "missing" if i in again else s for i, s in states.items()}
    started = _measuring(view) if running else None
    counts = {s: sum(1 for found in states.values() if found == s) for s in ("valid", "invalid", "failed", "missing")}
    todo = {i for i, s in states.items() if s == "missing" or (s == "failed" and not running)}
    elapsed = None if started is None else max(0.0, (now - _time(started["t_utc"])).total_seconds())
    tracking = [e for e in view.events if str(e.get("kind", "")).startswith("tracking_")]
    return SweepStatus(
        sweep=view.name,
        state="running" if running else "finished" if view.complete else "stopped" if view.latest else "not started",
        points=len(states),
        measured=counts["valid"] + counts["invalid"],
        invalid=counts["invalid"],
        failed=counts["failed"],
        missing=counts["missing"],
        repeat=len(again),
        earlier=sum(1 for i, a in view.latest.items() if i not in states and a.measured),
        left_s=time_left(view, todo, None if started is None else str(started["point_id"]), elapsed or 0.0) if todo else None,
        writer=writer,
        now=None if started is None else point_label(view, str(started["point_id"])),
        now_s=elapsed,
        sessions=tuple(_sessions(view, states)),
        problems=tuple(_problems(view, states)),
        events=tuple(view.events[-last_events:]) if last_events else (),
        simulated=view.simulated,
        mlflow_behind=str(tracking[-1].get("catch_up", "")) if tracking and tracking[-1]["kind"] == "tracking_unavailable" else None,
        damaged=tuple(view.damaged),
        measure_invalid=_measure_invalid(view) if counts["invalid"] else None,
    )


def _failed_before(view: SweepView, states: Mapping[str, PointState]) -> set[str]:
    """Points whose last attempt failed in an earlier run: what was wrong then says nothing of this one."""
    begun = next((_time(e["t_utc"]) for e in reversed(view.events) if e.get("kind") == "run_started"), None)
    if begun is None:
        return set()
    ends = {i: view.latest[i].point.get("finished_utc") for i, s in states.items() if s == "failed"}
    return {i for i, end in ends.items() if end and _time(end) < begun}


def _measure_invalid(view: SweepView) -> str:
    return continue_command(view.plan, view.path.parent.parent, rerun="invalid")


def point_state(attempt: Attempt | None) -> PointState:
    if attempt is None:
        return "missing"
    if not attempt.measured:
        return "failed"
    return "valid" if attempt.valid else "invalid"


def point_label(view: SweepView, point_id: str) -> str:
    """The run's name; engine and target before it where the sweep has several."""
    facts = view.plan["points"].get(point_id)
    if facts is None:
        return point_id[:SHOWN]
    several = [n for n in ("engine", "target") if len({str(p["axes"].get(n)) for p in view.points.values()}) > 1]
    return " ".join([*(str(facts["axes"][n]) for n in several if n in facts["axes"]), run_name(facts["axes"])])


def time_left(view: SweepView, todo: set[str], current: str | None, elapsed_s: float) -> float:
    """Seconds for the points of ``todo``: the plan's estimates, corrected by how the measured points turned out."""
    spent = estimated = 0.0
    for point_id in view.current:
        attempt = view.latest.get(point_id)
        if attempt is not None and attempt.measured and (seconds := _duration(attempt)) is not None:
            spent += seconds
            estimated += float(view.points[point_id]["est_s"])
    pace = spent / estimated if spent > 0 and estimated > 0 else 1.0
    left = 0.0
    for session in view.plan["sessions"]:
        own = [(i, float(s)) for i, s in zip(session["points"], session["est_points_s"], strict=True) if i in todo]
        if own and current not in session["points"]:
            left += float(session["est_start_s"])
        left += pace * sum(seconds for _, seconds in own)
        if current in dict(own):
            left -= min(elapsed_s, pace * dict(own)[str(current)])
    return left


def _measuring(view: SweepView) -> Mapping[str, Any] | None:
    """The event of the point that is being measured: started, and no attempt of it landed since."""
    for event in reversed(view.events):
        if event.get("kind") == "run_started":
            return None
        if event.get("kind") == "point_started":
            attempts = view.attempts.get(str(event.get("point_id")), ())
            landed = any(_time(a.point["finished_utc"]) >= _time(event["t_utc"]) for a in attempts if a.point.get("finished_utc"))
            return None if landed else event
    return None


def _sessions(view: SweepView, states: Mapping[str, PointState]) -> list[SessionStatus]:
    found = []
    for session in view.plan["sessions"]:
        own = [states[i] for i in session["points"]]
        axes = view.points[session["points"][0]]["axes"]
        length = f" DL{axes['draft_length']}" if axes.get("draft_length") is not None else ""
        length += f" · {words}" if (words := capture_words(axes)) else ""
        found.append(
            SessionStatus(
                session_id=str(session["session_id"]),
                what=f"{axes.get('engine')} · {axes.get('target')} · {axes.get('drafter')}{length}",
                points=len(own),
                measured=own.count("valid") + own.count("invalid"),
                failed=own.count("failed"),
                missing=own.count("missing"),
            )
        )
    return found


def _problems(view: SweepView, states: Mapping[str, PointState]) -> list[Problem]:
    chosen: Sequence[tuple[str, PointState]] = [(i, s) for i, s in states.items() if s in ("failed", "invalid")]
    return [Problem(i, point_label(view, i), s, _reason(view.latest[i]), str(view.latest[i].path)) for i, s in chosen]


def _reason(attempt: Attempt) -> str:
    if not attempt.measured:
        kind, _, message = error_line(attempt.point).partition(": ")
        return f"{what_failed(kind)} failed" + (f": {message}" if message else "")
    failed = by_cause(c for c in (attempt.measurement or {}).get("checks", []) if not c.get("ok", True))
    return "; ".join(str(c.get("message") or c["name"]) for c in failed) or "measurement.json cannot be read"


def _duration(attempt: Attempt) -> float | None:
    start, end = attempt.point.get("started_utc"), attempt.point.get("finished_utc")
    return None if not start or not end else max(0.0, (_time(end) - _time(start)).total_seconds())


def _time(utc: str) -> datetime:
    return datetime.fromisoformat(utc)
