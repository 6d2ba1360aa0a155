"""`specsweep data select`: of many candidates the prompts of each category that are least like each other, as a data set of its own.

Beside the reached similarity stand the two numbers that it is judged by: what chance gives (the mean of some uniform choices with the
range that 95 % of them are in), and what the greedy start alone gives. The embedder is named with everything that is written, since another
one gives other numbers. A second embedder can judge the choice of the first, which tells how much of the gain is real and how much is
the first one's own error; a choice by ``hashed`` is always judged by an independent sketch, whose need is explained in its module.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.client.workload.embedders import KINDS, Embedder, embedder, judge_of
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.labels import having
from specsweep.client.workload.rows import Row, require_filled, write_rows
from specsweep.orchestrator.cli.data_sets import PATHS, add_data, rows_of
from specsweep.orchestrator.cli.output import add_json, emit_json, print_table
from specsweep.orchestrator.cli.writing import refuse_folder, writing
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

if TYPE_CHECKING:
    from specsweep.analysis.selection import Rows, Selection

METHODS = ("greedy_swap", "greedy", "relaxation", "uniform")
UNIFORM_SUBSETS = 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choice of one category and what it is compared with: average pairwise similarities, and the time of the choice alone."""

    category: str
    candidates: int
    chosen: int
    similarity: float
    greedy_similarity: float
    uniform_mean: float
    uniform_low: float
    uniform_high: float
    check_similarity: float | None  # the same choice as the second embedder sees it
    check_uniform_mean: float | None
    rounds: int
    converged: bool
    wall_s: float
    question_ids: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help=f"the candidates: {PATHS}")
    add_data(parser)
    parser.add_argument("--k", type=int, default=80, help="prompts of each category to choose (default: %(default)s)")
    parser.add_argument(
        "--category", action="append", default=[], metavar="NAME", help="only this category; may be repeated (default: all)"
    )
    parser.add_argument("--embedder", default="hashed", metavar="NAME", help=f"{KINDS} (default: %(default)s)")
    parser.add_argument(
        "--check", metavar="NAME", help="a second embedder that judges the choice (default: for hashed an independent sketch)"
    )
    parser.add_argument("--method", choices=METHODS, default=METHODS[0], help="how to choose (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first row and of uniform choices (default: %(default)s)")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep embeddings here, so that no text is embedded twice")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the chosen rows to this Parquet file")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write similarity matrices and averages here, as PNG and SVG")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from specsweep.analysis.similarity import LARGEST

    if args.k < 2:
        raise ConfigError(f"--k {args.k}: choose at least 2 prompts, one has no likeness")
    if args.figures and args.k > LARGEST:
        raise ConfigError(
            f"--figures draws a pixel a pair: --k {args.k} is more than the {LARGEST} rows that can be looked at; leave one out"
        )
    if args.seed < 0:
        raise ConfigError(f"--seed {args.seed} must be 0 or more")
    refuse_folder(args.out, "--out", "chosen.parquet")
    try:
        rows = having(rows_of(args.path, args.data), {"category": args.category}, of=args.path)
        require_filled(rows, args.path)
        groups = _groups(rows, args.k)
        embed = embedder(args.embedder, cache=args.cache)
        judge = _judge(args.embedder, args.check, args.cache)
        if judge is not None and judge.name == embed.name:
            raise ConfigError(
                f"--check {args.check}: that is the embedder which chooses ({embed.name}), and no second opinion; name another one, or leave it out"
            )
        vectors = _embedded(embed, groups)
        judged = _embedded(judge, groups) if judge else {}
        picks = {category: choose(vectors[category], args.k, args.method, args.seed) for category in groups}
        found = [
            _compared(category, groups[category], vectors[category], judged.get(category), *picks[category], args.seed)
            for category in groups
        ]
        kept = [row for category, members in groups.items() for row in _in_order(members, picks[category][0].indices)]
        if args.out:
            write_rows(args.out, kept)
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    written = [args.out] if args.out else []
    if args.figures:
        with writing(args.figures):
            written += _figures(args.figures, found, vectors, {c: selection for c, (selection, _) in picks.items()}, args.seed)
    copies = len(rows) - sum(map(len, groups.values()))
    facts = {
        "embedder": embed.name,
        "check": judge.name if judge else None,
        "method": args.method,
        "k": args.k,
        "seed": args.seed,
        "uniform_subsets": UNIFORM_SUBSETS,
        "copies_left_out": copies,
    }
    if args.json:
        emit_json({**facts, "categories": [asdict(c) for c in found], "files": [str(path) for path in written]})
    else:
        _print(found, facts, written)
    return EXIT_OK


def text_of(row: Row) -> str:
    """What is compared: all that the user says in a conversation."""
    return "\n\n".join(row.turns)


def _judge(chooser: str, named: str | None, cache: Path | None) -> Embedder | None:
    """The second embedder: the one that was asked for, or for ``hashed`` its independent sketch."""
    named = named or judge_of(chooser)
    return embedder(named, cache=cache) if named else None


def _embedded(by: Embedder, groups: Mapping[str, Sequence[Row]]) -> dict[str, Rows]:
    return {category: by.embed([text_of(row) for row in members]) for category, members in groups.items()}


def choose(x: Rows, k: int, method: str, seed: int) -> tuple[Selection, float]:
    """The choice, and the seconds that it took."""
    from specsweep.analysis import relaxation, selection

    ways: Mapping[str, Callable[[], Selection]] = {
        "greedy_swap": lambda: selection.greedy_swap(x, k, seed=seed),
        "greedy": lambda: selection.greedy(x, k, seed=seed),
        "relaxation": lambda: relaxation.rounded(x, relaxation.relax(x, k)),
        "uniform": lambda: selection.uniform(x, k, seed=seed),
    }
    started = time.perf_counter()
    made = ways[method]()
    return made, time.perf_counter() - started


