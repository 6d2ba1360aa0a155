"""A table once, for every place that shows it: terminal, Markdown, HTML, CSV and JSON.

A row holds the cells as a person reads them and the record that they were made from. Text outputs use the cells; CSV and JSON use
the records, with full precision and the metric names of the registry as keys, so that no program ever parses ``41.2 [40.1, 42.3]``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specsweep.analysis.attempts import Estimate


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    header: str
    right: bool = False  # holds numbers


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

    @property
    def caption(self) -> str:
        return ", ".join(f"{k} {v}" for k, v in self.shared.items())

    @property
    def right(self) -> list[int]:
        return [i for i, c in enumerate(self.columns) if c.right]

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
    """The table without as many ``expendable`` columns (keys, the first ones first) as it takes to be ``width`` characters wide,
    and the headers of those left out.
    """
    columns, rows, left_out = list(table.columns), list(table.rows), []
    for key in expendable:
        if _width(columns, rows) <= width:
            break
        at = next((i for i, c in enumerate(columns) if c.key == key), None)
        if at is not None:
            left_out.append(columns.pop(at).header)
            rows = [replace(r, cells=r.cells[:at] + r.cells[at + 1 :]) for r in rows]
    return replace(table, columns=tuple(columns), rows=tuple(rows)), left_out


def _width(columns: Sequence[Column], rows: Sequence[Row]) -> int:
    return sum(max(len(c.header), *(len(r.cells[i]) for r in rows), 0) + 2 for i, c in enumerate(columns))


def with_interval(value: Estimate | None, mark: str = "") -> str:
    """``41.2 [40.1, 42.3]``; value and bounds share the number of decimals that the value's size asks for."""
    if value is None:
        return "–"
    decimals = decimals_for(value.value)
    text = f"{value.value:.{decimals}f}"
    if value.low is not None and value.high is not None:
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
