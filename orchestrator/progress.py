"""What a user sees while a sweep runs: one line of state that lives, and a table that fills as points land.

On a terminal both are redrawn in place by rich; anywhere else (a pipe, CI) each event is one plain line, so that a log reads
well. The runner knows only the methods of :class:`Progress`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specsweep.analysis.axis_words import capture_words, format_axis
from specsweep.analysis.check_units import by_cause
from specsweep.orchestrator.points import Point, Session

REDRAWS_PER_S = 2  # the terminal must not compete with an engine on the same cores


def label(point: Point) -> str:
    axes = point.axes
    drafter = str(axes["drafter"]) + (f" DL{axes['draft_length']}" if axes["draft_length"] is not None else "")
    extra = "".join(f" {k}={v}" for k, v in axes.items() if "." in k) + (f" {capture_words(axes)}" if point.is_capture else "")
    repeat = f" repeat {axes['repeat']}" if axes.get("repeat", 1) != 1 else ""
    return f"{axes['engine']} {axes['target']} {drafter} BS{axes['batch_size']} ISL{format_axis(axes['isl'], 'isl')} {axes['workload']}{extra}{repeat}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@dataclass(slots=True)
class Tally:
    """Counts and the estimate of the time left: the plan's estimates, corrected by how they turned out so far."""

    sessions: int
    points: int
    requests: int
    est_left_s: float
    guessed: bool = False  # the plan's estimates are guesses: no time is named until a point has shown the pace
    started_sessions: list[str] = field(default_factory=list)  # their ids, in the order of their start
    landed: int = 0
    failed: int = 0
    invalid: int = 0
    requests_done: int = 0
    _spent: float = 0.0
    _estimated: float = 0.0

    def number(self, session: Session) -> int:
        """Counted by their start: several may run at once."""
        if session.session_id not in self.started_sessions:
            self.started_sessions.append(session.session_id)
        return self.started_sessions.index(session.session_id) + 1

    def started(self, estimated_s: float) -> None:
        """An engine is up. How long that took says nothing about the pace of the points."""
        self.est_left_s = max(0.0, self.est_left_s - estimated_s)

    def spent(self, estimated_s: float, seconds: float) -> None:
        self._estimated += estimated_s
        self._spent += seconds
        self.est_left_s = max(0.0, self.est_left_s - estimated_s)

    @property
    def eta_s(self) -> float:
        return self.est_left_s * (self._spent / self._estimated if self._estimated > 0 else 1.0)

    def line(self) -> str:
        marks = (f" · {self.failed} failed" if self.failed else "") + (f" · {self.invalid} invalid" if self.invalid else "")
        eta = "unknown" if self.guessed and not self._spent else clock(self.eta_s)
        return (
            f"sessions {len(self.started_sessions)}/{self.sessions} · points {self.landed}/{self.points}{marks} · "
            f"requests {self.requests_done}/{self.requests} · ETA {eta}"
        )


def interval(metrics: Mapping[str, Any], name: str, decimals: int) -> str:
    value = metrics.get(name)
    if value is None:
        return "–"
    low, high = metrics.get(f"{name}_ci_low"), metrics.get(f"{name}_ci_high")
    bounds = "" if low is None or high is None or low == high else f" [{low:.{decimals}f}, {high:.{decimals}f}]"
    return f"{value:.{decimals}f}{bounds}"


COLUMNS = ("point", "TPS per user", "output TPS", "AL", "step ms", "")
METRICS = (("user_tps_mean", 1), ("output_tps", 1), ("al_decode", 2), ("step_ms_mean", 1))


def row(point: Point, measurement: Mapping[str, Any]) -> tuple[str, ...]:
    metrics = measurement["metrics"]
    mark = "simulated " if measurement.get("simulated") else ""
    if "routing" in measurement:
        from specsweep.analysis.routing_table import capture_line

        mark += capture_line(measurement["routing"])
    if "logprobs" in measurement:
        mark += f"{measurement['logprobs']['mean']:.3f} nats per token of {measurement['logprobs']['tokens']}"
    if not measurement["validity"]["valid"]:
        failed = by_cause(c for c in measurement["checks"] if not c["ok"])
        mark += ("; " if measurement.get("untimed") else "") + "invalid: " + ", ".join(c["name"] for c in failed)
    return (label(point), *(interval(metrics, name, decimals) for name, decimals in METRICS), mark)


