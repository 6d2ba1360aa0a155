"""Other benchmarks' files: which rows come out of them, and that every malformed line is refused by its number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsweep.client.workload import buckets
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.question_files import MTBENCH_TOPICS, Task, read_any, read_mtbench, read_specbench, read_tasks
from specsweep.client.workload.rows import Row, read_rows, write_rows

WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda text: text.strip())


def _lines(path: Path, *objects: Any) -> Path:
    path.write_text("".join(json.dumps(o, ensure_ascii=False) + "\n" for o in objects), encoding="utf-8")
    return path


def _question(n: int, **more: Any) -> dict[str, Any]:
    return {"turns": [f"Question {n}?", f"And {n} again?"], **more}


def test_mtbench_topics_and_ids_follow_from_the_row_number(tmp_path: Path) -> None:
    rows = read_mtbench(_lines(tmp_path / "q.jsonl", *(_question(n) for n in range(85))))
    assert len(rows) == 80
    assert [row.category for row in rows] == [topic for topic in MTBENCH_TOPICS for _ in range(10)]
    assert [row.question_id for row in rows] == [str(n) for n in range(81, 161)]
    assert rows[9] == Row("90", "writing", "", ("Question 9?", "And 9 again?"), "MT-Bench", "90", "", multiturn=True)
    assert rows[10].category == "roleplay"


def test_mtbench_takes_what_the_file_says(tmp_path: Path) -> None:
    with_all = _question(0, question_id=7, category="poetry", reference=["x"])
    with_prompt = {"prompt": ["a", "b"], "question_id": "q-8"}
    rows = read_mtbench(_lines(tmp_path / "q.jsonl", with_all, with_prompt))
    assert [(row.question_id, row.category, row.turns[0]) for row in rows] == [("7", "poetry", "Question 0?"), ("q-8", "writing", "a")]
    assert len(read_mtbench(tmp_path / "q.jsonl", 1)) == 1
    with pytest.raises(WorkloadError, match="take at least 1"):
        read_mtbench(tmp_path / "q.jsonl", 0)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"turns": ["a"]}, "1 turn; an MT-Bench question has exactly two"),
        ({"turns": ["a", "b", "c"]}, "3 turns; an MT-Bench question has exactly two"),
        ({"prompt": "a"}, "prompt must be a list of the user's turns, got 'a'"),
        ({"turns": ["a", " "]}, r"turns\[1\] must be a non-empty string"),
        ({"turns": ["a", "b"], "category": 3}, "category must be a non-empty string, got 3"),
        ({"turns": ["a", "b"], "question_id": True}, "question_id must be a non-empty string, got True"),
        ({"turns": ["a", "b"], "question_id": 81}, "question_id '81' was used on line 1; ids must be unique"),
    ],
)
def test_mtbench_refuses_by_line(question: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=rf"q\.jsonl:2: {words}"):
        read_mtbench(_lines(tmp_path / "q.jsonl", _question(0), question))


def test_mtbench_has_no_topic_for_row_81(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"q\.jsonl:81: category is missing"):
        read_mtbench(_lines(tmp_path / "q.jsonl", *(_question(n) for n in range(81))), n=None)


def test_specbench_rows_of_one_and_of_two_turns(tmp_path: Path) -> None:
    many = [{"question_id": 81 + n, "category": "qa", "turns": ["Who?"]} for n in range(480)]
    two = {"question_id": 1000, "category": "writing", "turns": ["Write.", "Shorten."]}
    path = _lines(tmp_path / "q.jsonl", two, *many)
    rows = read_specbench(path)
    assert (len(rows), len(read_specbench(path, n=None)), len(read_specbench(path, n=3))) == (480, 481, 3)
    assert rows[0] == Row("1000", "writing", "", ("Write.", "Shorten."), "SpecBench/MT-Bench", "1000", "", multiturn=True)
    assert rows[1] == Row("81", "qa", "", ("Who?",), "SpecBench/Natural Questions", "81", "", multiturn=False)
    write_rows(tmp_path / "rows.parquet", rows)
    assert read_rows(tmp_path / "rows.parquet") == rows  # they are rows of the one schema
    with pytest.raises(WorkloadError, match=r"q\.jsonl:1: question_id must be"):
        read_specbench(_lines(tmp_path / "q.jsonl", {"category": "qa", "turns": ["Who?"]}))


def test_a_file_says_by_its_lines_what_it_is(tmp_path: Path) -> None:
    topic = {"question_id": 81, "category": "math", "turns": ["a", "b"]}
    (row,) = read_any(_lines(tmp_path / "a.jsonl", topic))
    assert row.source == "MT-Bench"
    assert [
        row.source for row in read_any(_lines(tmp_path / "b.jsonl", topic, {**topic, "question_id": 2, "category": "summarization"}))
    ] == [
        "SpecBench/MT-Bench",
        "SpecBench/CNN/Daily Mail",
    ]
    (row,) = read_any(_lines(tmp_path / "c.jsonl", {"prompt": "Who?"}))
    assert (row.question_id, row.category, row.source) == ("1", "dataset", "c.jsonl")
    assert len(read_any(_lines(tmp_path / "d.jsonl", *({**_question(n), "category": "math"} for n in range(100))))) == 100


def test_a_full_line_and_a_bare_line_of_tasks(tmp_path: Path) -> None:
    full = {"id": "task-1", "name": "math", "category": "reasoning", "prompt": "Solve 12*17.", "max_tokens": 64}
    first, second = read_tasks(jsonl=_lines(tmp_path / "p.jsonl", full, {"prompt": "Name a tree.\n"}))
    assert first == Task(Row("task-1", "reasoning", "", ("Solve 12*17.",), "p.jsonl", "task-1", "", multiturn=False), 64, "math")
    assert second == Task(Row("2", "dataset", "", ("Name a tree.\n",), "p.jsonl", "2", "", multiturn=False), None, "2")
    assert (first.max_tokens, second.max_tokens) == (64, None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "the line is empty"),
        ('{"prompt": "a"', "malformed JSON"),
        ('{"prompt": "a"} {"prompt": "b"}', "malformed JSON"),
        ('{"prompt": "a", "prompt": "b"}', "malformed JSON: field 'prompt' occurs more than once"),
        ('{"prompt": "\\ud83c"}', "malformed JSON"),
        ('{"prompt": "a", "max_tokens": NaN}', "malformed JSON: NaN is not JSON"),
        ("[" * 100_000, "malformed JSON"),
        ('["a"]', "a line must be a JSON object, got list"),
        ('{"prompt": "a", "max_token": 5}', "unknown field 'max_token'; known: prompt, id, name, category, max_tokens"),
        ('{"id": "x"}', "prompt is missing"),
        ('{"prompt": " \\n"}', "prompt must be a non-empty string"),
        ('{"prompt": 3}', "prompt must be a non-empty string, got 3"),
        ('{"prompt": "a", "id": 2}', "id must be a non-empty string, got 2"),
        ('{"prompt": "a", "name": ""}', "name must be a non-empty string"),
        ('{"prompt": "a", "category": null}', "category must be a non-empty string, got None"),
        ('{"prompt": "a", "id": "1"}', "id '1' was used on line 1; ids must be unique"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens=0 must be a whole number from 1 to 2147483647"),
        ('{"prompt": "a", "max_tokens": -4}', "max_tokens=-4 must"),
        ('{"prompt": "a", "max_tokens": 64.0}', r"max_tokens=64\.0 must"),
        ('{"prompt": "a", "max_tokens": "64"}', "max_tokens='64' must"),
        ('{"prompt": "a", "max_tokens": true}', "max_tokens=True must"),
        ('{"prompt": "a", "max_tokens": null}', "max_tokens=None must"),
        ('{"prompt": "a", "max_tokens": 2147483648}', "max_tokens=2147483648 must"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "the first line, whose id is 1"}\n' + line + '\n{"prompt": "c"}\n')
    with pytest.raises(WorkloadError, match=rf"p\.jsonl:2: {words}"):
        read_tasks(jsonl=path)


def test_files_that_are_no_text_or_have_none(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"none\.jsonl: cannot be read: No such file"):
        read_tasks(jsonl=tmp_path / "none.jsonl")
    (tmp_path / "p").write_bytes(b"\xff\xfe{")
    for kind in ("jsonl", "text_file"):
        with pytest.raises(WorkloadError, match="not UTF-8 text"):
            read_tasks(**{kind: tmp_path / "p"})
    (tmp_path / "p").write_text("\n")
    with pytest.raises(WorkloadError, match="the file has no lines"):
        read_tasks(jsonl=tmp_path / "p")
    with pytest.raises(WorkloadError, match="the prompt has no text"):
        read_tasks(text_file=tmp_path / "p")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.lists(st.tuples(WORD, WORD, WORD, WORD, st.integers(1, 2**31 - 1)), min_size=1, max_size=6, unique_by=lambda t: t[0]))
def test_whatever_text_a_task_has_it_comes_back(data: list[tuple[str, str, str, str, int]], tmp_path: Path) -> None:
    """Line separators of Unicode, control characters and all: only a line feed ends a line."""
    names = ("id", "name", "category", "prompt", "max_tokens")
    tasks = read_tasks(jsonl=_lines(tmp_path / "p.jsonl", *(dict(zip(names, values, strict=True)) for values in data)))
    assert [(t.row.question_id, t.name, t.row.category, t.row.turns[0], t.max_tokens) for t in tasks] == data


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.text(max_size=40), st.binary(max_size=40), st.from_regex(r'\{"prompt": .{0,12}\}\n?', fullmatch=True)))
def test_no_content_fails_in_any_other_way(content: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    prompts, refusal = ["none was read"], f"{path} was not refused"
    try:
        prompts = [task.row.turns[0].strip() for task in read_tasks(jsonl=path)]
    except WorkloadError as error:
        refusal = str(error)
    assert all(prompts)
    assert str(path) in refusal


def test_a_text_file_is_one_prompt(tmp_path: Path) -> None:
    (tmp_path / "code.txt").write_text("\ufeffFirst line.\n\n{not JSON}\n", encoding="utf-8")
    (task,) = read_tasks(text_file=tmp_path / "code.txt")
    assert task == Task(
        Row("custom-code.txt", "custom", "", ("First line.\n\n{not JSON}",), "code.txt", "custom-code.txt", "", multiturn=False),
        None,
        "code.txt",
    )


def test_an_inline_prompt() -> None:
    (task,) = read_tasks(prompt="Write a merge sort in C++.")
    assert (task.row.question_id, task.name, task.row.turns) == ("custom-prompt", "prompt", ("Write a merge sort in C++.",))
    with pytest.raises(WorkloadError, match="the inline prompt: the prompt has no text"):
        read_tasks(prompt=" \n")


def test_built_in_tasks() -> None:
    everything = read_tasks(builtin=())
    assert [(t.row.question_id, t.name, t.row.category) for t in everything] == [
        ("builtin-code", "code", "code"),
        ("builtin-extract", "extract", "extraction"),
        ("builtin-story", "story", "long-form-summary"),
    ]
    assert all(200 <= buckets.count(t.row.turns[0]) <= 2000 for t in everything)
    assert read_tasks(builtin=["STORY ", "code"]) == (everything[0], everything[2])  # the order is the tool's own
    with pytest.raises(WorkloadError, match="'poem' is not a built-in task; there are: code, extract, story"):
        read_tasks(builtin=["code", "poem"])


def test_exactly_one_kind_of_input(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="not given; give exactly one of a JSON-lines file, a text file"):
        read_tasks()
    with pytest.raises(WorkloadError, match="prompts are a text file and an inline prompt; give exactly one"):
        read_tasks(prompt="a", text_file=tmp_path)
    with pytest.raises(WorkloadError, match="a JSON-lines file and built-in tasks"):
        read_tasks(jsonl=tmp_path, builtin=())


def test_gzipped_questions_are_those_of_the_file(tmp_path: Path) -> None:
    lines = json.dumps({"question_id": 1, "category": "qa", "turns": ["Who?", "And when?"]}).encode()
    (tmp_path / "q.jsonl").write_bytes(lines)
    (tmp_path / "q.jsonl.gz").write_bytes(packed := gzip.compress(lines))
    assert read_any(tmp_path / "q.jsonl.gz") == read_any(tmp_path / "q.jsonl")

    for n, broken in enumerate((packed[:20], lines, packed[:12] + b"\xff" * 8 + packed[20:])):
        (path := tmp_path / f"broken{n}.jsonl.gz").write_bytes(broken)
        with pytest.raises(WorkloadError, match=rf"broken{n}\.jsonl\.gz: cannot be read: \S"):
            read_any(path)
