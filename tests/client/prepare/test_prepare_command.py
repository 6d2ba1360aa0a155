"""The words of `specsweep data prepare`, its exit codes and what it says."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prepare_samples import HUB, unfilled, with_template, write_published, write_raw

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.rows import read_rows
from specsweep.orchestrator.cli import data_prepare
from specsweep.orchestrator.errors import ConfigError


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    data_prepare.add_arguments(parser)
    return data_prepare.run(parser.parse_args(words))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    root = tmp_path / "raw"
    write_published(root, "qualitative", [unfilled("1", f"{HUB}/deepmind/code_contests", "n", turns=with_template("In C++: {question}"))])
    return root


def test_partial_is_5_and_says_how_to_go_on_and_complete_is_0(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("qualitative", f"out={tmp_path / 'out'}", f"from={raw}")
    assert command(*words) == 5
    said = capsys.readouterr().out
    assert "1 of 1 rows are missing" in said
    assert "hf download --repo-type dataset deepmind/code_contests" in said
    assert f"specsweep data prepare {' '.join(words)}" in said
    write_raw(raw, "deepmind/code_contests/data/test-00000-of-00001.parquet", [{"name": "n", "description": "Sort."}])
    assert command(*words, "--json") == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert (facts["complete"], facts["rows"], facts["made"], facts["missing"]) == (True, 1, 1, [])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("throughput_4k",), "throughput_4k: no such config"),
        (("quirks=some",), "official or plain"),
        (("to=x",), "to=x: not a setting"),
        (("out=",), "out=: give a value"),
        (("from=/nowhere",), "from=/nowhere: no such folder"),
        (("mini/",), "mini/: no such config; there are mini/qualitative.*mini alone is all"),
        (("mini", "mini/none"), "mini/none: no such config"),
    ],
)
def test_a_wrong_word_is_named(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        command(*words)


def test_an_unknown_source_is_told_with_those_that_exist() -> None:
    with pytest.raises(WorkloadError, match="cais/hle"):
        data_prepare.parse(["only=nothing"])
    assert data_prepare.parse(["only=hle,adaleval"]).only == {"cais/hle", "AdaLEval/stackselect", "AdaLEval/textsort"}


def test_a_published_data_set_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the published data set"):
        command("qualitative", f"from={tmp_path}", f"out={tmp_path / 'out'}")


def test_the_committed_set_is_written_in_the_same_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("mini/qualitative", "mini/throughput_16k", f"out={tmp_path}") == 0
    rows = read_rows(tmp_path / "qualitative")
    assert len(rows) == 220
    assert len({row.category for row in rows}) == 11
    tiers = {row.category for row in read_rows(tmp_path / "throughput_16k" / "test.parquet")}
    assert tiers == {"low_entropy", "mixed", "high_entropy"}
    assert "mini/qualitative: 220 rows" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["mini", "quirks=plain"], ["mini", "throughput_1k"], ["mini/agentic"]])
def test_the_committed_set_stands_alone(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        command(*words, f"out={tmp_path}")
    assert not list(tmp_path.iterdir())


def test_a_command_that_is_killed_half_way_goes_on_where_it_stopped(tmp_path: Path) -> None:
    count = 4000
    rows = [unfilled(str(n), f"{HUB}/deepmind/code_contests", f"n{n}", turns=with_template("In C++: {question}")) for n in range(count)]
    write_published(tmp_path / "raw", "qualitative", rows)
    texts = [{"name": f"n{n}", "description": f"Sort {n}."} for n in range(count)]
    write_raw(tmp_path / "raw", "deepmind/code_contests/data/test-00000-of-00001.parquet", texts)
    words = ("qualitative", f"from={tmp_path / 'raw'}")
    run = "import sys; from specsweep.orchestrator.cli import main; sys.exit(main(sys.argv[1:]))"
    line = [sys.executable, "-c", run, "data", "prepare", *words, f"out={tmp_path / 'out'}"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(said for said in process.stderr if not said.rstrip().endswith(f" 0/{count}"))
        process.kill()
    assert said.startswith("qualitative: deepmind/code_contests "), said
    assert process.returncode == -signal.SIGKILL
    folder = tmp_path / "out" / "qualitative"
    assert [path.name for path in folder.iterdir()] == [".prepare.journal"]
    assert command(*words, f"out={tmp_path / 'out'}") == 0
    assert command(*words, f"out={tmp_path / 'whole'}") == 0
    assert read_rows(folder / "test.parquet") == read_rows(tmp_path / "whole" / "qualitative" / "test.parquet")
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "test.parquet"]
