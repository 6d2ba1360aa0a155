"""Writes a file as ``torch.save`` would, without torch: what the simulated recorder of SGLang leaves behind.

The pickle is put together opcode by opcode, since a pickler would want to import the names that it writes. It uses protocol 2 as torch
does, and of its opcodes the few that dicts, lists, texts, whole numbers and tensors need. The archive is a zip whose members are stored
and not compressed: the pickle, one member per storage, the byte order and the version of the format.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_STORAGES = {"int32": "IntStorage", "int64": "LongStorage"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member, as torch writes it


@dataclass(frozen=True, slots=True)
class Tensor:
    """A contiguous tensor of 32 or 64 bit whole numbers."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes  # little-endian, row by row

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> Tensor:
        """Raises ``KeyError`` for another kind of number."""
        name = array.dtype.name
        _ = _STORAGES[name]
        return cls(name, array.shape, np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())


def dumped(value: Any, *, name: str) -> bytes:
    """The file. ``name``: of the folder in the archive, which torch takes from the file's name. Raises ``TypeError`` for another value."""
    program = _Program()
    program.add(value)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        members = [("data.pkl", program.finished()), ("byteorder", b"little")]
        members += [(f"data/{i}", data) for i, data in enumerate(program.storages)] + [("version", b"3\n")]
        for member, content in members:
            archive.writestr(zipfile.ZipInfo(f"{name}/{member}", _EPOCH), content)
    return buffer.getvalue()


@dataclass(slots=True)
class _Program:
    code: bytearray = field(default_factory=lambda: bytearray(pickle.PROTO + b"\x02"))
    storages: list[bytes] = field(default_factory=list)

    def finished(self) -> bytes:
        return bytes(self.code + pickle.STOP)

    def add(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, bool):
            self.code += pickle.NEWTRUE if value else pickle.NEWFALSE
        elif isinstance(value, int):
            self._whole(value)
        elif isinstance(value, str):
            text = value.encode()
            self.code += pickle.BINUNICODE + struct.pack("<I", len(text)) + text
        elif isinstance(value, dict):
            self.code += pickle.EMPTY_DICT + pickle.MARK
            for item in value.items():
                self._each(*item)
            self.code += pickle.SETITEMS
        elif isinstance(value, list):
            self.code += pickle.EMPTY_LIST + pickle.MARK
            self._each(*value)
            self.code += pickle.APPENDS
        elif isinstance(value, tuple):
            self.code += pickle.MARK
            self._each(*value)
            self.code += pickle.TUPLE
        else:
            raise TypeError(f"{type(value).__name__} {value!r} has no place in a dump of the recorder")

    def _each(self, *values: Any) -> None:
        for value in values:
            self.add(value)

    def _whole(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self.code += pickle.BININT + struct.pack("<i", value)
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.code += pickle.LONG1 + bytes([len(data)]) + data

    def _global(self, module: str, name: str) -> None:
        self.code += pickle.GLOBAL + f"{module}\n{name}\n".encode()

    def _tensor(self, tensor: Tensor) -> None:
        """``torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)``."""
        count = int(np.prod(tensor.shape, dtype=np.int64))
        strides = tuple(int(np.prod(tensor.shape[i + 1 :], dtype=np.int64)) for i in range(len(tensor.shape)))
        self._global("torch._utils", "_rebuild_tensor_v2")
        self.code += pickle.MARK
        self.code += pickle.MARK
        self.add("storage")
        self._global("torch", _STORAGES[tensor.dtype])
        self._each(str(len(self.storages)), "cpu", count)
        self.code += pickle.TUPLE + pickle.BINPERSID
        self._each(0, tensor.shape, strides, False)
        self._global("collections", "OrderedDict")
        self.code += pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.TUPLE + pickle.REDUCE
        self.storages.append(tensor.data)
