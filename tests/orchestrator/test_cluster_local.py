"""Engines as processes of this machine: small scripts stand for engines, since it is their ways to start and to end that matter."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from specsweep.orchestrator.clusters import Launch
from specsweep.orchestrator.clusters.local import LocalCluster
from specsweep.orchestrator.engines import EngineSpec
from specsweep.orchestrator.errors import EngineRetryable, EngineTerminal

SERVER = """
import sys, time, signal, subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header('Content-Length', '2'); self.end_headers(); self.wfile.write(b'ok')
    def log_message(self, *a): pass
"""


def spec(script: str, **changes: object) -> EngineSpec:
    return EngineSpec("stub", (sys.executable, "-c", textwrap.dedent(script), "{port}", "{files}"), "m", **changes)  # type: ignore[arg-type]


SERVING = SERVER + "print('up', flush=True)\nHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()"


async def test_it_is_ready_inside_and_gone_outside(tmp_path: Path) -> None:
    async with LocalCluster().start(spec(SERVING), Launch(tmp_path, "one")) as engine:
        assert engine.ended() is None
        assert "up" in await engine.log()
        pid = engine.process.pid
    assert not psutil.pid_exists(pid)
    assert (tmp_path / "one.log").read_text().startswith("up")


async def test_what_an_engine_writes_beside_its_files_can_be_read_while_it_runs(tmp_path: Path) -> None:
    script = "import os\nos.mkdir(os.environ['DUMPS'])\nopen(os.environ['DUMPS'] + '/one', 'w').write('counts')\n" + SERVING
    given = spec(script, env={"DUMPS": "{files}/dumps"}, files={"settings": "x"})
    async with LocalCluster().start(given, Launch(tmp_path, "files")) as engine:
        assert engine.files is not None
        assert (engine.files / "dumps" / "one").read_text() == "counts"
        assert (engine.files / "settings").read_text() == "x"
    assert not engine.files.exists()


async def test_a_whole_process_tree_that_ignores_term_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsweep.orchestrator.clusters.local.GRACE_S", 0.3)
    script = SERVER + (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'])\n"
        "print(child.pid, flush=True)\nHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()"
    )
    async with LocalCluster().start(spec(script), Launch(tmp_path, "two")) as engine:
        pids = [engine.process.pid, int((await engine.log()).split()[0])]
    deadline = time.monotonic() + 5
    while any(psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in pids):
        assert time.monotonic() < deadline, "a process of the engine is still there"
        await asyncio.sleep(0.05)


async def test_an_engine_that_dies_at_start_is_explained_by_its_log(tmp_path: Path) -> None:
    dying = "import sys; print('loading'); print('error: invalid argument: --draft-model'); sys.exit(3)"
    with pytest.raises(EngineTerminal, match=r"ended with code 3 while starting: bad flag") as caught:
        async with LocalCluster().start(spec(dying), Launch(tmp_path, "three")):
            pass
    assert "invalid argument: --draft-model" in caught.value.message
    assert "loading" in caught.value.evidence


async def test_an_engine_that_is_never_ready_is_ended_after_its_time(tmp_path: Path) -> None:
    with pytest.raises(EngineTerminal, match=r"not ready after 1 s \(engine\.startup_timeout_s\)") as caught:
        async with LocalCluster().start(
            spec("import time; print('thinking', flush=True); time.sleep(600)", startup_timeout_s=1.0), Launch(tmp_path, "four")
        ):
            pass
    assert "thinking" in caught.value.message
    assert not [p for p in psutil.Process(os.getpid()).children() if "thinking" in " ".join(p.cmdline())]


async def test_a_wanted_port_that_is_taken_is_found_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(EngineTerminal, match=rf"engine\.port={port} is taken by process {os.getpid()}"):
            async with LocalCluster().start(spec(SERVING, port=port), Launch(tmp_path, "five")):
                pass
    assert not (tmp_path / "five.log").exists()


async def test_a_port_lost_in_a_race_can_be_tried_again(tmp_path: Path) -> None:
    losing = 'import sys; print("E srv start: couldn\'t bind HTTP server socket, hostname: 127.0.0.1, port: 1"); sys.exit(1)'
    with pytest.raises(EngineRetryable, match="port"):
        async with LocalCluster().start(spec(losing), Launch(tmp_path, "six")):
            pass


async def test_a_killed_engine_says_by_what(tmp_path: Path) -> None:
    async with LocalCluster().start(spec(SERVING), Launch(tmp_path, "seven")) as engine:
        engine.process.kill()
        await engine.process.wait()
        assert engine.ended() == "was killed by SIGKILL"


CHILD = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\nprint(child.pid, flush=True)\n"


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in pids)


async def until_gone(pids: list[int]) -> None:
    for _ in range(400):
        if gone(pids):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"still there: {[p for p in pids if psutil.pid_exists(p)]}")


async def test_what_an_engine_leaves_behind_when_it_dies_goes_too(tmp_path: Path) -> None:
    """As vLLM's core, when its API server is killed."""
    serving = SERVER + CHILD + "HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()"
    async with LocalCluster().start(spec(serving), Launch(tmp_path, "nine")) as engine:
        server = psutil.Process(engine.process.pid).children()[0]
        child = int((await engine.log()).split()[0])
        server.kill()
        await engine.process.wait()
        assert engine.ended() == "was killed by SIGKILL"
        await until_gone([child])


