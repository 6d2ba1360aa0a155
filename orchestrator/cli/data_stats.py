"""`specsweep data stats`: what a data set consists of, or two side by side, in the layout of the SPEED-Bench paper's Tables 2 and 3.

The data is read as a run would read it, so a file that a run would refuse is refused here with the same words. One thing is let through,
rows whose text was never filled in: how much of a published data set is missing is one of the questions that this command answers.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specsweep.analysis.data_stats import DataStats, describe, to_json
from specsweep.analysis.data_stats_tables import comparison_table, isl_table, shown_names
from specsweep.analysis.tabular import Table
from specsweep.client.workload.buckets import count
from specsweep.client.workload.embedders import KINDS, Embedder, Vectors, embedder
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.rows import Row
from specsweep.orchestrator.cli.data_select import text_of
from specsweep.orchestrator.cli.data_sets import PATHS, add_data, is_name, rows_of
from specsweep.orchestrator.cli.output import add_json, emit_json, print_table, terminal_width
from specsweep.orchestrator.cli.writing import writing
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MATRICES = ("multilingual", "math")  # the categories that the paper draws as matrices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help=f"{PATHS}; two are compared",
    )
    add_data(parser)
    parser.add_argument("--embedder", metavar="NAME", help=f"also the average similarity of the prompts of each category: {KINDS}")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep embeddings here, so that no text is embedded twice")
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help="write ISL by category here, and with --embedder similarity, as PNG and SVG"
    )
    parser.add_argument(
        "--matrix",
        action="append",
        default=[],
        metavar="CATEGORY",
        help=f"draw the similarity matrix of this category; may be repeated (default: {' and '.join(MATRICES)})",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if len(args.paths) > 2:
        raise ConfigError(f"{len(args.paths)} data sets: give one, or two to compare")
    if args.matrix and not (args.embedder and args.figures):
        raise ConfigError(f"--matrix {args.matrix[0]} needs --embedder NAME and --figures DIR")
    try:
        sets = {name: rows_of(word, args.data) for name, word in _names(args.paths).items()}
        embed = embedder(args.embedder, cache=args.cache) if args.embedder else None
        vectors = {name: _vectors(rows, embed) for name, rows in sets.items()} if embed else {}
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    data = [_described(name, rows, vectors.get(name, {}), embed) for name, rows in sets.items()]
    there = list(dict.fromkeys(shown for stats in data for shown in shown_names(stats, data).values()))
    if unknown := sorted(set(args.matrix) - set(there)):
        raise ConfigError(f"--matrix {unknown[0]}: no such category; there are: {', '.join(there)}")
    with writing(args.figures):
        written = _figures(args.figures, data, vectors, args.matrix) if args.figures else []
    if args.json:
        emit_json({"data": [to_json(stats) for stats in data], "files": [str(path) for path in written]})
        return EXIT_OK
    for table in (comparison_table(data), isl_table(data)):
        _show(table)
    for path in written:
        print(f"wrote {path}")
    return EXIT_OK


def _names(paths: Sequence[str]) -> dict[str, str]:
    """Data sets by their names, or by the shortest ends of their paths that tell them apart: most are files called ``test.parquet``."""
    parts = [(path,) if is_name(path) else Path(path).expanduser().absolute().parts for path in paths]
    if len(set(parts)) < len(parts):
        raise ConfigError(f"{paths[0]} is given twice: there is nothing to compare")
    shared = [0, *(n for n in range(1, min(map(len, parts))) if len(parts) > 1 and parts[0][-n:] == parts[-1][-n:])]
    return {str(Path(*own[-1 - shared[-1] :])): path for own, path in zip(parts, paths, strict=True)}


def _vectors(rows: Sequence[Row], embed: Embedder) -> dict[str, Vectors]:
    """Category → embeddings of its prompts that have their text, in order."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        if not row.is_placeholder:
            texts.setdefault(row.category, []).append(text_of(row))
    return {category: embed.embed(members) for category, members in texts.items()}


def _described(name: str, rows: Sequence[Row], vectors: Mapping[str, Vectors], embed: Embedder | None) -> DataStats:
    from specsweep.analysis.selection import average_similarity

    isl = [None if row.is_placeholder else sum(map(count, row.turns)) for row in rows]
    similarity = {category: average_similarity(x) for category, x in vectors.items() if len(x) > 1}
    return describe(name, rows, isl, similarity=similarity, embedder=embed.name if embed else "")


def _figures(folder: Path, data: Sequence[DataStats], vectors: Mapping[str, Mapping[str, Vectors]], asked: Sequence[str]) -> list[Path]:
    from specsweep.analysis.isl_figure import isl_figure
    from specsweep.analysis.similarity import Bar, category_figure, write_figure

    names = {stats.name: shown_names(stats, data) for stats in data}
    drawn: dict[str, Figure] = {}
    if any(stats.isl for stats in data):
        drawn["isl"] = isl_figure({s.name: {names[s.name][c.category]: c.isl for c in s.categories} for s in data})
    bars = {s.name: {names[s.name][c.category]: Bar(c.similarity) for c in s.categories if c.similarity is not None} for s in data}
    if any(bars.values()):
        drawn["similarity"] = category_figure(bars, "Average pairwise similarity of prompts")
    for category in asked or MATRICES:
        found = {name: x for name, of_set in vectors.items() for own, x in of_set.items() if names[name][own] == category and len(x) > 1}
        if found:
            drawn["similarity_" + "".join(letter if letter.isalnum() else "_" for letter in category)] = _matrix(category, found)
    return [path for name, figure in drawn.items() for path in write_figure(figure, folder, name)]


def _matrix(category: str, found: Mapping[str, Vectors]) -> Figure:
    from specsweep.analysis.similarity import LARGEST, matrix_figure, similarity_matrix

    first = f", the first {LARGEST:,} of them" if any(len(x) > LARGEST for x in found.values()) else ""
    return matrix_figure({name: similarity_matrix(x[:LARGEST]) for name, x in found.items()}, f"Similarity of prompts, {category}{first}")


def _show(table: Table) -> None:
    title = f"{table.title} ({', '.join(f'{letter} = {name}' for letter, name in table.shared.items())})" if table.shared else table.title
    print_table(title, [c.header for c in table.columns], [row.cells for row in table.rows], right=table.right)
    for note in table.notes:
        print(textwrap.fill(note, min(terminal_width(), 160), initial_indent="  ", subsequent_indent="  "))
    print()
