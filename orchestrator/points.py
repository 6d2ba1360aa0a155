"""The nouns of planning: point, session, plan. Plain, frozen, JSON-able; made by ``grid`` and ``plan``, executed by ``runner``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AXES = ("engine", "target", "drafter", "draft_length", "batch_size", "isl", "workload", "temperature", "repeat")


@dataclass(frozen=True, slots=True)
class Point:
    """One cell of the grid.

    ``axes`` holds the value of each name in :data:`AXES` (``draft_length`` is None for drafter ``none``) and of any extra
    axis (``drafter.topk`` …) in declared order. ``config`` is the complete resolved config of this point: the groups
    ``engine target drafter workload cluster`` as dicts and the scalars. ``declared`` is exactly what was hashed into ``point_id``.
    """

    point_id: str  # 64 hex digits; the first 16 are shown
    axes: Mapping[str, Any]
    config: Mapping[str, Any]
    declared: Mapping[str, Any]
    baseline_id: str | None  # point_id of the `none` arm that this point is compared with; None for a baseline or if the sweep has none

    @property
    def short_id(self) -> str:
        return self.point_id[:16]

    @property
    def is_baseline(self) -> bool:
        return str(self.axes["drafter"]) == "none"

    @property
    def is_capture(self) -> bool:
        """Untimed: what the engine's recorder tells is kept, and nothing of it is a speed."""
        return "capture" in self.declared


@dataclass(frozen=True, slots=True)
class Session:
    """One engine start and the points that it serves, in the order in which they are measured."""

    session_id: str  # hash of what the engine is started with, and the repeat
    points: tuple[Point, ...]
    est_start_s: float
    est_points_s: tuple[float, ...]

    @property
    def config(self) -> Mapping[str, Any]:
        return self.points[0].config

    @property
    def est_s(self) -> float:
        return self.est_start_s + sum(self.est_points_s)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A cell that the grid lost, and why."""

    axes: Mapping[str, Any]
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    sessions: tuple[Session, ...]
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(p for s in self.sessions for p in s.points)

    @property
    def est_s(self) -> float:
        return sum(s.est_s for s in self.sessions)
