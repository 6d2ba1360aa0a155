"""Parquet files of the published schema: what is read, what is refused, and the official way of taking fewer rows than there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.workload.choice import round_robin
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.labels import having
from specsweep.client.workload.rows import (
    PLACEHOLDER,
    ROW_SCHEMA,
    Row,
    placeholders,
    read_rows,
    require_filled,
    write_rows,
)


def _row(question_id: str, category: str = "qa", **changes: Any) -> Row:
    made = Row(question_id, category, "", ("What is the tallest tree?",), "SpecBench", f"src_{question_id}", "", multiturn=False)
    return replace(made, **changes)


ROWS = (
    _row("1", sub_category="trees"),
    _row("2", "coding", difficulty="hard", turns=("Write a sort.", "Now in Rust.", "Explain."), multiturn=True),
    _row("3", "multilingual", turns=("Wie heißt der höchste Baum? 樹 🌲",), source=""),
)


def _write(path: Path, **columns: Any) -> Path:
    """A Parquet file of one good row with some columns replaced, or taken out where None is given."""
    good: dict[str, Any] = {
        "question_id": ["1"],
        "category": ["qa"],
        "sub_category": ["trees"],
        "turns": [["What is the tallest tree?"]],
        "source": ["SpecBench"],
        "src_id": ["1"],
        "difficulty": pa.array([None], pa.string()),
        "multiturn": [False],
    }
    merged = {name: values for name, values in {**good, **columns}.items() if values is not None}
    pq.write_table(pa.table(merged), path)
    return path


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    write_rows(tmp_path / "deep" / "test.parquet", ROWS)
    assert read_rows(tmp_path / "deep" / "test.parquet") == ROWS
    assert read_rows(tmp_path / "deep") == ROWS
    assert pq.read_schema(tmp_path / "deep" / "test.parquet").equals(ROW_SCHEMA)
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["test.parquet"]


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "test.parquet"
    write_rows(file, ROWS)
    before = file.read_bytes()
    with pytest.raises(pa.ArrowTypeError):
        write_rows(file, [_row("9", source=7)])
    assert file.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["test.parquet"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "without rows"),
        ([_row("1"), _row("1")], "question_id '1' occurs more than once"),
        ([_row("1", turns=())], "turns is empty"),
        ([_row("1", turns=(" \n",))], "turn 0 has no text"),
        ([_row("1", multiturn=True)], "multiturn is True and there is 1 turn"),
        ([_row("")], "question_id is empty"),
    ],
)
def test_rows_that_could_not_be_read_are_not_written(rows: list[Row], words: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=words):
        write_rows(tmp_path / "a.parquet", rows)
    assert not any(tmp_path.iterdir())


def test_shards_of_a_folder_are_one_data_set_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_rows(tmp_path / "test-00001-of-00002.parquet", ROWS[1:])
    write_rows(tmp_path / "test-00000-of-00002.parquet", ROWS[:1])
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / ".test.parquet").write_text("what a killed writer left")
    assert read_rows(tmp_path) == ROWS


def test_an_id_in_two_shards_is_refused_with_both_files(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", ROWS[:2])
    write_rows(tmp_path / "b.parquet", ROWS[1:])
    with pytest.raises(WorkloadError, match=r"b\.parquet: question_id '2' occurs more than once \(first in .*a\.parquet\)"):
        read_rows(tmp_path)


def test_a_folder_of_folders_is_not_read_as_one_data_set(tmp_path: Path) -> None:
    write_rows(tmp_path / "qualitative" / "test.parquet", ROWS)
    write_rows(tmp_path / "throughput_1k" / "test.parquet", ROWS)
    with pytest.raises(WorkloadError, match="name one of qualitative, throughput_1k"):
        read_rows(tmp_path)


def test_what_is_not_there_or_not_parquet_is_said(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="no such Parquet file or folder"):
        read_rows(tmp_path / "nothing")
    with pytest.raises(WorkloadError, match=r"holds no Parquet file; `specsweep data prepare`"):
        read_rows(tmp_path)
    whole = _write(tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WorkloadError, match=r"a\.parquet: cannot be read as Parquet"):
        read_rows(tmp_path)
    pq.write_table(ROW_SCHEMA.empty_table(), tmp_path / "a.parquet")
    with pytest.raises(WorkloadError, match="has no rows"):
        read_rows(tmp_path)


@pytest.mark.parametrize("name", ROW_SCHEMA.names)
def test_a_missing_column_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=rf"a\.parquet: column '{name}' is missing"):
        read_rows(_write(tmp_path / "a.parquet", **{name: None}))


@pytest.mark.parametrize(
    ("name", "values", "holds"),
    [
        ("question_id", pa.array([81]), "int64"),
        ("multiturn", pa.array(["no"]), "string"),
        ("turns", pa.array(["What?"]), "string"),
        ("turns", pa.array([[3]]), "list<"),
        ("category", pa.array([None], pa.null()), "null"),
        ("difficulty", pa.array([3]), "int64"),
    ],
)
def test_a_column_of_another_type_is_named(name: str, values: pa.Array, holds: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=rf"a\.parquet: column '{name}' holds {holds}.*it must hold"):
        read_rows(_write(tmp_path / "a.parquet", **{name: values}))


def test_other_programs_text_types_are_text(tmp_path: Path) -> None:
    """Arrow stores its own schema in the file: a writer's large strings and categories come back as such."""
    file = _write(
        tmp_path / "a.parquet",
        question_id=pa.array(["1"], pa.large_string()),
        category=pa.array(["qa"]).dictionary_encode(),
        turns=pa.array([["a", "b"]], pa.large_list(pa.large_string())),
        multiturn=[True],
        difficulty=pa.array([None], pa.null()),
    )
    assert read_rows(file) == (Row("1", "qa", "trees", ("a", "b"), "SpecBench", "1", "", multiturn=True),)


