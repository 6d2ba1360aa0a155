"""What a data set of prompts consists of, and two of them side by side: Tables 2 and 3 of the SPEED-Bench paper from whatever data is there.

**ISL of a conversation is the sum over its user turns**, counted on the bare text. That is what the paper's Table 3 has: with it, all
eleven means and medians printed there for SpecBench come out of the public file, to the last digit. So does the average over
categories, 169, which is that of SpecBench's own thirteen categories and not of the eleven rows that the table shows.
(Those rows are its own ones, too: its ``math`` without ``math_reasoning``, its ``rag`` without ``extraction``.)

Rows that still hold a placeholder have no text, so they count in everything but ISL and similarity, and every table says how many they are.
A median or mean is never taken over them silently.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specsweep.analysis.prompt_languages import (
    CODING,
    MULTILINGUAL,
    NATURAL_RULE,
    PROGRAMMING_RULE,
    natural_languages,
    programming_languages,
)
from specsweep.analysis.prompt_sources import licence, source_name


class PromptRow(Protocol):
    """One conversation: what the rows of a data set have, whoever reads them."""

    @property
    def category(self) -> str: ...
    @property
    def sub_category(self) -> str: ...
    @property
    def turns(self) -> Sequence[str]: ...
    @property
    def source(self) -> str: ...
    @property
    def src_id(self) -> str: ...
    @property
    def difficulty(self) -> str: ...


@dataclass(frozen=True, slots=True)
class CategoryStats:
    """``isl``: tokens of each conversation that has its text. ``similarity``: average cosine over pairs of prompts, if it was computed."""

    category: str
    samples: int
    multi_turn: int
    most_turns: int
    isl: tuple[int, ...]
    similarity: float | None = None

    @property
    def isl_mean(self) -> float | None:
        return statistics.fmean(self.isl) if self.isl else None

    @property
    def isl_median(self) -> float | None:
        return float(statistics.median(self.isl)) if self.isl else None


@dataclass(frozen=True, slots=True)
class DataStats:
    """Counts are of prompts. ``unfilled``: rows without their text. ``language_unknown``: multilingual prompts in which no language was found."""

    name: str
    categories: tuple[CategoryStats, ...]
    unfilled: int
    sources: Mapping[str, int]
    licences: Mapping[str, str]  # source → licence
    sub_categories: Mapping[str, int]
    difficulties: Mapping[str, int]
    natural_languages: Mapping[str, int]
    language_unknown: int
    programming_languages: Mapping[str, int]
    embedder: str = ""

    @property
    def samples(self) -> int:
        return sum(c.samples for c in self.categories)

    @property
    def multi_turn(self) -> int:
        return sum(c.multi_turn for c in self.categories)

    @property
    def most_turns(self) -> int:
        return max((c.most_turns for c in self.categories), default=0)

    @property
    def isl(self) -> tuple[int, ...]:
        return tuple(tokens for c in self.categories for tokens in c.isl)

    @property
    def isl_macro_mean(self) -> float | None:
        """Mean of the categories' means: each category counts once, whatever its size."""
        return _mean([c.isl_mean for c in self.categories])

    @property
    def similarity_macro_mean(self) -> float | None:
        return _mean([c.similarity for c in self.categories])


def describe(
    name: str,
    rows: Sequence[PromptRow],
    isl: Sequence[int | None],
    *,
    similarity: Mapping[str, float] | None = None,
    embedder: str = "",
) -> DataStats:
    """The statistics of a data set, categories in order of first appearance.

    ``isl``: tokens of each row over all its turns; None for a row without its text. ``similarity``: category → average pairwise cosine of the
    rows that have theirs, by ``embedder``. Raises ``ValueError`` if there are no rows, or not one ``isl`` for each.
    """
    if not rows or len(rows) != len(isl):
        raise ValueError(f"{name}: {len(rows)} rows and {len(isl)} lengths; at least one row and a length for each is needed")
    members: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        members.setdefault(row.category, []).append(i)
    spoken = [natural_languages(row.sub_category, row.src_id, row.turns) for row in rows if row.category in MULTILINGUAL]
    coded = [programming_languages(row.turns) for row in rows if row.category in CODING]
    return DataStats(
        name=name,
        categories=tuple(
            CategoryStats(
                category=category,
                samples=len(indices),
                multi_turn=sum(len(rows[i].turns) > 1 for i in indices),
                most_turns=max(len(rows[i].turns) for i in indices),
                isl=tuple(tokens for i in indices if (tokens := isl[i]) is not None),
                similarity=(similarity or {}).get(category),
            )
            for category, indices in members.items()
        ),
        unfilled=sum(tokens is None for tokens in isl),
        sources=_counted(source_name(row.source) for row in rows),
        licences={source_name(row.source): licence(row.source) for row in rows},
        sub_categories=_counted(row.sub_category for row in rows if row.sub_category),
        difficulties=_counted(row.difficulty for row in rows if row.difficulty),
        natural_languages=_counted(code for codes in spoken for code in sorted(codes)),
        language_unknown=sum(not codes for codes in spoken),
        programming_languages=_counted(name for names in coded for name in sorted(names)),
        embedder=embedder,
    )


def to_json(stats: DataStats) -> dict[str, Any]:
    """JSON-able, full precision, units in the keys; None where nothing is known."""
    return {
        "name": stats.name,
        "samples": stats.samples,
        "rows_without_text": stats.unfilled,
        "multi_turn_prompts": stats.multi_turn,
        "multi_turn_share": stats.multi_turn / stats.samples,
        "most_turns": stats.most_turns,
        "isl_tokens_mean": _mean(stats.isl),
        "isl_tokens_median": statistics.median(stats.isl) if stats.isl else None,
        "isl_tokens_mean_of_categories": stats.isl_macro_mean,
        "similarity_mean_of_categories": stats.similarity_macro_mean,
        "embedder": stats.embedder or None,
        "categories": [
            {
                "category": c.category,
                "samples": c.samples,
                "multi_turn_prompts": c.multi_turn,
                "most_turns": c.most_turns,
                "isl_tokens_mean": c.isl_mean,
                "isl_tokens_median": c.isl_median,
                "isl_tokens_min": min(c.isl, default=None),
                "isl_tokens_max": max(c.isl, default=None),
                "similarity_mean": c.similarity,
            }
            for c in stats.categories
        ],
        "sources": dict(stats.sources),
        "licences": dict(stats.licences),
        "sub_categories": dict(stats.sub_categories),
        "difficulties": dict(stats.difficulties),
        "natural_languages": dict(stats.natural_languages),
        "multilingual_prompts_of_unknown_language": stats.language_unknown,
        "programming_language_mentions": dict(stats.programming_languages),
        "rules": {
            "isl": "o200k_base tokens of the bare text, summed over the user's turns of a conversation",
            "natural_languages": NATURAL_RULE,
            "programming_languages": PROGRAMMING_RULE,
        },
    }


def _counted(values: Iterable[str]) -> dict[str, int]:
    """Most frequent first; of equal ones that which came first."""
    return dict(Counter(values).most_common())


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
