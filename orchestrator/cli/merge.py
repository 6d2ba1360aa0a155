"""`specsweep merge A B --name C`: one sweep of several, for one report, one map, one comparison.

Sweeps of one store share its points, so only a plan is written. Attempts of another store are brought over as they are (linked where both lie on one
disk), each checked against the hashes of its own record; what is here already is left alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specsweep.analysis.details import describe
from specsweep.analysis.environment import flatten
from specsweep.orchestrator.attempt import SHOWN, Attempt
from specsweep.orchestrator.cli.compare import view_of
from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.cli.selection import names_and_store
from specsweep.orchestrator.errors import EXIT_OK, ConfigError
from specsweep.orchestrator.fields import sweep_name
from specsweep.orchestrator.store import Store, utc_now
from specsweep.orchestrator.sweep_merge import Conflict, Source, conflicts, merged_document
from specsweep.orchestrator.sweep_record import SweepView

SHOWN_CONFLICTS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="A B store=DIR", help="sweeps: a name in the store, DIR:NAME of another store, or DIR; two or more"
    )
    parser.add_argument("--name", required=True, metavar="C", help="of the merged sweep, in store=")
    parser.add_argument(
        "--prefer", default="", metavar="A", help="whose points stand where two have the same axes and another identity (default: refuse)"
    )
    add_json(parser)
    parser.epilog = (
        "Merging again under the same name brings it up to date; a sweep that was measured under that name is never overwritten."
    )


def run(args: argparse.Namespace) -> int:
    typed = [w for w in args.words if "=" not in w]
    settings = [w for w in args.words if "=" in w]
    if len(typed) < 2:
        raise ConfigError(f"merge takes two sweeps or more, not {len(typed)}: specsweep merge A B --name C [store=DIR]")
    name = sweep_name(args.name)
    _, store = names_and_store(settings, must_exist=False)
    views = [view_of(word, settings) for word in typed]
    created = _created(store, name, views)
    sources = [Source(v.name, word, str(_root(v)), v.plan) for v, word in zip(views, typed, strict=True)]
    found = conflicts(sources)
    if found and not args.prefer:
        raise ConfigError(_refusal(found, views, typed))
    try:
        document = merged_document(name, sources, now=utc_now(), prefer=args.prefer, created=created)
    except ValueError as error:
        raise ConfigError(f"--prefer {args.prefer}: {error}") from error
    with store.lock():
        brought = sum(_bring(store, view) for view in views if _root(view) != store.root)
        path = store.write_document(name, document)
    merged = store.sweep(name)
    facts = {
        "sweep": name,
        "points": len(merged.points),
        "measured": sum(a.measured for a in merged.latest.values()),
        "replaced": sum(bool(f.get("replaced_by")) for f in document["points"].values()),
        "shared": _shared(views),
        "attempts_brought": brought,
        "simulated": merged.simulated,
        "plan": str(path),
    }
    if args.json:
        emit_json(facts)
        return EXIT_OK
    mark = "SIMULATED numbers are among them. " if merged.simulated else ""
    print(
        f"{name}: {facts['points']} points, {facts['measured']} measured, of {', '.join(typed)}; {facts['shared']} shared, {facts['replaced']} replaced. "
        f"{mark}{brought} attempts were brought from other stores."
    )
    print(f"wrote {path}; specsweep report {name} store={store.root}")
    return EXIT_OK


def _root(view: SweepView) -> Path:
    return view.path.parent.parent


def _created(store: Store, name: str, views: Sequence[SweepView]) -> str:
    """When the merge of this name was first made; empty if there is none. Raises ``ConfigError`` for a sweep that is no merge."""
    if any(_root(v) == store.root and v.name == name for v in views):
        raise ConfigError(f"--name {name}: that is one of the sweeps to merge; give the merged one a name of its own")
    if name not in store.sweeps():
        return ""
    plan = store.sweep_plan(name)
    if not plan.get("merged_from"):
        raise ConfigError(f"--name {name}: store={store.root} holds a sweep of that name that was measured, not merged; give another name")
    return str(plan["created_utc"])


def _shared(views: Sequence[SweepView]) -> int:
    ids = [i for v in views for i in v.points]
    return len(ids) - len(set(ids))


def _bring(store: Store, view: SweepView) -> int:
    """How many attempts of the sweep were not here. Oldest first, so that attempts of one point keep their order."""
    wanted = [a for i in view.plan["points"] for a in view.attempts.get(i, ())]
    landed = 0
    for attempt in sorted(wanted, key=lambda a: (str(a.point.get("finished_utc") or ""), a.number)):
        if any(known.sha256 == attempt.sha256 for known in store.attempts(attempt.point_id)):
            continue
        with store.aside() as stage:
            try:
                landed += store.adopt(_linked(attempt, stage)) is not None
            except (OSError, ValueError) as error:
                raise ConfigError(f"{attempt.path}: {error}; nothing was merged, what was brought stays") from error
    return landed


def _linked(attempt: Attempt, stage: Path) -> Path:
    """The folder of an attempt below ``stage``: links where the disk allows it, since attempts never change, else copies."""
    folder = stage / attempt.path.name
    shutil.copytree(attempt.path, folder, copy_function=_link)
    return folder


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _refusal(found: Sequence[Conflict], views: Sequence[SweepView], typed: Sequence[str]) -> str:
    lines = [f"{len(found)} points have the same axes in two sweeps and are not the same point, so one report cannot hold both:"]
    lines += [f"  {describe(c.axes)}: {_difference(c, views)}" for c in found[:SHOWN_CONFLICTS]]
    lines += [f"  … and {len(found) - SHOWN_CONFLICTS} more"] if len(found) > SHOWN_CONFLICTS else []
    return "\n".join([*lines, f"say whose are to stand: --prefer {typed[0]}, or --prefer {typed[-1]}"])


def _difference(conflict: Conflict, views: Sequence[SweepView]) -> str:
    """What of the declared settings is not the same, as far as attempts say; else the two ids."""
    (one, first), (other, second) = conflict.points[:2]
    declared = [_declared(i, views) for i in (first, second)]
    names = sorted(n for n in declared[0].keys() | declared[1].keys() if declared[0].get(n) != declared[1].get(n))
    if not all(declared) or not names:
        return f"{first[:SHOWN]} in {one}, {second[:SHOWN]} in {other}"
    shown = [f"{n} {_brief(declared[0].get(n))} in {one}, {_brief(declared[1].get(n))} in {other}" for n in names[:2]]
    return "; ".join(shown)


def _declared(point_id: str, views: Sequence[SweepView]) -> dict[str, Any]:
    attempt = next((v.latest[point_id] for v in views if point_id in v.latest), None)
    return dict(flatten(attempt.point.get("declared") or {})) if attempt is not None else {}


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
