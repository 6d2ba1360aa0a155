"""Client processes: what one reads of its own exchanges, and what becomes of a point, of Ray and of us when one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from stream_stubs import DONE, END, HEAD, Call, Stub, answer_tokens, answer_when_full, planned, stub_in_thread, token_event

from specsweep.client.actors import (
    ClientActor,
    ClientPool,
    Endpoint,
    LostActor,
    PointLoad,
    default_processes,
    exit_fact,
)
from specsweep.client.load import LoadSpec
from specsweep.client.local_ray import process_runs
from specsweep.client.trace import PointTrace, from_table

PATH = "/v1/completions"


@pytest.mark.parametrize(("batch_size", "processes"), [(1, 1), (64, 1), (65, 2), (128, 2), (256, 4), (512, 8), (4096, 8)])
def test_default_number_of_processes(batch_size: int, processes: int) -> None:
    assert default_processes(batch_size) == processes


def test_one_process_reads_its_own_exchanges_after_the_window() -> None:
    async def handler(call: Call) -> None:
        if b'"n":3' in call.body:
            await call.send(b'HTTP/1.1 400 Bad Request\r\nContent-Length: 18\r\n\r\n{"error":"no way"}')
        else:
            await answer_tokens(call)

    with stub_in_thread(handler) as server:
        actor = ClientActor(5)
        assert actor.prepare(LoadSpec(server.base_url, PATH, (), 2, planned(6, ramp=2), 5.0, actor=5)) == 2
        actor.run(0)
        table, raw = actor.read("vllm", 3, True)
    trace = from_table(table)
    assert trace.batch_size == 2
    assert [a.actor for a in trace.actors] == [5]
    assert {r.actor for r in trace.requests} == {5}
    by_index = {r.index: r for r in trace.requests}
    assert by_index[0].read.output_ids == [1, 2, 3, 4]
    assert by_index[0].read.chunk_tokens == [1, 2, 1]
    assert [by_index[i].phase for i in (0, 1, 2)] == ["ramp", "ramp", "main"]
    assert by_index[3].read.outcome == "failed"
    assert by_index[3].read.error_kind == "http_status"
    assert by_index[0].t_send_ns < by_index[0].read.chunk_t_ns[0] <= by_index[0].t_end_ns
    assert sorted(index for index, _, _ in raw) == list(range(6))
    assert all(exchange.reads for _, _, exchange in raw)


def test_requests_that_were_never_sent_are_connect_failures() -> None:
    actor = ClientActor(0)
    actor.prepare(LoadSpec("http://127.0.0.1:9", PATH, (), 1, planned(9), 5.0))
    actor.run(0)
    trace = from_table(actor.read("vllm", None, False)[0])
    assert [r.read.error_kind for r in trace.requests] == ["connect"] * 9


def test_order_of_calls_is_checked() -> None:
    with pytest.raises(RuntimeError, match="run before prepare"):
        ClientActor(0).run(0)
    with pytest.raises(RuntimeError, match="read before run"):
        ClientActor(0).read("vllm", None, False)


def test_exit_fact_leaves_the_guesses_out() -> None:
    words = (
        "The actor died unexpectedly before finishing this task.\n\tpid: 1\nThe actor is dead because its worker process has died. "
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. "
        "Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop"
    )
    assert exit_fact(words) == "SYSTEM_ERROR: Worker unexpectedly exits with a connection error code 2. End of file."
    assert exit_fact("class\n  node died  \n") == "node died"
    assert exit_fact("") == "no reason was given"


# -- with Ray. One Ray for all of them: it takes seconds to start.


async def slow(call: Call) -> None:
    await call.send(HEAD, token_event([1]), token_event([2]), token_event([3, 4], "length"), DONE + END, pause_s=0.02)


@pytest.fixture(scope="module")
def server() -> Iterator[Stub]:
    with stub_in_thread(slow) as state:
        yield state


@pytest.fixture(scope="module")
def pool() -> Iterator[ClientPool]:
    pool = ClientPool()
    yield pool
    folders = node_folders(psutil.Process())
    pool.close()
    assert not [p for p in psutil.Process().children(recursive=True) if p.name() in ("raylet", "gcs_server") and process_runs(p.pid)]
    assert not [folder for folder in folders if folder.exists()]


def node_folders(driver: psutil.Process) -> set[Path]:
    """The temporary folders that the Ray processes below a driver were started with."""
    words = [word for process in driver.children(recursive=True) for word in process.cmdline() if "/session_" in word]
    return {Path(word.split("/session_")[0].split("=")[-1]) for word in words if "/specsweep-ray-" in word}


def load(server: Stub, batch_size: int, count: int, processes: int | None = None, *, raw: bool = False) -> PointLoad:
    requests = planned(count, ramp=batch_size)
    return PointLoad(Endpoint(server.base_url), PATH, "vllm", batch_size, requests, 3, 20.0, raw, processes)


def check_whole(trace: PointTrace, batch_size: int, count: int, processes: int) -> None:
    assert trace.batch_size == batch_size
    assert [r.index for r in trace.requests] == list(range(count))
    assert {r.read.outcome for r in trace.requests} == {"ok"}
    assert [a.actor for a in trace.actors] == list(range(processes))
    assert len({a.pid for a in trace.actors}) == processes
    assert sum(a.slots for a in trace.actors) == batch_size


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_ray_started_from_a_thread_outlives_that_thread(pool: ClientPool, server: Stub) -> None:
    """Ray's processes die with the thread that started them, and asyncio's worker threads end with their loop."""
    for _ in range(2):
        result = asyncio.run(asyncio.to_thread(pool.measure, load(server, 2, 8, 1)))
        check_whole(result.trace, 2, 8, 1)
    assert len({m.pid for m in pool.members}) == 1
    with pytest.raises(RuntimeError, match="one ClientPool at a time"):
        ClientPool().start()


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_actors_keep_the_batch_size_in_flight_together(pool: ClientPool, server: Stub, capfd: pytest.CaptureFixture[str]) -> None:
    connected: list[int] = []

    async def handler(call: Call) -> None:
        connected.append(house.connections)
        await full_house(call)

    full_house = answer_when_full(lambda: house, 12, 96, then=slow)
    with stub_in_thread(handler) as house:
        result = pool.measure(load(house, 12, 96, 4, raw=True))
        check_whole(result.trace, 12, 96, 4)
        assert house.running_max == 12
        assert connected[0] == 12  # one start for all: nobody sends before everybody has connected
    assert result.raw is not None
    assert [index for index, _, _ in result.raw] == list(range(96))
    assert result.raw[7][1].index == 7
    assert pool.measure(load(server, 2, 8)).raw is None  # a smaller point uses the same processes
    assert len(pool.members) == 4
    # Ray's default of 15 would let a busy engine on the same cores starve the clock that measures it.
    assert {os.getpriority(os.PRIO_PROCESS, m.pid) for m in pool.members} == {os.getpriority(os.PRIO_PROCESS, 0)}
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_actor_that_is_killed_in_the_window_fails_the_point_and_the_next_one_gets_fresh_actors(
    pool: ClientPool, server: Stub, capfd: pytest.CaptureFixture[str]
) -> None:
    pool.start(4)
    victim = pool.members[2]
    before = server.requests

    def kill() -> None:
        while server.requests < before + 24:
            time.sleep(0.005)
        os.kill(victim.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(LostActor) as lost:
        pool.measure(load(server, 8, 4000, 4))
    assert server.requests - before < 3000  # without waiting for what the other three still had to send
    thread.join()
    assert (lost.value.actor, lost.value.pid, lost.value.node) == (2, victim.pid, os.uname().nodename)
    assert f"actor 2 (pid {victim.pid} on {os.uname().nodename})" in str(lost.value)
    assert "common causes" not in str(lost.value)
    assert pool.members == ()
    check_whole(pool.measure(load(server, 8, 40, 4)).trace, 8, 40, 4)
    assert victim.pid not in {m.pid for m in pool.members}
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_actor_that_is_dead_before_the_start_is_replaced(pool: ClientPool, server: Stub) -> None:
    pool.start(2)
    victim = pool.members[1].pid
    os.kill(victim, signal.SIGKILL)
    while process_runs(victim):
        time.sleep(0.01)
    check_whole(pool.measure(load(server, 4, 16, 2)).trace, 4, 16, 2)


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_abort_ends_a_running_measurement(pool: ClientPool, server: Stub) -> None:
    pool.start(2)
    before = server.requests

    def abort() -> None:
        while server.requests < before + 8:
            time.sleep(0.005)
        pool.abort()

    thread = threading.Thread(target=abort)
    thread.start()
    with pytest.raises(LostActor, match=r"abort\(\)"):
        pool.measure(load(server, 4, 4000, 2))
    thread.join()
    check_whole(pool.measure(load(server, 4, 16, 2)).trace, 4, 16, 2)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ray_itself_may_die(pool: ClientPool, server: Stub, capfd: pytest.CaptureFixture[str]) -> None:
    pool.start(2)
    raylet = next(p for p in psutil.Process().children() if p.name() == "raylet")
    before = server.requests

    def kill() -> None:
        while server.requests < before + 8:
            time.sleep(0.005)
        raylet.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(LostActor, match="its Ray node died"):  # seen by us: Ray's own verdict comes a quarter of a minute later
        pool.measure(load(server, 4, 4000, 2))
    thread.join()
    check_whole(pool.measure(load(server, 4, 16, 2)).trace, 4, 16, 2)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_nothing_outlives_a_runner_that_is_killed(server: Stub, tmp_path: Path) -> None:
    script = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from stream_stubs import planned
        from specsweep.client.actors import *
        pool = ClientPool()
        pool.start(2)
        print("ready", flush=True)
        pool.measure(PointLoad(Endpoint({server.base_url!r}), {PATH!r}, "vllm", 4, planned(100000, ramp=4), processes=2))
    """
    before = server.requests
    runner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, cwd=tmp_path, text=True)
    try:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        while server.requests < before + 20:
            time.sleep(0.01)
        family = psutil.Process(runner.pid).children(recursive=True)
        assert len(family) >= 5  # gcs, raylet, its agents, the actors, the reaper
        folders = node_folders(psutil.Process(runner.pid))
        assert len(folders) == 1
        runner.kill()
        runner.wait()
        deadline = time.monotonic() + 30  # left alone, Ray's agents live on for a minute
        while (left := [p.pid for p in family if process_runs(p.pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == []
        folder = folders.pop()
        while folder.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not folder.exists()
    finally:
        runner.kill()
        runner.wait()


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_an_end_while_the_actors_are_made_is_heard_at_once(pool: ClientPool, server: Stub) -> None:
    pool.start(1)
    more = len(pool.members) + 2
    ended: list[BaseException] = []

    def measure() -> None:
        try:
            pool.measure(load(server, more, 4000, more))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=measure)
    thread.start()
    time.sleep(0.05)  # two more processes are being made
    started = time.monotonic()
    pool.abort()
    pool.close()
    thread.join()
    assert time.monotonic() - started < 30  # without waiting for what is shut down, Ray takes 60 s and then ends this process
    assert len(ended) == 1
