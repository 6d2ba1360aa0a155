"""Rows that are done, kept beside the output while a preparation goes on, so that none is made twice.

A journal is only added to: a line a row, each with the digest of its own content, so a line that a killed process left half is told from
a whole one, and costs that row alone. (The prepared file is written aside and renamed, see ``driver.py``; a journal never has that name.)
A line names what it was made from (the published row, the mode, the version of the texts), so rows of another revision or mode do not
count. The lock is ``flock``, which goes with the process however it ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.prepare.registry import Filled
from specsweep.client.workload.prepare.texts import VERSION
from specsweep.client.workload.rows import Row


class Journal:
    """The finished rows by ``question_id``. A context manager: one process at a time. Raises :class:`WorkloadError` if another has it."""

    def __init__(self, path: Path, recipe: str) -> None:
        """``recipe``: what beside the row itself a finished row depends on (config and mode)."""
        self.path = path
        self._recipe = f"{recipe} {VERSION}"
        self._done: dict[tuple[str, str], Filled] = {}

    def __enter__(self) -> Self:
        try:
            self._file = self.path.open("ab+")
        except OSError as error:
            raise WorkloadError(f"{self.path.parent}: cannot be written ({error.strerror}); name a folder that can with out=") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise WorkloadError(
                f"{self.path.parent}: another `specsweep data prepare` works there; wait for it, or choose another out="
            ) from error
        self._file.seek(0)
        content = self._file.read()
        for line in content.split(b"\n"):
            if entry := _entry(line):
                self._done[(entry["question_id"], entry["made_from"])] = Filled(tuple(entry["turns"]), tuple(entry["notes"]))
        if content and not content.endswith(b"\n"):
            self._file.write(b"\n")  # closes the torn line, so that only it is lost
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def done(self, row: Row) -> Filled | None:
        return self._done.get((row.question_id, self._made_from(row)))

    def add(self, row: Row, filled: Filled) -> None:
        key = self._made_from(row)
        entry = {"question_id": row.question_id, "made_from": key, "turns": filled.turns, "notes": filled.notes}
        body = json.dumps(entry).encode()
        self._file.write(hashlib.sha256(body).hexdigest().encode() + b" " + body + b"\n")
        self._file.flush()
        self._done[(row.question_id, key)] = filled

    def settle(self) -> None:
        """What was added survives a power loss after this."""
        os.fsync(self._file.fileno())

    def _made_from(self, row: Row) -> str:
        return digest((self._recipe, row.source, row.src_id, row.sub_category, *row.turns))


def digest(texts: Sequence[str]) -> str:
    """SHA-256 of a list of texts, as compact JSON in UTF-8. That of a row's turns is its hash in the manifest."""
    body = json.dumps(list(texts), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def _entry(line: bytes) -> dict[str, Any] | None:
    checksum, _, body = line.partition(b" ")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return None
    entry: dict[str, Any] = json.loads(body)
    return entry
