"""Reads the key-value header of a GGUF file, and nothing else of it.

The ``gguf`` package reads the same keys, but wraps every one of the 100,000 strings of a vocabulary in NumPy views: four seconds
for a 135M model, paid at the start of every run. A plain walk over the header takes about 0.1 s.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from specsweep.client.workload.errors import WorkloadError

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def is_gguf(path: Path) -> bool:
    """True if ``path`` is a file that starts with the GGUF magic."""
    if not path.is_file():
        return False
    with path.open("rb") as f:
        return f.read(4) == MAGIC


def read_metadata(path: Path) -> dict[str, Any]:
    """All key-value pairs, as plain Python values (arrays as lists).

    Raises :class:`WorkloadError` for a file that is not a GGUF, is cut short, or of a version or byte order that is not read.
    """
    if not is_gguf(path):
        raise WorkloadError(f"{path} is not a GGUF file")
    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _Header(data).read()
        except (struct.error, IndexError, UnicodeDecodeError, KeyError) as e:
            raise WorkloadError(f"{path}: the GGUF header is damaged or cut short ({type(e).__name__}: {e})") from e
        except WorkloadError as e:
            raise WorkloadError(f"{path}: {e}") from None


class _Header:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 4

    def read(self) -> dict[str, Any]:
        version = self._scalar("I")
        if version not in (2, 3):
            raise WorkloadError(f"GGUF version {version} is not read (2 and 3 are; a huge number means big-endian)")
        _tensors, count = self._scalar("Q"), self._scalar("Q")
        pairs: dict[str, Any] = {}
        for _ in range(count):
            key = self._string()
            pairs[key] = self._value(self._scalar("I"))
        return pairs

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        start = self._at + 8
        end = start + int(self._scalar("Q"))
        if end > len(self._data):
            raise IndexError(f"a string ends at byte {end} of {len(self._data)}")
        self._at = end
        return self._data[start:end].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._scalar("I"), self._scalar("Q")
            if inner in _SCALARS:
                layout = f"<{count}{_SCALARS[inner]}"
                values = struct.unpack_from(layout, self._data, self._at)
                self._at += struct.calcsize(layout)
                return list(values)
            return [self._value(inner) for _ in range(count)]
        return self._scalar(_SCALARS[kind])
