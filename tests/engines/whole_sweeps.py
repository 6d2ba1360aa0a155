"""Running `specsweep` as a user does, in processes of its own, and looking at what it did and left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from specsweep.orchestrator.store import Store

LIMIT_S = 240.0


def command(*words: str) -> list[str]:
    """A test machine is busy with tests: a run would wait in vain for it to become quiet."""
    if words[:1] == ("run",):
        words = (*words, "measure.quiet_seconds=0")
    return [sys.executable, "-c", "import sys; from specsweep.orchestrator.cli import main; sys.exit(main())", *words]


def specsweep(*words: str, env: dict[str, str] | None = None, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=limit_s, env={**os.environ, **(env or {})})


@contextmanager
def running(*words: str) -> Iterator[Running]:
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    run = Running(process)
    try:
        yield run
    finally:
        for left in run.family():
            with suppress(psutil.Error):
                left.kill()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._seen: dict[int, psutil.Process] = {}

    def family(self) -> list[psutil.Process]:
        """Every process that it ever started, as far as it was seen."""
        with suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self._seen.setdefault(child.pid, child)
        return list(self._seen.values())

    def find(self, word: str) -> psutil.Process:
        """The living member of the family whose command line holds ``word``; not the guard, whose command line holds its engine's."""
        for child in self.family():
            with suppress(psutil.Error):
                line = " ".join(child.cmdline())
                if word in line and "guard.py" not in line and child.is_running():
                    return child
        raise AssertionError(f"no process of the run has {word!r} in its command line")

    def alive(self) -> list[str]:
        found = []
        for child in self.family():
            with suppress(psutil.Error):
                if child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(child.cmdline())[:100])
        return found

    def wait(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, output


def events(store: Path, sweep: str) -> list[dict[str, Any]]:
    path = store / "sweeps" / sweep / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until(condition: Callable[[], bool], what: str, limit_s: float = 90.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s} s for {what}"
        time.sleep(0.02)


# A busy test machine may fail these, truly. What is tested here must hold on any machine.
TIMING = {
    "in_flight",
    "client_lag_request",
    "client_lag_step_p50",
    "client_lag_step_p99",
    "client_core",
    "coalesced_steps",
    "steady_window",
    "tpot_agrees",
    "other_work",
}


def problems(attempt: Any) -> list[str]:
    """The failed checks of a measured attempt, but for those that depend on how busy the machine is."""
    assert attempt.measured, attempt.point.get("error")
    return [f"{c['name']}: {c['message']}" for c in attempt.measurement["checks"] if not c["ok"] and c["name"] not in TIMING]


def finished(done: subprocess.CompletedProcess[str]) -> bool:
    """Every point measured: valid (0), or marked (5) without one failed."""
    return done.returncode == 0 or (done.returncode == 5 and "0 points failed" in done.stderr)


def measured_points(store: Path, sweep: str) -> dict[str, int]:
    """Point id → number of measured attempts."""
    view = Store(store).sweep(sweep)
    return {point_id: sum(a.measured for a in view.attempts.get(point_id, ())) for point_id in view.points}
