"""The command that a user is told to type must do what it is told for, whatever was typed before."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from specsweep.orchestrator import cli
from specsweep.orchestrator.cli import run as run_module
from specsweep.orchestrator.errors import EXIT_INTERRUPTED
from specsweep.orchestrator.run_command import run_command


@pytest.mark.parametrize(
    ("overrides", "rerun", "words"),
    [
        (["sweep=smoke"], "", ["sweep=smoke", "store=/data/r"]),
        (["sweep=smoke", "store=mine"], "", ["sweep=smoke", "store=mine"]),
        (["sweep=smoke", "rerun=all"], "", ["sweep=smoke", "rerun=all", "store=/data/r"]),
        (["rerun=failed", "draft_length=range(1,6)"], "invalid", ["draft_length=range(1,6)", "store=/data/r", "rerun=invalid"]),
    ],
)
def test_the_words_of_the_command(overrides: list[str], rerun: str, words: list[str]) -> None:
    assert shlex.split(run_command(overrides, "/data/r", rerun=rerun)) == ["specsweep", "run", *words]


def test_folders_of_own_configs_are_in_it() -> None:
    assert run_command([], "r", config_dirs=["my configs"]).endswith("--config-dir 'my configs'")


def test_an_interrupted_run_says_what_is_kept_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "_execute", stopped)
    assert cli.main(["run", "sweep=smoke", f"store={tmp_path}"]) == EXIT_INTERRUPTED
    told = capsys.readouterr().err
    assert f"0 of 4 points are measured and kept in {tmp_path}" in told
    assert f"specsweep run sweep=smoke store={tmp_path}" in told
