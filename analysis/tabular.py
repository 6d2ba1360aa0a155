"""A table once, for every place that shows it: terminal, Markdown, HTML, CSV and JSON.

A row holds the cells as a person reads them and the record that they were made from. Text outputs use the cells; CSV and JSON use
the records, with full precision and the metric names of the registry as keys, so that no program ever parses ``41.2 [40.1, 42.3]``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reasons import merged


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    header: str
    right: bool = False  # holds numbers
    wraps: int = 0  # holds text that may take several lines, in at least this many characters; 0: a cell is one line


@dataclass(frozen=True, slots=True)
class Row:
    cells: tuple[str, ...]
    record: Mapping[str, Any]  # JSON-able, full precision
    muted: bool = False  # not valid, or not measured yet
    group: str = ""  # rows of one group belong together (one workload, say)


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    shared: Mapping[str, str] = field(default_factory=dict)  # header → the value that all rows have
    brief: tuple[str, ...] = ()  # what a terminal shows in place of the notes: two short lines, and one for each number that is missing

    @property
    def caption(self) -> str:
        return ", ".join(f"{k} {v}" for k, v in self.shared.items())

    @property
    def right(self) -> list[int]:
        return [i for i, c in enumerate(self.columns) if c.right]

    def simulated(self) -> Table:
        """The table of simulated numbers: it says so in its title, and every record does."""
        rows = tuple(replace(row, record={**row.record, "simulated": True}) for row in self.rows)
        return replace(self, title=f"SIMULATED – {self.title}", rows=rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.name,
            "title": self.title,
            "shared": dict(self.shared),
            "notes": list(self.notes),
            "rows": [dict(r.record) for r in self.rows],
        }

    def to_markdown(self) -> str:
        head = "| " + " | ".join(_escape(c.header) for c in self.columns) + " |"
        rule = "|" + "|".join("---:" if c.right else "---" for c in self.columns) + "|"
        body = ["| " + " | ".join(_escape(c) for c in row.cells) + " |" for row in self.rows]
        parts = [f"## {self.title}", ""]
        parts += [self.caption + ".", ""] if self.caption else []
        parts += [head, rule, *body, ""]
        parts += [f"* {note}" for note in self.notes]
        return "\n".join(parts).rstrip() + "\n"

    def to_csv(self) -> str:
        keys = list(dict.fromkeys(k for row in self.rows for k in row.record))
        out = io.StringIO()
        writer = csv.DictWriter(out, keys, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: _flat(v) for k, v in row.record.items()} for row in self.rows)
        return out.getvalue()


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _flat(value: Any) -> Any:
    return ";".join(str(v) for v in value) if isinstance(value, list | tuple) else value


def fold_shared(
    columns: Sequence[Column], rows: Sequence[Row], foldable: Sequence[str]
) -> tuple[tuple[Column, ...], tuple[Row, ...], dict[str, str]]:
    """Takes columns that hold one value in all rows out of the table; the value goes into the caption. Records keep everything."""
    folded = [i for i, c in enumerate(columns) if c.key in foldable and rows and len({row.cells[i] for row in rows}) == 1]
    shared = {columns[i].header: rows[0].cells[i] for i in folded if rows[0].cells[i] not in ("", "–")}
    kept = [i for i in range(len(columns)) if i not in folded]
    return (
        tuple(columns[i] for i in kept),
        tuple(Row(tuple(row.cells[i] for i in kept), row.record, row.muted, row.group) for row in rows),
        shared,
    )


def fit(table: Table, width: int, expendable: Sequence[str]) -> tuple[Table, list[str]]:
    """The table in ``width`` characters: every column that is not ``expendable``, and of those (keys, the least important first) as many
    as there is room for, the most important first. A wide one that finds no room does not keep a narrower one out.

    Also the headers of those left out. The table may still be too wide: columns that are not expendable stay.
    """
    widths = {c.key: _column_width(c, [r.cells[i] for r in table.rows]) for i, c in enumerate(table.columns)}
    kept = {key for key in widths if key not in expendable}
    room = width - sum(widths[key] for key in kept)
    for key in reversed(expendable):
        if key in widths and widths[key] <= room:
            kept.add(key)
            room -= widths[key]
    at = [i for i, c in enumerate(table.columns) if c.key in kept]
    left_out = [c.header for key in expendable for c in table.columns if c.key == key and key not in kept]
    rows = tuple(replace(r, cells=tuple(r.cells[i] for i in at)) for r in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in at), rows=rows), left_out


GAP = 2  # characters between two columns


def text_width(table: Table) -> int:
    """Characters of the widest line, with the columns that may wrap as narrow as they may be."""
    return sum(_column_width(c, [r.cells[i] for r in table.rows]) for i, c in enumerate(table.columns))


def _column_width(column: Column, cells: Sequence[str]) -> int:
    longest = max((len(c) for c in cells), default=0)
    return max(len(column.header), min(longest, column.wraps) if column.wraps else longest) + GAP


def without_intervals(table: Table, keys: Sequence[str]) -> Table:
    """The table with bare values in these columns; the mark of a doubtful one stays."""
    at = [i for i, c in enumerate(table.columns) if c.key in keys]

    def bare(cell: str) -> str:
        value, bracket, rest = cell.partition(" [")
        return value + rest.rpartition("]")[2] if bracket else cell

    rows = tuple(replace(r, cells=tuple(bare(c) if i in at else c for i, c in enumerate(r.cells))) for r in table.rows)
    return replace(table, rows=rows)


def footnoted(table: Table, key: str, *, stays: Collection[str] = ()) -> tuple[Table, list[str]]:
    """The table with the texts of one column as numbers, ``(1)``, and those texts, each once however many rows have it. Texts that differ
    only in a number are one, with its range. What ``stays`` has no number."""
    at = next((i for i, c in enumerate(table.columns) if c.key == key), None)
    if at is None:
        return table, []
    reasons = merged(r.cells[at] for r in table.rows if r.cells[at] and r.cells[at] not in stays)
    mark = {"": "", **{text: text for text in stays}, **{text: f"({n})" for n, reason in enumerate(reasons, 1) for text in reason.texts}}
    rows = tuple(replace(r, cells=(*r.cells[:at], mark[r.cells[at]], *r.cells[at + 1 :])) for r in table.rows)
    columns = tuple(replace(c, wraps=0) if i == at else c for i, c in enumerate(table.columns))
    return replace(table, columns=columns, rows=rows), [f"({n}) {reason.text}" for n, reason in enumerate(reasons, 1)]


def with_interval(value: Estimate | None, mark: str = "") -> str:
    """``41.2 [40.1, 42.3]``; value and bounds share the number of decimals that the value's size asks for.

    A value that is exact by its definition (the AL of a baseline is 1) has an interval of no width, which is not shown.
    """
    if value is None:
        return "–"
    decimals = decimals_for(value.value)
    text = f"{value.value:.{decimals}f}"
    if value.low is not None and value.high is not None and value.low < value.high:
        text += f" [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"
    return text + mark


def decimals_for(value: float) -> int:
    size = abs(value)
    return 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 else 3


def put(record: dict[str, Any], key: str, value: Estimate | None) -> None:
    """Writes a metric with its bounds under registry keys; what is not known is None, never 0."""
    record[key] = None if value is None else value.value
    record[f"{key}_ci_low"] = None if value is None else value.low
    record[f"{key}_ci_high"] = None if value is None else value.high
