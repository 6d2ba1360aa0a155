"""Runs pickles of plain data in a machine of its own, one opcode at a time, because Python's would run any program.

A pickle is a program: it may call what it imports, change what it was given, and build in a few bytes what takes years to hash or to
print. This machine has the opcodes that Python writes in protocol 2 for dicts, lists, tuples, numbers, texts, and for references to
something outside; any other is refused. A name is looked up in a table of the caller and never imported, only a :class:`Call` of that
table can be called, keys of dicts are texts and numbers, and what is called or referred to is no structure of structures. So nothing is
hashed, compared or printed that is larger than one opcode made it, and nothing is larger than the pickle itself.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PROTOCOL = 2
_VALUES = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE"})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PLAIN = (str, int, float, bool, type(None))


class PlainPickleError(ValueError):
    """The pickle is broken, or asks for more than plain data."""


@dataclass(frozen=True, slots=True)
class Call:
    """A name that may be called, with what stands for it here. It gets its arguments unchecked, and gives nothing that can be called."""

    function: Callable[..., Any]


def run(program: bytes, names: Mapping[str, Any], reference: Callable[[tuple[Any, ...]], Any]) -> Any:
    """The value of a pickle. ``names``: by ``"module name"`` what stands for a name. ``reference``: gives what a persistent id is of, a
    tuple of plain values and of values of ``names``.

    Raises :class:`PlainPickleError`, and lets through what calls and ``reference`` raise. Tuples and lists may hold themselves or the same
    value many times over: a reader checks types before it compares or prints.
    """
    machine = _Machine(names, reference)
    try:
        for opcode, argument, _ in pickletools.genops(program):
            if opcode.name == "STOP":
                return machine.finished()
            machine.step(opcode.name, argument)
    except IndexError as error:
        raise PlainPickleError("an opcode takes more from the stack than is there") from error
    raise PlainPickleError("it has no end")


class _Machine:
    def __init__(self, names: Mapping[str, Any], reference: Callable[[tuple[Any, ...]], Any]) -> None:
        self._names, self._reference = names, reference
        self._known = tuple({type(value) for value in names.values()})
        self._stack: list[Any] = []
        self._marks: list[int] = []  # heights of the stack
        self._memo: dict[int, Any] = {}

    def finished(self) -> Any:
        value = self._pop()
        if self._stack or self._marks:
            raise PlainPickleError("it ends with values that belong to nothing")
        return value

    def step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            stack.append(tuple(reversed([self._pop() for _ in range(_TUPLES[name])])))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            if argument not in self._memo:
                raise PlainPickleError(f"entry {argument} of the memo is read before it is written")
            stack.append(self._memo[argument])
        else:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        match name:
            case "PROTO" if argument == PROTOCOL:
                pass
            case "MARK":
                self._marks.append(len(self._stack))
            case "EMPTY_DICT":
                self._stack.append({})
            case "EMPTY_LIST":
                self._stack.append([])
            case "TUPLE":
                self._stack.append(tuple(self._since_mark()))
            case "APPEND" | "APPENDS":
                values = [self._pop()] if name == "APPEND" else self._since_mark()
                self._top(list).extend(values)
            case "SETITEM" | "SETITEMS":
                self._set([self._pop(), self._pop()][::-1] if name == "SETITEM" else self._since_mark())
            case "GLOBAL":
                if argument not in self._names:
                    raise PlainPickleError(f"it asks for {argument.replace(' ', '.')[:80]}, which no plain data needs")
                self._stack.append(self._names[argument])
            case "BINPERSID":
                self._stack.append(self._reference(self._flat(self._pop())))
            case "REDUCE":
                arguments, called = self._pop(), self._pop()
                if not isinstance(called, Call) or not isinstance(arguments, tuple):
                    raise PlainPickleError(f"it calls a {type(called).__name__} with a {type(arguments).__name__}")
                self._stack.append(called.function(*arguments))
            case _:
                version = f" {argument}" if name == "PROTO" else ""
                raise PlainPickleError(f"it asks for the opcode {name}{version}, which is not of plain data in protocol {PROTOCOL}")

    def _pop(self) -> Any:
        """The topmost value, but none from below the last mark."""
        if self._marks and len(self._stack) <= self._marks[-1]:
            raise IndexError
        return self._stack.pop()

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _top(self, kind: type) -> Any:
        top = self._stack[-1]
        if type(top) is not kind:
            raise PlainPickleError(f"an entry for a {kind.__name__} is given to a {type(top).__name__}")
        return top

    def _set(self, items: list[Any]) -> None:
        target = self._top(dict)
        if len(items) % 2:
            raise PlainPickleError("a dict is given a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, _PLAIN):
                raise PlainPickleError(f"a {type(key).__name__} is the key of a dict; texts and numbers can be")
            target[key] = value

    def _flat(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple) or not all(isinstance(part, (*_PLAIN, *self._known)) for part in value):
            raise PlainPickleError(f"a reference is a {type(value).__name__}; a tuple of plain values can be one")
        return value
