"""What is said where a file cannot be written: which one, why, and what to do. The real command, and a disk that is full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from specsweep.client.workload import aside
from specsweep.orchestrator.cli import main
from specsweep.orchestrator.cli.writing import writing


def said(words: Sequence[str | Path], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([str(word) for word in words]) == code
    return capsys.readouterr().err


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as the kernel says it of a write: without a name

    monkeypatch.setattr(aside.os, "fsync", full)


SELECT = ("data", "select", "mini/qualitative", "--k", "2", "--category", "math", "--category", "qa")


def test_a_folder_where_a_file_is_wanted_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = said((*SELECT, "--out", tmp_path), 2, capsys)
    assert told == f"specsweep data select: --out {tmp_path}: is a folder; name a file in it, as {tmp_path}/chosen.parquet\n"
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--out /dev/null: is no plain file" in said((*SELECT, "--out", "/dev/null"), 2, capsys)
    assert not Path("/dev/null").is_file()
    with pytest.raises(FileExistsError, match="/dev/null"), aside.whole(Path("/dev/null")):
        pass


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert f"{file}: File exists; a file of this name is in the way" in said((*SELECT, "--figures", file), 2, capsys)
    assert f"{file}: File exists" in said(("data", "stats", "mini/qualitative", "--figures", file), 2, capsys)
    assert f"{file}" in said(("data", "prepare", "mini/qualitative", f"out={file}"), 2, capsys)
    assert file.read_text() == "mine"


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("words", [(*SELECT, "--out", "chosen.parquet"), ("data", "prepare", "mini/qualitative", "out=.")])
def test_a_full_disk_is_said_with_the_file_and_leaves_no_half_of_it(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = said(words, 6, capsys)
    assert ".parquet: No space left on device; free some space or write elsewhere, and give the same command again" in told
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_error_keeps_the_name_that_it_has(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"), writing(tmp_path):
        (tmp_path / "gone").read_text()
    with pytest.raises(OSError, match=str(tmp_path)), writing(tmp_path):
        raise OSError(errno.ENOSPC, "full")


def test_output_that_cannot_be_printed_is_an_error_of_the_command() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from specsweep.orchestrator.cli import main; sys.exit(main(['data', 'stats', 'mini/qualitative']))",
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 6
    assert "what was printed: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
