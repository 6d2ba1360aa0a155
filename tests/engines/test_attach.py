"""A server that is already running: llama.cpp's own wire with token ids, and chat completions where nothing else is known."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from whole_sweeps import finished, problems, specsweep

from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(240)]


def run(store: Path, cache: Path, url: str, *more: str) -> object:
    return specsweep(
        "run", "cluster=attach", f"endpoint={url}", "target=tiny", "drafter=none", "workload=mixed", "workload.prompts=6", "workload.osl=24",
        "isl=128", "batch_size=2", "name=attached", f"store={store}", f"cache={cache}", "tracking.enabled=false", *more,
    )  # fmt: skip


def test_token_ids_go_to_a_running_server(tmp_path: Path, cache: Path, server: str) -> None:
    done = run(tmp_path / "s", cache, server, "engine=llamacpp")
    assert finished(done), done.stderr
    (attempt,) = Store(tmp_path / "s").sweep("attached").latest.values()
    assert problems(attempt) == []
    assert urllib.request.urlopen(f"{server}/health", timeout=5).status == 200, "it still runs"


def test_chat_says_what_cannot_be_known(tmp_path: Path, cache: Path, server: str) -> None:
    done = run(tmp_path / "s", cache, server, "engine=openai_chat")
    assert finished(done), done.stderr
    (attempt,) = Store(tmp_path / "s").sweep("attached").latest.values()
    assert attempt.measured
    assert "step_ms_p50" not in attempt.measurement["metrics"]
    assert attempt.measurement["absent"]["step_ms_mean"]
    assert attempt.measurement["metrics"]["output_tps"] > 0


def test_nobody_there(tmp_path: Path, cache: Path) -> None:
    done = run(tmp_path / "s", cache, "http://127.0.0.1:9", "engine=llamacpp")
    assert done.returncode == 3
    assert "http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
