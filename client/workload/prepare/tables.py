"""The raw data that rows are filled in from: which files of which source, and their content as rows.

Two seams, one method each. :class:`Files` brings files onto this machine and says what they are (that is the network; ``hub.py``, or a
folder that was downloaded elsewhere; ``folder.py``). :class:`Tables` gives their rows, which is all that the sources see, so that a
test of a source is a dictionary of a few made-up rows.

Files are read with Arrow and ``json`` and not with the ``datasets`` library, which infers types from what a file happens to hold (the
order in which it gave the keys of an object has changed between its versions) and writes a second copy of everything. The rows are the
same: a Parquet file and a JSON file have one meaning.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from specsweep.client.workload.prepare.errors import SourceAway

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Files that are read as one table, in this order.

    ``place``: ``owner/name`` of a data set on the Hugging Face hub, or the whole URL of one file. ``files``: glob patterns inside of the
    repository. ``revision``: commit or branch. ``columns``: those that are needed; some sources carry megabytes a row beside them.
    """

    place: str
    files: tuple[str, ...] = ()
    revision: str = "main"
    columns: tuple[str, ...] = ()

    @property
    def is_url(self) -> bool:
        return "://" in self.place

    def __str__(self) -> str:
        return self.place if self.is_url else f"{self.place} ({', '.join(self.files)}) at {self.revision[:12]}"


@dataclass(frozen=True, slots=True)
class Fetched:
    """One file on this machine. ``revision``: the commit it is of, ``""`` where a place has none."""

    path: Path
    place: str
    name: str
    revision: str

    def facts(self) -> dict[str, Any]:
        """For the manifest; reads the whole file."""
        with self.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {
            "place": self.place,
            "name": self.name,
            "revision": self.revision,
            "sha256": digest,
            "bytes": self.path.stat().st_size,
        }


class Files(Protocol):
    def fetch(self, table: Table) -> tuple[Fetched, ...]:
        """The files of a table, whole. Raises :class:`SourceAway` if they cannot be had, saying why and what to do."""


class Tables(Protocol):
    def rows(self, table: Table) -> Sequence[Record]:
        """All rows of a table, in order. Raises :class:`SourceAway`."""


class FileTables:
    """Rows of files, each table read once. ``used`` has what was read, for the manifest."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._rows: dict[Table, Sequence[Record]] = {}
        self.used: dict[Table, tuple[Fetched, ...]] = {}

    def rows(self, table: Table) -> Sequence[Record]:
        if table not in self._rows:
            fetched = self._files.fetch(table)
            self._rows[table] = [row for file in fetched for row in read(file.path, table.columns)]
            self.used[table] = fetched
        return self._rows[table]

    def forget(self) -> None:
        """Lets go of the rows (one source's tables are not needed by the next); ``used`` stays."""
        self._rows.clear()


def read(path: Path, columns: Sequence[str] = ()) -> Iterator[Record]:
    """The rows of a Parquet file, of a JSON array, of one JSON object (a table of one row) or of JSON lines.

    Raises :class:`SourceAway` naming the file for one that is cut off, that is no such file, or that lacks a column.
    """
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path, columns)
        elif path.suffix == ".jsonl":
            yield from (_picked(path, row, columns) for row in _lines(path))
        else:
            yield from (_picked(path, row, columns) for row in _json(path))
    except (ValueError, OSError, pa.ArrowException) as error:
        if isinstance(error, SourceAway):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceAway(
            f"{path}: cannot be read ({reason}); the file is cut off or of another kind: remove it and fetch it again"
        ) from error


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    file = pq.ParquetFile(path)
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise SourceAway(f"{path}: has no column {missing[0]!r}; it has {', '.join(file.schema_arrow.names)}")
    for batch in file.iter_batches(batch_size=256, columns=list(columns) or None):
        yield from batch.to_pylist()


def _json(path: Path) -> Iterator[Any]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if "\n" not in text.strip() or not error.msg.startswith("Extra data"):
            raise
        yield from _lines(path)  # JSON lines under the name of a JSON file
        return
    yield from value if isinstance(value, list) else (value,)


def _lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _picked(path: Path, row: Any, columns: Sequence[str]) -> Record:
    if not isinstance(row, dict):
        raise SourceAway(f"{path}: a row is {type(row).__name__} and not an object; it is not the file that the source has")
    if not columns:
        return row
    missing = [name for name in columns if name not in row]
    if missing:
        raise SourceAway(f"{path}: a row has no field {missing[0]!r}; it has {', '.join(map(str, row))}")
    return {name: row[name] for name in columns}


def whole_shards(paths: Sequence[Path]) -> bool:
    """Whether there is a file, and every one of its kind: ``…-00000-of-00002.parquet`` says that there are two."""
    counts = {int(named[1]) for path in paths if (named := re.search(r"-of-(\d+)", path.name))}
    return bool(paths) and counts <= {len(paths)}