def fitting(landed: Sequence[tuple[Point, tuple[str, ...]]], width: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows, one line a point: a narrow terminal gets no reasons, then no intervals, then no step times, so that the line of state stays in
    sight. Engine and target stand before a point only if there are several.
    """
    places = {(point.axes["engine"], point.axes["target"]) for point, _ in landed}
    common = " ".join(map(str, next(iter(places)))) + " " if len(places) == 1 else ""
    rows = [(cells[0].removeprefix(common), *cells[1:]) for _, cells in landed]
    brief = [(*cells[:-1], cells[-1].split(":")[0]) for cells in rows]
    short = [tuple(cell.split(" [")[0] for cell in cells) for cells in brief]
    for shown in (rows, brief, short):
        if _width(COLUMNS, shown) <= width:
            return COLUMNS, shown
    return (*COLUMNS[:-2], COLUMNS[-1]), [(*cells[:-2], cells[-1]) for cells in short]


def _width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(columns, *rows, strict=True))


@dataclass
class Progress:
    """Plain lines. ``stream`` is standard error, so that standard output stays for results."""

    tally: Tally
    started: float = field(default_factory=time.monotonic)
    _waiting: bool = False

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def session(self, session: Session, words: str) -> None:
        self.say(f"[{clock(time.monotonic() - self.started)}] session {self.tally.number(session)}/{self.tally.sessions}: {words}")

    def measuring(self, point: Point, requests: int) -> None:
        pass

    def waiting(self, words: str) -> None:
        """For a quiet machine. It is called at every look; ``words`` say how busy the machine is."""
        if not self._waiting:
            self.say(f"[{clock(time.monotonic() - self.started)}] {words}")
        self._waiting = True

    def waited(self) -> None:
        self._waiting = False

    def landed(self, point: Point, measurement: Mapping[str, Any]) -> None:
        name, *values, mark = row(point, measurement)
        figures = [f"{title} {value}" for title, value in zip(COLUMNS[1:], values, strict=False) if value != "–"]
        self.say(f"[{clock(time.monotonic() - self.started)}] {name}: {' · '.join(figures + ([mark] if mark else []))}")
        self.say(f"    {self.tally.line()}")

    def failed(self, point: Point, reason: str) -> None:
        self.say(f"[{clock(time.monotonic() - self.started)}] {label(point)}: failed: {reason}")

    def close(self) -> None:
        pass


class LiveProgress(Progress):
    """The same on a terminal, redrawn in place."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        self._rows: list[tuple[Point, tuple[str, ...]]] = []
        self._now = "preparing models, prompts and client processes"
        self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=REDRAWS_PER_S, transient=True)
        self._live.start()

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        columns, rows = fitting(self._rows[-max(4, self._console.height - 8) :], self._console.width)
        for column in columns:
            table.add_column(column, justify="left" if column in ("point", "") else "right", no_wrap=True)
        for cells in rows:
            table.add_row(*map(Text, cells))
        elapsed = clock(time.monotonic() - self.started)
        return Group(table, Text(f"{self._now}", style="cyan"), Text(f"{self.tally.line()} · elapsed {elapsed}", style="bold"))

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False)

    def session(self, session: Session, words: str) -> None:
        self._now = words

    def measuring(self, point: Point, requests: int) -> None:
        self._now = f"measuring {label(point)} ({requests} requests)"

    def waiting(self, words: str) -> None:
        self._now = words

    def landed(self, point: Point, measurement: Mapping[str, Any]) -> None:
        self._rows.append((point, row(point, measurement)))

    def close(self) -> None:
        self._live.stop()


def progress(tally: Tally) -> Progress:
    return LiveProgress(tally) if sys.stderr.isatty() else Progress(tally)
