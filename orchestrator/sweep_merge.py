"""Several sweeps as one: the plan of the union. Pure; attempts keep their identity, and none is made, changed or copied by it.

A sweep is a list of points and the store holds their attempts by ``point_id``, so merging is a union of plans: a point that two sweeps
share is one point with the attempts of both, of which the newest measured one stands, as ever.

Two points with the *same axes and another id* are another matter: something else that was declared differs (an engine version, a model file, the
prompts), and a report would show them as one cell. That is a conflict. It is refused with what differs, unless the sweep to prefer is
named; the others' points are then replaced, as a run with a changed model replaces its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specsweep.orchestrator.sweep_record import PLAN_SCHEMA_VERSION, axes_key


@dataclass(frozen=True, slots=True)
class Source:
    """A sweep to merge: its name, how it was named, the store it lies in, its ``plan.json``."""

    name: str
    typed: str
    store: str
    plan: Mapping[str, Any]

    @property
    def standing(self) -> dict[str, Mapping[str, Any]]:
        return {i: facts for i, facts in self.plan["points"].items() if not facts.get("replaced_by")}


@dataclass(frozen=True, slots=True)
class Conflict:
    """Points of different ids with the same axes: (how the sweep was named, point id), in the order of the sources."""

    axes: Mapping[str, Any]
    points: tuple[tuple[str, str], ...]


def conflicts(sources: Sequence[Source]) -> list[Conflict]:
    """In the order of the points."""
    groups: dict[str, dict[str, str]] = {}
    axes: dict[str, Mapping[str, Any]] = {}
    for source in sources:
        for point_id, facts in source.standing.items():
            key = axes_key(facts["axes"])
            axes[key] = facts["axes"]
            groups.setdefault(key, {}).setdefault(point_id, source.typed)
    return [Conflict(axes[key], tuple((typed, i) for i, typed in ids.items())) for key, ids in groups.items() if len(ids) > 1]


def merged_document(name: str, sources: Sequence[Source], *, now: str, prefer: str = "", created: str = "") -> dict[str, Any]:
    """``plan.json`` of the merged sweep. ``prefer``: how the source was named whose points win a conflict; ``created``: of the merge that this one
    renews. Raises ``ValueError`` for conflicts without it, or if no source is called so."""
    found = conflicts(sources)
    if found and not prefer:
        raise ValueError(f"{len(found)} points have the same axes and another identity")
    if prefer and prefer not in [s.typed for s in sources]:
        raise ValueError(f"no sweep called {prefer!r} is merged; there are: {', '.join(s.typed for s in sources)}")
    replaced: dict[str, str] = {}
    for conflict in found:
        winner = next((i for typed, i in conflict.points if typed == prefer), conflict.points[0][1])
        replaced |= {i: winner for _, i in conflict.points if i != winner}
    points: dict[str, dict[str, Any]] = {}
    for source in sources:  # what stands first, so that it keeps its place in the views
        points |= {i: dict(facts) for i, facts in source.standing.items() if i not in points}
    for source in sources:
        points |= {i: dict(facts) for i, facts in source.plan["points"].items() if i not in points}
    for point_id, winner in replaced.items():
        points[point_id]["replaced_by"] = winner
    standing = {i for i, facts in points.items() if not facts.get("replaced_by")}
    current = list(dict.fromkeys(i for s in sources for i in s.plan["current"] if i in standing))
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "name": name,
        "created_utc": created or now,
        "planned_utc": now,
        "overrides": [],
        "merged_from": [{"sweep": s.name, "store": s.store, "overrides": list(s.plan.get("overrides") or ())} for s in sources],
        "current": current,
        "points": points,
        "sessions": _sessions(sources, set(current)),
        "dropped": _once(d for s in sources for d in s.plan.get("dropped") or ()),
        "warnings": _once(w for s in sources for w in s.plan.get("warnings") or ()),
    }


def _sessions(sources: Sequence[Source], current: set[str]) -> list[dict[str, Any]]:
    """Each point in the first session that has it; a session that lost all its points is none."""
    left = set(current)
    made = []
    for source in sources:
        for session in source.plan["sessions"]:
            own = [(i, s) for i, s in zip(session["points"], session["est_points_s"], strict=True) if i in left]
            left -= {i for i, _ in own}
            if own:
                made.append({**session, "points": [i for i, _ in own], "est_points_s": [s for _, s in own]})
    return made


def _once(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
