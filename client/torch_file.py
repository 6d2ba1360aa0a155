"""Reads what ``torch.save`` writes, without torch and without trusting the file.

A ``.pt`` file is a zip of a pickle and of one member per storage; the pickle refers to storages by key and to tensors by a function
that views one. A pickle is a program, so this one runs in a machine that knows plain containers, storages and tensors and nothing
else: every other name is refused before it is imported, let alone called. Tensors become NumPy arrays, whatever device they were on.

Members that torch writes are never compressed. A compressed one was not written by torch, and is refused: it could unpack to any size.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

_MEMO = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_DTYPES = {
    "BoolStorage": "?",
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "HalfStorage": "f2",
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
}


class TorchFileError(ValueError):
    """The file is not what torch writes, is cut short, or asks for more than tensors and plain containers."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a storage class of torch says of its elements."""

    dtype: str


def load(data: bytes) -> Any:
    """The object that was saved: dicts, lists, numbers, texts, and NumPy arrays where there were tensors.

    Raises :class:`TorchFileError` for anything else, before any of it runs.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _Reader(archive).read()
    except TorchFileError:
        raise
    except (
        zipfile.BadZipFile,
        pickle.UnpicklingError,
        EOFError,
        OverflowError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        MemoryError,
        NotImplementedError,
        RuntimeError,
    ) as error:  # a pickle can be broken in as many ways as a program
        raise TorchFileError(f"not a file of torch.save, or a broken one: {type(error).__name__}: {error}") from error


class _Reader:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        pickles = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise TorchFileError(f"a file of torch.save holds one data.pkl; this archive holds {len(pickles)}")
        self._folder = pickles[0].removesuffix("data.pkl")
        order = self._member("byteorder", default=b"little").strip()
        if order not in (b"little", b"big"):
            raise TorchFileError(f"byteorder is {order[:20]!r}; little or big is known")
        self._order: Literal["<", ">"] = "<" if order == b"little" else ">"
        self._storages: dict[str, np.ndarray[Any, Any]] = {}

    def read(self) -> Any:
        program = self._member("data.pkl")
        _check_memo(program)
        return _Unpickler(program, self._storage).load()

    def _member(self, name: str, default: bytes | None = None) -> bytes:
        full = self._folder + name
        try:
            info = self._archive.getinfo(full)
        except KeyError:
            if default is None:
                raise TorchFileError(f"{full} is missing") from None
            return default
        if info.compress_type != zipfile.ZIP_STORED:
            raise TorchFileError(f"{full} is compressed, which torch never does")
        return self._archive.read(info)

    def _storage(self, reference: object) -> np.ndarray[Any, Any]:
        """``('storage', class, key, device, elements)``: the elements, flat."""
        if not isinstance(reference, tuple) or len(reference) != 5 or reference[0] != "storage":
            raise TorchFileError(f"a reference that is no storage: {str(reference)[:80]}")
        _, kind, key, _, count = reference
        if not isinstance(kind, _Kind) or not isinstance(key, str) or not isinstance(count, int) or not key.isalnum():
            raise TorchFileError(f"a storage of no known kind: {str(reference)[:80]}")
        if key not in self._storages:
            self._storages[key] = np.frombuffer(self._member(f"data/{key}"), dtype=np.dtype(kind.dtype).newbyteorder(self._order))
        found = self._storages[key]
        if found.dtype.kind != np.dtype(kind.dtype).kind or found.dtype.itemsize != np.dtype(kind.dtype).itemsize or len(found) < count:
            raise TorchFileError(f"storage {key} holds {len(found)} elements of {found.dtype}, not {count} of {kind.dtype}")
        return found[:count]


def _check_memo(program: bytes) -> None:
    """The memo is an array that grows to the highest index that is named: one opcode could ask for all memory."""
    for opcode, argument, _ in pickletools.genops(program):
        if opcode.name in _MEMO and isinstance(argument, int) and argument > len(program):
            raise TorchFileError(f"entry {argument} of a memo, in a pickle of {len(program)} bytes")


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, storage: Callable[[object], np.ndarray[Any, Any]]) -> None:
        super().__init__(io.BytesIO(data))
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _DTYPES:
            return _Kind(_DTYPES[name])
        raise TorchFileError(f"it asks for {module}.{name}; only tensors of numbers and plain containers are read")

    def persistent_load(self, reference: object) -> Any:
        return self._storage(reference)


def _tensor(storage: np.ndarray[Any, Any], offset: int, size: Sequence[int], stride: Sequence[int], *_: object) -> np.ndarray[Any, Any]:
    """A copy of the view of a storage; an element outside of it is refused. What follows (gradients, hooks) says nothing of numbers."""
    if not isinstance(storage, np.ndarray) or len(size) != len(stride):
        raise TorchFileError("a tensor without a storage, or with as many strides as it has not dimensions")
    if min((offset, *size, *stride), default=0) < 0:
        raise TorchFileError(f"a tensor at {offset} of size {tuple(size)} and strides {tuple(stride)}")
    empty = 0 in tuple(size)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if not empty and last >= len(storage):
        raise TorchFileError(f"a tensor that reaches to element {last} of a storage of {len(storage)}")
    if empty:
        return np.zeros(tuple(size), storage.dtype.newbyteorder("="))
    width = storage.dtype.itemsize
    view = np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), tuple(step * width for step in stride))
    return view.astype(storage.dtype.newbyteorder("="))
