"""What the store knows of a sweep: the plan as a document, and the view that status, reports and MLflow read. Pure.

A sweep name is used more than once: after a crash, with one more batch size, with a narrower override for a second look.
None of that may take measured points out of the report, and a changed model file must not leave its old points in it.
So ``plan.json`` is not the last plan but the union of all of them:

* ``points`` holds every point ever planned under this name, those of the latest plan first and in its order;
* ``current`` are the ids of the latest plan: what ``run`` works on and what "missing" is counted from;
* a point whose axes equal those of a current point but whose id differs (the model, a flag or the corpus was changed)
  is marked ``replaced_by``: it stays in the file and in the store, and leaves the views.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from specsweep.orchestrator.attempt import SHOWN, Attempt, is_time, standing
from specsweep.orchestrator.points import Plan

PLAN_SCHEMA_VERSION = 1


def plan_document(plan: Plan, *, previous: Mapping[str, Any] | None, overrides: Sequence[str], now: str) -> dict[str, Any]:
    """``plan.json``: this plan, and the points of earlier plans of the same name (``previous``) behind it."""
    points: dict[str, dict[str, Any]] = {}
    for session in plan.sessions:
        for point, est_s in zip(session.points, session.est_points_s, strict=True):
            points[point.point_id] = {
                "axes": dict(point.axes),
                "baseline_id": point.baseline_id,
                "session_id": session.session_id,
                "est_s": est_s,
            }
    current = list(points)
    by_axes = {axes_key(facts["axes"]): point_id for point_id, facts in points.items()}
    for point_id, facts in (previous or {}).get("points", {}).items():
        if point_id not in points:
            points[point_id] = {**facts, "replaced_by": by_axes.get(axes_key(facts["axes"]), facts.get("replaced_by"))}
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "name": plan.name,
        "created_utc": (previous or {}).get("created_utc", now),
        "planned_utc": now,
        "overrides": list(overrides),
        "current": current,
        "points": points,
        "sessions": [
            {
                "session_id": s.session_id,
                "points": [p.point_id for p in s.points],
                "est_start_s": s.est_start_s,
                "est_points_s": list(s.est_points_s),
            }
            for s in plan.sessions
        ],
        "dropped": [{"axes": dict(d.axes), "rule": d.rule, "reason": d.reason} for d in plan.dropped],
        "warnings": list(plan.warnings),
    }


def read_plan(content: bytes) -> dict[str, Any]:
    """``plan.json``. Raises ``ValueError`` for what is no plan of this version: its readers take every fact in it for granted."""
    try:
        plan = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(plan, dict):
        raise ValueError("it is no JSON object")
    if plan.get("schema_version") != PLAN_SCHEMA_VERSION:
        raise ValueError(f"it has schema {plan.get('schema_version')!r}; this specsweep reads {PLAN_SCHEMA_VERSION}")
    for name, kind in (("points", dict), ("current", list), ("sessions", list)):
        if not isinstance(plan.get(name), kind):
            raise ValueError(f"it holds no {name}")
    if not is_time(plan.get("created_utc")):
        raise ValueError(f"created_utc is {plan.get('created_utc')!r}")
    if not all(isinstance(plan.get(name) or [], list) for name in ("overrides", "dropped", "warnings")):
        raise ValueError("overrides, dropped or warnings is no list")
    for point_id, facts in plan["points"].items():
        if (
            not isinstance(facts, dict)
            or not isinstance(facts.get("axes"), dict)
            or not facts["axes"]
            or not _is_number(facts.get("est_s"))
        ):
            raise ValueError(f"point {point_id[:SHOWN]} has no axes or no estimate")
    current = {i for i in plan["current"] if isinstance(i, str)}
    standing_ids = {i for i, facts in plan["points"].items() if not facts.get("replaced_by")}
    if len(current) != len(plan["current"]) or not current <= standing_ids:
        raise ValueError("it names points that it does not hold")
    for session in plan["sessions"]:
        _check_session(session, current)
    return plan


def _check_session(session: Any, current: set[str]) -> None:
    facts = session if isinstance(session, dict) else {}
    points, estimates = facts.get("points"), facts.get("est_points_s")
    if "session_id" not in facts or not isinstance(points, list) or not points or not isinstance(estimates, list):
        raise ValueError("a session has no session_id, no points or no estimates")
    if len(estimates) != len(points) or not all(map(_is_number, [facts.get("est_start_s"), *estimates])):
        raise ValueError(f"session {facts['session_id']}: the estimates are not one number a point")
    if not all(isinstance(i, str) and i in current for i in points):
        raise ValueError("it names points that it does not hold")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def axes_key(axes: Mapping[str, Any]) -> str:
    return json.dumps({str(k): v for k, v in axes.items()}, sort_keys=True, default=str)


@dataclass(frozen=True)
class SweepView:
    """One sweep as it stands in the store at the moment of reading."""

    name: str
    path: Path  # sweeps/<name>
    plan: Mapping[str, Any]  # plan.json
    attempts: Mapping[str, Sequence[Attempt]]  # by point_id, oldest first; superseded ones included
    events: Sequence[Mapping[str, Any]]
    damaged: Sequence[str] = field(default=())  # one line a file that could not be read: which, and why

    @cached_property
    def points(self) -> Mapping[str, Mapping[str, Any]]:
        """Every planned point that counts (not replaced): axes, baseline_id, session_id, est_s by point_id, in plan order."""
        return {i: facts for i, facts in self.plan["points"].items() if not facts.get("replaced_by")}

    @cached_property
    def current(self) -> Sequence[str]:
        """The ids of the latest plan, in the order in which they are measured."""
        return tuple(self.plan["current"])

    @cached_property
    def latest(self) -> Mapping[str, Attempt]:
        """The attempt that stands for each point: the newest measured one, else the newest failed one."""
        chosen = {i: standing(self.attempts.get(i, ())) for i in self.points}
        return {i: attempt for i, attempt in chosen.items() if attempt is not None}

    @cached_property
    def ended(self) -> bool:
        """The last ``run`` wrote that it finished or was interrupted. False as well after a ``kill -9``: ask the lock then."""
        runs = [e["kind"] for e in self.events if str(e.get("kind")).startswith("run_")]
        return not runs or runs[-1] != "run_started"

    @cached_property
    def complete(self) -> bool:
        """Every point of the latest plan is measured."""
        return all(i in self.latest and self.latest[i].measured for i in self.current)

    @cached_property
    def simulated(self) -> bool:
        """Some of its numbers come from the simulator."""
        return any(attempt.point.get("simulated") for attempt in self.latest.values())

    def records(self) -> list[dict[str, Any]]:
        """``{"point": point.json, "measurement": measurement.json | None}`` of each point with an attempt: what the analysis takes."""
        return [attempt.record() for attempt in self.latest.values()]
