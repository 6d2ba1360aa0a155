"""Our Ray node beside somebody else's: neither joined nor ended, whatever the environment says."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from stream_stubs import answer_tokens, stub_in_thread

from specsweep.client import reaper
from specsweep.client.local_ray import process_runs

SWEEP = """
    import sys
    sys.path.insert(0, {folder!r})
    from stream_stubs import planned
    from specsweep.client.actors import *
    if __name__ == "__main__":
        pool = ClientPool()
        pool.start()
        import ray
        print(ray.get_runtime_context().gcs_address, flush=True)
        result = pool.team().measure(PointLoad(Endpoint({url!r}), "/v1/completions", "vllm", 2, planned(8, ramp=2), processes=1))
        print(sum(r.read.outcome == "ok" for r in result.trace.requests), flush=True)
        pool.close()
"""


@pytest.fixture
def foreign() -> Iterator[str]:
    """A Ray of the user's own on this machine; its address."""
    folder = Path(tempfile.mkdtemp(prefix="foreign-ray-", dir="/tmp"))  # short: Ray puts sockets below it
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}", "--num-cpus=1"]
    words += ["--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"]
    env = {**os.environ, "RAY_AUTH_MODE": "disabled", "HOME": str(folder)}
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        reaper.end_all(str(folder))
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_ray_of_the_user_is_neither_joined_nor_ended(foreign: str, tmp_path: Path) -> None:
    port = foreign.rpartition(":")[2]
    theirs = [p for p in psutil.process_iter() if p.name() in ("gcs_server", "raylet") and any(port in word for word in p.cmdline())]
    assert {p.name() for p in theirs} == {"gcs_server", "raylet"}
    with stub_in_thread(answer_tokens) as server:
        script = textwrap.dedent(SWEEP.format(folder=str(Path(__file__).parent), url=server.base_url))
        env = {**os.environ, "RAY_ADDRESS": foreign}
        done = subprocess.run([sys.executable, "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    address, answered = done.stdout.split()
    assert address.rpartition(":")[2] != port
    assert answered == "8"
    assert all(process_runs(p.pid) for p in theirs)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_stranger_is_not_let_in_even_if_ray_was_imported_before(tmp_path: Path) -> None:
    """Ray listens on every interface, and whoever is let in can run code."""
    script = textwrap.dedent("""
        import ray, subprocess, sys
        from specsweep.client.local_ray import LocalRay
        node = LocalRay()
        node.start(1)
        print(ray.get(ray.remote(lambda: 7).remote()), flush=True)
        words = f"import ray; ray.init(address={ray.get_runtime_context().gcs_address!r}, log_to_driver=False); print('let in')"
        print("let in" in subprocess.run([sys.executable, "-c", words], capture_output=True, text=True).stdout, flush=True)
        node.stop()
    """)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.split()) == (0, ["7", "False"]), done.stderr
