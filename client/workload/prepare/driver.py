"""Fills in one config of the published data set: source by source, so that one that is away leaves the others alone, and in steps that
can be stopped anywhere.

Finished rows go into a journal beside the output. ``test.parquet`` appears in one rename, and only when every row is there; until then
what there is stands in ``test.partial.parquet`` (rows that are missing keep their placeholder, which no run will send), and the manifest
says which those are and why. The same command goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import specsweep.client.workload.prepare.sources  # noqa: F401 - registers them
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.prepare import manifest
from specsweep.client.workload.prepare.errors import RowError, SourceAway
from specsweep.client.workload.prepare.journal import Journal
from specsweep.client.workload.prepare.published import published, target_tokens
from specsweep.client.workload.prepare.registry import SOURCES, Context, Filled, Quirks, Source, source_of
from specsweep.client.workload.prepare.tables import Fetched, Files, FileTables
from specsweep.client.workload.prepare.texts import VERSION
from specsweep.client.workload.rows import Row, read_rows, write_rows

COMPLETE, PARTIAL, JOURNAL = "test.parquet", "test.partial.parquet", ".prepare.journal"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Missing:
    """Rows that are not filled in: of which source (as rows name it, if this version knows none), how many, and why."""

    source: str
    rows: int
    why: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """``file`` has every row; those of ``missing`` keep their placeholder. ``made``: rows made by this run, not found in the journal."""

    config: str
    file: Path
    rows: int
    made: int
    missing: tuple[Missing, ...]

    @property
    def is_complete(self) -> bool:
        return not self.missing


def prepare(
    config: str,
    out: Path,
    files: Files,
    *,
    quirks: Quirks = "official",
    revision: str = "main",
    only: Collection[str] = (),
    progress: Progress = lambda source, done, total: None,
) -> Prepared:
    """Makes ``out/config/test.parquet`` and its manifest. ``only``: fill in no other sources (names as in ``SOURCES``).

    ``progress`` is called with source, rows done and rows in all. Raises :class:`WorkloadError` if the output cannot be written, holds
    complete data of another mode or data of someone else, or if another process works there; :class:`SourceAway` if the published data
    set itself cannot be had. A source that is away, or a row that cannot be made, raises nothing: it is in the result.
    """
    table = published(config, revision)
    folder = out / config
    target = target_tokens(config)
    if (done := _complete(folder, config, quirks, revision)) is not None:
        return done
    dataset = files.fetch(table)
    rows = [row for file in dataset for row in read_rows(file.path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkloadError(f"out={out}: cannot be written ({error.strerror}); name a folder that can with out=") from error
    with Journal(folder / JOURNAL, f"{config} {quirks}") as journal:
        work = _Work(FileTables(files), target, quirks, journal, progress)
        for name, source, theirs in _by_source(rows):
            work.source(name, source, theirs, wanted=not only or name in only)
        journal.settle()
        result = _write(folder, config, quirks, target, dataset, rows, work)
    if result.is_complete:
        (folder / JOURNAL).unlink(missing_ok=True)
    return result


class _Work:
    """What is being gathered while the sources of one config are filled in."""

    def __init__(self, tables: FileTables, target: int | None, quirks: Quirks, journal: Journal, progress: Progress) -> None:
        self._tables, self._target, self._quirks = tables, target, quirks
        self._journal, self._progress = journal, progress
        self.filled: dict[str, Filled] = {}
        self.missing: list[Missing] = []
        self.used: dict[str, tuple[Fetched, ...]] = {}
        self.made = 0

    def source(self, name: str, source: Source | None, rows: Sequence[Row], *, wanted: bool) -> None:
        kept = {row.question_id: found for row in rows if (found := self._journal.done(row)) is not None}
        self.filled |= kept
        left = len(rows) - len(kept)
        if not left:
            self._progress(name, len(rows), len(rows))
        elif source is None:
            self._lack({"this version knows no such source": left}, name)
        elif not wanted:
            self._lack({"left out by only=": left}, name)
        else:
            self._fill(source, rows, kept)

    def _fill(self, source: Source, rows: Sequence[Row], kept: Mapping[str, Filled]) -> None:
        context = Context(self._tables, self._target, self._quirks)
        # Rows that share a generator are all made again, from the first: it moves on with each of them.
        again = source.in_order and context.is_official and self._target is not None
        why: Counter[str] = Counter()
        before = set(self._tables.used)
        for n, row in enumerate(rows):
            if row.question_id in kept and not again:
                continue
            try:
                filled = source.fill(row, context)
                _require_text(row, filled)
            except RowError as error:
                why[str(error)] += 1
                continue
            except SourceAway as error:
                why[str(error)] += sum(rest.question_id not in kept for rest in rows[n:])
                break
            except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                why[f"{source.name} has rows of another shape than expected ({error!r}, row {row.question_id})"] += 1
                continue
            if kept.get(row.question_id) != filled:
                self._journal.add(row, filled)
                self.made += 1
            self.filled[row.question_id] = filled
            self._progress(source.name, n + 1, len(rows))
        self.used[source.name] = tuple(file for table, got in self._tables.used.items() if table not in before for file in got)
        self._tables.forget()
        self._lack({reason: n for reason, n in why.items() if n}, source.name)

    def _lack(self, why: Mapping[str, int], name: str) -> None:
        self.missing += [Missing(name, n, reason) for reason, n in why.items()]


def _by_source(rows: Iterable[Row]) -> list[tuple[str, Source | None, list[Row]]]:
    """The placeholder rows of each source, in their order; sources in that of their first row."""
    found: dict[str, tuple[Source | None, list[Row]]] = {}
    for row in rows:
        if row.is_placeholder:
            source = source_of(row)
            found.setdefault(source.name if source else row.source, (source, []))[1].append(row)
    return [(name, source, theirs) for name, (source, theirs) in found.items()]


def _require_text(row: Row, filled: Filled) -> None:
    if not filled.turns or not all(turn.strip() for turn in filled.turns):
        raise RowError(f"row {row.question_id}: its source has no text for one of its turns")


def _write(
    folder: Path, config: str, quirks: Quirks, target: int | None, dataset: Sequence[Fetched], rows: Sequence[Row], work: _Work
) -> Prepared:
    written = [_row(row, work.filled.get(row.question_id)) for row in rows]
    complete, partial = folder / COMPLETE, folder / PARTIAL
    file = partial if work.missing else complete
    partial.unlink(missing_ok=True)  # never beside a complete one: a folder is read as one data set
    write_rows(file, written)
    facts = [manifest.row_facts(old, new, work.filled.get(old.question_id)) for old, new in zip(rows, written, strict=True)]
    manifest.write(
        folder / manifest.FILE,
        manifest.manifest(
            config=config,
            quirks=quirks,
            target=target,
            dataset=dataset,
            sources=_used(work.used, manifest.read(folder / manifest.FILE)),
            rows=facts,
            missing=[{"source": one.source, "rows": one.rows, "why": one.why} for one in work.missing],
            file=file,
        ),
    )
    return Prepared(config, file, len(rows), work.made, tuple(work.missing))


def _used(now: Mapping[str, Sequence[Fetched]], before: Mapping[str, Any] | None) -> dict[str, list[dict[str, Any]]]:
    """The files of this run and of those that it goes on from, whose rows came out of the journal."""
    earlier = (before or {}).get("sources", {})
    used = {name: [one.facts() for one in files] for name, files in now.items()}
    for name, files in earlier.items():
        there = used.setdefault(name, [])
        there += [one for one in files if one not in there]
    return used


def _row(row: Row, filled: Filled | None) -> Row:
    """``multiturn`` of a filled row is what its turns say: the published column has it wrong for some sources (MMLU-Pro)."""
    if filled is None:
        return row
    return replace(row, turns=filled.turns, multiturn=len(filled.turns) > 1)


def _complete(folder: Path, config: str, quirks: Quirks, revision: str) -> Prepared | None:
    """The complete file that is there already, if it is what is asked for. Nothing that is there is ever replaced by something else."""
    file = folder / COMPLETE
    if not file.exists():
        return None
    facts: Mapping[str, Any] = manifest.read(folder / manifest.FILE) or {}
    if not facts.get("complete") or facts["file"]["sha256"] != manifest.file_sha256(file):
        if (folder / JOURNAL).exists():
            return None  # stopped between the file and its manifest
        raise WorkloadError(f"{file} has no manifest of this command, or was changed since; remove it, or choose another out=")
    if facts["quirks"] != quirks or facts["texts_version"] != VERSION:
        raise WorkloadError(
            f"{file} was prepared with quirks={facts['quirks']}, texts of version {facts['texts_version']}; remove it, or choose another out="
        )
    revisions = {one["revision"] for one in facts["dataset"]}
    if revision != "main" and revisions - {""} and not all(one.startswith(revision) for one in revisions):
        raise WorkloadError(f"{file} is of revision {', '.join(sorted(revisions))}; remove it, or choose another out=")
    return Prepared(config, file, facts["counts"]["rows"], 0, ())


def named_sources(words: Iterable[str]) -> frozenset[str]:
    """Sources by (part of) their name. Raises :class:`WorkloadError` for a word that names none, listing all."""
    found: set[str] = set()
    for word in words:
        names = {name for name in SOURCES if word.lower() in name.lower()}
        if not word or not names:
            raise WorkloadError(f"only={word}: no such source; there are {', '.join(SOURCES)}")
        found |= names
    return frozenset(found)
