"""`specsweep report`: the tables of a sweep in the terminal, and report.html, figures and tables as files beside its plan.

Everything is made from the store, at any moment: a sweep that is half measured gives a report that says so. Files are written
aside and renamed, so a browser that reloads while a sweep runs never sees half a page.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specsweep.analysis.report import Report, build, crossovers, draw, headlines, html, markdown
from specsweep.analysis.tabular import Table, fit
from specsweep.orchestrator.cli.output import add_json, emit_json, print_table
from specsweep.orchestrator.cli.selection import METAVAR, names_and_store, only_sweep
from specsweep.orchestrator.errors import EXIT_OK, ConfigError
from specsweep.orchestrator.sweep_record import SweepView

DEFAULT_STORE = "results"
EXPENDABLE = (
    "al_verify",
    "proxy_speedup_clean",
    "step_ms_mean",
    "ttft_ms_p50",
    "proxy_speedup",
    "speedup_output_tps",
    "pareto",
)  # in this order


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar=METAVAR, help="the sweep's name (may be left out if the store has one) and where results live"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    names, store = names_and_store(args.words)
    if len(names) > 1:
        raise ConfigError(f"report takes one sweep, not {len(names)}: {', '.join(names)}")
    view = store.sweep(names[0] if names else only_sweep(store))
    report = report_of(view)
    paths = _write(report, view.path)
    if args.json:
        emit_json({**_as_json(report), "files": [str(p) for p in paths]})
    else:
        _print(report)
        print("\n" + "\n".join(f"wrote {p}" for p in paths))
    return EXIT_OK


def report_of(view: SweepView) -> Report:
    """The report of what the store holds now."""
    overrides = [str(o) for o in view.plan.get("overrides") or ()]
    words = overrides if any(o.startswith("store=") for o in overrides) else [*overrides, f"store={view.path.parent.parent}"]
    return build(
        view.name,
        view.records(),
        planned=len(view.points),
        dropped=view.plan.get("dropped") or (),
        warnings=view.plan.get("warnings") or (),
        command=shlex.join(["specsweep", "run", *words]),
        written_utc=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def render_sweep(view: SweepView) -> list[Path]:
    """Writes report.html, tables.md, a CSV a table and the figures as PNG into the sweep's folder; the HTML comes first in the list."""
    return _write(report_of(view), view.path)


def rows_of(view: SweepView) -> dict[str, Any]:
    """The Pareto and the speedup table as JSON-able rows, full precision."""
    tables = report_of(view).tables
    return {name: tables[name].to_json() for name in ("pareto", "speedup")}


def print_tables(view: SweepView) -> None:
    """Findings, Pareto table and speedup table to the terminal."""
    _print(report_of(view))


def _write(report: Report, folder: Path) -> list[Path]:
    from specsweep.analysis.figures import write_png

    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(report)
    texts = {"report.html": html(report, drawn), "tables.md": markdown(report)}
    texts |= {f"{t.name}.csv": t.to_csv() for t in report.tables.values() if t.rows and t.name != "environment"}
    paths = [_replace(folder / name, text) for name, text in texts.items()]
    for name, figure in drawn.items():
        aside = folder / f".{name}.{os.getpid()}.png"
        write_png(figure, aside)
        paths.append(aside.replace(folder / f"{name}.png"))
    return paths


def _replace(path: Path, text: str) -> Path:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    return aside.replace(path)


def _as_json(report: Report) -> Mapping[str, Any]:
    return {
        "sweep": report.name,
        "status": report.status,
        "points_planned": report.planned,
        "simulated": report.simulated,
        "findings": headlines(report),
        "crossovers": [{"workload": panel, "series": series, "statement": text} for panel, series, text in crossovers(report)],
        "tables": {name: table.to_json() for name, table in report.tables.items()},
    }


def _print(report: Report) -> None:
    print(f"{report.name}: {report.status}\n")
    for name in ("pareto", "speedup"):
        table = report.tables[name]
        if table.rows:
            show(table)
    width = min(_terminal_width(), 160)
    for line in [*headlines(report), *(f"{panel}, {series}: {text}." for panel, series, text in crossovers(report))]:
        print(textwrap.fill(line, width, initial_indent="• ", subsequent_indent="  "))


def _terminal_width() -> int:
    return shutil.get_terminal_size((200, 50)).columns if sys.stdout.isatty() else 200


def show(table: Table) -> None:
    """One table on the terminal: shared values in the title, notes under it. A narrow terminal gets the columns that matter most."""
    width = _terminal_width()
    shown, left_out = fit(table, width, EXPENDABLE)
    title = f"{table.title} ({table.caption})" if table.caption else table.title
    print_table(title, [c.header for c in shown.columns], [row.cells for row in shown.rows], right=shown.right)
    notes = [*table.notes, *([f"Not enough room for: {', '.join(left_out)}; they are in report.html and --json."] if left_out else [])]
    for note in notes:
        print(textwrap.fill(note, min(width, 160), initial_indent="  ", subsequent_indent="  "))
    print()
