"""`specsweep advise SWEEP --user-tps 30`: which engine, drafter, draft length and batch size to run for a service goal.

Two sweeps are step times and acceptance, as for `specsweep proxy`; a CSV file of AL, t_ar and t_sd (the layout of the paper's Table 10) stands for
measurements made elsewhere.
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

from specsweep.analysis.advise import ORDERS, Advice, Arm, Bound, Goal, Order, advise, measured_arms, projected_arms
from specsweep.analysis.advise_table import advice_table, goal_text
from specsweep.analysis.next_measurement import next_measurements
from specsweep.analysis.projection import projections
from specsweep.analysis.tabular import Table
from specsweep.orchestrator.cli.advise_input import read_arms
from specsweep.orchestrator.cli.compare import view_of
from specsweep.orchestrator.cli.filters import filtered
from specsweep.orchestrator.cli.output import add_json, emit_json, terminal_width, write_table
from specsweep.orchestrator.cli.report import Narrowing, show
from specsweep.orchestrator.cli.selection import one_sweep
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

NARROWING = Narrowing(
    expendable=("remark",),
    important=("remark",),
    intervals=(("output_tps_steady",), ("cost",), ("user_tps_mean",)),
    elsewhere="--json or --out FILE",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SWEEP store=DIR",
        help="a measured sweep; or two, step times and acceptance; or a CSV file of AL, t_ar and t_sd",
    )
    parser.add_argument("--user-tps", type=float, metavar="X", help="TPS of a user must be at least this")
    parser.add_argument("--ttft", action="append", default=[], metavar="P=MS", help="TTFT must be at most this: p95=800, mean=300")
    parser.add_argument("--at-least", action="append", default=[], metavar="METRIC=X", help="any other metric, at least this")
    parser.add_argument("--at-most", action="append", default=[], metavar="METRIC=X", help="any other metric, at most this")
    parser.add_argument("--order", choices=tuple(ORDERS), help="what best means (default: cost with --gpu-price, else output_tps)")
    parser.add_argument("--gpu-price", type=float, metavar="PRICE", help="of one GPU for an hour; orders by cost per million output tokens")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs of a server, where the points do not say")
    parser.add_argument(
        "--only", action="append", default=[], metavar="AXIS=VALUE", help="only these points: workload=low_entropy, isl=1000"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all arms to this file: .csv, .md or .json")
    add_json(parser)
    parser.epilog = "Exit code 0 also where no arm meets the goal: the answer says so. Points that are not valid are never ranked."


def run(args: argparse.Namespace) -> int:
    goal = _goal(args)
    arms = _arms(args)
    found = advise(arms, goal)
    if not any(a.ranked for a in found) and any(a.unpriced for a in found):
        raise ConfigError(_unranked(goal))
    if not any(a.ranked or a.out for a in found):
        invalid = next((x.invalid for a in found for x in a.invalid), "nothing was measured")
        raise ConfigError(f"no arm has valid rates: {invalid}")
    tables = [advice_table(a) for a in found]
    if args.out is not None:
        _write(args.out, tables)
    if args.json:
        emit_json({"goal": goal_text(goal), "services": [_as_json(a) for a in found]})
        return EXIT_OK
    for advice, table in zip(found, tables, strict=True):
        show(table, narrowing=NARROWING)
        for line in next_measurements(advice):
            print(textwrap.fill(line, min(terminal_width(), 160), initial_indent="• ", subsequent_indent="  "))
        print()
    return EXIT_OK


def _unranked(goal: Goal) -> str:
    if goal.order == "cost":
        return "the points do not say how many GPUs a server has (a CPU has none): give --gpus N to price it as N of them"
    return f"no arm has {ORDERS[goal.order]} to be ranked by"


def _goal(args: argparse.Namespace) -> Goal:
    bounds = [("user_tps_mean", args.user_tps, True)] if args.user_tps is not None else []
    bounds += [(f"ttft_ms_{name}", limit, False) for name, limit in (_pair("--ttft", t, "p95=800") for t in args.ttft)]
    bounds += [(*_pair("--at-least", t, "output_tps=500"), True) for t in args.at_least]
    bounds += [(*_pair("--at-most", t, "request_latency_ms_p95=4000"), False) for t in args.at_most]
    order: Order = args.order or ("cost" if args.gpu_price is not None else "output_tps")
    try:
        return Goal(tuple(Bound(*b) for b in bounds), order, args.gpu_price, args.gpus)
    except ValueError as error:
        raise ConfigError(f"goal: {error}") from error


def _pair(option: str, text: str, example: str) -> tuple[str, float]:
    name, _, limit = text.partition("=")
    try:
        return name, float(limit)
    except ValueError:
        raise ConfigError(f"{option} {text}: write NAME=NUMBER, such as {example}") from None


def _arms(args: argparse.Namespace) -> list[Arm]:
    names = [w for w in args.words if "=" not in w]
    settings = [w for w in args.words if "=" in w]
    if len(names) == 1 and names[0].lower().endswith(".csv"):
        return read_arms(Path(names[0]))
    if len(names) > 2:
        raise ConfigError(f"advise takes one sweep, or two (step times and acceptance), not {len(names)}")
    if len(names) == 2:
        steps, acceptance = (view_of(name, settings).records() for name in names)
        arms = projected_arms(projections(steps, filtered(acceptance, args.only, "--only")))
        if not arms:
            raise ConfigError(
                f"nothing could be projected from {names[0]} and {names[1]}; `specsweep proxy {names[0]} {names[1]}` says why"
            )
        return arms
    if names:
        return measured_arms(filtered(view_of(names[0], settings).records(), args.only, "--only"))
    name, store = one_sweep(args.words, "advise")
    return measured_arms(filtered(store.sweep(name).records(), args.only, "--only"))


def _write(path: Path, tables: list[Table]) -> None:
    """All services in one file: their arms one below the other."""
    first = tables[0]
    write_table(path, replace(first, title="Advice", rows=tuple(row for t in tables for row in t.rows)))


def _as_json(advice: Advice) -> dict[str, Any]:
    first = advice.first
    table = advice_table(advice).to_json()
    return {
        "service": dict(advice.service),
        "simulated": any(r.arm.simulated for r in (*advice.ranked, *advice.out)),
        "first": None
        if first is None
        else {"engine": first.arm.engine, "arm": first.arm.name, "batch_size": first.arm.batch_size, "goal": first.standing},
        "next_measurements": next_measurements(advice),
        "not_valid": [{"arm": a.label, "reason": a.invalid} for a in advice.invalid],
        **table,
    }