async def test_a_killed_orchestrator_leaves_nothing_of_an_engine(tmp_path: Path) -> None:
    serving = SERVER + CHILD + "HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()"
    script = textwrap.dedent(f"""
        import asyncio, sys, time
        from pathlib import Path
        from specsweep.orchestrator.clusters import Launch
        from specsweep.orchestrator.clusters.local import LocalCluster
        from specsweep.orchestrator.engines import EngineSpec
        async def main():
            spec = EngineSpec("stub", (sys.executable, "-c", {serving!r}, "{{port}}", "{{files}}"), "m")
            async with LocalCluster().start(spec, Launch(Path({str(tmp_path)!r}), "ten")) as engine:
                print(engine.process.pid, (await engine.log()).split()[0], flush=True)
                await asyncio.sleep(600)
        asyncio.run(main())
    """)
    runner = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert runner.stdout is not None
    pids = [int(word) for word in (await runner.stdout.readline()).split()]
    pids += [p.pid for p in psutil.Process(pids[0]).children()]
    assert len(pids) == 3
    assert not gone(pids)
    runner.kill()
    await runner.wait()
    await until_gone(pids)


async def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(EngineTerminal, match="/nowhere/engine"):
        async with LocalCluster().start(EngineSpec("stub", ("/nowhere/engine",), "m"), Launch(tmp_path, "eight")):
            pass


class Seen:
    """An engine whose processes are ``pids``."""

    def __init__(self, *pids: int) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]

    def cpu_seconds(self) -> float:
        return sum(sum(p.cpu_times()[:2]) for p in self._processes)


async def test_it_waits_for_a_quiet_machine_and_says_how_busy_it_is() -> None:
    spin = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"
    hogs = [await asyncio.create_subprocess_exec(sys.executable, "-c", spin) for _ in range(os.cpu_count() or 1)]
    try:
        looks: list[float] = []
        share = await LocalCluster().quiet(Seen(), 0.6, looks.append)
        assert share is not None
        assert share > 0.5
        assert looks[-1] == share, "who waits is told how busy it is"
        own = await LocalCluster().quiet(Seen(*(hog.pid for hog in hogs)), 0.6)
        assert own is not None
        assert own < share - 0.1, "what the engine itself does is no reason to wait"
        assert await LocalCluster().quiet(Seen(), 0) is None
    finally:
        for hog in hogs:
            hog.kill()
            await hog.wait()
