"""The offline data set ``mini``: committed texts in the shape of the published data set, for machines with no network.

Its throughput part has every bucket. Up to 1k the prompts are made of the short documents of the corpus, from there on of the long ones,
so no prompt is padded. A prompt that is longer than a long document is made of several: prompt i of documents i, i + 1, … of its tier
and role until the bucket is full, so neighbouring prompts of such a bucket share text (the published set draws its own texts there). The
begun answer of the low tier's recipe is no part of a row: a row holds what the user says.

Measured prompts come first, then those of the ramp-up, whose source files are others; the id of a row says which it is.

``python -m specsweep.client.workload.mini`` prints how long the prompts are and under which licences they come, for docs/workloads.md.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from specsweep.client.workload import buckets, recipes
from specsweep.client.workload.buckets import Fitted
from specsweep.client.workload.documents import corpus, documents
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.rows import ROW_SCHEMA, Row

TIERS = ("low", "mixed", "high")
BUCKETS = (256, 1000, 2000, 4000, 8000)  # o200k tokens; ready
ON_DEMAND = (16_000, 32_000)  # made of several documents a prompt
SUB_CATEGORIES = {"low": "code", "mixed": "documentation", "high": "literature"}
_CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True)
class ThroughputPrompt:
    """A row of a throughput config, and what became of its text in the bucket."""

    row: Row
    fitted: Fitted
    ramp: bool


def qualitative_rows() -> tuple[Row, ...]:
    """The 220 conversations of the qualitative part, 20 of each category, sorted by category."""
    questions = [{name: question[name] for name in ROW_SCHEMA.names} for question in _lines("qualitative")]
    return tuple(Row(**{**question, "turns": tuple(question["turns"])}) for question in questions)


def throughput_rows(tier: str, isl: int) -> tuple[Row, ...]:
    """The rows of ``tier`` (``low``, ``mixed``, ``high``) in the bucket of ``isl`` o200k tokens: measured prompts, then the ramp-up's.

    Raises :class:`WorkloadError` for another tier, and for a bucket that all documents of the tier together do not fill.
    """
    return tuple(prompt.row for prompt in throughput_prompts(tier, isl))


def throughput_prompts(tier: str, isl: int, padding: str = buckets.DEFAULT_PADDING) -> Iterator[ThroughputPrompt]:
    """As :func:`throughput_rows`, with the real length and padded share of every prompt."""
    if tier not in TIERS:
        raise WorkloadError(f"tier={tier!r} of the offline data set; there are: {', '.join(TIERS)}")
    source = corpus(tier, isl)
    counts = {False: 0, True: 0}
    for document in documents(source, isl):
        ramp = bool(document.ramp)
        fitted, _ = recipes.message(tier, document.text, isl, padding)
        row = Row(
            question_id=f"mini-{bucket_name(isl)}-{tier}-{'ramp' if ramp else 'main'}-{counts[ramp]:03d}",
            category=document.category,
            sub_category=SUB_CATEGORIES[tier],
            turns=(fitted.text,),
            source=document.source,
            src_id=document.doc_id,
            difficulty="",
            multiturn=False,
        )
        counts[ramp] += 1
        yield ThroughputPrompt(row, fitted, ramp)


def bucket_name(isl: int) -> str:
    """As configs are called: ``256``, ``1k``, ``16k``."""
    return f"{isl // 1000}k" if isl % 1000 == 0 else str(isl)


def ready() -> tuple[str, ...]:
    """The configs that need no document twice."""
    return ("qualitative", *(f"throughput_{bucket_name(isl)}" for isl in BUCKETS))


def configs() -> dict[str, Callable[[], tuple[Row, ...]]]:
    """Every config by the name that it has in the published form, and what makes its rows: measured prompts of all tiers first."""
    return {
        "qualitative": qualitative_rows,
        **{f"throughput_{bucket_name(isl)}": partial(_all_tiers, isl) for isl in (*BUCKETS, *ON_DEMAND)},
    }


def _all_tiers(isl: int) -> tuple[Row, ...]:
    found = [prompt for tier in TIERS for prompt in throughput_prompts(tier, isl)]
    return tuple(prompt.row for prompt in sorted(found, key=lambda prompt: prompt.ramp))


@cache
def _lines(name: str) -> tuple[dict[str, Any], ...]:
    with gzip.open(_CORPUS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as f:
        return tuple(json.loads(line) for line in f)


def _length_table() -> Iterator[str]:
    yield "| bucket | tier | prompts (measured + ramp-up) | o200k tokens min / mean / max | padding share |"
    yield "|---|---|---|---|---|"
    for isl in (*BUCKETS, *ON_DEMAND):
        for tier in TIERS:
            prompts = list(throughput_prompts(tier, isl))
            lengths = [p.fitted.isl for p in prompts]
            ramp = sum(p.ramp for p in prompts)
            padded = sum(p.fitted.padding_share for p in prompts) / len(prompts)
            yield (
                f"| {bucket_name(isl)} | {tier} | {len(prompts) - ramp} + {ramp} "
                f"| {min(lengths)} / {sum(lengths) / len(lengths):.1f} / {max(lengths)} | {padded:.1%} |"
            )


def _category_table() -> Iterator[str]:
    yield "| category | prompts | multi-turn | turns | o200k tokens of all turns, min / mean / max |"
    yield "|---|---|---|---|---|"
    rows = qualitative_rows()
    for category in dict.fromkeys(row.category for row in rows):
        of = [row for row in rows if row.category == category]
        lengths = [sum(buckets.count(turn) for turn in row.turns) for row in of]
        yield (
            f"| {category} | {len(of)} | {sum(row.multiturn for row in of)} | {sum(len(row.turns) for row in of)} "
            f"| {min(lengths)} / {sum(lengths) / len(lengths):.0f} / {max(lengths)} |"
        )


def _licence_table() -> Iterator[str]:
    yield "| part | licence | rows |"
    yield "|---|---|---|"
    for part in (*TIERS, *(f"{tier}_long" for tier in TIERS), "qualitative"):
        for licence, n in sorted(Counter(line["licence"] for line in _lines(part)).items()):
            yield f"| `{part}` | {licence} | {n} |"


if __name__ == "__main__":
    for table in (_length_table(), _category_table(), _licence_table()):
        print(*table, sep="\n", end="\n\n")
