"""`specsweep data stability SWEEP`: how much a benchmark's figures depend on which prompts of a pool it took, as Tables 6 to 8 of the paper.

The whole pool is measured once, by a sweep; ten uniform and ten optimised benchmarks are then put together out of prompts that are
measured already, so that they differ by nothing but their choice.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.client.workload.documents import DATA
from specsweep.orchestrator.cli.data_sets import PATHS, rows_of
from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.cli.selection import METAVAR, one_sweep
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

if TYPE_CHECKING:
    from specsweep.analysis.stability import Agreement, Kind

_NAMING = ("target", "drafter", "workload", "temperature")  # what a point is told by beside its lengths and batch size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar=METAVAR, help="the sweep's name (may be left out if the store has one) and where results live"
    )
    parser.add_argument("--data", required=True, metavar="PATH", help=f"the pool that the sweep measured: {PATHS}")
    parser.add_argument("--k", type=int, required=True, help="prompts of each category in a benchmark")
    parser.add_argument(
        "--embedder", default="hashed", metavar="NAME", help="what optimised benchmarks are chosen by (default: %(default)s)"
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep embeddings here, so that no text is embedded twice")
    parser.add_argument("--seed", type=int, default=0, help="of the choices (default: %(default)s)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from specsweep.analysis import stability
    from specsweep.client.workload.embedders import embedder
    from specsweep.client.workload.errors import WorkloadError
    from specsweep.orchestrator.cli.data_select import text_of
    from specsweep.orchestrator.cli.report import show

    name, store = one_sweep(args.words, "data stability")
    try:
        pool: dict[str, list[Any]] = {}
        for row in rows_of(args.data, Path(DATA)):
            pool.setdefault(row.category, []).append(row)
        use = embedder(args.embedder, cache=args.cache)
        x = {category: use.embed([text_of(row) for row in rows]) for category, rows in pool.items()}
        made = stability.benchmarks(x, args.k, seed=args.seed)
        measured, taken = _measured(
            store.sweep(name).records(), {c: {r.question_id: i for i, r in enumerate(rows)} for c, rows in pool.items()}
        )
        if not measured:
            raise ConfigError(f"sweep {name}: no point with a drafter has valid acceptance of prompts of {args.data}")
        _refuse_gaps(measured, {category: len(rows) for category, rows in pool.items()}, name, args.data)
        found: dict[int, Mapping[Kind, Agreement]] = {
            length: {kind: stability.agreement(stability.category_al(choices, al)) for kind, choices in made.items()}
            for length, al in sorted(measured.items())
        }
    except (WorkloadError, ValueError) as error:
        raise ConfigError(f"sweep {name}, {args.data}: {error}") from error
    tables = [*(stability.range_table(by_kind, length) for length, by_kind in found.items()), stability.ranking_table(found)]
    overlaps = {kind: stability.overlap(choices) for kind, choices in made.items()}
    if args.json:
        emit_json(
            {
                "overlap": overlaps,
                "sweep": name,
                "embedder": use.name,
                "k": args.k,
                "seed": args.seed,
                "points": {str(length): names[0] for length, names in sorted(taken.items())},
                "tables": [table.to_json() for table in tables],
            }
        )
        return EXIT_OK
    print(f"{name}: {stability.BENCHMARKS} benchmarks of each kind, {args.k} prompts a category, chosen by {use.name}, seed {args.seed}\n")
    for length, (name, *others) in sorted(taken.items()):
        more = f"; not in it: {'; '.join(others)}" if others else ""
        print(f"DL {length}: measured by {name}{more}")
    print()
    for table in tables:
        show(table, set())
        print()
    words = ", ".join(f"{kind} ones {share:.0%}" for kind, share in overlaps.items())
    print(f"Of their prompts two benchmarks share on average: {words}. What is nearly the same set agrees by itself.")
    return EXIT_OK


def _refuse_gaps(measured: Mapping[int, Mapping[str, Mapping[int, float]]], sizes: Mapping[str, int], sweep: str, data: str) -> None:
    """Any prompt of the pool may be drawn, so all of them have to be measured. Raises ConfigError."""
    total = sum(sizes.values())
    for length, by_category in sorted(measured.items()):
        gaps = {category: size - len(by_category.get(category, {})) for category, size in sizes.items()}
        if lacking := sum(gaps.values()):
            where = ", ".join(f"{category} {n}" for category, n in gaps.items() if n)
            raise ConfigError(
                f"sweep {sweep}: at draft length {length} it has no acceptance length of {lacking} of the {total} prompts of {data} ({where}); "
                f"measure the whole pool (workload.corpus={data} workload.prompts={total}), or give as --data only what was measured"
            )


def _measured(records: Any, index: Mapping[str, Mapping[str, int]]) -> tuple[dict[int, dict[str, dict[int, float]]], dict[int, list[str]]]:
    """AL of each row of the pool: draft length → category → row → AL, from the first point of each draft length that has it; and the
    names of all points that have it, the one that was taken first."""
    from specsweep.analysis.attempts import cells

    found: dict[int, dict[str, dict[int, float]]] = {}
    having: dict[int, list[str]] = {}
    for cell in cells(records):
        length = cell.axes.get("draft_length")
        if cell.baseline or not length or not cell.valid("acceptance"):
            continue
        by_category: dict[str, dict[int, float]] = {}
        for row in cell.counted("acceptance")[0]["measurement"].get("per_conversation") or ():
            place = index.get(str(row["category"]), {}).get(str(row["conversation_id"]))
            if place is not None and row.get("steps"):
                by_category.setdefault(str(row["category"]), {})[place] = row["step_tokens"] / row["steps"]
        if by_category:
            found.setdefault(int(length), by_category)
            having.setdefault(int(length), []).append(
                " · ".join(str(cell.axes.get(a)) for a in _NAMING) + f" · BS {cell.axes.get('batch_size')}"
            )
    return found, having
