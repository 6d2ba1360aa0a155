"""The documents that prompts are made of, whatever they come from: a committed corpus, SPEED-Bench, or a user's own file.

``workload.corpus`` names where they come from:

* ``low_entropy``, ``mixed``, ``high_entropy``: a tier of the committed corpus, whose texts become messages by a recipe
  (:mod:`~specsweep.client.workload.recipes`). Two files a tier: many short texts for buckets up to 1k, fewer long ones beyond.
* ``mini/qualitative``: the committed conversations.
* ``speed/qualitative``, ``speed/throughput``: SPEED-Bench as ``specsweep data prepare`` leaves it below ``workload.data``. Of the
  throughput buckets the one of the wanted ISL is taken as it is; for any other ISL texts are cut from the next longer one.
* ``tasks``: the three built-in tasks of ``llama-spec-bench`` (texts of our own).
* nothing, where ``workload.prompt`` is the prompt itself (:func:`inline`).
* a path: a Parquet file (or a folder of them) in SPEED-Bench's columns, or JSON lines, one prompt a line: ``prompt_id``, ``category``,
  ``text``, and optionally ``turns`` (what the user says later), ``sub_category``, ``difficulty``, ``source`` and ``answer_start`` (the
  begun answer). Lines may be gzipped (``.gz``). Lines with ``question_id`` or ``prompt`` instead are read as MT-Bench's and SpecBench's
  questions and as ``llama-spec-bench``'s tasks (:mod:`~specsweep.client.workload.question_files`); a ``.txt`` file is one prompt.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.client.workload import buckets
from specsweep.client.workload.errors import NotPreparedError, WorkloadError

if TYPE_CHECKING:
    from specsweep.client.workload.rows import Row

DATA = "data/speed"  # where data sets are prepared, below the working folder
NATURAL = 0  # as an ISL: every text at the length that it has
_CORPUS = Path(__file__).parent / "corpus"
_BUILTIN = Path(__file__).parent / "tasks"
_TIERS = {"low": "low", "low_entropy": "low", "mixed": "mixed", "high": "high", "high_entropy": "high"}
_SHORT_REACH, _LONG_REACH = 1080, 8300  # o200k tokens that every document of a tier's short, and long, file has at least
SPECBENCH = "specbench"
TASKS = "tasks"  # of llama-spec-bench
INLINE = "inline prompt"
KNOWN = "low_entropy, mixed, high_entropy, random, mini/qualitative, speed/qualitative, speed/throughput, specbench, tasks or the path of a file"
_TEXTS = ("prompt_id", "category", "text")
_OPTIONAL_TEXTS = ("answer_start", "sub_category", "difficulty", "source")
_USER_FIELDS = {*_TEXTS, *_OPTIONAL_TEXTS, "turns"}


@dataclass(frozen=True, slots=True)
class Document:
    """``text`` is what the user says first, ``turns`` what follows after the answers. Labels are "" where the source has none."""

    doc_id: str
    category: str
    text: str
    answer_start: str = ""
    ramp: bool | None = None  # None: the source does not say; measured and ramp-up prompts are then taken from the same list, disjoint
    turns: tuple[str, ...] = ()
    sub_category: str = ""
    difficulty: str = ""
    source: str = ""
    max_tokens: int | None = None  # of its answer; None: the workload's
    name: str = ""  # of a task, where it has one beside its id


@dataclass(frozen=True, slots=True)
class Corpus:
    """``tier`` is None for all but the committed tiers. ``sha256`` is that of the files' bytes."""

    name: str
    tier: str | None
    path: Path
    sha256: str
    bucket: int | None = None  # o200k tokens that the texts were brought to before
    text: str = ""  # of a corpus that is one prompt and no file

    def as_it_is(self, isl: int) -> bool:
        """Whether texts are sent unchanged: at their natural length, or out of a bucket of that size."""
        return isl in (NATURAL, self.bucket)


