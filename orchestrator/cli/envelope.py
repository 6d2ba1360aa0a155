"""`specsweep envelope SWEEP --isl 3000`: the Pareto front at an input length between those that were measured, marked as interpolated."""

from __future__ import annotations

import argparse
from pathlib import Path

from specsweep.analysis.isl_envelope import envelopes, leave_one_out
from specsweep.analysis.isl_envelope_views import belief, envelope_figure, envelope_table
from specsweep.analysis.similarity import write_figure
from specsweep.orchestrator.cli.filters import filtered
from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.cli.report import Narrowing, show
from specsweep.orchestrator.cli.selection import METAVAR, one_sweep
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

NARROWING = Narrowing(expendable=("source",), important=("source",), intervals=(("y",), ("x",)), elsewhere="--json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar=METAVAR, help="the sweep's name (may be left out if the store has one) and where results live"
    )
    parser.add_argument("--isl", type=float, required=True, metavar="TOKENS", help="the input length, between two that were measured")
    parser.add_argument("--only", action="append", default=[], metavar="AXIS=VALUE", help="only these points: workload=low_entropy")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write the figure here (default: the sweep's folder)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    name, store = one_sweep(args.words, "envelope")
    view = store.sweep(name)
    records = filtered(view.records(), args.only, "--only")
    try:
        found = envelopes(records, args.isl)
    except ValueError as error:
        raise ConfigError(f"--isl {args.isl:g}: {error}") from error
    checks = leave_one_out(records)
    tables = [envelope_table(e, [c for c in checks if c.service == e.service]) for e in found]
    files = write_figure(envelope_figure(records, [args.isl]), args.figures or view.path, "isl_envelope")
    if args.json:
        emit_json(
            {
                "sweep": name,
                "isl": args.isl,
                "checked": belief(checks),
                "tables": [t.to_json() for t in tables],
                "files": [str(f) for f in files],
            }
        )
        return EXIT_OK
    for table in tables:
        show(table, narrowing=NARROWING)
    print("\n".join(f"wrote {f}" for f in files))
    return EXIT_OK
