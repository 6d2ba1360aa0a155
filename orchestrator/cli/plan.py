"""`specsweep plan`: what a run would do, before it does anything: points, sessions, time, and what the grid loses and why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.analysis.axis_words import format_axis
from specsweep.orchestrator.cli.output import add_json, emit_json, print_table, say_if_large
from specsweep.orchestrator.errors import EXIT_OK
from specsweep.orchestrator.points import AXES, Plan, Session

if TYPE_CHECKING:
    from specsweep.orchestrator.cli.plan_cluster import ClusterPlan

SHOWN_VALUES = 6  # of a list of values; longer ones are shortened
TITLES = {"draft_length": "DL", "batch_size": "BS", "isl": "ISL"}
SESSION_AXES = ("engine", "target", "drafter", "draft_length", "batch_size", "isl", "workload")
SAID_ONCE = ("engine", "target", "ISL", "workload")  # columns that go into the title where all sessions agree
SHOWN_SESSIONS = 60
SHOWN_LOSSES = 30
SHOWN_REASONS = 3  # of one rule, before they are summed up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", help="sweep=NAME and overrides in Hydra's grammar; comma-separated values are swept")
    parser.add_argument(
        "--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups; searched before ours"
    )
    parser.add_argument("--points", action="store_true", help="list every point; with --json also what each point_id is made of")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from specsweep.orchestrator import cost
    from specsweep.orchestrator.config import compose
    from specsweep.orchestrator.grid import cells
    from specsweep.orchestrator.identity import Contents
    from specsweep.orchestrator.plan import plan_sweep

    sweep = compose(args.overrides, args.config_dir)
    say_if_large(cells(sweep))
    place = _cluster(sweep.base)
    contents = place.contents() if place is not None else Contents()
    contents.unprepared = {}
    plan = plan_sweep(sweep, contents=contents)
    root = Path(sweep.base["store"]).expanduser()
    missing, history, invalid = _from_store(root, plan, sweep.base["rerun"])
    if history:
        plan = plan_sweep(sweep, contents=contents, history=history)
    plan = replace(
        plan, warnings=(*plan.warnings, *(f"not there yet, so a run would refuse: {missing}" for missing in contents.unprepared))
    )
    guessed = cost.guessed(plan.points, history)
    if args.json:
        facts = document(plan, missing, guessed, sweep.description, invalid=len(invalid), points=args.points)
        emit_json(facts if place is None else place.document(facts, plan, missing, guessed))
    else:
        _print(plan, missing, guessed, sweep.description, root, invalid=invalid, points=args.points, place=place)
    return EXIT_OK


def _cluster(base: Mapping[str, Any]) -> ClusterPlan | None:
    """What a plan for Kubernetes has besides; None for any other place. Raises ConfigError."""
    if base["cluster"]["kind"] != "kubernetes":
        return None
    from specsweep.orchestrator.cli.plan_cluster import ClusterPlan

    return ClusterPlan.of(base)


def _from_store(root: Path, plan: Plan, rerun: str) -> tuple[set[str], dict[str, float], set[str]]:
    """Ids of the points that a run would measure, how long measured ones took, and ids of those that would be reused and are not valid."""
    from specsweep.orchestrator.cost import measured_seconds

    ids = {p.point_id for p in plan.points}
    if not (root / "points").is_dir():  # nothing was measured here yet: no need to load what reads results
        return ids, {}, set()
    from specsweep.orchestrator.store import Store

    store = Store(root)
    there = {entry.name for entry in (root / "points").iterdir()}
    known = {i for i in ids if i[:16] in there}
    history = {i: s for i in known if (s := measured_seconds(store.attempts(i))) is not None}
    missing = (ids - known) | {i for i in known if store.needs(i, rerun)}
    return missing, history, {i for i in ids - missing if not ((latest := store.latest(i)) and latest.valid)}


# -- as JSON


def document(
    plan: Plan, missing: set[str], guessed: set[str], description: str = "", *, invalid: int = 0, points: bool = False
) -> dict[str, Any]:
    """The plan with units in its keys; an estimate that is a mere guess (``guessed``: of these points) is null. ``invalid``: reused points
    that are not valid.

    ``points``: what is declared by each point too, which makes it ten times as long.
    """
    return {
        "sweep": plan.name,
        "description": description,
        "points": len(plan.points),
        "points_to_measure": sum(p.point_id in missing for p in plan.points),
        "points_reused": sum(p.point_id not in missing for p in plan.points),
        "points_reused_not_valid": invalid,
        "sessions_to_run": sum(1 for s in plan.sessions if _left(s, missing)),
        "estimate_s": None if guessed else plan.est_s,
        "estimate_to_measure_s": None if guessed & missing else sum(seconds_left(s, missing) for s in plan.sessions),
        "sessions": [_session(s, missing, guessed, points) for s in plan.sessions],
        "dropped": [{"axes": dict(d.axes), "rule": d.rule, "reason": d.reason} for d in plan.dropped],
        "warnings": list(plan.warnings),
    }


def _session(session: Session, missing: set[str], guessed: set[str], points: bool) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "estimate_start_s": session.est_start_s,
        "points": [
            {
                "point_id": p.point_id,
                "baseline_id": p.baseline_id,
                "axes": dict(p.axes),
                "estimate_s": None if p.point_id in guessed else seconds,
                "to_measure": p.point_id in missing,
                **({"declared": dict(p.declared)} if points else {}),
            }
            for p, seconds in zip(session.points, session.est_points_s, strict=True)
        ],
    }


# -- for people


def _print(
    plan: Plan,
    missing: set[str],
    guessed: set[str],
    description: str,
    root: Path,
    *,
    invalid: set[str],
    points: bool,
    place: ClusterPlan | None = None,
) -> None:
    left = [s for s in plan.sessions if _left(s, missing)]
    print(f"{plan.name}" + (f": {description}" if description else ""))
    reused = len(plan.points) - sum(p.point_id in missing for p in plan.points)
    whole = "" if reused else f", {_about(plan.sessions, missing, guessed)}"
    print(f"{_count(len(plan.points), 'point')} in {_count(len(plan.sessions), 'session')}{whole}")
    if reused == len(plan.points):
        print(f"all of them are measured already in {root}: nothing to run")
    elif reused:
        todo = (
            f"{_count(len(plan.points) - reused, 'point')} in {_count(len(left), 'session')} to measure, {_about(left, missing, guessed)}"
        )
        print(f"{reused} of them are measured already in {root} and reused; {todo}")
    if invalid:
        one = len(invalid) == 1
        print(
            f"{_count(len(invalid), 'reused point')} {'is' if one else 'are'} not valid: rerun=invalid measures {'it' if one else 'them'} again"
        )
    if place is not None:
        print("\n".join(place.lines(plan, missing, guessed)))
    print()
    _print_sessions(plan.sessions, missing, guessed, any_reused=reused > 0, gpus=place.gpus if place is not None else None)
    if points:
        _print_points(plan, missing, invalid)
    _print_losses(plan)
    sys.stdout.flush()
    for warning in plan.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _about(sessions: Sequence[Session], missing: set[str], guessed: set[str]) -> str:
    """The time of what is left to measure, and how far it is to be trusted."""
    from specsweep.orchestrator.cost import start_is_a_guess

    if guessed & missing:
        return "time unknown: no point of this target was measured yet"
    guess = any(start_is_a_guess(s.config) for s in sessions)
    seconds = sum(seconds_left(s, missing) for s in sessions)
    return f"about {duration(seconds)}" + (" (a guess: how long an engine takes to load this model is not known)" if guess else "")


def _print_sessions(
    sessions: Sequence[Session],
    missing: set[str],
    guessed: set[str],
    *,
    any_reused: bool,
    gpus: Callable[[Session], str] | None = None,
) -> None:
    extra = _extra_axes(sessions[0].points[0].axes)
    several = [a for a in ("temperature", "repeat") if len({p.axes[a] for s in sessions for p in s.points}) > 1]
    shown = sessions[:SHOWN_SESSIONS]
    values = {a: [_values((p.axes.get(a) for p in s.points), a) for s in shown] for a in (*AXES, *extra)}
    columns = {"#": [str(i) for i in range(1, len(shown) + 1)]}
    columns |= {TITLES.get(a, a): values[a] for a in (*SESSION_AXES, *several, *extra)}
    if gpus is not None:
        columns["GPUs"] = [gpus(s) for s in shown]
    shared = {name: columns.pop(name)[0] for name in SAID_ONCE if len(set(columns[name])) == 1}
    columns["points"] = [str(len(s.points)) for s in shown]
    if any_reused:
        columns["to measure"] = [str(len(_left(s, missing))) for s in shown]
    columns["estimate"] = [_estimate(s, missing, guessed) for s in shown]
    names = list(columns)
    right = [i for i, name in enumerate(names) if name in ("#", "DL", "points", "to measure", "estimate")]
    wraps = [i for i, name in enumerate(names) if name in ("BS", "ISL", "workload", *extra)]
    title = f"Sessions, in the order in which they run ({' · '.join(f'{k} {v}' for k, v in shared.items())})"
    rows = zip(*columns.values(), strict=True)
    print_table(title.removesuffix(" ()"), names, list(rows), right=right, wraps=wraps)
    if len(sessions) > SHOWN_SESSIONS:
        print(f"… and {len(sessions) - SHOWN_SESSIONS} more sessions (--json has them all)")
    print()


def _estimate(session: Session, missing: set[str], guessed: set[str]) -> str:
    """Of what is left to measure; a dash where nothing is, or where it would be a guess."""
    left = [p for p in session.points if p.point_id in missing]
    return "–" if not left or any(p.point_id in guessed for p in left) else duration(seconds_left(session, missing))


def _print_points(plan: Plan, missing: set[str], invalid: set[str]) -> None:
    axes = list(plan.points[0].axes)
    rows = []
    for p in plan.points:
        state = "" if p.point_id in missing else "not valid" if p.point_id in invalid else "measured"
        rows.append([p.short_id, *(_value(p.axes[a], a) for a in axes), (p.baseline_id or "–")[:16], state])
    print_table("Points, in the order in which they are measured", ["point_id", *axes, "baseline_id", "state"], rows)
    print()


def _print_losses(plan: Plan) -> None:
    if not plan.dropped:
        print("The grid loses no point to a rule.")
        return
    losses = summarise(plan)
    rows = [[str(n) if n else "–", rule, where, reason] for n, rule, where, reason in losses[:SHOWN_LOSSES]]
    total = sum(n for n, *_ in losses)
    title = f"{_count(total, 'cell')} of the grid {'is' if total == 1 else 'are'} left out" if total else "Not repeated"
    print_table(title, ["cells", "rule", "where", "reason"], rows, right=[0], wraps=[2, 3])
    if len(losses) > SHOWN_LOSSES:
        print(f"… and {len(losses) - SHOWN_LOSSES} more groups (--json has every cell)")


def summarise(plan: Plan) -> list[tuple[int, str, str, str]]:
    """(cells, rule, where, reason) of what the grid lost: one entry per reason, or one per rule where a rule has many.

    ``where`` names the axes on which the lost cells stand out from the grid. 0 cells: nothing is lost, only not measured twice.
    """
    by_rule: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for cell in plan.dropped:
        by_rule.setdefault(cell.rule, {}).setdefault(cell.reason, []).append(cell.axes)
    everywhere = _axis_values([p.axes for p in plan.points] + [d.axes for d in plan.dropped])
    result = []
    for rule, by_reason in by_rule.items():
        groups = list(by_reason.items())
        if len(groups) > SHOWN_REASONS:
            groups = [(f"{groups[0][0]} (and {len(groups) - 1} reasons like it)", [axes for cells in by_reason.values() for axes in cells])]
        for reason, cells in groups:
            collapsed = any(isinstance(v, list) for axes in cells for v in axes.values())
            here = _axis_values(cells)
            where = [f"{a}={_values(v.values(), a)}" for a, v in here.items() if collapsed or v.keys() != everywhere[a].keys()]
            result.append((0 if collapsed else len(cells), rule, " ".join(where), reason))
    return sorted(result, key=lambda entry: -entry[0])


def _axis_values(cells: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each axis, the different values, by their repr."""
    found: dict[str, dict[str, Any]] = {}
    for axes in cells:
        for axis, value in axes.items():
            values = found.setdefault(axis, {})
            for single in value if isinstance(value, list) else (value,):
                values.setdefault(repr(single), single)
    return found