def corpus(name: str, isl: int = NATURAL, data: str = DATA) -> Corpus:
    """The corpus that ``workload.corpus`` names, for a bucket of ``isl``. Cheap after the first call: files are hashed again only when
    they changed. Raises :class:`WorkloadError` that says what there is."""
    if tier := _TIERS.get(name):
        path = _CORPUS / f"{tier}{'_long' if isl > _SHORT_REACH else ''}.jsonl.gz"
        return Corpus(name, tier, path, _sha256(name, path))
    if name == "mini/qualitative":
        path = _CORPUS / "qualitative.jsonl.gz"
        return Corpus(name, None, path, _sha256(name, path))
    if name.startswith("speed/"):
        path, bucket = _prepared(name, isl, Path(data).expanduser())
        return Corpus(name, None, path, _sha256(name, path), bucket)
    if name == SPECBENCH:
        path = Path(data).expanduser() / "question.jsonl"
        return Corpus(name, None, path, _sha256(name, path))
    if name == TASKS:
        return Corpus(name, None, _BUILTIN, _sha256(name, *sorted(_BUILTIN.glob("*.txt"))))
    path = Path(name).expanduser()
    return Corpus(name, None, path, _sha256(name, path))


def inline(prompt: str) -> Corpus:
    """A prompt that stands in the workload's own settings, as a corpus of one."""
    return Corpus(INLINE, None, Path(), hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest(), text=prompt)


def documents(of: Corpus, isl: int = NATURAL) -> tuple[Document, ...]:
    """All documents of a corpus, in its own order. Raises :class:`WorkloadError` naming file and line for anything malformed.

    A committed tier reaches any ``isl``: where its documents are shorter, each goes on with those that follow it, ramp-up documents and
    measured ones apart. Prompts of such buckets share texts, which no other bucket's do; each begins with a text of its own.
    """
    found = _documents(of)
    if of.tier is None or isl <= _LONG_REACH:
        return found
    return tuple(chain.from_iterable(_joined([d for d in found if d.ramp is ramp], isl) for ramp in (False, True)))


def _joined(found: Sequence[Document], isl: int) -> Iterator[Document]:
    sizes = [_tokens(d.text) for d in found]
    if sum(sizes) < isl:
        raise WorkloadError(f"isl={isl}: the committed texts of a tier have {sum(sizes)} tokens; give workload.corpus a longer text")
    for i, document in enumerate(found):
        around = [*range(i, len(found)), *range(i)]
        before = takewhile(lambda reached: reached < isl, accumulate((sizes[j] for j in around), initial=0))
        parts = [found[j] for j, _ in zip(around, before, strict=False)]
        sources = "; ".join(dict.fromkeys(part.source for part in parts))
        yield dataclasses.replace(document, text="\n\n\n".join(part.text for part in parts), source=sources)


@lru_cache(maxsize=1024)
def _tokens(text: str) -> int:
    return buckets.count(text)


def _prepared(name: str, isl: int, data: Path) -> tuple[Path, int | None]:
    """The Parquet file of one config of SPEED-Bench, and the bucket that it was prepared for."""
    split = name.removeprefix("speed/")
    if split == "qualitative":
        return data / "qualitative" / "test.parquet", None
    if split != "throughput":
        raise WorkloadError(f"workload.corpus={name!r}: SPEED-Bench has speed/qualitative and speed/throughput")
    there = sorted(
        (int(folder.name[len("throughput_") : -1]) * 1000, folder / "test.parquet")
        for folder in data.glob("throughput_*k")
        if folder.name[len("throughput_") : -1].isdecimal() and (folder / "test.parquet").is_file()
    )
    if not there:
        raise NotPreparedError(
            f"workload.corpus={name!r}: {data} holds no prepared bucket; make one with `specsweep data prepare throughput_1k`, or set workload.data"
        )
    bucket, path = next((found for found in there if found[0] >= isl > NATURAL), there[-1])
    return path, bucket


