"""Tables that say they are a trace: what is missing or impossible is refused by the name of its column, before anything is computed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specsweep.client.trace import (
    SCHEMA,
    ActorReport,
    GaugeSample,
    PointTrace,
    RequestTrace,
    Turn,
    from_table,
    read_trace,
    to_table,
    write_trace,
)

INTEGERS_OR_NOTHING = {"n_prompt_server", "n_completion_server", "srv_steps", "srv_accepted", "srv_drafted"}


def trace() -> PointTrace:
    turn = Turn(
        outcome="ok",
        finish_reason="length",
        output_ids=[7, 8, 9],
        chunk_t_ns=[1, 2],
        chunk_tokens=[1, 2],
        step_t_ns=[1, 2],
        step_tokens=[1, 2],
        step_drafted=[0, 3],
        step_accepted=[0, 1],
        step_server_ms=[0.5, 2.5],
        step_coalesced=[False, False],
        step_state="exact",
        srv_accepted_per_step=[1],
        token_surprisal=[0.25, 0.0, 3.5],
        srv_drafted_per_step=[3],
        notes=["a note"],
    )
    rows = [RequestTrace(i, f"p{i}", f"c{i}", 0, "code", "main", 0, 5, 3, 0, 0, 0, 9, 0, 1, "complete", turn) for i in range(2)]
    looks = [GaugeSample(1.0, 2.0, 0.0), GaugeSample(2.001, 1.0, None)]
    return PointTrace(batch_size=2, requests=rows, actors=[], running_max=2.0, gauges=looks)


def with_column(name: str, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    table = to_table(trace())
    kind = kind or SCHEMA.field(name).type
    return table.set_column(table.column_names.index(name), pa.field(name, kind), pa.array(values, kind))


def test_a_trace_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_trace(trace(), tmp_path / "trace.parquet")
    assert read_trace(tmp_path / "trace.parquet") == trace()


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_missing_column_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"column '{name}' is missing"):
        from_table(to_table(trace()).drop([name]))


@pytest.mark.parametrize("name", [n for n in SCHEMA.names if n not in INTEGERS_OR_NOTHING])
def test_a_gap_is_named_with_its_column(name: str) -> None:
    value = to_table(trace())[name][0].as_py()
    with pytest.raises(ValueError, match=rf"column '{name}': 1 of 2 values are missing"):
        from_table(with_column(name, [value, None]))


@pytest.mark.parametrize("name", sorted(INTEGERS_OR_NOTHING))
def test_what_may_be_unknown_may_be_missing(name: str) -> None:
    assert getattr(from_table(with_column(name, [4, None])).requests[1].read, name) is None


def test_a_gap_inside_a_list_is_one_too() -> None:
    with pytest.raises(ValueError, match=r"column 'output_ids': 1 of 5 values"):
        from_table(with_column("output_ids", [[7, 8, 9], [7, None]]))


@pytest.mark.parametrize("ms", [float("inf"), float("nan"), -1.0])
def test_a_time_that_is_none(ms: float) -> None:
    with pytest.raises(ValueError, match=r"column 'step_server_ms' holds .*(inf|nan|-1)"):
        from_table(with_column("step_server_ms", [[0.5, 2.5], [0.5, ms]]))


def test_lists_that_belong_together() -> None:
    with pytest.raises(ValueError, match=r"row 1: column 'chunk_t_ns' has 2 values and column 'chunk_tokens' 3"):
        from_table(with_column("chunk_tokens", [[1, 2], [1, 1, 1]]))


def test_a_column_of_another_type() -> None:
    with pytest.raises(ValueError, match=r"column 't_send_ns' holds string, not int64"):
        from_table(with_column("t_send_ns", ["now", "then"], pa.string()))
    assert from_table(with_column("t_send_ns", [3, 4], pa.int32())).requests[1].t_send_ns == 4  # narrower is the same


def test_words_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match=r"column 'outcome': 'maybe' is not known; known: 'ok', 'failed'"):
        from_table(with_column("outcome", ["ok", "maybe"]))


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ({"schema_version": 1}, "no field 'counters'"),
        ({}, "no field 'schema_version'"),
        ([1], "cannot be read"),
        ({"schema_version": "x"}, "cannot be read"),
        ({"schema_version": 99}, "newer"),
        ({"schema_version": 1, "counters": None, "batch_size": 1, "actors": [{"strange": 1}]}, "cannot be read"),
    ],
)
def test_metadata_of_another_kind(head: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_table(to_table(trace()).replace_schema_metadata({"specsweep": json.dumps(head)}))


def test_a_trace_of_an_earlier_version_has_no_looks_at_the_gauges() -> None:
    table = to_table(trace())
    head = json.loads(table.schema.metadata[b"specsweep"])
    del head["gauges"]
    found = from_table(table.replace_schema_metadata({"specsweep": json.dumps(head)}))
    assert (found.running_max, found.gauges) == (2.0, [])


def test_a_trace_from_before_log_probabilities_has_none() -> None:
    table = to_table(trace())
    head = json.loads(table.schema.metadata[b"specsweep"])
    older = table.drop(["token_surprisal"]).replace_schema_metadata({"specsweep": json.dumps(head | {"schema_version": 3})})
    assert from_table(older).requests == [
        dataclasses.replace(r, read=dataclasses.replace(r.read, token_surprisal=[])) for r in trace().requests
    ]
    with pytest.raises(ValueError, match="column 'token_surprisal' is missing"):
        from_table(table.drop(["token_surprisal"]))


def test_log_probabilities_are_of_all_tokens_or_of_none() -> None:
    assert from_table(with_column("token_surprisal", [[], [0.5, 0.0, 2.5]])).requests[0].read.token_surprisal == []
    with pytest.raises(ValueError, match=r"row 1: column 'output_ids' has 3 values and column 'token_surprisal' 2"):
        from_table(with_column("token_surprisal", [[], [0.5, 0.0]]))
    with pytest.raises(ValueError, match=r"'token_surprisal' holds -0\.5"):
        from_table(with_column("token_surprisal", [[], [0.5, -0.5, 0.0]]))


def test_reports_of_an_earlier_version_are_of_the_coordinators_clock() -> None:
    report = ActorReport(0, "here", 1, 2, 3, 4, 1.0, 0.1, 0.1, 0.2, 0.3, 50, 2, 0)
    table = to_table(dataclasses.replace(trace(), actors=[report]))
    head = json.loads(table.schema.metadata[b"specsweep"])
    for name in ("clock", "clock_offset_ns", "clock_drift_ppm", "clock_bound_ns"):
        del head["actors"][0][name]
    found = from_table(table.replace_schema_metadata({"specsweep": json.dumps(head | {"schema_version": 1})}))
    assert found.actors == [report]


def test_any_parquet_file_is_no_trace(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="not a specsweep trace"):
        read_trace(tmp_path / "other.parquet")


def test_a_file_that_was_damaged_on_the_way_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_trace(trace(), path)
    data = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    last = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
    data[last] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises((OSError, ValueError)):
        read_trace(path)


def test_metadata_that_are_not_json() -> None:
    with pytest.raises(ValueError, match="metadata are not JSON"):
        from_table(to_table(trace()).replace_schema_metadata({"specsweep": '{"a":'}))


@pytest.mark.parametrize("version", [1, 2])
def test_traces_from_before_conversations_are_read(version: int) -> None:
    table = to_table(trace()).drop_columns(["sub_category", "difficulty", "source", "gap_ns"])
    head = json.loads(table.schema.metadata[b"specsweep"]) | {"schema_version": version}
    old = from_table(table.replace_schema_metadata({"specsweep": json.dumps(head)}))
    assert old.requests == trace().requests
    assert [(r.source, r.gap_ns) for r in old.requests] == [("", 0)] * 2


def test_a_trace_of_this_version_has_all_columns() -> None:
    with pytest.raises(ValueError, match="column 'gap_ns' is missing"):
        from_table(to_table(trace()).drop_columns(["gap_ns"]))
