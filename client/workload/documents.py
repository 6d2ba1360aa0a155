"""Reads the documents that prompts are made of: a committed tier, or a user's own JSON lines.

A user's file holds one prompt a line: ``prompt_id``, ``category``, ``text``, and optionally ``answer_start`` (the begun answer). Its texts
are sent as they are; only the committed tiers have recipes. Files may be gzipped (``.gz``).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from specsweep.client.workload.errors import WorkloadError

_CORPUS = Path(__file__).parent / "corpus"
_TIERS = {"low": "low", "low_entropy": "low", "mixed": "mixed", "high": "high", "high_entropy": "high"}
_USER_FIELDS = {"prompt_id", "category", "text", "answer_start"}


@dataclass(frozen=True, slots=True)
class Document:
    doc_id: str
    category: str
    text: str
    answer_start: str = ""
    ramp: bool | None = None  # None: the file does not say; measured and ramp-up prompts are then taken from the same list, disjoint


@dataclass(frozen=True, slots=True)
class Corpus:
    """``tier`` is None for a user's file. ``sha256`` is that of the file's bytes."""

    name: str
    tier: str | None
    path: Path
    sha256: str


def corpus(name: str) -> Corpus:
    """The corpus that ``workload.corpus`` names. Cheap after the first call: the file is hashed again only when it changed."""
    tier = _TIERS.get(name)
    path = _CORPUS / f"{tier}.jsonl.gz" if tier else Path(name).expanduser()
    try:
        stat = os.stat(path)
        sha256 = _file_sha256(path, stat.st_size, stat.st_mtime_ns)
    except OSError as e:
        raise WorkloadError(
            f"workload.corpus={name!r}: no such file and no committed tier (those are low_entropy, mixed, high_entropy, and random): {e.strerror}"
        ) from e
    return Corpus(name, tier, path, sha256)


def documents(of: Corpus) -> tuple[Document, ...]:
    """All documents of a corpus, in file order. Raises :class:`WorkloadError` naming file and line for anything malformed."""
    return _documents(of)


@cache
def _documents(of: Corpus) -> tuple[Document, ...]:
    # Keyed by the content's hash, which is part of Corpus.
    from specsweep.client.workload.recipes import CATEGORIES

    try:
        raw = of.path.read_bytes()
        text = (gzip.decompress(raw) if of.path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as e:
        raise WorkloadError(f"workload.corpus={of.name!r}: cannot be read as UTF-8 JSON lines: {e}") from e
    rows = [(n, _row(of, n, line)) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if of.tier is not None:
        return tuple(Document(r["doc_id"], CATEGORIES[of.tier], r["text"], ramp=r["role"] == "ramp") for _, r in rows)
    found = tuple(_user_document(of, n, row) for n, row in rows)
    seen: dict[str, int] = {}
    for (n, _), document in zip(rows, found, strict=True):
        if document.doc_id in seen:
            raise WorkloadError(
                f"{of.path}:{n}: prompt_id {document.doc_id!r} was used on line {seen[document.doc_id]}; ids must be unique"
            )
        seen[document.doc_id] = n
    return found


def _row(of: Corpus, n: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as e:
        raise WorkloadError(f"{of.path}:{n}: not JSON: {e}") from e
    if not isinstance(row, dict):
        raise WorkloadError(f"{of.path}:{n}: a line must be a JSON object, got {type(row).__name__}")
    return row


def _user_document(of: Corpus, n: int, row: dict[str, Any]) -> Document:
    unknown = row.keys() - _USER_FIELDS
    if unknown:
        raise WorkloadError(f"{of.path}:{n}: unknown field {sorted(unknown)[0]!r}; known: {', '.join(sorted(_USER_FIELDS))}")
    for field in ("prompt_id", "category", "text"):
        if not isinstance(row.get(field), str) or not row[field]:
            raise WorkloadError(f"{of.path}:{n}: {field} must be a non-empty string, got {row.get(field)!r}")
    if not isinstance(row.get("answer_start", ""), str):
        raise WorkloadError(f"{of.path}:{n}: answer_start must be a string, got {row['answer_start']!r}")
    return Document(row["prompt_id"], row["category"], row["text"], row.get("answer_start", ""))


@lru_cache(maxsize=64)
def _file_sha256(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
