"""Builds the committed corpus out of freely usable texts. Run by hand when the corpus is to change, never by a sweep:

    python -m specsweep.client.workload.build_corpus --stdlib LIB --docs SOURCES --austen RDATA.rdb --alice alice29.txt

docs/workloads.md says where each of the four comes from. The same inputs give the same bytes (seedless, sorted, no time stamps), so
that a rebuilt corpus can be compared with the committed one.

A document is a passage of at least :data:`DOCUMENT_TOKENS` o200k tokens that starts at a natural border. Measured and ramp-up documents
come from different source files: a prompt of the ramp-up shares no text with a measured one. Sources that mention a copyright or a
licence of their own anywhere are left out, so that one licence covers each tier.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from specsweep.client.workload.buckets import count

DOCUMENT_TOKENS = 1080  # enough for a bucket of 1k without padding
MAIN, RAMP = 96, 64  # documents a tier
_PER_SOURCE = {"low": 3, "mixed": 3, "high": 40}  # passages out of one file
_OWN_TERMS = re.compile(r"copyright|licen[cs]e|gutenberg|etext|all rights reserved", re.IGNORECASE)
_SKIPPED = ("/test/", "/tests/", "/site-packages/", "/lib2to3/", "/encodings/", "/pydoc_data/", "/idlelib/idle_test/", "/turtledemo/")
_RAMP_NOVELS = ("NORTHANGER ABBEY", "Persuasion")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of text before it is cut into passages."""

    name: str
    licence: str
    text: str
    ramp: bool
    border: str  # a regular expression; a passage starts where it matches


def passages(text: str, border: str, limit: int) -> Iterator[tuple[int, str]]:
    """Up to ``limit`` non-overlapping passages of whole lines, as (offset, text), spread over ``text``."""
    starts = [m.start() for m in re.finditer(border, text, re.MULTILINE)]
    end, made, gap = 0, 0, len(text) // (limit + 1)
    for start in starts:
        if made == limit:
            return
        if start < end:
            continue
        passage = _whole_lines(text, start)
        if passage is None:
            return
        yield start, passage
        made += 1
        end = max(start + len(passage), made * gap)


def _whole_lines(text: str, start: int) -> str | None:
    size = DOCUMENT_TOKENS * 3
    while start + size <= len(text) + DOCUMENT_TOKENS:
        stop = text.find("\n", min(start + size, len(text)))
        passage = text[start : stop if stop >= 0 else len(text)].rstrip()
        if count(passage) >= DOCUMENT_TOKENS:
            return passage
        size += 200
    return None


def documents(tier: str, sources: Sequence[Source]) -> list[dict[str, str | int]]:
    """``MAIN`` and ``RAMP`` documents of a tier: one passage of every source before the second of any. Raises ``ValueError`` if too few."""
    out: list[dict[str, str | int]] = []
    for role, wanted in (("main", MAIN), ("ramp", RAMP)):
        chosen = sorted((s for s in sources if s.ramp == (role == "ramp")), key=lambda s: _sha256(s.name))
        per_source = [[(s, at, text) for at, text in passages(s.text, s.border, _PER_SOURCE[tier])] for s in chosen]
        found = [p for row in zip_longest(*per_source) for p in row if p is not None]
        if len(found) < wanted:
            raise ValueError(f"{tier}: only {len(found)} {role} passages in {len(chosen)} sources; {wanted} are needed")
        for i, (source, at, text) in enumerate(found[:wanted]):
            out.append(
                {
                    "doc_id": f"{tier}-{role}-{i:03d}",
                    "role": role,
                    "source": source.name,
                    "source_sha256": _sha256(source.text),
                    "offset": at,
                    "licence": source.licence,
                    "sha256": _sha256(text),
                    "text": text,
                }
            )
    return out


def code(stdlib: Path) -> Iterator[Source]:
    version = "{}.{}.{}".format(*sys.version_info[:3])
    for path in sorted(stdlib.rglob("*.py")):
        name = f"CPython {version}, Lib/{path.relative_to(stdlib).as_posix()}"
        if not any(part in "/" + path.relative_to(stdlib).as_posix() for part in _SKIPPED):
            yield from _checked(name, "PSF-2.0", path, r"^(?:def|class) ")


def documentation(sources: Path) -> Iterator[Source]:
    for path in sorted(sources.rglob("*.rst.txt")):
        name = f"Debian python3.11-doc, _sources/{path.relative_to(sources).as_posix()}"
        if not name.startswith("Debian python3.11-doc, _sources/whatsnew"):
            yield from _checked(name, "PSF-2.0", path, r"(?<=\n\n)(?=[A-Z])")


def fiction(austen: Path, alice: Path) -> Iterator[Source]:
    border = r"(?<=\n\n)(?=\S)"
    for novel in r_character_vectors(austen.read_bytes()):
        title = novel[0].strip()
        text = "\n".join(novel[10:])  # the title page is not prose
        yield Source(f"Jane Austen, {title.title()} (Debian r-cran-janeaustenr)", "public domain", text, title in _RAMP_NOVELS, border)
    text = alice.read_text("latin-1").replace("\r\n", "\n")
    text = text[text.index("  Alice was beginning") :]
    yield Source("Lewis Carroll, Alice's Adventures in Wonderland (PyPI brotli, sdist)", "public domain", text, False, r"(?<=\n\n)(?=  \S)")


def _checked(name: str, licence: str, path: Path, border: str) -> Iterator[Source]:
    text = "\n".join(line.rstrip() for line in path.read_text("utf-8", errors="strict").splitlines())
    if not _OWN_TERMS.search(text) and text.isascii():
        yield Source(name, licence, text, int(_sha256(name), 16) % 5 < 2, border)


def r_character_vectors(rdb: bytes) -> Iterator[list[str]]:
    """The character vectors of an R lazy-load database (zlib chunks of XDR serialisation, format 3), one a chunk."""
    at = 0
    while at < len(rdb):
        inflate = zlib.decompressobj()
        chunk = inflate.decompress(rdb[at + 4 :])
        at = len(rdb) - len(inflate.unused_data)
        place = 14 + 4 + int.from_bytes(chunk[14:18], "big")  # 'X\n', three versions, length and name of the encoding
        kind, length = int.from_bytes(chunk[place : place + 4], "big"), int.from_bytes(chunk[place + 4 : place + 8], "big")
        if kind & 0xFF != 16:
            raise ValueError(f"not a character vector: R type {kind & 0xFF}")
        place += 8
        lines = []
        for _ in range(length):
            size = int.from_bytes(chunk[place + 4 : place + 8], "big")
            lines.append(chunk[place + 8 : place + 8 + size].decode("utf-8"))
            place += 8 + size
        yield lines


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write(path: Path, rows: Sequence[dict[str, str | int]]) -> None:
    body = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    path.write_bytes(gzip.compress(body.encode(), compresslevel=9, mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the committed corpus.")
    for name in ("stdlib", "docs", "austen", "alice"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "corpus")
    args = parser.parse_args()
    tiers = {"low": list(code(args.stdlib)), "mixed": list(documentation(args.docs)), "high": list(fiction(args.austen, args.alice))}
    for tier, sources in tiers.items():
        write(args.out / f"{tier}.jsonl.gz", documents(tier, sources))


if __name__ == "__main__":
    main()
