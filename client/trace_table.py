"""A table that says it is a trace, looked through before a single row is believed.

A trace is read long after it was written: from a store that was copied, by another version, out of a file that someone made by
hand. A column that is missing or has gaps would show as an exception in the middle of the analysis, or worse as a number. So
all that a trace promises is tested here at once, by columns and not by rows, and an error names the column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

# Lists of one event each; a list may also be empty as a whole where the stream says nothing about its kind of event.
_TOGETHER = (
    ("chunk_t_ns", ("chunk_tokens",)),
    ("output_ids", ("token_surprisal",)),
    ("step_t_ns", ("step_tokens", "step_drafted", "step_accepted", "step_server_ms", "step_coalesced")),
)
_ALWAYS = {"chunk_tokens", "step_tokens"}


def require_columns(
    table: pa.Table,
    schema: pa.Schema,
    *,
    nullable: Collection[str],
    words: Mapping[str, Sequence[str]],
    absent: Mapping[str, str | int | float | list[float]] | None = None,
) -> pa.Table:
    """``table`` with the columns of ``schema`` in their types. Raises ``ValueError`` naming the first column that is not as it must be.

    ``nullable``: columns in which a value may be missing. ``words``: the values that a column of words may have. ``absent``: columns that
    the table's version did not have, and what each of its rows is taken to hold.
    """
    absent = {name: value for name, value in (absent or {}).items() if name not in table.column_names}
    table = pa.table(
        [pa.array([absent[field.name]] * len(table), field.type) if field.name in absent else _typed(table, field) for field in schema],
        schema=schema,
    )
    for field in schema:
        column = table[field.name]
        if field.name not in nullable:
            _no_gaps(field.name, column)
        if pa.types.is_list(field.type):
            values = pc.list_flatten(column)
            _no_gaps(field.name, values)
            if pa.types.is_floating(field.type.value_type):
                _possible_times(field.name, values)
    for name, allowed in words.items():
        if strange := sorted(set(table[name].unique().to_pylist()) - set(allowed)):
            raise ValueError(f"column {name!r}: {strange[0]!r} is not known; known: {', '.join(map(repr, allowed))}")
    for name, others in _TOGETHER:
        lengths = pc.list_value_length(table[name])
        for other in others:
            _as_long(name, lengths, other, pc.list_value_length(table[other]))
    return table


def _typed(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        raise ValueError(f"column {field.name!r} is missing: not a trace, or not a whole one")
    if table.column_names.count(field.name) > 1:
        raise ValueError(f"column {field.name!r} occurs more than once")
    column = table[field.name]
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {field.name!r} holds {column.type}, not {field.type}: {error}") from error


def _no_gaps(name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        raise ValueError(f"column {name!r}: {column.null_count} of {len(column)} values are missing (null)")


def _possible_times(name: str, values: pa.ChunkedArray) -> None:
    possible = pc.and_(pc.is_finite(values), pc.greater_equal(values, 0.0))
    if len(values) and not pc.all(possible).as_py():
        first = values.filter(pc.invert(possible))[0].as_py()
        raise ValueError(f"column {name!r} holds {first!r}: a finite number of 0 or more was expected")


def _as_long(name: str, lengths: pa.ChunkedArray, other: str, others: pa.ChunkedArray) -> None:
    fits = pc.equal(lengths, others)
    if other not in _ALWAYS:
        fits = pc.or_(fits, pc.equal(others, 0))
    if len(fits) and not pc.all(fits).as_py():
        row = pc.index(fits, False).as_py()
        raise ValueError(f"row {row}: column {name!r} has {lengths[row]} values and column {other!r} {others[row]}; they belong together")