def _left(session: Session, missing: set[str]) -> list[float]:
    """Estimated seconds of the points of a session that are still to be measured."""
    return [s for p, s in zip(session.points, session.est_points_s, strict=True) if p.point_id in missing]


def seconds_left(session: Session, missing: set[str]) -> float:
    left = _left(session, missing)
    return session.est_start_s + sum(left) if left else 0.0


def _extra_axes(axes: Mapping[str, Any]) -> list[str]:
    return [a for a in axes if a not in AXES]


def _values(values: Iterable[Any], axis: str) -> str:
    """The different values, numbers in order, a long list shortened: ``1, 2, 3, … 64 (64 values)``."""
    unique = list({repr(value): value for value in values}.values())
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in unique):
        unique.sort()
    texts = [_value(v, axis) for v in unique]
    if len(texts) > SHOWN_VALUES:
        return f"{', '.join(texts[:3])}, … {texts[-1]} ({len(texts)} values)"
    return ", ".join(texts)


def _value(value: Any, axis: str) -> str:
    return f"{value:g}" if isinstance(value, float) else format_axis(value, axis)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``, ``5 d 4 h``: two figures are all that an estimate deserves."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    hours = round(seconds / 3600)
    return f"{hours // 24:,} d {hours % 24} h" if hours % 24 else f"{hours // 24:,} d"
