"""Checked reading of nested mappings: every complaint names the field by its full path, the value, and what is expected.

A model file is written by hand, and a misspelt field that is silently ignored gives a simulation of something else. So a section is
read through an object that knows which fields were asked for, and leftovers are an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

REQUIRED = object()


class ModelError(ValueError):
    """A model file says something that cannot be simulated. The text names the field, its value and what to write instead."""


class Section:
    """One mapping of the file. ``path`` is how it is named in errors, e.g. ``drafters.eagle3``."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise ModelError(f"{path}={value!r}: expected a mapping of fields")
        self.path = path
        self._left: dict[str, Any] = {str(k): v for k, v in value.items()}
        self._asked: list[str] = []

    def name_of(self, field: str) -> str:
        return f"{self.path}.{field}" if self.path else field

    def raw(self, field: str, default: object = REQUIRED) -> Any:
        self._asked.append(field)
        value = self._left.pop(field, default)
        if value is REQUIRED:
            raise ModelError(f"{self.name_of(field)} is missing: give it a value")
        return value

    def number(self, field: str, default: object = REQUIRED, *, low: float = 0.0, high: float = math.inf, above: bool = False) -> float:
        """A finite number in [low, high]; ``above``: low itself is not allowed."""
        return number(self.raw(field, default), self.name_of(field), low=low, high=high, above=above)

    def integer(self, field: str, default: object = REQUIRED, *, low: int = 0) -> int:
        value = self.number(field, default, low=low)
        if value != int(value):
            raise ModelError(f"{self.name_of(field)}={value!r}: expected a whole number")
        return int(value)

    def text(self, field: str, default: object = REQUIRED) -> str:
        value = self.raw(field, default)
        if not isinstance(value, str):
            raise ModelError(f"{self.name_of(field)}={value!r}: expected a text")
        return value

    def section(self, field: str, default: object = REQUIRED) -> Section:
        return Section(self.raw(field, default), self.name_of(field))

    def entries(self, field: str, default: object = REQUIRED) -> dict[Any, Any]:
        """A mapping whose keys are data and not field names; keys keep their type."""
        value = self.raw(field, default)
        if not isinstance(value, Mapping):
            raise ModelError(f"{self.name_of(field)}={value!r}: expected a mapping")
        return dict(value)

    def finish(self) -> None:
        """Raises if the mapping holds a field that nothing asked for."""
        for field, value in self._left.items():
            raise ModelError(f"{self.name_of(field)}={value!r} is not a field; known: {', '.join(sorted(set(self._asked)))}")


def number(value: object, name: str, *, low: float = 0.0, high: float = math.inf, above: bool = False) -> float:
    valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not valid or not low <= value <= high or (above and value == low):  # type: ignore[operator]
        bounds = f"{'above' if above else 'of at least'} {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
        raise ModelError(f"{name}={value!r}: expected a number {bounds}")
    return float(value)  # type: ignore[arg-type]


def knots(
    value: Mapping[Any, Any], name: str, read: Callable[[object, str], Sequence[float]], *, low: float = 0.0
) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """``{x: value}`` as pairs in the order of x. Raises for an empty mapping and for keys that are no numbers of at least ``low``."""
    if not value:
        raise ModelError(f"{name} is empty: give at least one value")
    found = {number(x, f"a key of {name}", low=low): tuple(read(y, f"{name}[{x}]")) for x, y in value.items()}
    return tuple(sorted(found.items()))
