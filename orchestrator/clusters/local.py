"""Engines as processes of this machine.

Each engine has a process group of its own and writes to a log file, so that its end can be explained from its last words and
the whole group can be ended. It also dies with us (:mod:`specsweep.orchestrator.engines.guard`), because a killed sweep cannot clean up.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from specsweep.client.scrape import is_healthy
from specsweep.orchestrator.clusters import Launch, OnePlace, RunningEngine
from specsweep.orchestrator.engines import EngineSpec, guard
from specsweep.orchestrator.engines.verdicts import tail, verdict
from specsweep.orchestrator.errors import EngineError, EngineTerminal
from specsweep.orchestrator.host_cpu import CpuMeter

GUARD = (sys.executable, "-I", "-S", str(Path(guard.__file__)))
POLL_S = 0.05
GRACE_S = 5.0
QUIET_SHARE = 0.10  # of all cores
QUIET_LOOK_S = 0.5
LOG_LIMIT = 2_000_000  # bytes of a log that are read back


@dataclass(slots=True)
class LocalEngine:
    engine: str
    base_url: str
    model_name: str
    process: asyncio.subprocess.Process
    log_path: Path
    headers: tuple[tuple[str, str], ...] = ()
    files: Path | None = None
    node: str = ""

    def ended(self) -> str | None:
        code = self.process.returncode
        if code is None:
            return None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    async def end(self, words: str) -> EngineError:
        return verdict(self.engine, words, await self.log())

    async def log(self) -> str:
        with self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - LOG_LIMIT))
            return file.read().decode(errors="replace")

    def cpu_seconds(self) -> float | None:
        total = 0.0
        with suppress(psutil.Error):
            leader = psutil.Process(self.process.pid)
            for process in (leader, *leader.children(recursive=True)):
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    total += times.user + times.system
            return total
        return None

    def host_facts(self) -> dict[str, Any]:
        return {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "os": platform.system(),
            "machine": platform.machine(),
        }


class LocalCluster(OnePlace):
    kind = "local"

    @asynccontextmanager
    async def start(self, spec: EngineSpec, launch: Launch) -> AsyncIterator[LocalEngine]:
        """Raises EngineRetryable or EngineTerminal, the log attached, if the engine ends or is not ready in time."""
        port = _port(spec)
        launch.logs.mkdir(parents=True, exist_ok=True)
        log_path = launch.logs / f"{launch.name}.log"
        with tempfile.TemporaryDirectory(prefix="specsweep-engine-") as folder, log_path.open("wb") as log:
            for file, text in spec.files.items():
                Path(folder, file).write_text(text)
            command = [part.replace("{host}", "127.0.0.1").replace("{port}", str(port)).replace("{files}", folder) for part in spec.argv]
            try:
                process = await asyncio.create_subprocess_exec(
                    *GUARD,
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **{name: value.replace("{files}", folder) for name, value in spec.env.items()}},
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineTerminal(f"engine {spec.engine} could not be started: {command[0]}: {error.strerror}") from error
            engine = LocalEngine(spec.engine, f"http://127.0.0.1:{port}", spec.model_name, process, log_path, files=Path(folder))
            try:
                await _ready(engine, spec)
                yield engine
            finally:
                await _end(process)

    async def quiet(self, engine: RunningEngine, wait_s: float, busy: Callable[[float], None] = lambda share: None) -> float | None:
        """Waits, for a while, until nothing else keeps this machine busy. Returns the share of all cores that others still use.

        To be called while the engine is idle. Ray and MLflow go on working for some seconds after they are ready, and would be
        measured as a slower engine.
        """
        if not wait_s:
            return None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            meter = CpuMeter(engine)
            await asyncio.sleep(QUIET_LOOK_S)
            share = meter.others(0.0)
            if share is None or share <= QUIET_SHARE:
                return share
            busy(share)
            if loop.time() > deadline:
                return share


def _port(spec: EngineSpec) -> int:
    """A free port, or the wanted one if it is free: found out before any weights are loaded."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", spec.port or 0))
        except OSError as error:
            raise EngineTerminal(
                f"engine.port={spec.port} is taken{_holder(spec.port)}; leave engine.port unset to get a free port ({error.strerror})"
            ) from error
        return int(probe.getsockname()[1])


def _holder(port: int | None) -> str:
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.pid and connection.laddr and connection.laddr.port == port:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""


async def _ready(engine: LocalEngine, spec: EngineSpec) -> None:
    deadline = asyncio.get_running_loop().time() + spec.startup_timeout_s
    while True:
        if (how := engine.ended()) is not None:
            raise await engine.end(f"{how} while starting")
        if await is_healthy(engine.base_url + spec.health_path):
            return
        if asyncio.get_running_loop().time() > deadline:
            log = await engine.log()
            raise EngineTerminal(
                f"engine {spec.engine} was not ready after {spec.startup_timeout_s:.0f} s (engine.startup_timeout_s). Its last lines:\n{tail(log)}",
                evidence=log,
            )
        await asyncio.sleep(POLL_S)


async def _end(process: asyncio.subprocess.Process) -> None:
    """TERM to the whole group, KILL after a grace, and wait until it is gone, whatever happens to us meanwhile."""
    for sig, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), wait)
            break
    with suppress(ProcessLookupError):  # children that outlived their leader
        os.killpg(process.pid, signal.SIGKILL)


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
