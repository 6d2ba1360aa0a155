"""Reads what ``torch.save`` writes, without torch and without trusting the file.

A ``.pt`` file is a zip of a pickle and of one member per storage; the pickle refers to storages by key and to tensors by a function
that views one. A pickle is a program, so it runs in :mod:`specsweep.client.plain_pickle`, which knows plain containers and what is named
here: storages and tensors. Tensors become NumPy arrays, whatever device they were on.

No more memory is taken than the file is long. Members that torch writes are never compressed; a compressed one was not written by torch
and could unpack to any size. Tensors are views of their storages and not copies, and may not show an element twice: an expanded tensor
of torch, whose strides are 0, can be of any size and is refused.
"""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from specsweep.client.plain_pickle import Call, PlainPickleError, run

Array = np.ndarray[Any, Any]
MOST_DIMENSIONS = 32
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


@dataclass(frozen=True, slots=True, eq=False)
class _Storage:
    """The elements of a member, flat. Of this type, so that no tensor passes for one: a tensor's strides need not fit its length."""

    elements: Array


def load(data: bytes) -> Any:
    """The object that was saved: dicts, lists, tuples, numbers, texts, and read-only NumPy arrays where there were tensors.

    Raises :class:`TorchFileError` for anything else, before any of it runs.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _Reader(archive, len(data)).read()
    except TorchFileError:
        raise
    except PlainPickleError as error:
        raise TorchFileError(f"its pickle is not of tensors and plain containers: {error}") from error
    except (
        zipfile.BadZipFile,
        EOFError,
        OSError,
        OverflowError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        MemoryError,
        NotImplementedError,
        RuntimeError,
        struct.error,
    ) as error:  # a zip and a pickle can be broken in as many ways as a program
        raise TorchFileError(f"not a file of torch.save, or a broken one: {type(error).__name__}: {error}") from error


class _Reader:
    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        self._room = size  # bytes: members that lie over each other could hold any number
        pickles = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise TorchFileError(f"a file of torch.save holds one data.pkl; this archive holds {len(pickles)}")
        self._folder = pickles[0].removesuffix("data.pkl")
        order = self._member("byteorder", default=b"little").strip()
        if order not in (b"little", b"big"):
            raise TorchFileError(f"byteorder is {order[:20]!r}; little or big is known")
        self._order: Literal["<", ">"] = "<" if order == b"little" else ">"
        self._storages: dict[str, Array] = {}

    def read(self) -> Any:
        return run(self._member("data.pkl"), _NAMES, self._storage)

    def _member(self, name: str, default: bytes | None = None) -> bytes:
        full = self._folder + name
        try:
            info = self._archive.getinfo(full)
        except KeyError:
            if default is None:
                raise TorchFileError(f"{full[:80]} is missing") from None
            return default
        if info.compress_type != zipfile.ZIP_STORED:
            raise TorchFileError(f"{full[:80]} is compressed, which torch never does")
        self._room -= info.file_size
        if self._room < 0:
            raise TorchFileError("its members are longer than the file")
        return self._archive.read(info)

    def _storage(self, reference: tuple[Any, ...]) -> _Storage:
        """``('storage', class, key, device, elements)``."""
        if len(reference) != 5 or reference[0] != "storage":
            raise TorchFileError(f"a reference of {len(reference)} parts is no storage")
        _, kind, key, _, count = reference
        if not isinstance(kind, _Kind) or not isinstance(key, str) or not key.isalnum() or type(count) is not int or count < 0:
            types = ", ".join(type(part).__name__ for part in reference)
            raise TorchFileError(f"a storage of no known kind, key or number of elements: ({types})")
        dtype = np.dtype(kind.dtype).newbyteorder(self._order)
        if key not in self._storages:
            self._storages[key] = np.frombuffer(self._member(f"data/{key}"), dtype=dtype)
        found = self._storages[key]
        if found.dtype != dtype or len(found) < count:
            raise TorchFileError(f"storage {key[:80]} holds {len(found)} elements of {found.dtype}, not {count} of {kind.dtype}")
        return _Storage(found[:count])


def _tensor(storage: object, offset: object, size: object, stride: object, *_: object) -> Array:
    """A view of a storage; an element outside of it is refused. What follows (gradients, hooks) says nothing of numbers."""
    if not isinstance(storage, _Storage):
        raise TorchFileError(f"a tensor over a {type(storage).__name__}, which is no storage")
    start, sizes, steps = *_whole(offset), _whole(size), _whole(stride)
    if len(sizes) != len(steps) or len(sizes) > MOST_DIMENSIONS:
        raise TorchFileError(f"a tensor of {len(sizes)} dimensions with {len(steps)} strides; up to {MOST_DIMENSIONS} are read")
    elements = storage.elements
    native = elements.dtype.newbyteorder("=")
    if 0 in sizes:
        return np.zeros(sizes, native)
    last = start
    for step, n in sorted((step, n) for step, n in zip(steps, sizes, strict=True) if n > 1):
        if step <= last - start:
            raise TorchFileError(f"a tensor of sizes {sizes} and strides {steps} shows an element twice")
        last += (n - 1) * step
    if last >= len(elements):
        raise TorchFileError(f"a tensor that reaches to element {last} of a storage of {len(elements)}")
    width = elements.dtype.itemsize
    strides = tuple(step * width if n > 1 else width for step, n in zip(steps, sizes, strict=True))
    view = np.lib.stride_tricks.as_strided(elements[start:], sizes, strides, writeable=False)
    return view.astype(native, copy=False)


def _whole(value: object) -> tuple[int, ...]:
    """One whole number or several, none below 0 and none beyond what an index of memory can be."""
    found = value if isinstance(value, tuple) else (value,)
    if not all(type(n) is int and 0 <= n < 2**62 for n in found):
        raise TorchFileError("offset, size and strides of a tensor are whole numbers of at least 0; these are not")
    return found


_NAMES: dict[str, Any] = {
    "collections OrderedDict": Call(lambda: {}),  # torch gives it no argument
    "torch._utils _rebuild_tensor_v2": Call(_tensor),
    **{f"torch {name}": _Kind(dtype) for name, dtype in _DTYPES.items()},
}
