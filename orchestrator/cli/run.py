"""`specsweep run`: plans, measures what is missing, reports. The same command again after any kind of end finishes the rest."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.orchestrator.cli.output import add_json, emit_json, say_if_large
from specsweep.orchestrator.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, ConfigError
from specsweep.orchestrator.points import Plan
from specsweep.orchestrator.run_command import run_command
from specsweep.orchestrator.typed_paths import as_typed

if TYPE_CHECKING:
    from specsweep.orchestrator.kube.outside import Outside
    from specsweep.orchestrator.runner import Runner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", help="sweep=NAME and overrides in Hydra's grammar; comma-separated values are swept")
    parser.add_argument(
        "--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups; searched before ours"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from specsweep.orchestrator.clusters import cluster
    from specsweep.orchestrator.config import compose
    from specsweep.orchestrator.grid import cells
    from specsweep.orchestrator.plan import plan_sweep
    from specsweep.orchestrator.store import Store

    sweep = compose(args.overrides, args.config_dir)
    base = sweep.base
    say_if_large(cells(sweep))
    plan = plan_sweep(sweep)
    place = cluster(base)  # a bad endpoint is told now
    for session in plan.sessions:
        _refuse_missing_engine(session.config)
    store = Store(Path(base["store"]).expanduser())
    with store.lock():
        _bring_back(store, plan.name, base)
        store.write_plan(plan, args.overrides)
        try:
            outcome, tracker, drawn = _execute(plan, place, store, base)
        except KeyboardInterrupt:
            return _interrupted(plan, store, run_command(args.overrides, store.root, config_dirs=args.config_dir))
    command = run_command(args.overrides, store.root, rerun="invalid", config_dirs=args.config_dir)
    return _finish(plan, store, outcome, tracker, as_json=args.json, measure_invalid=command, drawn=drawn)


def _bring_back(store: Any, sweep: str, base: Mapping[str, Any]) -> None:
    """A pod that moved may have a new disk, and MLflow what was on the old one."""
    if base["cluster"]["kind"] == "kubernetes":
        from specsweep.orchestrator.tracking_restore import restore_first

        restore_first(store, sweep, base, _say)


def _interrupted(plan: Plan, store: Any, command: str) -> int:
    measured = sum(store.done(p.point_id) for p in plan.points)
    again = f"go on with: {command}" if _outside(plan.name) is None else "`specsweep submit` with the same words goes on"
    _say(f"interrupted: {measured} of {_count(len(plan.points), 'point')} are measured and kept in {store.root}; {again}")
    return EXIT_INTERRUPTED


def _refuse_missing_engine(config: Mapping[str, Any]) -> None:
    """A plan may be made on another machine; a run starts its engines on this one. Raises ConfigError."""
    from specsweep.orchestrator.engines import launcher

    engine = config["engine"]
    if config["cluster"]["kind"] == "local" and (reason := launcher(engine["name"]).missing(engine)):
        raise ConfigError(f"engine {engine['name']} cannot be started on this machine: {reason}")


def _execute(plan: Plan, place: Any, store: Any, base: Mapping[str, Any]) -> tuple[Any, Any, bool]:
    """What came of it, the tracker, and whether the report was drawn: before MLflow is closed, which keeps it too."""
    from specsweep.orchestrator.cost import guessed, request_count
    from specsweep.orchestrator.preparation import Preparation
    from specsweep.orchestrator.progress import Tally, progress
    from specsweep.orchestrator.runner import Runner
    from specsweep.orchestrator.tracking import Tracker

    missing = [s for s in plan.sessions if any(store.needs(p.point_id, base["rerun"]) for p in s.points)]
    left = {p.point_id for s in missing for p in s.points if store.needs(p.point_id, base["rerun"])}
    estimate = sum(s.est_start_s + sum(e for p, e in zip(s.points, s.est_points_s, strict=True) if p.point_id in left) for s in missing)
    requests = sum(request_count(p.config) for s in missing for p in s.points if p.point_id in left)
    guess = bool(guessed(plan.points, {}) & left)
    tally = Tally(sessions=len(missing), points=len(left), requests=requests, est_left_s=estimate, guessed=guess)
    known = len(plan.points) - len(left)
    invalid = sum(p.point_id not in left and not store.latest(p.point_id).valid for p in plan.points)
    again = f" ({invalid} of them not valid: rerun=invalid measures them again)" if invalid else ""
    _say(
        f"{plan.name}: {_count(len(plan.points), 'point')}, {known} of them already measured{again}; "
        f"{_count(len(missing), 'session')} to run"
    )
    for warning in plan.warnings:
        _say(f"warning: {warning}")
    shown = progress(tally)
    tracker = Tracker(store, base["tracking"].get("uri"), plan.name) if base["tracking"]["enabled"] else None
    runner = Runner(
        plan=plan,
        place=place,
        store=store,
        tracker=tracker,
        progress=shown,
        preparation=Preparation(Path(base["cache"]).expanduser(), shown.say),
        tally=tally,
        rerun=base["rerun"],
        actors=base["measure"]["client_processes"],
        ray_address=(base["cluster"].get("clients") or {}).get("ray_address"),
    )
    store.event(plan.name, "run_started", pid=os.getpid(), points=len(left))
    ended = "interrupted"
    try:
        if tracker is not None:
            tracker.start()
        if left:
            asyncio.run(_until_signal(lambda: _told(runner, base)))
        elif base["cluster"]["kind"] == "kubernetes" and os.environ.get("KUBERNETES_SERVICE_HOST"):
            asyncio.run(_until_signal(runner.tidy))
        ended = "finished"
    finally:
        shown.close()
        store.event(
            plan.name, f"run_{ended}", measured=runner.outcome.measured, failed=runner.outcome.failed, invalid=runner.outcome.invalid
        )
        if base["cluster"]["kind"] == "kubernetes" and ended == "finished":
            from specsweep.orchestrator.kube.publisher import tell_end

            tell_end(base, store.root, plan.name)
        try:
            drawn = ended == "finished" and _draw(store, plan.name)
        finally:
            if tracker is not None:
                tracker.finish()
    return runner.outcome, tracker, drawn


def _draw(store: Any, sweep: str) -> bool:
    """Whether there was anything new to draw."""
    from specsweep.orchestrator.cli.report import report_of, up_to_date, write_report

    view = store.sweep(sweep)
    if up_to_date(view):
        return False
    write_report(report_of(view), view.path)
    return True


def _outside(sweep: str) -> Outside | None:
    """The way of people to this sweep, if it is in a pod."""
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    from specsweep.orchestrator.kube.outside import Outside

    return Outside.of(sweep, os.environ)


async def _told(runner: Runner, base: Mapping[str, Any]) -> Any:
    """The run, and in a cluster how far it is, for those who look from outside."""
    if base["cluster"]["kind"] != "kubernetes":
        return await runner.run()
    from specsweep.orchestrator.kube.publisher import telling

    async with telling(base, runner.store.root, runner.plan.name, runner.progress.say):
        return await runner.run()


async def _until_signal(work: Callable[[], Any]) -> Any:
    """TERM and HUP end a sweep as Ctrl-C does: engines are ended, what is measured is kept."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await work()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _finish(plan: Plan, store: Any, outcome: Any, tracker: Any, *, as_json: bool, measure_invalid: str = "", drawn: bool = False) -> int:
    from specsweep.orchestrator.cli.report import print_report, report_of, rows_of
    from specsweep.orchestrator.tracking import ui_command
    from specsweep.orchestrator.tracking_mlflow import shown

    drawn = _draw(store, plan.name) or drawn
    view = store.sweep(plan.name)
    report = report_of(view)
    outside = _outside(plan.name)
    again = f"{plan.name} {shlex.quote(as_typed('store', store.root))}"
    current = {p.point_id for p in plan.points}
    states = [(a.measured, a.valid) for pid, a in view.latest.items() if pid in current]
    missing = max(len(current) - len(states), outcome.unrecorded)  # with rerun=all an older result may stand for one that was not kept
    failed, invalid = sum(not m for m, _ in states), sum(m and not v for m, v in states)
    if as_json:
        emit_json(
            {
                "sweep": plan.name,
                "measured_now": outcome.measured,
                "failed": failed,
                "invalid": invalid,
                "missing": missing,
                "tables": rows_of(report),
            }
        )
    else:
        print_report(report)
        _say(f"\nreport: {view.path / 'report.html'}{' in this pod' if outside else ''}")
        if outside is not None and tracker is not None and tracker.complete and tracker.uri.startswith("http"):
            _say("        also an artifact of the sweep's run in MLflow; with all results, from anywhere:")
            for line in outside.report(shown(tracker.uri)):
                _say(f"          {line}")
        elif not drawn:
            _say(f"        as it was: nothing is new since it was drawn (`specsweep report {again}` draws it again)")
        if tracker is not None and not tracker.complete:
            catch_up = outside.command("resume") if outside else tracker.catch_up
            _say(f"MLflow: {shown(tracker.uri)} was away or failed and does not hold everything; afterwards: {catch_up}")
        elif tracker is not None:
            _say(f"MLflow: {ui_command(tracker.uri) or tracker.uri}")
            if tracker.link:
                _say(f"        then {tracker.link}")
        if failed or invalid:
            status = outside.command("status") if outside else f"specsweep status {again}"
            _say(f"{_count(failed, 'point')} failed, {invalid} not valid; `{status}` says why")
        if invalid and outside is None:  # else status says how
            _say(f"measures what is not valid again: {measure_invalid}")
    if missing:
        _say(
            f"{_count(missing, 'point')} missing: the store took no result of {'it' if missing == 1 else 'them'}; why stands in "
            f"{view.path / 'events.jsonl'}, and the same command measures what is missing"
        )
    if outcome.worst is not None and not any(m for m, _ in states):
        return int(outcome.worst.exit_code)
    return EXIT_INCOMPLETE if failed or invalid or missing else EXIT_OK


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
