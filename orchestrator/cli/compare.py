"""`specsweep compare A B`: what differs between two sweeps beyond their intervals, and an exit code that a pipeline can stop on.

A and B are names of sweeps in the store; ``DIR:NAME`` takes a sweep of another store (and ``DIR`` alone the only sweep there).
Exit code 7 says that a metric got worse, or with ``--require-all`` that B lost a point which is valid in A; 2 that nothing could be compared.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from specsweep.analysis.compare import COMPARABLE, Comparison, compare, difference_table
from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.cli.report import show
from specsweep.orchestrator.cli.selection import names_and_store, only_sweep
from specsweep.orchestrator.errors import EXIT_OK, EXIT_REGRESSION, ConfigError
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_record import SweepView


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="A B store=DIR", help="two sweeps: a name in the store, DIR:NAME of another store, or DIR"
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help=f"compare only this metric; may be given again ({', '.join(COMPARABLE)})",
    )
    parser.add_argument(
        "--threshold", type=_share, default=0.0, metavar="SHARE", help="a regression is worse by more than this: 2%% or 0.02 (default 0)"
    )
    parser.add_argument(
        "--require-all", action="store_true", help="a point that is valid in A, and in B missing, failed or not valid, is a regression too"
    )
    parser.add_argument("--all", action="store_true", help="also list what is not shown to differ")
    add_json(parser)
    parser.epilog = (
        "Exit code 0: nothing got worse; 7: something did, or with --require-all a point was lost; 2: nothing could be compared. "
        "B against A: name the older sweep first."
    )


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 2% or 0.02") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be from 0 to below 100 %")
    return value


def run(args: argparse.Namespace) -> int:
    names = [w for w in args.words if "=" not in w]
    if len(names) != 2:
        raise ConfigError(f"compare takes two sweeps, A and B, not {len(names)}: specsweep compare A B [store=DIR]")
    settings = [w for w in args.words if "=" in w]
    views = [view_of(name, settings) for name in names]
    try:
        found = compare(views[0].records(), views[1].records(), metrics=args.metric, threshold=args.threshold)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if args.json:
        emit_json(_as_json(found, names, args.all))
    else:
        _print(found, names, args.all, same=_same_attempts(*views))
    if found.regressions or (args.require_all and found.lost):
        return EXIT_REGRESSION
    if not found.differences or found.no_rate_of_any:
        what = "no rate" if found.differences else "nothing"
        print(f"specsweep compare: {what} could be compared: {_why_nothing(found)}", file=sys.stderr)
        return ConfigError.exit_code
    return EXIT_OK


def view_of(name: str, settings: list[str]) -> SweepView:
    """``NAME`` in ``store=``, ``DIR:NAME``, or ``DIR`` of a store with one sweep. Raises ``ConfigError`` if there is no such sweep."""
    folder, colon, sweep = name.rpartition(":")
    if colon:
        if not Path(folder).expanduser().is_dir():
            raise ConfigError(f"{name}: no such folder: {folder}; write DIR:NAME")
        return Store(Path(folder).expanduser()).sweep(sweep)
    if "/" in name or name.startswith((".", "~")):
        path = Path(name).expanduser()
        if not path.is_dir():
            raise ConfigError(f"{name}: no such folder; write the name of a sweep, DIR:NAME, or DIR")
        store = Store(path)
        return store.sweep(only_sweep(store))
    try:
        return names_and_store(settings)[1].sweep(name)
    except ConfigError:
        if (Path(name) / "sweeps").is_dir():  # the folder of a store, named without ./
            store = Store(Path(name))
            return store.sweep(only_sweep(store))
        raise


def _same_attempts(a: SweepView, b: SweepView) -> int:
    """Points of which A and B hold the very same measurement: sweeps of one store share their points."""
    mine, theirs = ({x.path.resolve() for x in view.latest.values() if x.measured} for view in (a, b))
    return len(mine & theirs)


def _why_nothing(found: Comparison) -> str:
    if found.refused:
        return f"{found.refused[0][0]}: {found.refused[0][1]}"
    if found.only_a or found.only_b:
        return f"no point of A has a partner in B ({len(found.only_a)} only in A, {len(found.only_b)} only in B)"
    if found.left_out:
        return f"no rate is valid in both: {found.left_out[0][0]}: {found.left_out[0][1]}"
    return "no point was measured in both, or none is valid in both"


def _as_json(found: Comparison, names: list[str], everything: bool) -> dict[str, Any]:
    return {
        "a": names[0],
        "b": names[1],
        "points_compared": found.pairs,
        "comparisons": len(found.differences),
        "regressions": len(found.regressions),
        "simulated": found.simulated,
        "threshold_share": found.threshold,
        **difference_table(found, everything=everything).to_json(),
        "lost_in_b": [{"point": point, "reason": why} for point, why in found.lost],
        "refused": [{"point": point, "reason": why} for point, why in found.refused],
        "left_out": [{"point": point, "reason": why} for point, why in found.left_out],
        "only_in_a": found.only_a,
        "only_in_b": found.only_b,
        "environment_differences": found.environment,
    }


def _print(found: Comparison, names: list[str], everything: bool, *, same: int) -> None:
    print(f"A = {names[0]}, B = {names[1]}: {found.pairs} points compared in {len(found.differences)} numbers.\n")
    if same:
        which = "All of them" if same == found.pairs else f"{same} of the points"
        print(f"{which} are the same measurement in A and in B, so they cannot differ: nothing was measured twice.\n")
    if found.simulated:
        print("SIMULATED numbers are among them.\n")
    table = difference_table(found, everything=everything)
    if table.rows:
        show(table)
    elif found.no_rate_of_any and found.differences:
        print("No rate is valid in both sweeps; of the other numbers none is shown to differ beyond the intervals.\n")
    elif found.differences:
        print("No difference is shown beyond the intervals.\n")
    for title, lines in (
        ("Lost in B: valid in A, and there", [f"{point}: {why}" for point, why in found.lost]),
        ("Not compared", [f"{point}: {why}" for point, why in found.refused]),
        ("Rates left out", [f"{point}: {why}" for point, why in found.left_out]),
        ("Only in A", found.only_a),
        ("Only in B", found.only_b),
        ("Environment, A against B", found.environment),
    ):
        if lines:
            print(f"{title} ({len(lines)}):")
            print("\n".join(f"  {line}" for line in lines[:20]))
            print(f"  … and {len(lines) - 20} more; --json lists all\n" if len(lines) > 20 else "")
    if found.regressions:
        print(f"{len(found.regressions)} regressions.")
