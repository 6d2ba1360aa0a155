"""`specsweep status`: how far sweeps are, those of a store on this machine or those of a cluster. It only reads, so it may be asked at any moment."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.cli.selection import METAVAR, sweeps_or_all
from specsweep.orchestrator.cli.status_page import page
from specsweep.orchestrator.errors import EXIT_OK, ConfigError
from specsweep.orchestrator.run_command import key_of
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_status import SweepStatus, sweep_status

if TYPE_CHECKING:
    from rich.console import RenderableType

    from specsweep.k8s.api import Api
    from specsweep.orchestrator.kube.remote_status import Placed

WATCH_S = 2.0
CLUSTER_WATCH_S = 5.0  # a sweep tells no sooner how far it is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar=METAVAR, help="sweep names (all if none) and where results live, or cluster=kubernetes")
    parser.add_argument("--watch", action="store_true", help="look again every few seconds until nothing is missing or Ctrl-C")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups")
    add_json(parser)


class Seen(NamedTuple):
    """``placed``: where each sweep is in a cluster; None for sweeps of this machine."""

    sweeps: list[SweepStatus]
    placed: list[Placed] | None
    unreadable: dict[str, str]
    where: dict[str, str]  # for --json
    detail: bool

    def page(self, *, detail: bool | None = None) -> RenderableType:
        return page(self.sweeps, self.unreadable, detail=self.detail if detail is None else detail, placed=self.placed)

    @property
    def goes_on(self) -> bool:
        return any(s.missing or s.state == "running" for s in self.sweeps)


def run(args: argparse.Namespace) -> int:
    from specsweep.orchestrator.kube.words import is_about_a_cluster

    if args.json and args.watch:
        raise ConfigError("--json prints once; leave out --watch")
    if is_about_a_cluster(args.words):
        return _show(args, _in_cluster(args.words, args.config_dir), CLUSTER_WATCH_S)
    return _show(args, _here(args.words), WATCH_S)


def _show(args: argparse.Namespace, look: Callable[[], Seen], watch_s: float) -> int:
    if args.watch:
        return _watch(look, watch_s)
    seen = look()
    if args.json:
        sweeps = [dataclasses.asdict(s) for s in seen.sweeps]
        if seen.placed is not None:
            sweeps = [{**s, "cluster": dataclasses.asdict(p)} for s, p in zip(sweeps, seen.placed, strict=True)]
        emit_json({**seen.where, "sweeps": sweeps, "unreadable": seen.unreadable})
        return EXIT_OK
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(seen.page() if seen.sweeps or seen.unreadable else f"no sweep in namespace {seen.where.get('namespace')}")
    return EXIT_OK


def _watch(look: Callable[[], Seen], watch_s: float) -> int:
    from rich.live import Live

    seen = look()
    try:
        with Live(seen.page(detail=True), auto_refresh=False) as live:
            while seen.goes_on:
                time.sleep(watch_s)
                seen = look()
                live.update(seen.page(detail=True), refresh=True)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


def _here(words: Sequence[str]) -> Callable[[], Seen]:
    names, unreadable, store = sweeps_or_all(words)

    def look() -> Seen:
        found = [_look(store, name) for name in names]
        return Seen(found, None, unreadable, {"store": str(store.root)}, len(found) == 1 or bool(words))

    return look


def _look(store: Store, name: str) -> SweepStatus:
    return sweep_status(store.sweep(name), writer=store.writer(), now=datetime.now(UTC))


def _in_cluster(words: Sequence[str], config_dirs: Sequence[str]) -> Callable[[], Seen]:
    from specsweep.orchestrator.kube.access import in_cluster
    from specsweep.orchestrator.kube.remote_status import sweeps
    from specsweep.orchestrator.kube.words import names_and_settings

    names, settings = names_and_settings(words, config_dirs, "status")
    ways = [word for word in words if "=" in word and key_of(word) != "sweep"]

    async def look(api: Api) -> tuple[list[tuple[SweepStatus, Placed]], str]:
        return await sweeps(api, names), api.namespace

    def seen() -> Seen:
        found, namespace = in_cluster(settings, look)
        statuses = [_with_commands(status, placed, ways) for status, placed in found]
        return Seen(statuses, [placed for _, placed in found], {}, {"namespace": namespace}, len(found) == 1 or bool(names))

    return seen


def _with_commands(status: SweepStatus, placed: Placed, ways: Sequence[str]) -> SweepStatus:
    """Commands that a sweep's pod names are for its own place; from here the sweep is asked for again."""
    again = None
    if status.measure_invalid is not None and placed.overrides:
        words = [word for word in json.loads(placed.overrides) if key_of(word) != "rerun"]
        again = shlex.join(["specsweep", "submit", *words, *(way for way in ways if way not in words), "rerun=invalid"])
    behind = shlex.join(["specsweep", "resume", status.sweep, *ways]) if status.mlflow_behind else None
    return dataclasses.replace(status, measure_invalid=again, mlflow_behind=behind)
