"""The rows of a SPEED-Bench data set: the one shape that every kind of prompts is brought to, and its Parquet files.

The published data set (``nvidia/SPEED-Bench``), a prepared folder and a user's own file have the same eight columns, so category,
sub-category, difficulty and source travel with a prompt from the file to the measurements. All that a run later relies on is tested
here, once, while the file is read: a column of another type would fail in the middle of a sweep, a question id that occurs twice
would count two prompts as one cluster, and a ``multiturn`` that disagrees with the turns would put a row into the wrong half of a
breakdown.

Rows whose source may not be redistributed are published with a fixed sentence in place of their text. Preparation must be able to
read them, so reading lets them through; :func:`require_filled` is what everything that sends prompts calls. Sent as they are, they
would measure how well a drafter guesses the answer to one sentence, hundreds of times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specsweep.client.workload.aside import whole
from specsweep.client.workload.errors import WorkloadError

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
"""How the first turn of an unfilled row starts (``TURNS_PLACEHOLDER`` of specdec_bench in NVIDIA's Model-Optimizer); a template may follow."""

ROW_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("category", pa.string()),
        ("sub_category", pa.string()),
        ("turns", pa.list_(pa.string())),
        ("source", pa.string()),
        ("src_id", pa.string()),
        ("difficulty", pa.string()),
        ("multiturn", pa.bool_()),
    ]
)
_MAY_LACK = ("sub_category", "source", "src_id", "difficulty")  # columns in which a value, or every value, may be missing


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation of a data set. ``turns``: the user's turns only. Texts are ``""`` where the file has none."""

    question_id: str
    category: str
    sub_category: str
    turns: tuple[str, ...]
    source: str
    src_id: str
    difficulty: str
    multiturn: bool

    @property
    def is_placeholder(self) -> bool:
        return any(turn.startswith(PLACEHOLDER) for turn in self.turns)


def read_rows(path: str | Path) -> tuple[Row, ...]:
    """The rows of a Parquet file, or of all Parquet files of a folder in the order of their names (the shards of one data set).

    Placeholders are let through, see :func:`require_filled`. Raises :class:`WorkloadError` naming file, column or row, and what to do.
    """
    path = Path(path).expanduser()
    seen: dict[str, Path] = {}
    rows: list[Row] = []
    for file in _files(path):
        for row in _rows_of(file):
            if row.question_id in seen:
                where = "" if seen[row.question_id] == file else f" (first in {seen[row.question_id]})"
                raise WorkloadError(
                    f"{file}: question_id {row.question_id!r} occurs more than once{where}; ids must be unique in a data set"
                )
            seen[row.question_id] = file
            rows.append(row)
    if not rows:
        raise WorkloadError(f"{path}: the data set has no rows")
    return tuple(rows)


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Writes one Parquet file of the published schema, aside first and then renamed: a reader never finds half a file.

    The folder is made if it is missing. Raises :class:`WorkloadError` for rows that :func:`read_rows` would refuse, and ``OSError``.
    """
    path = Path(path).expanduser()
    rows = tuple(rows)
    _require_writable(path, rows)
    columns = {name: [getattr(row, name) for row in rows] for name in ROW_SCHEMA.names}
    for name in _MAY_LACK:
        columns[name] = [value or None for value in columns[name]]
    with whole(path) as file:
        pq.write_table(pa.table(columns, schema=ROW_SCHEMA), file, compression="zstd")


def placeholders(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows that still hold the placeholder in place of their text."""
    return tuple(row for row in rows if row.is_placeholder)


def require_filled(rows: Sequence[Row], name: str) -> None:
    """Raises :class:`WorkloadError` if any row still holds the placeholder: how many, of which categories and sources, and the way out.

    ``name``: the data set as the user gave it.
    """
    empty = placeholders(rows)
    if not empty:
        return
    raise WorkloadError(
        f"{name}: {len(empty)} of {len(rows)} rows hold the published placeholder in place of their text "
        f"(by category: {_counts(row.category for row in empty)}; by source: {_counts(row.source for row in empty)}). "
        "Fill them in with `specsweep data prepare`, which fetches them from their sources, or filter those categories out"
    )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise WorkloadError(f"{path}: no such Parquet file or folder of Parquet files")
    found = sorted(file for file in path.glob("*.parquet") if not file.name.startswith((".", "_")))
    if not found:
        inside = sorted({file.parent.relative_to(path).as_posix() for file in path.glob("*/*.parquet")})
        hint = f"; it has folders that do: name one of {', '.join(inside)}" if inside else "; `specsweep data prepare` makes one"
        raise WorkloadError(f"{path}: the folder holds no Parquet file{hint}")
    return found


