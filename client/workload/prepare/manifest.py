"""What a prepared file is and how it was made, as JSON beside it: enough to say whether two people measured the same rows.

A row's ``sha256`` is that of its turns (:func:`~specsweep.client.workload.prepare.journal.digest`), its ``tokens`` are ``o200k_base``
counts of the bare turns, before any chat template.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specsweep.client.workload import buckets
from specsweep.client.workload.aside import whole
from specsweep.client.workload.prepare.journal import digest
from specsweep.client.workload.prepare.registry import Filled, source_of
from specsweep.client.workload.prepare.tables import Fetched
from specsweep.client.workload.prepare.texts import VERSION
from specsweep.client.workload.rows import Row

SCHEMA_VERSION = 1
FILE = "manifest.json"
PACKAGES = ("specsweep", "numpy", "pyarrow", "quicktok-v1", "huggingface_hub")
MODES = {
    "official": "the rows of NVIDIA's specdec_bench, its oddities kept: exam prompts of target + 1 tokens from one generator shared by all "
    "rows, the last demonstration cut mid-way, questions longer than the target not cut, generators seeded again for every row of "
    "stackselect (42) and CoSER (12347), stackselect answers that fit alone but not together",
    "plain": "the same sources and texts, exactly target tokens, and random choices that depend on the row alone",
}
DIFFERENCES = (
    "role play: the paper speaks of system prompts, the official code puts character and rules into the first user turn; as in the code",
    "padding: the paper says 'please answer now', the official code appends 'Answer now please.' and a line break; as in the code",
    "cnn_dailymail: the official code takes the newest revision; here the commit that the row names",
)


def row_facts(published: Row, row: Row, filled: Filled | None) -> dict[str, Any]:
    """``published``: as the data set has it. ``row``: as it is written. ``filled``: None for one shipped as text and for one that is missing."""
    source = source_of(row)
    return {
        "question_id": row.question_id,
        "source": source.name if source else row.source,
        "state": "missing" if row.is_placeholder else "filled" if published.is_placeholder else "shipped",
        "sha256": digest(row.turns),
        "tokens": [] if row.is_placeholder else [buckets.count(turn) for turn in row.turns],
        **({"multiturn_published": published.multiturn} if published.multiturn != row.multiturn else {}),
        **({"notes": list(filled.notes)} if filled and filled.notes else {}),
    }


def manifest(
    *,
    config: str,
    quirks: str,
    target: int | None,
    dataset: Sequence[Fetched],
    sources: Mapping[str, Sequence[Mapping[str, Any]]],
    rows: Sequence[Mapping[str, Any]],
    missing: Sequence[Mapping[str, Any]],
    file: Path,
) -> dict[str, Any]:
    """``sources``: facts of the files that each source was filled in from. ``file``: the prepared file, written."""
    states = [row["state"] for row in rows]
    return {
        "schema_version": SCHEMA_VERSION,
        "config": config,
        "complete": not missing,
        "quirks": quirks,
        "quirks_meaning": MODES[quirks],
        "differences_to_the_paper": list(DIFFERENCES),
        "target_tokens": target,
        "padding": buckets.DEFAULT_PADDING,
        "counts": {"rows": len(rows), **{state: states.count(state) for state in ("shipped", "filled", "missing")}},
        "missing": list(missing),
        "dataset": [one.facts() for one in dataset],
        "sources": dict(sources),
        "file": {"name": file.name, "sha256": file_sha256(file)},
        "texts_version": VERSION,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "rows": list(rows),
    }


def write(path: Path, facts: Mapping[str, Any]) -> None:
    """Written aside and renamed."""
    with whole(path) as file:
        file.write(json.dumps(facts, indent=1, ensure_ascii=False).encode() + b"\n")


def read(path: Path) -> dict[str, Any] | None:
    """``None`` if there is none that can be read."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and facts.get("schema_version") == SCHEMA_VERSION else None


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
