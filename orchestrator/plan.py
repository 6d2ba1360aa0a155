"""From points to sessions, in the order in which they are measured.

A session is one engine start. It serves every batch size, ISL, workload and temperature of what it was started with; a drafter
that learns from earlier answers gets one session a point, since its second point would be measured with the memory of the first.

The order serves three ends. Arms that are compared run close together, so that a machine that changes over the hours (heat,
neighbours) changes them alike: sessions that differ only in the drafter form a block. Repetitions go there and back,
A B B A, which cancels a steady drift in the mean of each arm. And what is cheap comes first, so that a mistake shows early
and a killed sweep has finished as many comparisons as it could.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specsweep.orchestrator import cost, identity
from specsweep.orchestrator.capture_rules import one_a_start
from specsweep.orchestrator.config import SweepConfig, compose
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.grid import expand
from specsweep.orchestrator.identity import Contents
from specsweep.orchestrator.points import Dropped, Plan, Point, Session
from specsweep.orchestrator.relations import server_keys
from specsweep.orchestrator.rules import NONE_HAS_NO_DRAFT


def make_plan(
    overrides: Sequence[str],
    config_dirs: Sequence[str | Path] = (),
    *,
    contents: Contents | None = None,
    history: Mapping[str, float] | None = None,
) -> Plan:
    """The plan of a sweep, all its points included (the runner leaves out what the store has).

    ``history``: point_id → seconds of points that were measured before. Raises ConfigError.
    """
    return plan_sweep(compose(overrides, config_dirs), contents=contents, history=history)


def plan_sweep(sweep: SweepConfig, *, contents: Contents | None = None, history: Mapping[str, float] | None = None) -> Plan:
    grid = expand(sweep, contents)
    if not grid.points:
        raise ConfigError(f"sweep {sweep.name}: {nothing_left(grid.dropped)}")
    seconds = cost.estimate(grid.points, history or {})
    sessions = order(group(grid.points, seconds))
    return Plan(sweep.name, tuple(sessions), grid.dropped, (*sweep.warnings, *grid.warnings))


def nothing_left(dropped: Sequence[Dropped]) -> str:
    """Why a grid is empty. A reason that every cell has is the mistake, and is told alone; else the first reasons of different cells."""
    lost = [cell.reason for cell in dropped if cell.rule != NONE_HAS_NO_DRAFT]  # which is a remark, and takes no cell away
    shortest = min(lost, key=len, default="")
    if shortest and all(shortest in reason for reason in lost):
        return shortest
    reasons = list(dict.fromkeys(lost))
    return "no point is left. " + " / ".join(reasons[:3]) + (" / …" if len(reasons) > 3 else "")


def group(points: Sequence[Point], seconds: Sequence[float]) -> list[Session]:
    """One session per engine start, in the order of the points."""
    members: dict[tuple[Any, ...], list[tuple[Point, float]]] = {}
    for point, key, estimate in zip(points, server_keys(points), seconds, strict=True):
        own = point.point_id if _needs_fresh_engine(point) else point.declared.get("capture")  # a recorder slows what is timed
        members.setdefault((*key, point.config["repeat"], own), []).append((point, estimate))
    return [_session(key, served) for key, served in members.items()]


def _needs_fresh_engine(point: Point) -> bool:
    return bool(point.config["drafter"].get("stateful")) or (point.is_capture and one_a_start(point.config))


def _session(key: tuple[Any, ...], served: list[tuple[Point, float]]) -> Session:
    first = served[0][0]
    if first.config["repeat"] % 2 == 0:
        served = served[::-1]
    return Session(
        session_id=identity.digest(identity.canonical_json(key)),
        points=tuple(p for p, _ in served),
        est_start_s=cost.start_seconds(first.config),
        est_points_s=tuple(s for _, s in served),
    )


def order(sessions: Sequence[Session]) -> list[Session]:
    """Blocks of arms that are compared with each other, the cheapest block first; there and back over the repetitions."""
    keys = server_keys([s.points[0] for s in sessions])
    blocks: dict[tuple[Any, ...], list[Session]] = {}
    for session, (engine, target, _, _, cluster, hardware) in zip(sessions, keys, strict=True):
        blocks.setdefault((engine, target, cluster, hardware), []).append(session)
    ordered: list[Session] = []
    for block in sorted(blocks.values(), key=_block_cost):
        rounds: dict[int, list[Session]] = {}
        for session in block:
            rounds.setdefault(_repeat(session), []).append(session)
        for repeat, members in sorted(rounds.items()):
            arms = sorted(members, key=_arm_order)
            ordered += arms if repeat % 2 else arms[::-1]
    return ordered


def _block_cost(block: Sequence[Session]) -> float:
    return sum(s.est_s for s in block)


def _repeat(session: Session) -> int:
    return int(session.config["repeat"])


def _arm_order(session: Session) -> tuple[Any, ...]:
    """The baseline first, then drafters and draft lengths as they were written; not by cost, which history changes between runs."""
    config = session.config
    return config["drafter"]["method"] != "none", str(config["drafter"]["name"]), config["draft_length"] or 0