@cache
def _documents(of: Corpus) -> tuple[Document, ...]:
    # Keyed by the content's hash, which is part of Corpus.
    if of.text:
        return _of_tasks(prompt=of.text)
    if of.name == TASKS:
        return _of_tasks(builtin=())
    if of.path.is_dir() or of.path.suffix == ".parquet":
        return _of_rows(of)
    if of.path.suffix == ".txt":
        return _of_tasks(text_file=of.path)
    try:
        raw = of.path.read_bytes()
        text = (gzip.decompress(raw) if of.path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as e:
        raise WorkloadError(f"{of.path}: cannot be read as UTF-8 JSON lines: {e}") from e
    rows = [(n, _row(of, n, line)) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if of.tier is not None:
        from specsweep.client.workload.recipes import CATEGORIES

        category = CATEGORIES[of.tier]
        return tuple(Document(r["doc_id"], category, r["text"], ramp=r["role"] == "ramp", source=r["source"]) for _, r in rows)
    if of.name == "mini/qualitative":
        return tuple(_of_fields(row, list(row["turns"])) for _, row in rows)
    if rows and "prompt_id" not in rows[0][1] and rows[0][1].keys() & {"question_id", "prompt"}:
        return _of_tasks(jsonl=of.path) if isinstance(rows[0][1].get("prompt"), str) else _of_questions(of)
    found = tuple(_user_document(of, n, row) for n, row in rows)
    seen: dict[str, int] = {}
    for (n, _), document in zip(rows, found, strict=True):
        if document.doc_id in seen:
            raise WorkloadError(
                f"{of.path}:{n}: prompt_id {document.doc_id!r} was used on line {seen[document.doc_id]}; ids must be unique"
            )
        seen[document.doc_id] = n
    return found


def _of_rows(of: Corpus) -> tuple[Document, ...]:
    from specsweep.client.workload.rows import read_rows, require_filled

    rows = read_rows(of.path)
    require_filled(rows, of.name)
    return tuple(_of_row(row) for row in rows)


def _of_tasks(**source: Any) -> tuple[Document, ...]:
    from specsweep.client.workload.question_files import read_tasks

    return tuple(dataclasses.replace(_of_row(task.row), max_tokens=task.max_tokens, name=task.name) for task in read_tasks(**source))


def _of_questions(of: Corpus) -> tuple[Document, ...]:
    from specsweep.client.workload.question_files import read_any

    return tuple(_of_row(row) for row in read_any(of.path))


def _of_row(row: Row) -> Document:
    return _of_fields({name: getattr(row, name) for name in _ROW_LABELS}, row.turns)


_ROW_LABELS = ("question_id", "category", "sub_category", "difficulty", "source")


def _of_fields(row: dict[str, Any], turns: Sequence[str]) -> Document:
    return Document(
        row["question_id"],
        row["category"],
        turns[0],
        turns=tuple(turns[1:]),
        sub_category=row["sub_category"] or "",
        difficulty=row["difficulty"] or "",
        source=row["source"] or "",
    )


def _row(of: Corpus, n: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # an escaped half of a surrogate pair is no text
    except (ValueError, RecursionError) as e:
        raise WorkloadError(f"{of.path}:{n}: not JSON: {e}") from e
    if not isinstance(row, dict):
        raise WorkloadError(f"{of.path}:{n}: a line must be a JSON object, got {type(row).__name__}")
    return row


def _user_document(of: Corpus, n: int, row: dict[str, Any]) -> Document:
    unknown = row.keys() - _USER_FIELDS
    if unknown:
        raise WorkloadError(f"{of.path}:{n}: unknown field {sorted(unknown)[0]!r}; known: {', '.join(sorted(_USER_FIELDS))}")
    for field in _TEXTS:
        if not isinstance(row.get(field), str) or not row[field].strip():
            raise WorkloadError(f"{of.path}:{n}: {field} must be a non-empty string, got {row.get(field)!r}")
    for field in _OPTIONAL_TEXTS:
        if not isinstance(row.get(field, ""), str):
            raise WorkloadError(f"{of.path}:{n}: {field} must be a string, got {row[field]!r}")
    turns = row.get("turns", [])
    if not isinstance(turns, list) or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise WorkloadError(
            f"{of.path}:{n}: turns must be a list of non-empty strings (what the user says after the first answer), got {turns!r}"
        )
    return Document(
        row["prompt_id"], row["category"], row["text"], turns=tuple(turns), **{field: row.get(field, "") for field in _OPTIONAL_TEXTS}
    )


def _sha256(name: str, *paths: Path) -> str:
    """Of a file, over several, or over the Parquet files of a folder."""
    path = paths[0]
    try:
        files = list(paths) if not path.is_dir() else sorted(f for f in path.glob("*.parquet") if not f.name.startswith((".", "_")))
        found = [_file_sha256(f, stat.st_size, stat.st_mtime_ns) for f, stat in ((f, os.stat(f)) for f in files)]
    except OSError as e:
        advice = f"; `specsweep data prepare {path.parent.name}` makes it, or set workload.data" if name.startswith("speed/") else ""
        if name == SPECBENCH:
            advice = "; put data/spec_bench/question.jsonl of github.com/hemingkx/Spec-Bench there, or set workload.data"
        kind = NotPreparedError if advice and isinstance(e, FileNotFoundError) else WorkloadError
        raise kind(f"workload.corpus={name!r}: {path}: {e.strerror}; corpora are {KNOWN}{advice}") from e
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


@lru_cache(maxsize=64)
def _file_sha256(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
