"""Embeddings on disk, by embedder and text: an endpoint is asked, and paid, once for a text.

One SQLite file in the folder: twenty thousand vectors as files of their own would be slow to make and to remove, and SQLite survives a
kill and several writers. Each chunk is written as soon as it is there, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from specsweep.client.workload.embedders import Embedder, Vectors
from specsweep.client.workload.errors import WorkloadError

FILE = "embeddings.sqlite"
CHUNK = 1024  # texts between two writes
_LOOKUP = 500  # variables of one query; SQLite allows 999 in old builds
_WAIT_S = 60.0  # for another writer


class CachedEmbedder:
    """An embedder that looks up first. Its name is that of the embedder: a cache changes no number."""

    def __init__(self, inner: Embedder, folder: Path) -> None:
        self._inner = inner
        self._path = folder.expanduser() / FILE

    @property
    def name(self) -> str:
        return self._inner.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        with self._open() as db:
            found = self._found(db, list(dict.fromkeys(keys)))
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
            todo = list(missing.items())
            for at in range(0, len(todo), CHUNK):
                chunk = todo[at : at + CHUNK]
                rows = self._inner.embed([text for _, text in chunk])
                found |= {key: row for (key, _), row in zip(chunk, rows, strict=True)}
                with db:
                    db.executemany(
                        "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                        [(self.name, key, row.astype("<f4").tobytes()) for (key, _), row in zip(chunk, rows, strict=True)],
                    )
        return np.stack([found[key] for key in keys]) if keys else self._inner.embed(())

    def _found(self, db: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        found: dict[bytes, Vectors] = {}
        for at in range(0, len(keys), _LOOKUP):
            some = keys[at : at + _LOOKUP]
            query = f"SELECT sha256, vector FROM vectors WHERE embedder = ? AND sha256 IN ({','.join('?' * len(some))})"
            found |= {
                bytes(key): np.frombuffer(vector, dtype="<f4").astype(np.float32) for key, vector in db.execute(query, (self.name, *some))
            }
        return found

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as db:
                db.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (embedder TEXT, sha256 BLOB, vector BLOB, PRIMARY KEY (embedder, sha256)) WITHOUT ROWID"
                )
                yield db
        except sqlite3.Error as error:
            raise WorkloadError(
                f"{self._path}: the cache of embeddings cannot be used ({error}); remove the file or give another folder"
            ) from error
