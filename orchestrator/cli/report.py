"""`specsweep report`: the tables of a sweep in the terminal, and report.html, figures and tables as files beside its plan.

``--format`` prints the same sweep as another program reports it, and writes nothing.

Everything is made from the store, at any moment: a sweep that is half measured gives a report that says so. Files are written
aside and renamed, so a browser that reloads while a sweep runs never sees half a page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specsweep.analysis.report import Report, build, crossovers, draw, headlines, html, markdown
from specsweep.analysis.tabular import Table, fit, footnoted, text_width, without_intervals
from specsweep.orchestrator.cli.output import add_json, emit_json, print_table, terminal_width
from specsweep.orchestrator.cli.selection import METAVAR, one_sweep
from specsweep.orchestrator.errors import EXIT_OK, ConfigError
from specsweep.orchestrator.run_command import continue_command
from specsweep.orchestrator.sweep_record import SweepView

DEFAULT_STORE = "results"
SPEC_BENCH = SPEC_BENCH_MD, SPEC_BENCH_JSONL = "spec-bench.md", "spec-bench.jsonl"
EXPENDABLE = (
    *("layers", "passes", "tokens", "imbalance_mean", "whole_unused_share_max", "unused_share_mean"),  # of routing captures
    "al_verify",
    "proxy_speedup_clean",
    "ttft_ms_p50",
    "step_ms_mean",
    "proxy_speedup",
    "pareto",
    "al_decode",
    "speedup_output_tps",
)  # the least important first
IMPORTANT = ("al_decode", "pareto", "speedup_output_tps")  # intervals of the others go before these do
INTERVALS = (("output_tps", "speedup_output_tps"), ("al_decode",), ("user_tps_mean", "speedup_user_tps"))  # which go first, and then
BRIEF_HEADERS = {"al_decode": "AL"}  # where there is no room for the other one beside it
SHOWN_REMARKS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar=METAVAR, help="the sweep's name (may be left out if the store has one) and where results live"
    )
    parser.add_argument(
        "--format",
        choices=("specsweep", *SPEC_BENCH),
        default="specsweep",
        help="spec-bench.md, spec-bench.jsonl: request by request to standard output, as llama-spec-bench reports (default: %(default)s)",
    )
    parser.add_argument("--details", action="store_true", help="of the spec-bench formats: with prompts, answers and rates by position")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    name, store = one_sweep(args.words, "report")
    view = store.sweep(name)
    report = report_of(view)
    if args.format != "specsweep":
        from specsweep.orchestrator.cli.report_spec_bench import print_spec_bench

        if args.json:
            raise ConfigError(f"--json is the specsweep format as JSON; leave it out, or leave out --format {args.format}")
        print_spec_bench(report, view, lines=args.format == SPEC_BENCH_JSONL, details=args.details)
        return EXIT_OK
    if args.details:
        raise ConfigError(f"--details belongs to --format {' and '.join(SPEC_BENCH)}; report.html has all that the tables leave out")
    paths = write_report(report, view.path)
    if args.json:
        emit_json({**_as_json(report), "files": [str(p) for p in paths]})
    else:
        print_report(report)
        print("\n" + "\n".join(f"wrote {p}" for p in paths))
    return EXIT_OK


def report_of(view: SweepView) -> Report:
    """The report of what the store holds now."""
    root = view.path.parent.parent
    return build(
        view.name,
        view.records(),
        planned=len(view.points),
        dropped=view.plan.get("dropped") or (),
        warnings=view.plan.get("warnings") or (),
        command=continue_command(view.plan, root),
        command_invalid=continue_command(view.plan, root, rerun="invalid"),
        written_utc=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        sources=_sources(view),
    )


def up_to_date(view: SweepView) -> bool:
    """Whether report.html was made by this version of specsweep from exactly what the store holds now, so that drawing it again changes nothing.

    Attempts never change once they landed, so which ones there are, and the plan, say it all. Nobody's clock is asked.
    """
    try:
        page = (view.path / "report.html").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return f'content="{_sources(view)}"' in page


def _sources(view: SweepView) -> str:
    """A digest of everything that a report is made from."""
    plan = {k: v for k, v in view.plan.items() if k not in ("created_utc", "planned_utc")}
    attempts = sorted(f"{a.path.parent.name}/{a.path.name}" for a in view.latest.values())
    facts = {"version": version("specsweep"), "plan": plan, "attempts": attempts, "damaged": list(view.damaged)}
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def rows_of(report: Report) -> dict[str, Any]:
    """The Pareto and the speedup table as JSON-able rows, full precision, and that of routing captures if there are any."""
    return {
        name: report.tables[name].to_json() for name in ("pareto", "speedup", "routing") if report.tables[name].rows or name != "routing"
    }


def print_report(report: Report) -> None:
    """Pareto, speedup and routing tables and findings to the terminal."""
    print(f"{report.name}: {report.status}\n")
    said: set[str] = set()
    for name in ("pareto", "speedup", "routing"):
        table = report.tables[name]
        if table.rows:
            said.update(show(table, said))
    width = min(terminal_width(), 160)
    for line in [*headlines(report), *(f"{panel}, {series}: {text}." for panel, series, text in crossovers(report))]:
        print(textwrap.fill(line, width, initial_indent="• ", subsequent_indent="  "))


def write_report(report: Report, folder: Path) -> list[Path]:
    """Writes report.html, tables.md, a CSV a table and the figures as PNG into the sweep's folder.

    The page is first in the list and written last: where it stands, the others do too.
    """
    from specsweep.analysis.figures import write_png

    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(report)
    page = html(report, drawn)
    texts = {"tables.md": markdown(report)}
    texts |= {f"{t.name}.csv": t.to_csv() for t in report.tables.values() if t.rows and t.name != "environment"}
    paths = [_replace(folder / name, text) for name, text in texts.items()]
    for name, figure in drawn.items():
        aside = folder / f".{name}.{os.getpid()}.png"
        write_png(figure, aside)
        paths.append(aside.replace(folder / f"{name}.png"))
    return [_replace(folder / "report.html", page), *paths]


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


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What of a table's columns (keys) goes first where there is no room."""

    expendable: Sequence[str] = EXPENDABLE  # the least important first
    important: Sequence[str] = IMPORTANT  # of those; intervals of others go before these do
    intervals: Sequence[Sequence[str]] = INTERVALS  # columns whose intervals go, tier by tier
    elsewhere: str = "report.html or --json"  # where all of it is


