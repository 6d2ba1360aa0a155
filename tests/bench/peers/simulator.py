"""The server of a run: the simulator with steps of one length, started afresh for each client, and its truth log."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.peers.work import DIALECT, DRAFTER, MODEL, Rung
from specsweep.client.sim.truth import TrueRequest, read_truth

RATES = (0.75, 0.68, 0.62)  # conditional acceptance by position: as an EAGLE head on mixed prompts
_STOP_S = 60.0


def settings(rung: Rung, log: Path) -> dict[str, Any]:
    """Every step takes ``step_ms``, whatever is in it; a prompt is prefilled in one step."""
    return {
        "dialect": DIALECT,
        "model_name": MODEL,
        "max_batch": rung.batch_size,
        "max_batched_tokens": rung.batch_size * 1024,
        "drafter": DRAFTER if rung.draft_length else "none",
        "draft_length": rung.draft_length,
        "truth_log": str(log),
        "model": {
            "name": "steps of one length",
            "hardware": {"name": "none", "gpus": 1, "bandwidth_gb_s": 1, "tflops": 1},
            "target": {"weights_gb": 0, "kv_bytes_per_token": 0, "gflop_per_token": 0, "overhead_ms": rung.step_ms},
            "drafters": {DRAFTER: {"rates": {"default": list(RATES)}}},
        },
    }


def raise_priority(pid: int, priority: int) -> None:
    """Where the system allows that. Children that are started later inherit it."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, priority)


def before_all_others(pid: int) -> None:
    """Real-time scheduling, where the system allows it: the server is the clock that all are compared with, and shall not wait for them.

    A higher ordinary priority alone still lets it wait for 5 to 20 ms where a client has more busy processes than there are cores.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


class Server:
    """``base_url`` and ``pid`` while it runs; :meth:`truth` afterwards."""

    def __init__(self, base_url: str, pid: int, log: Path) -> None:
        self.base_url, self.pid = base_url, pid
        self._log = log

    def truth(self) -> list[TrueRequest]:
        return read_truth(self._log)


@contextmanager
def server(rung: Rung, folder: Path) -> Iterator[Server]:
    """Raises ``RuntimeError`` with the server's words if it does not start."""
    file, log = folder / "server.json", folder / "truth.jsonl"
    file.write_text(json.dumps(settings(rung, log)), "utf-8")
    command = [sys.executable, "-m", "specsweep.client.sim.server", str(file), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = re.match(r"listening on (\S+)", process.stdout.readline())
            if said is None:
                raise RuntimeError(f"the simulated server did not start with {file}")
            before_all_others(process.pid)
            yield Server(said[1], process.pid, log)
            process.terminate()
            process.wait(_STOP_S)
        finally:
            process.kill()