def _rows_of(file: Path) -> Iterator[Row]:
    try:
        table = pq.ParquetFile(file).read()  # not read_table, which takes columns from the names of folders
    except (pa.ArrowInvalid, OSError) as error:
        raise WorkloadError(f"{file}: cannot be read as Parquet ({str(error).splitlines()[0]}); make or fetch it again") from error
    _require_columns(file, table.schema)
    try:
        columns = [table[name].to_pylist() for name in ROW_SCHEMA.names]
    except UnicodeDecodeError as error:  # Parquet does not check that its texts are UTF-8
        raise WorkloadError(f"{file}: a text is not UTF-8 ({error}); make or fetch the file again") from error
    for n, values in enumerate(zip(*columns, strict=True)):
        yield _row(f"{file}: row {n}", dict(zip(ROW_SCHEMA.names, values, strict=True)))


def _row(where: str, values: dict[str, Any]) -> Row:
    for name, value in values.items():
        if value is None and name not in _MAY_LACK:
            raise WorkloadError(f"{where}: {name} is missing (null); every row needs one")
    turns = tuple(values["turns"])
    if None in turns:
        raise WorkloadError(f"{where}: turn {turns.index(None)} is missing (null)")
    texts = {name: value or "" for name, value in values.items() if name not in ("turns", "multiturn")}
    row = Row(**texts, turns=turns, multiturn=values["multiturn"])
    if wrong := _wrong(row):
        raise WorkloadError(f"{where} (question_id {row.question_id!r}): {wrong}")
    return row


def _wrong(row: Row) -> str | None:
    if not row.question_id:
        return "question_id is empty; it names the row in every result"
    if not row.turns:
        return "turns is empty; a row needs at least one user turn"
    # Of a placeholder only the number of turns is known: those after the first may hold anything until they are filled in.
    if not row.is_placeholder and (empty := next((n for n, turn in enumerate(row.turns) if not turn.strip()), None)) is not None:
        return f"turn {empty} has no text"
    # The published placeholders of some sources have one turn whatever multiturn says, those of MMLU-Pro two and no multiturn.
    if not row.is_placeholder and row.multiturn != (len(row.turns) > 1):
        return f"multiturn is {row.multiturn} and there {'is 1 turn' if len(row.turns) == 1 else f'are {len(row.turns)} turns'}; correct one of them"
    return None


def _require_writable(path: Path, rows: Sequence[Row]) -> None:
    if not rows:
        raise WorkloadError(f"{path}: a data set without rows is not written")
    for n, row in enumerate(rows):
        if wrong := _wrong(row):
            raise WorkloadError(f"{path}: row {n} (question_id {row.question_id!r}): {wrong}")
    if twice := [question_id for question_id, count in Counter(row.question_id for row in rows).items() if count > 1]:
        raise WorkloadError(f"{path}: question_id {twice[0]!r} occurs more than once; ids must be unique in a data set")


def _require_columns(file: Path, schema: pa.Schema) -> None:
    for field in ROW_SCHEMA:
        count = schema.names.count(field.name)
        if count != 1:
            fault = "is missing" if count == 0 else "occurs more than once"
            raise WorkloadError(f"{file}: column {field.name!r} {fault}; a data set has the columns {', '.join(ROW_SCHEMA.names)}")
        found = schema.field(field.name).type
        if not (_same(found, field.type) or (pa.types.is_null(found) and field.name in _MAY_LACK)):
            raise WorkloadError(f"{file}: column {field.name!r} holds {found}; it must hold {field.type}")
    for field in schema:
        # Text beside the eight columns is a note for someone else. Anything else means that this is another kind of file.
        if field.name not in ROW_SCHEMA.names and not (field.nullable and _is_text(field.type)):
            raise WorkloadError(
                f"{file}: column {field.name!r} ({field.type}) is not one of a data set; take it out or make it nullable text"
            )


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_list(wanted):
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and _is_text(found.value_type)
    return _is_text(found) if pa.types.is_string(wanted) else bool(found.equals(wanted))


def _is_text(found: pa.DataType) -> bool:
    """Parquet knows one kind of text; which Arrow type it comes back as depends on the program that wrote it."""
    if pa.types.is_dictionary(found):
        return _is_text(found.value_type)
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def _counts(values: Iterable[str]) -> str:
    counted = Counter(value or "(none)" for value in values)
    return ", ".join(f"{value} {count}" for value, count in counted.most_common())
