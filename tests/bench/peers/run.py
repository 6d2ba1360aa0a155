"""One client on one rung: server up, client through, truth read; what came of it as a row of the comparison."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic_ns
from types import ModuleType
from typing import Any

from bench.peers.figures import Pair, Reported, Served, served
from bench.peers.process_cpu import FamilyWatch
from bench.peers.simulator import raise_priority, server
from bench.peers.work import Job, Rung, items
from specsweep.client.sim.truth import TrueRequest

CLIENTS = ("ours", "vllm_bench", "aiperf", "guidellm")
LAG_MAX = 0.02
OTHERS_MAX = 0.1
ERROR_MAX = 0.05
PRIORITY = -5  # of clients, where the system allows it: what else runs here shall not be measured
TIME_LIMIT_S = 300.0
_HERE = Path(__file__).resolve().parent


@dataclass(slots=True)
class Cpu:
    """CPU seconds of all processes of a client, by part of the run."""

    start_s: float  # until the server had the first request
    load_s: float  # from there to the last chunk
    rest_s: float  # from there to the end of the processes: the results
    processes: int  # most at one time

    @property
    def to_result_s(self) -> float:
        return self.load_s + self.rest_s


@dataclass(slots=True)
class Row:
    """``problem``: why there are no figures, or why they do not count; "" if nothing is wrong."""

    client: str
    rung: Rung
    problem: str = ""
    server: Served | None = None
    cpu: Cpu | None = None
    others_share: float = 0.0  # of the machine's cores in the load, used by neither server nor client
    wall_s: float = 0.0
    reported: Reported = field(default_factory=dict)

    @property
    def cpu_load_per_million(self) -> float | None:
        return None if self.cpu is None or self.server is None else self.cpu.load_s / self.server.chunks * 1e6

    @property
    def cpu_per_million(self) -> float | None:
        return None if self.cpu is None or self.server is None else self.cpu.to_result_s / self.server.chunks * 1e6

    def worst(self, *prefixes: str) -> float | None:
        """The error of largest size among the figures of the first of ``prefixes`` that the client reports."""
        for prefix in prefixes:
            errors = [pair.error for key, pair in self.reported.items() if key.startswith(prefix)]
            if errors:
                return max(errors, key=abs)
        return None

    @property
    def ttft_error(self) -> float | None:
        return self.worst("ttft_ms")

    @property
    def step_error(self) -> float | None:
        """Without drafting a token is a step."""
        return self.worst("step_ms", "token_ms") if not self.rung.draft_length else self.worst("step_ms")

    @property
    def disturbed(self) -> bool:
        return self.others_share > OTHERS_MAX

    @property
    def accurate(self) -> bool:
        errors = (self.ttft_error, self.step_error)
        return not self.problem and all(e is not None and abs(e) < ERROR_MAX for e in errors)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Row:
        """The inverse of :meth:`as_json`."""
        server, cpu = saved["server"], saved["cpu"]
        return cls(
            client=saved["client"],
            rung=Rung(**saved["rung"]),
            problem=saved["problem"],
            server=server and Served(**{k: v for k, v in server.items() if k != "chunks_per_s"}),
            cpu=cpu and Cpu(**cpu),
            others_share=saved["others_share"],
            wall_s=saved["wall_s"],
            reported={key: Pair(p["name"], p["reported"], p["true"]) for key, p in saved["figures"].items()},
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "client": self.client,
            "rung": asdict(self.rung),
            "problem": self.problem,
            "server": self.server and asdict(self.server) | {"chunks_per_s": self.server.chunks_per_s},
            "cpu": self.cpu and asdict(self.cpu),
            "others_share": self.others_share,
            "wall_s": self.wall_s,
            "figures": {key: asdict(pair) | {"error": pair.error} for key, pair in self.reported.items()},
        }


def module(client: str) -> ModuleType:
    return importlib.import_module(f"bench.peers.{client}")


def python_of(client: str, environments: Path) -> Path:
    """Raises ``FileNotFoundError`` naming the command that makes the environment."""
    name = module(client).ENVIRONMENT
    python = environments / name / "bin" / "python"
    if name and not python.exists():
        raise FileNotFoundError(f"{module(client).NAME} has no environment at {python.parent.parent}: `make peers` makes it")
    return python


def run(client: str, rung: Rung, folder: Path, environments: Path) -> Row:
    """Never raises for anything that a client does: a row says it."""
    folder.mkdir(parents=True)
    kind, row = module(client), Row(client, rung)
    python = python_of(client, environments)
    with server(rung, folder) as started:
        job = Job(rung, started.base_url, folder)
        commands = kind.commands(job, python)
        began_ns = monotonic_ns()
        codes, watch = _through(commands, folder, kind.ENV, started.pid)
        row.wall_s = (monotonic_ns() - began_ns) / 1e9
    truth = started.truth()
    if any(codes):
        row.problem = f"ended with {', '.join(map(str, codes))}: {_last_words(folder)}"
        return row
    row.problem = wrong_work(truth, sorted(item.cap for item in items(rung)))
    if row.problem:
        return row
    found = row.server = served(truth, rung.step_ms)
    first, last, end = (watch.series.at(t) for t in (found.first_ns, found.last_ns, watch.series.t_ns[-1]))
    row.cpu = Cpu(first, last - first, end - last, watch.processes_max)
    others_s = watch.others.at(found.last_ns) - watch.others.at(found.first_ns)
    row.others_share = max(0.0, others_s / found.seconds / (os.cpu_count() or 1))
    try:
        row.reported = kind.read(job, truth)
    except (ValueError, KeyError, OSError) as error:
        row.problem = f"its results cannot be read: {type(error).__name__}: {error}"
        return row
    if found.lag > LAG_MAX:
        row.problem = f"void: the server's steps were {found.lag:.1%} longer than they were to be"
    return row


def wrong_work(truth: Sequence[TrueRequest], caps: Sequence[int]) -> str:
    """What a client asked for other than it was given; "" if it did its work. ``caps``: ascending."""
    if bad := [t.finish for t in truth if t.finish != "length"]:
        return f"{len(bad)} of {len(truth)} requests ended by {bad[0]!r} and not by their length"
    if len(truth) != len(caps):
        return f"sent {len(truth)} requests, not {len(caps)}"
    differ = sum(a != b for a, b in zip(sorted(t.tokens for t in truth), caps, strict=True))
    return f"{differ} of {len(caps)} answers were of another length than they were to be" if differ else ""


def _through(commands: Sequence[Sequence[str]], folder: Path, env: dict[str, str], server_pid: int) -> tuple[list[int], FamilyWatch]:
    """Runs the commands side by side to their end, each in a session that ends with it. Returns exit codes, and CPU over time."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "DO_NOT_TRACK": "1", **env}
    started: list[subprocess.Popen[bytes]] = []
    with (folder / "client.log").open("wb") as log:
        try:
            started += [
                subprocess.Popen(c, cwd=folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
                for c in commands
            ]
            for process in started:
                raise_priority(process.pid, PRIORITY)
            with FamilyWatch([p.pid for p in started], server_pid) as watch:
                until_ns = monotonic_ns() + TIME_LIMIT_S * 1e9
                codes = [p.wait(max(1.0, (until_ns - monotonic_ns()) / 1e9)) for p in started]
                watch.look()
        except subprocess.TimeoutExpired:
            codes = [-1] * len(commands)
            log.write(f"\nnot done within {TIME_LIMIT_S:.0f} s\n".encode())
        finally:
            for process in started:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return codes, watch


def _last_words(folder: Path) -> str:
    lines = [line.strip() for line in (folder / "client.log").read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def write_rows(rows: Sequence[Row], path: Path, facts: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"facts": facts, "rows": [row.as_json() for row in rows]}, indent=1) + "\n", "utf-8")