def _groups(rows: Sequence[Row], k: int) -> dict[str, list[Row]]:
    """The candidates by category, each text once: a copy could be chosen too, and would measure nothing new."""
    groups: dict[str, list[Row]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if (key := (row.category, text_of(row))) not in seen:
            seen.add(key)
            groups.setdefault(row.category, []).append(row)
    if few := {category: len(members) for category, members in groups.items() if len(members) < k}:
        names = ", ".join(f"{category} has {count}" for category, count in few.items())
        raise ConfigError(
            f"--k {k}: too few candidates with texts of their own ({names}); give a smaller --k, or name the others with --category"
        )
    return groups


def _compared(category: str, members: Sequence[Row], x: Rows, judged: Rows | None, picked: Selection, wall_s: float, seed: int) -> Chosen:
    import numpy as np

    from specsweep.analysis.selection import average_similarity, greedy, uniform

    k = len(picked.indices)
    subsets = [uniform(x, k, seed=seed + n) for n in range(UNIFORM_SUBSETS)]
    by_chance = [subset.average_similarity for subset in subsets]
    low, high = np.quantile(by_chance, [0.025, 0.975])
    check = None if judged is None else average_similarity(judged, picked.indices)
    check_mean = None if judged is None else float(np.mean([average_similarity(judged, subset.indices) for subset in subsets]))
    return Chosen(
        category=category,
        candidates=len(members),
        chosen=k,
        similarity=picked.average_similarity,
        greedy_similarity=greedy(x, k, seed=seed).average_similarity,
        uniform_mean=float(np.mean(by_chance)),
        uniform_low=float(low),
        uniform_high=float(high),
        check_similarity=check,
        check_uniform_mean=check_mean,
        rounds=picked.rounds,
        converged=picked.converged,
        wall_s=wall_s,
        question_ids=tuple(row.question_id for row in _in_order(members, picked.indices)),
    )


def _in_order(members: Sequence[Row], indices: Sequence[int]) -> Iterator[Row]:
    """The chosen rows in the order of the data set: which came first in the search says nothing."""
    return (members[i] for i in sorted(indices))


def _figures(folder: Path, found: Sequence[Chosen], vectors: Mapping[str, Rows], picks: Mapping[str, Selection], seed: int) -> list[Path]:
    from specsweep.analysis.selection import uniform
    from specsweep.analysis.similarity import Bar, category_figure, matrix_figure, similarity_matrix, write_figure

    bars = {
        "uniform": {c.category: Bar(c.uniform_mean, c.uniform_low, c.uniform_high) for c in found},
        "greedy alone": {c.category: Bar(c.greedy_similarity) for c in found},
        "chosen": {c.category: Bar(c.similarity) for c in found},
    }
    paths = write_figure(category_figure(bars, "Average pairwise similarity"), folder, "similarity")
    taken: set[str] = set()
    for n, (category, picked) in enumerate(picks.items(), 1):
        x, chosen = vectors[category], sorted(picked.indices)
        by_chance = sorted(uniform(x, len(chosen), seed=seed).indices)
        matrices = {"uniform": similarity_matrix(x[by_chance]), "chosen": similarity_matrix(x[chosen])}
        name = "similarity_" + "".join(letter if letter.isalnum() else "_" for letter in category)
        name = f"{name}_{n}" if name.lower() in taken else name  # "a/b" and "a b" would be one file
        taken.add(name.lower())
        paths += write_figure(matrix_figure(matrices, f"Similarity of prompts, {category}"), folder, name)
    return paths


def _print(found: Sequence[Chosen], facts: Mapping[str, Any], written: Sequence[Path]) -> None:
    columns = (
        "category",
        "candidates",
        "chosen",
        "similarity",
        "uniform mean [95 %]",
        "greedy alone",
        "against uniform",
        "checked",
        "swaps",
        "s",
    )
    rows = [
        (
            c.category,
            f"{c.candidates:,}",
            str(c.chosen),
            f"{c.similarity:.4f}",
            f"{c.uniform_mean:.4f} [{c.uniform_low:.4f}, {c.uniform_high:.4f}]",
            f"{c.greedy_similarity:.4f}",
            _change(c.similarity, c.uniform_mean),
            _change(c.check_similarity, c.check_uniform_mean),
            f"{c.rounds}" if c.converged else f"{c.rounds}, not converged",
            f"{c.wall_s:.2f}",
        )
        for c in found
    ]
    title = f"Average pairwise similarity, {facts['method']}, embedder {facts['embedder']}, seed {facts['seed']}"
    print_table(title, columns, rows, right=range(1, len(columns)))
    print(f"  Lower is more diverse. Uniform: mean of {UNIFORM_SUBSETS} random choices of the same size and the range of 95 % of them.")
    if facts["check"]:
        print(f"  Checked: the same rows against the same uniform ones as {facts['check']} sees them, which had no part in the choice.")
    if facts["copies_left_out"]:
        print(f"  {facts['copies_left_out']:,} rows left out: another row of their category has the same text.")
    for path in written:
        print(f"wrote {path}")


def _change(value: float | None, reference: float | None) -> str:
    return f"{100 * (value / reference - 1):+.0f} %" if value is not None and reference is not None and reference > 0 else "–"
