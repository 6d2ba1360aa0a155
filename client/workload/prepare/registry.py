"""One interface for all sources: a function from an unfilled row to the turns that take its place.

A source declares the name by which rows call it (``@source("cais/hle")``); a row belongs to the source whose name stands inside its
``source`` column, as the official preparation dispatches. What a source may use beside the row is the :class:`Context`: raw tables, the
token target of the config, and which quirks are wanted. Sources are pure but for that.

``quirks``: ``official`` makes the same rows as NVIDIA's ``specdec_bench`` does, its oddities included, because numbers are compared
with numbers that others measured on those rows. ``plain`` keeps the sources and the texts and leaves the oddities out: exactly the
target's tokens, and random choices that depend on the row alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from specsweep.client.workload.prepare.errors import RowError
from specsweep.client.workload.prepare.tables import Record, Table, Tables
from specsweep.client.workload.rows import PLACEHOLDER, Row

Quirks = Literal["official", "plain"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Filled:
    """The user turns of a row. ``notes``: what a reader of the manifest should know about this row."""

    turns: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Context:
    """What a source sees while one config is filled in."""

    def __init__(self, tables: Tables, target: int | None, quirks: Quirks) -> None:
        """``target``: prompt length in ``o200k_base`` tokens; ``None`` for the qualitative split, which has no lengths."""
        self.tables = tables
        self.target = target
        self.quirks = quirks
        self._made: dict[object, Any] = {}

    @property
    def is_official(self) -> bool:
        return self.quirks == "official"

    def tokens(self, row: Row) -> int:
        """The target. Raises :class:`RowError` in a config that has none."""
        if self.target is None:
            raise RowError(f"row {row.question_id} is of {row.source}, which is padded or cut to a token target, and this config has none")
        return self.target

    def once(self, key: object, make: Callable[[], T]) -> T:
        """``make()``, the first time; the same object after that. For what is dear to make, or is shared by rows in their order."""
        if key not in self._made:
            self._made[key] = make()
        return cast(T, self._made[key])

    def at(self, table: Table, n: int) -> Record:
        """Row number ``n`` of a table, from 0. Raises :class:`RowError`."""
        rows = self.tables.rows(table)
        if not 0 <= n < len(rows):
            raise RowError(f"row {n} is asked for and {table} has {len(rows)}")
        return rows[n]

    def by_key(self, table: Table, key: str, value: str) -> Record:
        """The first row whose ``key`` is ``value``. Raises :class:`RowError`."""
        index = self.once((table, key), lambda: _index(self.tables.rows(table), key))
        if value not in index:
            raise RowError(f"{table} has no row with {key}={value!r}")
        return index[value]


Fill = Callable[[Row, Context], Filled]


@dataclass(frozen=True, slots=True)
class Source:
    """``in_order``: in official mode the rows share a generator, so that a row depends on all rows of the source before it."""

    name: str
    fill: Fill
    in_order: bool = False


SOURCES: dict[str, Source] = {}


def source(name: str, *, in_order: bool = False) -> Callable[[Fill], Fill]:
    """Registers a source under the name that stands inside the ``source`` column of its rows."""

    def register(fill: Fill) -> Fill:
        SOURCES[name] = Source(name, fill, in_order)
        return fill

    return register


def source_of(row: Row) -> Source | None:
    """The source that fills a row in; ``None`` if this version knows none."""
    return next((found for name, found in SOURCES.items() if name in row.source), None)


def template(row: Row, **values: Any) -> str:
    """The template that follows the placeholder in the row's first turn, filled in. Raises :class:`RowError` for one that asks for more."""
    text = row.turns[0].removeprefix(f"{PLACEHOLDER}\n\n")
    if text == row.turns[0]:
        raise RowError(f"row {row.question_id} of {row.source} has no template after the placeholder; take the published data set")
    try:
        return text.format(**values)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise RowError(
            f"row {row.question_id} of {row.source}: its template cannot be filled with {', '.join(values)}: {error!r}"
        ) from error


def last_number(row: Row) -> int:
    """The row number after the last ``_`` of ``src_id``. Raises :class:`RowError`."""
    return number(row, row.src_id.rsplit("_", 1)[-1])


def part(row: Row, n: int) -> str:
    """The ``n``-th part of ``src_id`` between its ``_``, from 0. Raises :class:`RowError`."""
    parts = row.src_id.split("_")
    if n >= len(parts):
        raise RowError(f"row {row.question_id}: src_id {row.src_id!r} has no part {n + 1} (parts are separated by _)")
    return parts[n]


def number(row: Row, text: str) -> int:
    if not text.isdecimal():
        raise RowError(f"row {row.question_id}: src_id {row.src_id!r} holds {text!r} where a row number belongs")
    return int(text)


def seed_of(row: Row) -> int:
    """A seed that depends on the row alone, on every machine the same: for ``plain``."""
    return int.from_bytes(hashlib.sha256(row.question_id.encode()).digest()[:8], "big")


def _index(rows: Sequence[Record], key: str) -> Mapping[str, Record]:
    found: dict[str, Record] = {}
    for row in rows:
        found.setdefault(str(row[key]), row)  # the first of two, as `.iloc[0]` of the official loader takes it
    return found