def test_extra_columns_may_only_be_nullable_text(tmp_path: Path) -> None:
    file = _write(tmp_path / "a.parquet", extras=pa.array([None], pa.string()))
    assert [row.question_id for row in read_rows(file)] == ["1"]
    with pytest.raises(WorkloadError, match=r"a\.parquet: column 'tokens' \(int64\) is not one of a data set"):
        read_rows(_write(tmp_path / "a.parquet", tokens=[3]))
    table = pq.read_table(_write(tmp_path / "a.parquet"))
    strict = table.schema.append(pa.field("extras", pa.string(), nullable=False))
    pq.write_table(pa.table([*table.columns, pa.array(["{}"])], schema=strict), file)
    with pytest.raises(WorkloadError, match=r"column 'extras' .* make it nullable text"):
        read_rows(file)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"turns": pa.array([[]], pa.list_(pa.string()))}, "row 0 .*turns is empty"),
        ({"turns": [[""]]}, "row 0 .*turn 0 has no text"),
        ({"turns": [["a", " \n"]], "multiturn": [True]}, "row 0 .*turn 1 has no text"),
        ({"turns": pa.array([["a", None]]), "multiturn": [True]}, "row 0: turn 1 is missing"),
        ({"turns": pa.array([None], pa.list_(pa.string()))}, "row 0: turns is missing"),
        ({"multiturn": [True]}, "row 0 .*multiturn is True and there is 1 turn"),
        ({"turns": [["a", "b"]]}, "row 0 .*multiturn is False and there are 2 turns"),
        ({"multiturn": pa.array([None], pa.bool_())}, "row 0: multiturn is missing"),
        ({"question_id": pa.array([None], pa.string())}, "row 0: question_id is missing"),
        ({"question_id": [""]}, "row 0 .*question_id is empty"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=rf"a\.parquet: {words}"):
        read_rows(_write(tmp_path / "a.parquet", **columns))


