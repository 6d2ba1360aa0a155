"""The tables of one data set, or of two side by side, in the layout of the SPEED-Bench paper's Tables 2 and 3."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specsweep.analysis.data_stats import CategoryStats, DataStats
from specsweep.analysis.prompt_languages import NATURAL_RULE, PROGRAMMING_RULE
from specsweep.analysis.prompt_sources import UNKNOWN_LICENCE
from specsweep.analysis.tabular import Column, Row, Table

SAME_CATEGORY = {"translation": "multilingual"}
"""Categories that stand beside SPEED-Bench's under its name when two data sets are compared, as in the paper's Table 3."""

_NAMED = 12  # names of sources or sub-categories in one cell; all of them are in the JSON
_LETTERS = "AB"


def comparison_table(data: Sequence[DataStats]) -> Table:
    """The layout of Table 2: one row a property, one column a data set. Properties that no data set has are left out."""
    _one_or_two(data)
    rows = []
    for label, text in _PROPERTIES.items():
        cells = [text(stats) for stats in data]
        if any(cells):
            record = {"property": label, **{stats.name: cell for stats, cell in zip(data, cells, strict=True)}}
            rows.append(Row((label, *(cell or "–" for cell in cells)), record))
    columns = (Column("property", "property"), *(Column(f"set{n}", stats.name, wraps=24) for n, stats in enumerate(data)))
    return Table("data", "What the data consists of", columns, tuple(rows), notes=_notes(data))


def isl_table(data: Sequence[DataStats]) -> Table:
    """The layout of Table 3: one row a category with samples, mean and median ISL, and similarity where an embedder was given.

    Two data sets are lettered A and B and aligned by the names of their categories, see :data:`SAME_CATEGORY`.
    """
    _one_or_two(data)
    found = [{shown_names(stats, data)[c.category]: c for c in stats.categories} for stats in data]
    categories = list(dict.fromkeys(name for by_name in found for name in by_name))
    shown = [measure for measure in _MEASURES if measure[0] != "similarity" or any(stats.embedder for stats in data)]
    letters = list(_LETTERS) if len(data) > 1 else [""]
    columns = [Column("category", "category")]
    columns += [Column(f"{key}{letter}", f"{header} {letter}".strip(), right=True) for key, header, *_ in shown for letter in letters]
    rows = []
    for name in categories:
        of_sets = [by_name.get(name) for by_name in found]
        cells = [text(c) if c else "–" for _, _, text, _ in shown for c in of_sets]
        rows.append(Row((name, *cells), {"category": name, **_record(data, of_sets)}))
    averages = [text(stats) for _, _, _, text in shown for stats in data]
    means = {f"{s.name}.{key}": value for s in data for key, value in _means(s).items()}
    rows.append(Row(("average of categories", *averages), {"category": None, **means}))
    names = {letter: stats.name for letter, stats in zip(letters, data, strict=True)} if len(data) > 1 else {}
    return Table("isl", "ISL by category, in o200k_base tokens", tuple(columns), tuple(rows), notes=_isl_notes(data), shared=names)


def shown_names(stats: DataStats, data: Sequence[DataStats]) -> dict[str, str]:
    """Category → the name under which it is compared: another than its own only if that one is in the other data set and not in this one."""
    own = [c.category for c in stats.categories]
    others = {c.category for other in data for c in other.categories}.difference(own)
    return {name: SAME_CATEGORY[name] if SAME_CATEGORY.get(name) in others else name for name in own}


def _one_or_two(data: Sequence[DataStats]) -> None:
    if not 1 <= len(data) <= len(_LETTERS):
        raise ValueError(f"{len(data)} data sets: describe one, or compare two")
    if len({stats.name for stats in data}) < len(data):
        raise ValueError(f"both data sets are called {data[0].name!r}; give them names that tell them apart")


def _tokens(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _similarity(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


# key, header, text of a category, text of the last line
_Measure = tuple[str, str, Callable[[CategoryStats], str], Callable[[DataStats], str]]
_MEASURES: tuple[_Measure, ...] = (
    ("samples", "samples", lambda c: f"{c.samples:,}", lambda s: f"{s.samples:,}"),
    ("isl_mean", "mean", lambda c: _tokens(c.isl_mean), lambda s: _tokens(s.isl_macro_mean)),
    ("isl_median", "median", lambda c: _tokens(c.isl_median), lambda s: ""),
    ("similarity", "similarity", lambda c: _similarity(c.similarity), lambda s: _similarity(s.similarity_macro_mean)),
)


def _record(data: Sequence[DataStats], of_sets: Sequence[CategoryStats | None]) -> dict[str, Any]:
    return {
        f"{stats.name}.{key}": value
        for stats, c in zip(data, of_sets, strict=True)
        for key, value in (
            ("samples", c.samples if c else None),
            ("isl_tokens_mean", c.isl_mean if c else None),
            ("isl_tokens_median", c.isl_median if c else None),
            ("similarity_mean", c.similarity if c else None),
        )
    }


def _means(stats: DataStats) -> dict[str, Any]:
    return {"samples": stats.samples, "isl_tokens_mean": stats.isl_macro_mean, "similarity_mean": stats.similarity_macro_mean}


def _per_category(stats: DataStats) -> str:
    sizes = [c.samples for c in stats.categories]
    return f"{sizes[0]:,}" if len(set(sizes)) == 1 else f"{min(sizes):,} to {max(sizes):,}"


def _isl(stats: DataStats) -> str:
    if not (isl := stats.isl):
        return ""
    spread = f"{min(isl):,}" if min(isl) == max(isl) else f"{min(isl):,} to {max(isl):,}"
    return f"{spread} tokens; mean {statistics.fmean(isl):,.1f}, median {statistics.median(isl):,.1f}"


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counted.items())


def _number_and_names(counted: Mapping[str, int]) -> str:
    if not counted:
        return ""
    more = f" and {len(counted) - _NAMED} more" if len(counted) > _NAMED else ""
    return f"{len(counted)}: {', '.join(list(counted)[:_NAMED])}{more}"


def _natural(stats: DataStats) -> str:
    codes = ", ".join(code.upper() for code in stats.natural_languages)
    words = [f"{len(stats.natural_languages)}: {codes}"] if codes else []
    return "; ".join([*words, *([f"not found in {stats.language_unknown} prompts"] if stats.language_unknown else [])])


def _licences(stats: DataStats) -> str:
    by_licence: dict[str, list[str]] = {}
    for source, named in stats.licences.items():
        by_licence.setdefault(named, []).append(source)
    ordered = sorted(by_licence.items(), key=lambda item: item[0] == UNKNOWN_LICENCE)
    return "; ".join(f"{named} ({', '.join(sources)})" for named, sources in ordered)


_PROPERTIES: Mapping[str, Callable[[DataStats], str]] = {
    "samples": lambda s: f"{s.samples:,}",
    "categories": lambda s: f"{len(s.categories)}",
    "samples per category": _per_category,
    "rows without text": lambda s: f"{s.unfilled:,}" if s.unfilled else "",
    "data sources": lambda s: _number_and_names(s.sources),
    "similarity": lambda s: "" if s.similarity_macro_mean is None else f"{_similarity(s.similarity_macro_mean)} ({s.embedder})",
    "multi-turn prompts": lambda s: f"{s.multi_turn:,} ({100 * s.multi_turn / s.samples:.1f} %)",
    "most turns": lambda s: f"{s.most_turns}",
    "ISL": _isl,
    "sub-categories": lambda s: _number_and_names(s.sub_categories),
    "difficulties": lambda s: _counts(s.difficulties),
    "natural languages": _natural,
    "programming languages": lambda s: _counts(s.programming_languages),
    "licences": _licences,
}


def _notes(data: Sequence[DataStats]) -> tuple[str, ...]:
    return (
        *(["Natural languages are those of multilingual prompts, " + NATURAL_RULE + "."] if any(map(_natural, data)) else []),
        *(["Programming languages: coding " + PROGRAMMING_RULE + "."] if any(s.programming_languages for s in data) else []),
        *_unfilled(data),
    )


def _isl_notes(data: Sequence[DataStats]) -> tuple[str, ...]:
    renamed = {own for s in data for own, shown in shown_names(s, data).items() if own != shown}
    return (
        "Tokens of the bare text, summed over the user's turns of a conversation; the last line is the mean of the categories above it.",
        *(
            f"Similarity: average cosine over the pairs of a category, lower is more diverse; embedder {s.embedder}."
            for s in data[:1]
            if s.embedder
        ),
        *(f"{name} stands under {SAME_CATEGORY[name]}." for name in sorted(renamed)),
        *_unfilled(data),
    )


def _unfilled(data: Sequence[DataStats]) -> list[str]:
    return [f"{s.name}: left out of ISL and similarity, rows without their text: {s.unfilled:,}." for s in data if s.unfilled]