REPORT_NARROWING = Narrowing()


def narrowed(table: Table, width: int, narrowing: Narrowing = REPORT_NARROWING) -> tuple[Table, list[str], list[str]]:
    """The table as it goes into ``width`` characters: what matters most stays, if need be with its reasons below it and without intervals.

    Also what there was no room for, and the lines that stand below.
    """
    remarked, remarks = footnoted(table, "remark")
    marked, reasons = footnoted(remarked, "valid", stays=("yes", "…"))
    brief = replace(marked, columns=tuple(replace(c, header=BRIEF_HEADERS.get(c.key, c.header)) for c in marked.columns))
    tiers = [[key for keys in narrowing.intervals[: n + 1] for key in keys] for n in range(len(narrowing.intervals))]
    for variant, below in (
        (remarked, remarks),
        (marked, remarks + reasons),
        *((without_intervals(brief, keys), remarks + reasons) for keys in tiers),
    ):
        shown, left_out = fit(variant, width, narrowing.expendable)
        bare = variant is not remarked and variant.rows != marked.rows
        found = shown, [*left_out, *(["some intervals"] if bare else [])], below
        kept = {c.key for c in shown.columns}
        if text_width(shown) <= width and all(c.key in kept for c in table.columns if c.key in narrowing.important):
            break
    return found


def show(table: Table, said: Collection[str] = (), narrowing: Narrowing = REPORT_NARROWING) -> tuple[str, ...]:
    """One table on the terminal: shared values in the title, the brief notes under it that are not among ``said`` already.

    A narrow terminal gets the columns that matter most; remarks stand under the table, each once. Returns the notes that were printed.
    """
    width = terminal_width()
    shown, left_out, remarks = narrowed(table, width, narrowing)
    wraps = [i for i, c in enumerate(shown.columns) if c.wraps] if text_width(shown) <= width else None
    title = f"{table.title} ({table.caption})" if table.caption else table.title
    print_table(title, [c.header for c in shown.columns], [row.cells for row in shown.rows], right=shown.right, wraps=wraps)
    unseen = tuple(f"{header} –:" for header in left_out)  # why a dash stands in a column that is not there
    notes = tuple(note for note in table.brief or table.notes if note not in said and not (unseen and note.startswith(unseen)))
    more = [f"… and {len(remarks) - SHOWN_REMARKS} more remarks, in {narrowing.elsewhere}"] if len(remarks) > SHOWN_REMARKS else []
    room = [f"No room for: {', '.join(left_out)} (see {narrowing.elsewhere})."] if left_out else []
    for line in [*remarks[:SHOWN_REMARKS], *more, *notes, *room]:
        print(textwrap.fill(line, min(width, 160), initial_indent="  ", subsequent_indent="  "))
    print()
    return notes
