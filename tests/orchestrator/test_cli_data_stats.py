"""`specsweep data stats` over real files: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specsweep.client.workload.buckets import count
from specsweep.client.workload.rows import PLACEHOLDER, Row, write_rows
from specsweep.orchestrator.cli import data_stats
from specsweep.orchestrator.errors import ConfigError

TURNS = ("Write a merge sort in Python.", "Now sort by the second letter.")
MATH = ("What is the sum of the first hundred odd numbers?", "How many primes are there below fifty?")


def _row(question_id: str, category: str, *turns: str, source: str = "SpecBench") -> Row:
    return Row(question_id, category, "", turns, source, question_id, "", multiturn=len(turns) > 1)


@pytest.fixture
def speed(tmp_path: Path) -> Path:
    rows = [
        _row("1", "coding", *TURNS),
        *(_row(f"m{n}", "math", text) for n, text in enumerate(MATH)),
        _row("4", "stem", PLACEHOLDER, source="cais/hle"),
    ]
    write_rows(tmp_path / "qualitative" / "test.parquet", rows)
    return tmp_path / "qualitative"


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    lines = [{"question_id": n, "category": "math_reasoning", "turns": [text]} for n, text in enumerate(MATH)]
    path = tmp_path / "question.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _run(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    data_stats.add_arguments(parser)
    return data_stats.run(parser.parse_intermixed_args([str(word) for word in words]))


def _json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert _run(*words, "--json") == 0
    return dict(json.loads(capsys.readouterr().out))


def test_isl_is_that_of_all_turns_and_placeholders_have_none(speed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = _json(capsys, speed)["data"]
    coding, math, stem = found["categories"]
    assert found["name"] == "qualitative"
    assert coding["isl_tokens_mean"] == sum(map(count, TURNS))
    assert math["isl_tokens_max"] == max(map(count, MATH))
    assert (stem["samples"], stem["isl_tokens_mean"], found["rows_without_text"]) == (1, None, 1)
    assert found["programming_language_mentions"] == {"Python": 1}
    assert found["licences"] == {"SpecBench": "Apache-2.0", "Humanity's Last Exam": "gated: accept the terms of cais/hle"}
    assert (found["embedder"], math["similarity_mean"]) == (None, None)


def test_two_data_sets_side_by_side(speed: Path, questions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(speed, questions) == 0
    out = capsys.readouterr().out
    assert "(A = qualitative, B = question.jsonl)" in out
    lines = {line.split("  ")[0].strip(): line.split() for line in out.splitlines()}
    assert lines["math_reasoning"][1:4] == ["–", "2", "–"]
    assert lines["coding"][1:3] == ["1", "–"]
    assert "qualitative: left out of ISL and similarity, rows without their text: 1." in out


def test_files_of_one_name_are_told_apart_by_their_folders(speed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "other" / "test.parquet", [_row("1", "qa", "Who?")])
    found = _json(capsys, speed / "test.parquet", tmp_path / "other" / "test.parquet")
    assert [stats["name"] for stats in found["data"]] == ["qualitative/test.parquet", "other/test.parquet"]


def test_similarity_and_figures(speed: Path, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, speed, questions, "--embedder", "hashed", "--figures", tmp_path / "figures", "--matrix", "math")
    math = next(c for c in found["data"][0]["categories"] if c["category"] == "math")
    same = found["data"][1]["categories"][0]  # the same two texts
    assert -1 <= math["similarity_mean"] < 1
    assert math["similarity_mean"] == pytest.approx(same["similarity_mean"], abs=1e-6)
    assert next(c for c in found["data"][0]["categories"] if c["category"] == "stem")["similarity_mean"] is None
    assert found["data"][0]["embedder"].startswith("hashed")
    written = [Path(path) for path in found["files"]]
    assert [path.name for path in written] == [
        f"{name}.{kind}" for name in ("isl", "similarity", "similarity_math") for kind in ("png", "svg")
    ]
    assert all(path.read_bytes()[:4] == b"\x89PNG" if path.suffix == ".png" else b"<svg" in path.read_bytes() for path in written)


def test_a_data_set_that_is_all_placeholders_is_still_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [replace(_row(str(n), "mixed", PLACEHOLDER), source="cais/hle") for n in range(3)]
    write_rows(tmp_path / "test.parquet", rows)
    (found,) = _json(capsys, tmp_path, "--embedder", "hashed", "--figures", tmp_path / "figures")["data"]
    assert (found["samples"], found["rows_without_text"], found["isl_tokens_mean"]) == (3, 3, None)
    assert not (tmp_path / "figures").exists()


def test_what_is_refused(speed: Path, tmp_path: Path) -> None:
    for words, message in (
        ((tmp_path / "nothing",), "no such Parquet file or folder"),
        ((tmp_path / "nothing.jsonl",), r"nothing\.jsonl: cannot be read"),
        ((speed, speed), "given twice"),
        ((speed, speed / "..", tmp_path), "3 data sets: give one, or two"),
        ((speed, "--matrix", "math"), "--matrix math needs --embedder NAME and --figures DIR"),
        ((speed, "--embedder", "nonsense"), "embedder 'nonsense' is not known"),
        (
            (speed, "--embedder", "hashed", "--figures", tmp_path, "--matrix", "poetry"),
            "--matrix poetry: no such category; there are: coding, math, stem",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            _run(*words)


def test_data_sets_are_known_by_their_names_and_stand_beside_files(
    questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mini, own = _json(capsys, "mini/qualitative", questions)["data"]
    assert (mini["name"], own["name"]) == ("mini/qualitative", "question.jsonl")
    assert (mini["samples"], own["samples"]) == (220, 2)
    write_rows(tmp_path / "prepared" / "throughput_1k" / "test.parquet", [_row("1", "mixed", "A text.")])
    found = _json(capsys, "speed/throughput_1k", "mini/throughput_256", "--data", tmp_path / "prepared")["data"]
    assert [one["name"] for one in found] == ["speed/throughput_1k", "mini/throughput_256"]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("mini/", "mini/: no such data set; there are mini/qualitative"),
        ("speed/qualitative", r"none/qualitative/test.parquet is not there .*prepare qualitative`, or give --data DIR"),
    ],
)
def test_a_name_of_no_data_set_says_which_there_are(word: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        _run(word, "--data", tmp_path / "none")


@pytest.mark.parametrize("name", ["own.jsonl", "own.jsonl.gz"])
def test_the_prompts_of_a_user_are_described_as_a_run_would_read_them(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"prompt_id": "a", "category": "math", "text": "What is 1 + 1?", "turns": ["And twice that?"]},
        {"prompt_id": "b", "category": "writing", "text": "Write a poem.", "source": "own"},
    ]
    content = "\ufeff" + "".join(json.dumps(line) + "\r\n\r\n" for line in lines)  # as an editor on Windows leaves it
    (tmp_path / name).write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    (found,) = _json(capsys, tmp_path / name)["data"]
    assert (found["samples"], found["multi_turn_prompts"]) == (2, 1)
