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

from specsweep.orchestrator.attempt import Attempt, standing
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
    """``plan.json``. Raises ``ValueError`` for what is no plan."""
    found = json.loads(content)
    plan: dict[str, Any] = found if isinstance(found, dict) else {}
    points = plan.get("points")
    if not isinstance(points, dict) or not all(isinstance(f, dict) and isinstance(f.get("axes"), dict) for f in points.values()):
        raise ValueError("it holds no points")
    lists = [plan.get("current"), *(s.get("points") for s in plan.get("sessions") or ())]
    if not all(isinstance(ids, list) and points.keys() >= set(ids) for ids in lists):
        raise ValueError("it names points that it does not hold")
    return plan


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

    def records(self) -> list[dict[str, Any]]:
        """``{"point": point.json, "measurement": measurement.json | None}`` of each point with an attempt: what the analysis takes."""
        return [attempt.record() for attempt in self.latest.values()]
