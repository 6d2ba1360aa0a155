"""A published data set of a few rows, and raw data of the same schema in a folder, both made up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specsweep.client.workload.prepare.tables import Table
from specsweep.client.workload.rows import PLACEHOLDER, ROW_SCHEMA, Row

COMMIT = "a" * 40
HUB = "https://huggingface.co/datasets"


def unfilled(question_id: str, source: str, src_id: str, *, turns: Sequence[str] = (PLACEHOLDER,), sub_category: str = "") -> Row:
    return Row(question_id, "c", sub_category, tuple(turns), source, src_id, "", False)


def with_template(text: str) -> tuple[str, ...]:
    return (f"{PLACEHOLDER}\n\n{text}",)


class FakeTables:
    """Rows by a part of the table's place, or of its first file."""

    def __init__(self, **rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def rows(self, table: Table) -> Sequence[Mapping[str, Any]]:
        return next(rows for name, rows in self._rows.items() if name in "".join(c for c in f"{table.place}{table.files}" if c.isalnum()))


def write_published(root: Path, config: str, rows: Sequence[Row]) -> None:
    path = root / "nvidia/SPEED-Bench" / config / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {name: [list(v) if isinstance(v := getattr(row, name), tuple) else v for row in rows] for name in ROW_SCHEMA.names}
    pq.write_table(pa.table(columns, schema=ROW_SCHEMA), path)


def write_raw(root: Path, name: str, rows: Any) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))
    return path


def exam_row(n: int, *, image: str = "", question: str = "") -> dict[str, str]:
    return {"id": f"e{n}", "question": question or f"What is {n}?", "rationale": f"It is {n}.", "category": "Math", "image": image}
