"""`specsweep proxy STEPS [ACCEPTANCE]`: the speedup of prompts from two measurements, step times of one and acceptance of the other.

Step times depend on the system, acceptance on the text. So a team times its servers once (on a throughput workload), measures acceptance on
its own prompts at any size, and reads what those prompts would gain; where that gain was measured too, the table says how well the
projection held.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from specsweep.analysis.projection import AL_METRICS, projections
from specsweep.analysis.projection_table import projection_table, verdict
from specsweep.analysis.reasons import in_one_sentence
from specsweep.orchestrator.cli.compare import view_of
from specsweep.orchestrator.cli.filters import filtered
from specsweep.orchestrator.cli.output import add_json, emit_json, write_table
from specsweep.orchestrator.cli.report import Narrowing, show
from specsweep.orchestrator.cli.selection import one_sweep
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

NARROWING = Narrowing(
    expendable=("temperature", "steps", "projected_clean", "agrees", "difference"),
    important=("difference", "agrees"),
    intervals=(("t_ar", "t_sd"), ("al",), ("projected_clean",), ("actual", "projected")),
    elsewhere="--json or --out FILE",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="STEPS ACCEPTANCE store=DIR",
        help="the sweep with the step times and the one with the acceptance (the same if one is named): a name in the store, DIR:NAME, or DIR",
    )
    parser.add_argument(
        "--steps", action="append", default=[], metavar="AXIS=VALUE", help="take step times only of these points: workload=mixed_entropy"
    )
    parser.add_argument(
        "--al",
        action="append",
        default=[],
        metavar="AXIS=VALUE",
        help="take acceptance only of these points: workload=low_entropy,high_entropy",
    )
    parser.add_argument("--category", action="store_true", help="also a row for each category of prompts")
    parser.add_argument(
        "--average", choices=tuple(AL_METRICS), default="pooled", help="of AL: over all steps (pooled), or over requests (request)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all rows to this file: .csv, or .md")
    add_json(parser)
    parser.epilog = (
        "Both sides must agree in engine, target, drafter, draft length, batch size and temperature. Step times of the acceptance's own prompts are "
        "taken where they were measured, unless --steps says otherwise."
    )


def run(args: argparse.Namespace) -> int:
    names = [w for w in args.words if "=" not in w]
    settings = [w for w in args.words if "=" in w]
    if len(names) > 2:
        raise ConfigError(f"proxy takes one sweep or two, not {len(names)}: specsweep proxy STEPS [ACCEPTANCE] [store=DIR]")
    if names:
        views = [view_of(name, settings) for name in names]
    else:
        name, store = one_sweep(args.words, "proxy")
        views = [store.sweep(name)]
    steps = filtered(views[0].records(), args.steps, "--steps")
    acceptance = filtered(views[-1].records(), args.al, "--al")
    found = projections(steps, acceptance, categories=args.category, average=args.average)
    if not found:
        raise ConfigError(f"sweep {views[-1].name}: no point with a drafter was measured, so there is no acceptance to project with")
    table = projection_table(found)
    if args.out is not None:
        write_table(args.out, table)
    if args.json:
        emit_json(
            {
                "steps": {"sweep": views[0].name, "filters": args.steps},
                "acceptance": {"sweep": views[-1].name, "filters": args.al},
                "simulated": table.title.startswith("SIMULATED"),
                "statement": verdict(found),
                **table.to_json(),
            }
        )
    else:
        show(table, narrowing=NARROWING)
    if not any(p.value() for p in found):
        raise ConfigError(f"nothing could be projected: {in_one_sentence(p.reason for p in found)}")
    return EXIT_OK