def test_placeholders_are_read_but_refused_for_a_run(tmp_path: Path) -> None:
    unfilled = [
        _row("4", "stem", turns=(PLACEHOLDER,), source="cais/hle"),
        _row("5", "stem", turns=(PLACEHOLDER,), source="cais/hle"),
        _row("6", "roleplay", turns=(f"{PLACEHOLDER}\n\nYou are {{role_name}}.", "", ""), source="RoleBench", multiturn=True),
    ]
    write_rows(tmp_path / "a.parquet", [*ROWS, *unfilled])
    rows = read_rows(tmp_path)
    assert [row.question_id for row in placeholders(rows)] == ["4", "5", "6"]
    with pytest.raises(WorkloadError) as refused:
        require_filled(rows, "qualitative")
    message = str(refused.value)
    assert "qualitative: 3 of 6 rows" in message
    assert "by category: stem 2, roleplay 1; by source: cais/hle 2, RoleBench 1" in message
    assert "`specsweep data prepare`" in message
    require_filled(ROWS, "qualitative")


def test_round_robin_by_hand() -> None:
    rows = [_row(str(n), category) for n, category in enumerate("bbbaac")]
    assert [row.question_id for row in round_robin(rows, 3)] == ["0", "3", "5"]
    assert [row.question_id for row in round_robin(rows, 5)] == ["0", "3", "5", "1", "4"]
    assert [row.question_id for row in round_robin(rows, 6)] == ["0", "1", "2", "3", "4", "5"]  # all: the order of the data set
    with pytest.raises(WorkloadError, match="take at least 1"):
        round_robin(rows, 0)


@given(categories=st.text("abcd", min_size=1, max_size=40), n=st.integers(1, 45))
def test_round_robin_is_even_and_keeps_every_order(categories: str, n: int) -> None:
    rows = [_row(str(i), category) for i, category in enumerate(categories)]
    taken = round_robin(rows, n)
    assert len(taken) == len(set(taken)) == min(n, len(rows))
    if n >= len(rows):
        assert taken == tuple(rows)
        return
    size = {c: categories.count(c) for c in dict.fromkeys(categories)}
    count = {c: sum(row.category == c for row in taken) for c in size}
    for category in size:
        ids = [int(row.question_id) for row in taken if row.category == category]
        of_category = [i for i, c in enumerate(categories) if c == category]
        assert ids == of_category[: len(ids)]  # the first ones, in order
        for other in size:  # nobody is ahead by more than one, unless the other has nothing left
            assert count[category] <= count[other] + 1 or count[other] == size[other]
    firsts = [row.category for row in taken[: len(size)]]
    assert firsts == list(size)[: len(firsts)]


def test_filters() -> None:
    def ids(**asked: Any) -> list[str]:
        return [row.question_id for row in having(ROWS, asked, of="it")]

    assert ids() == ["1", "2", "3"]
    assert ids(category=["multilingual", "qa"]) == ["1", "3"]
    assert ids(sub_category=["trees"]) == ["1"]
    assert ids(difficulty=["hard"], category=["coding"]) == ["2"]
    with pytest.raises(WorkloadError, match="category='code' is not in it; it has coding, multilingual, qa"):
        ids(category=["qa", "code"])
    with pytest.raises(WorkloadError, match=r"no prompt of it has all of category=qa, difficulty=hard"):
        ids(category=["qa"], difficulty=["hard"])


def test_a_text_that_is_not_utf8_is_refused_by_its_file(tmp_path: Path) -> None:
    write_rows(tmp_path / "good.parquet", [_row("a")])
    broken = pa.array([b"\xff\xfe"], type=pa.binary()).view(pa.string())
    pq.write_table(pq.ParquetFile(tmp_path / "good.parquet").read().set_column(1, "category", broken), tmp_path / "bad.parquet")
    with pytest.raises(WorkloadError, match=r"bad\.parquet: a text is not UTF-8 .*fetch the file again"):
        read_rows(tmp_path / "bad.parquet")
