"""`specsweep status`: how far the sweeps of a store are. It only reads, so it may be asked at any moment."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.cli.selection import METAVAR, sweeps_or_all
from specsweep.orchestrator.errors import EXIT_OK, ConfigError
from specsweep.orchestrator.progress import clock
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_status import SweepStatus, sweep_status

if TYPE_CHECKING:
    from rich.console import RenderableType

WATCH_S = 2.0
COLOURS = {"running": "cyan", "finished": "green", "stopped": "yellow", "not started": "dim", "failed": "red", "invalid": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar=METAVAR, help="sweep names (all of the store if none) and where results live")
    parser.add_argument("--watch", action="store_true", help="look again every 2 s until nothing is missing or Ctrl-C")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.json and args.watch:
        raise ConfigError("--json prints once; leave out --watch")
    names, unreadable, store = sweeps_or_all(args.words)
    if args.watch:
        return _watch(names, unreadable, store)
    found = [_look(store, name) for name in names]
    if args.json:
        sweeps = [dataclasses.asdict(s) for s in found]
        emit_json({"store": str(store.root), "sweeps": sweeps, "unreadable": unreadable})
    else:
        from rich.console import Console

        console = Console()
        if not console.is_terminal:
            console = Console(width=160)
        console.print(_page(found, unreadable, detail=len(found) == 1 or bool(args.words)))
    return EXIT_OK


def _look(store: Store, name: str) -> SweepStatus:
    return sweep_status(store.sweep(name), writer=store.writer(), now=datetime.now(UTC))


def _watch(names: Sequence[str], unreadable: Mapping[str, str], store: Store) -> int:
    from rich.live import Live

    found = [_look(store, name) for name in names]
    try:
        with Live(_page(found, unreadable, detail=True), auto_refresh=False) as live:
            while any(s.missing or s.state == "running" for s in found):
                time.sleep(WATCH_S)
                found = [_look(store, name) for name in names]
                live.update(_page(found, unreadable, detail=True), refresh=True)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


def _page(found: Sequence[SweepStatus], unreadable: Mapping[str, str], *, detail: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    blocks: list[Any] = []
    for status in found:
        blocks += [*_head(status), *(_detail(status) if detail else []), ""]
    for name, reason in unreadable.items():
        blocks += [Text.assemble((name, "bold"), "  ", ("unreadable", "red"), f" · {reason}"), ""]
    return Group(*blocks[:-1])


def _head(status: SweepStatus) -> list[Any]:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    line = Text.assemble(
        (status.sweep, "bold"), "  ", (status.state, COLOURS[status.state]), f" · {status.measured} of {status.points} points measured"
    )
    if status.simulated:
        line.append(" · SIMULATED", style="bold red")
    for count, word in ((status.invalid, "invalid"), (status.failed, "failed")):
        if count:
            line.append(f" · {count} {word}", style=COLOURS[word])
    if status.missing:
        line.append(f" · {status.missing} missing")
    if status.left_s is not None:
        line.append(f" · about {clock(status.left_s)} left" if status.state == "running" else f" · about {clock(status.left_s)} to run")
    if status.earlier:
        line.append(f" · {status.earlier} more of earlier plans", style="dim")
    blocks: list[Any] = [line, Group(ProgressBar(total=max(1, status.points), completed=status.measured, width=60), "")]
    if status.now is not None:
        blocks.append(Text.assemble("now: ", (status.now, "cyan"), f", for {clock(status.now_s or 0)}"))
    if status.state == "running" and status.writer is not None:
        blocks.append(Text(f"run by pid {status.writer.get('pid')} on {status.writer.get('host')}", style="dim"))
    return blocks


def _detail(status: SweepStatus) -> list[Any]:
    from rich.text import Text

    blocks: list[Any] = []
    if status.sessions:
        rows = [(s.what, str(s.points), str(s.measured), str(s.failed or "–"), str(s.missing or "–")) for s in status.sessions]
        blocks += ["", _table(("session", "points", "measured", "failed", "missing"), rows, right=(1, 2, 3, 4))]
    if status.problems:
        problems = [(p.point, Text(p.state, style=COLOURS[p.state]), Text(p.reason), p.point_id[:16]) for p in status.problems]
        blocks += ["", _table(("point", "state", "why", "point_id"), problems)]
        blocks.append(Text(f"everything that is known of the first: {status.problems[0].path}", style="dim"))
    if status.measure_invalid is not None:
        blocks.append(Text(f"invalid points are not measured again unless asked for: {status.measure_invalid}"))
    if status.events:
        events = [(str(e.get("t_utc", "")), str(e.get("kind", "")), Text(_facts(e))) for e in status.events]
        blocks += ["", _table(("last events", "", ""), events)]
    if status.mlflow_behind is not None:
        blocks += ["", Text(f"MLflow was away and lacks results; catch up with: {status.mlflow_behind}", style="yellow")]
    if status.damaged:
        blocks += ["", Text("cannot be read:", style="red"), *(Text(d) for d in status.damaged)]
    return blocks


def _facts(event: Any) -> str:
    shown = {k: str(v)[:16] if k.endswith("_id") else v for k, v in event.items() if k not in ("t_utc", "kind")}
    text = " ".join(f"{k}={len(v)} ids" if isinstance(v, list) else f"{k}={v}" for k, v in shown.items())
    return text if len(text) <= 160 else text[:159] + "…"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = ()) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(c) if isinstance(c, str) else c for c in row))  # plain: no markup in what others wrote
    return table
