"""`specsweep map SWEEP`: which draft length is best at which batch size, where arms change places, and the settings for a server.

The figure goes into the sweep's folder beside its report. `--export` writes vLLM's draft length by batch size, as JSON or as a file for
`vllm serve --config`.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

from specsweep.analysis.draft_length_figure import map_figure
from specsweep.analysis.draft_length_map import GOALS, DraftLengthMap, draft_length_maps, pair_crossovers
from specsweep.analysis.draft_length_tables import crossover_table, map_table, summary
from specsweep.analysis.operator_config import as_json, as_yaml, vllm_config
from specsweep.analysis.similarity import write_figure
from specsweep.orchestrator.cli.filters import filtered
from specsweep.orchestrator.cli.output import add_json, emit_json, write_table, write_text
from specsweep.orchestrator.cli.report import Narrowing, show
from specsweep.orchestrator.cli.selection import METAVAR, one_sweep
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

WRITERS = {".json": as_json, ".yaml": as_yaml, ".yml": as_yaml}
NARROWING = Narrowing(
    expendable=("left_out",), important=("left_out",), intervals=(("value",), ("over_none",)), elsewhere="--json or --out FILE"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar=METAVAR, help="the sweep's name (may be left out if the store has one) and where results live"
    )
    parser.add_argument(
        "--goal", choices=tuple(GOALS), default="output_tps", help="what best means: tokens/s of all users (default), or of one user"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="AXIS=VALUE", help="only these points: workload=low_entropy, isl=1000"
    )
    parser.add_argument("--all-pairs", action="store_true", help="also crossovers of arms that are neither none nor cross")
    parser.add_argument(
        "--export", type=Path, metavar="FILE", help="write vLLM's draft length by batch size: .json, or .yaml for vllm --config"
    )
    parser.add_argument("--simulated-ok", action="store_true", help="export simulated numbers too; the file says what they are")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the map to this file: .csv, .md or .json")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write the figure here (default: the sweep's folder)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    name, store = one_sweep(args.words, "map")
    view = store.sweep(name)
    if args.export is not None and args.export.suffix.lower() not in WRITERS:
        raise ConfigError(f"--export {args.export}: its name must end in one of {', '.join(WRITERS)}")
    records = filtered(view.records(), args.only, "--only")
    maps = draft_length_maps(records, args.goal)
    if not maps:
        raise ConfigError(f"sweep {name}: no point with a drafter was measured, so there is no draft length to choose")
    pairs = pair_crossovers(records, args.goal)
    shown = pairs if args.all_pairs else [p for p in pairs if p.against_none or p.crossings]
    simulated = any(m.simulated for m in maps)
    tables = (map_table(maps), crossover_table(shown, simulated=simulated))
    files = write_figure(map_figure(maps), args.figures or view.path, "draft_length_map")
    if args.out is not None:
        write_table(args.out, tables[0])
        files.append(args.out)
    if args.export is not None:
        _export(args.export, maps, name, simulated_ok=args.simulated_ok)
        files.append(args.export)
    if args.json:
        emit_json(
            {
                "sweep": name,
                "goal": args.goal,
                "simulated": simulated,
                "summary": summary(maps),
                "tables": {t.name: t.to_json() for t in tables},
                "files": [str(f) for f in files],
            }
        )
        return EXIT_OK
    for table in tables:
        if table.rows:
            show(table, narrowing=NARROWING)
    print("\n".join([*summary(maps), "", *(f"wrote {f}" for f in files)]))
    return EXIT_OK


def _export(path: Path, maps: list[DraftLengthMap], sweep: str, *, simulated_ok: bool) -> None:
    places = [(m, isl) for m in maps for isl in sorted({c.isl for c in m.choices})]
    if not places:
        raise ConfigError(f"--export {path}: no draft length is valid anywhere")
    if len(places) > 1:
        several = "; ".join(f"{m.label}, ISL {isl}" for m, isl in places[:4])
        raise ConfigError(
            f"--export {path}: a server has one schedule and there are {len(places)} to choose from ({several}{' …' if len(places) > 4 else ''}); "
            "name one with --only workload=… --only isl=… --only drafter=none,…"
        )
    ((chosen, isl),) = places
    try:
        document = vllm_config(chosen, isl, sweep=sweep, version=version("specsweep"), simulated_ok=simulated_ok)
    except ValueError as error:
        raise ConfigError(f"--export {path}: {error}") from error
    write_text(path, WRITERS[path.suffix.lower()](document), "--export")
