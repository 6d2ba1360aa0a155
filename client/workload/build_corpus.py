"""Builds the committed corpus and the offline data set ``mini`` out of freely usable texts. Run by hand when they are to change:

    python -m specsweep.client.workload.build_corpus --stdlib LIB --docs SOURCES --austen RDATA.rdb --brotli TESTDATA --django LOCALES

docs/workloads.md says where each of the five comes from. The same inputs give the same bytes (seedless, sorted, no time stamps), so
that a rebuilt corpus can be compared with the committed one.

A document is a passage of at least so many o200k tokens (:class:`Size`) that starts at a natural border. Measured and ramp-up documents
come from different source files: a prompt of the ramp-up shares no text with a measured one. :mod:`.corpus_sources` has the texts and
their licences, :mod:`.build_questions` the qualitative part.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from specsweep.client.workload import build_questions, corpus_sources
from specsweep.client.workload.corpus_sources import Source, sha256, whole_lines

QUESTIONS = Path(__file__).parent / "mini_questions"


@dataclass(frozen=True, slots=True)
class Size:
    """How long a tier's documents are and how many there are. ``infix`` tells their ids apart."""

    tokens: int  # o200k, at least
    main: int
    ramp: int
    per_source: Mapping[str, int]  # by tier: passages out of one source, at most
    infix: str = ""


SHORT = Size(tokens=1080, main=96, ramp=64, per_source={"low": 3, "mixed": 3, "high": 40})  # a bucket of 1k without padding
LONG = Size(tokens=8300, main=64, ramp=24, per_source={"low": 4, "mixed": 4, "high": 16}, infix="long-")  # a bucket of 8k


def passages(text: str, border: str, limit: int, tokens: int = SHORT.tokens) -> Iterator[tuple[int, str]]:
    """Up to ``limit`` non-overlapping passages of whole lines, as (offset, text), spread over ``text``."""
    starts = [m.start() for m in re.finditer(border, text, re.MULTILINE)]
    end, made, gap = 0, 0, len(text) // (limit + 1)
    for start in starts:
        if made == limit:
            return
        if start < end:
            continue
        passage = whole_lines(text, start, tokens)
        if passage is None:
            return
        yield start, passage
        made += 1
        end = max(start + len(passage), made * gap)


def documents(tier: str, sources: Sequence[Source], size: Size = SHORT) -> list[dict[str, Any]]:
    """The documents of a tier: one passage of every source before the second of any. Raises ``ValueError`` if there are too few."""
    out: list[dict[str, Any]] = []
    for role, wanted in (("main", size.main), ("ramp", size.ramp)):
        chosen = sorted((s for s in sources if s.ramp == (role == "ramp")), key=lambda s: sha256(s.name))
        cuts = [[(s, at, text) for at, text in passages(s.text, s.border, size.per_source[tier], size.tokens)] for s in chosen]
        found = [p for row in zip_longest(*cuts) for p in row if p is not None]
        if len(found) < wanted:
            raise ValueError(f"{tier}: only {len(found)} {role} passages in {len(chosen)} sources; {wanted} are needed")
        for i, (source, at, text) in enumerate(found[:wanted]):
            out.append(
                {
                    "doc_id": f"{tier}-{size.infix}{role}-{i:03d}",
                    "role": role,
                    "source": source.name,
                    "source_sha256": sha256(source.text),
                    "offset": at,
                    "licence": source.licence,
                    "sha256": sha256(text),
                    "text": text,
                }
            )
    return out


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    body = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    path.write_bytes(gzip.compress(body.encode(), compresslevel=9, mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the committed corpus and the offline data set.")
    for name in ("stdlib", "docs", "austen", "brotli", "django"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "corpus")
    args = parser.parse_args()
    code, docs = list(corpus_sources.code(args.stdlib)), list(corpus_sources.documentation(args.docs))
    prose, other = list(corpus_sources.fiction(args.austen, args.brotli)), list(corpus_sources.plays_and_verse(args.brotli))
    for tier, sources in {"low": code, "mixed": docs, "high": prose}.items():
        write(args.out / f"{tier}.jsonl.gz", documents(tier, sources))
    long = {
        "low": list(corpus_sources.joined(code, LONG.tokens, "#")),
        "mixed": list(corpus_sources.joined(docs, LONG.tokens, "..")),
        "high": prose + other,
    }
    for tier, sources in long.items():
        write(args.out / f"{tier}_long.jsonl.gz", documents(tier, sources, LONG))
    library = build_questions.Library([*code, *docs, *prose, *other], args.django)
    write(args.out / "qualitative.jsonl.gz", build_questions.rows(QUESTIONS, library))


if __name__ == "__main__":
    main()
