"""Teams of client processes: what becomes of a point, of Ray and of us when one is killed. One Ray for all of them: it takes seconds to start."""

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
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from stream_stubs import DONE, END, HEAD, Call, Stub, answer_when_full, planned, stub_in_thread, token_event

from specsweep.client.actors import ClientPool, Endpoint, LostActor, PointLoad, Team
from specsweep.client.local_ray import process_runs
from specsweep.client.trace import PointTrace

PATH = "/v1/completions"


async def slow(call: Call) -> None:
    await call.send(HEAD, token_event([1]), token_event([2]), token_event([3, 4], "length"), DONE + END, pause_s=0.02)


@pytest.fixture(scope="module")
def server() -> Iterator[Stub]:
    with stub_in_thread(slow) as state:
        yield state


@pytest.fixture(scope="module")
def pool() -> Iterator[ClientPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_RUNTIME_ENV_HOOK", "no.such.module.hook")  # Ray calls it at its start, to add what is shipped to the nodes
        pool = ClientPool()
        pool.start()
    yield pool
    folders = node_folders(psutil.Process())
    pool.close()
    assert not [p for p in psutil.Process().children(recursive=True) if p.name() in ("raylet", "gcs_server") and process_runs(p.pid)]
    assert not [folder for folder in folders if folder.exists()]


@pytest.fixture
def team(pool: ClientPool) -> Iterator[Team]:
    with pool.team() as team:
        yield team


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
def test_ray_started_from_a_thread_outlives_that_thread(team: Team, server: Stub) -> None:
    """Ray's processes die with the thread that started them, and asyncio's worker threads end with their loop."""
    for _ in range(2):
        result = asyncio.run(asyncio.to_thread(team.measure, load(server, 2, 8, 1)))
        check_whole(result.trace, 2, 8, 1)
    assert len({m.pid for m in team.members}) == 1
    with pytest.raises(RuntimeError, match="one ClientPool at a time"):
        ClientPool().start()


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_actors_keep_the_batch_size_in_flight_together(team: Team, server: Stub, capfd: pytest.CaptureFixture[str]) -> None:
    connected: list[int] = []

    async def handler(call: Call) -> None:
        connected.append(house.connections)
        await full_house(call)

    full_house = answer_when_full(lambda: house, 12, 96, then=slow)
    with stub_in_thread(handler) as house:
        result = team.measure(load(house, 12, 96, 4, raw=True))
        check_whole(result.trace, 12, 96, 4)
        assert house.running_max == 12
        assert connected[0] == 12  # one start for all: nobody sends before everybody has connected
    assert result.raw is not None
    assert [index for index, _, _ in result.raw] == list(range(96))
    assert result.raw[7][1].index == 7
    assert team.measure(load(server, 2, 8)).raw is None  # a smaller point uses the same processes
    assert len(team.members) == 4
    # Ray's default of 15 would let a busy engine on the same cores starve the clock that measures it.
    assert {os.getpriority(os.PRIO_PROCESS, m.pid) for m in team.members} == {os.getpriority(os.PRIO_PROCESS, 0)}
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_actor_that_is_killed_in_the_window_fails_the_point_and_the_next_one_gets_fresh_actors(
    team: Team, server: Stub, capfd: pytest.CaptureFixture[str]
) -> None:
    team.start(4)
    victim = team.members[2]
    before = server.requests

    def kill() -> None:
        while server.requests < before + 24:
            time.sleep(0.005)
        os.kill(victim.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(LostActor) as lost:
        team.measure(load(server, 8, 4000, 4))
    assert server.requests - before < 3000  # without waiting for what the other three still had to send
    thread.join()
    assert (lost.value.actor, lost.value.pid, lost.value.node) == (2, victim.pid, os.uname().nodename)
    assert f"actor 2 (pid {victim.pid} on {os.uname().nodename})" in str(lost.value)
    assert "common causes" not in str(lost.value)
    assert team.members == ()
    check_whole(team.measure(load(server, 8, 40, 4)).trace, 8, 40, 4)
    assert victim.pid not in {m.pid for m in team.members}
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_actor_that_is_dead_before_the_start_is_replaced(team: Team, server: Stub) -> None:
    team.start(2)
    victim = team.members[1].pid
    os.kill(victim, signal.SIGKILL)
    while process_runs(victim):
        time.sleep(0.01)
    check_whole(team.measure(load(server, 4, 16, 2)).trace, 4, 16, 2)


@dataclass
class Measuring:
    """A measurement in a thread of its own: what came of it, or what ended it."""

    team: Team
    load: PointLoad
    result: PointTrace | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._measure)
        self.thread.start()

    def _measure(self) -> None:
        try:
            self.result = self.team.measure(self.load).trace
        except BaseException as error:
            self.error = error

    def wait(self) -> None:
        self.thread.join(120)
        assert not self.thread.is_alive()


def wait_for_requests(server: Stub, count: int) -> None:
    deadline = time.monotonic() + 120
    while server.requests < count and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_teams_measure_at_the_same_time_and_a_lost_actor_harms_no_other(pool: ClientPool) -> None:
    with stub_in_thread(slow) as one, stub_in_thread(slow) as two, pool.team() as left, pool.team() as right:
        left.start(2)
        right.start(2)
        pids = {m.pid for team in (left, right) for m in team.members}
        assert len(pids) == 4
        doomed, fine = Measuring(left, load(one, 4, 4000, 2)), Measuring(right, load(two, 4, 120, 2))
        wait_for_requests(one, 8)
        wait_for_requests(two, 8)  # both are in their windows
        victim = left.members[1]
        os.kill(victim.pid, signal.SIGKILL)
        doomed.wait()
        fine.wait()
        assert isinstance(doomed.error, LostActor)
        assert doomed.error.pid == victim.pid
        assert fine.result is not None
        check_whole(fine.result, 4, 120, 2)
        assert {a.pid for a in fine.result.actors} == {m.pid for m in right.members}
        check_whole(left.measure(load(one, 4, 16, 2)).trace, 4, 16, 2)


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_a_closed_team_ends_its_processes_and_no_others(pool: ClientPool, server: Stub) -> None:
    with pool.team() as stays:
        stays.start(1)
        team = pool.team()
        team.start(2)
        members = team.members
        running = Measuring(team, load(server, 4, 4000, 2))
        wait_for_requests(server, server.requests + 8)
        team.close()
        running.wait()
        assert isinstance(running.error, LostActor)
        deadline = time.monotonic() + 30
        while any(process_runs(m.pid) for m in members) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not [m for m in members if process_runs(m.pid)]
        with pytest.raises(RuntimeError, match="closed"):
            team.measure(load(server, 2, 8, 1))
        check_whole(stays.measure(load(server, 2, 8, 1)).trace, 2, 8, 1)


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_nothing_is_shipped_to_the_processes_and_they_stamp_on_our_clock(pool: ClientPool, team: Team, server: Stub) -> None:
    import ray

    assert dict(ray.get_runtime_context().runtime_env) == {}
    begin = time.monotonic_ns()
    trace = team.measure(load(server, 2, 8, 2)).trace
    assert {(a.clock, a.clock_offset_ns, a.clock_bound_ns) for a in trace.actors} == {("", 0, 0)}
    assert all(begin < r.t_send_ns < r.t_end_ns < time.monotonic_ns() for r in trace.requests)


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_abort_ends_a_running_measurement(team: Team, server: Stub) -> None:
    team.start(2)
    before = server.requests

    def abort() -> None:
        while server.requests < before + 8:
            time.sleep(0.005)
        team.abort()

    thread = threading.Thread(target=abort)
    thread.start()
    with pytest.raises(LostActor, match=r"abort\(\)"):
        team.measure(load(server, 4, 4000, 2))
    thread.join()
    check_whole(team.measure(load(server, 4, 16, 2)).trace, 4, 16, 2)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ray_itself_may_die_under_several_teams(pool: ClientPool, team: Team, server: Stub, capfd: pytest.CaptureFixture[str]) -> None:
    with pool.team() as other, pool.team() as idle:
        for each in (team, other, idle):
            each.start(2)
        raylet = next(p for p in psutil.Process().children() if p.name() == "raylet")
        before = server.requests
        both = [Measuring(team, load(server, 4, 4000, 2)), Measuring(other, load(server, 2, 4000, 1))]
        wait_for_requests(server, before + 12)
        raylet.kill()
        for each in both:
            each.wait()
            assert isinstance(each.error, LostActor)
            assert "its Ray node died" in str(each.error)  # seen by us: Ray's own verdict comes a quarter of a minute later
        again = [Measuring(each, load(server, 4, 16, 2)) for each in (team, other, idle)]
        for each in again:
            each.wait()
            assert each.result is not None, each.error
            check_whole(each.result, 4, 16, 2)
    assert len([p for p in psutil.Process().children() if p.name() == "raylet" and process_runs(p.pid)]) == 1
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
        team = ClientPool().team()
        team.start(2)
        print("ready", flush=True)
        team.measure(PointLoad(Endpoint({server.base_url!r}), {PATH!r}, "vllm", 4, planned(100000, ramp=4), processes=2))
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
def test_an_end_while_the_actors_are_made_is_heard_at_once(pool: ClientPool, team: Team, server: Stub) -> None:
    team.start(1)
    more = len(team.members) + 2
    ended: list[BaseException] = []

    def measure() -> None:
        try:
            team.measure(load(server, more, 4000, more))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=measure)
    thread.start()
    time.sleep(0.05)  # two more processes are being made
    started = time.monotonic()
    pool.close()
    thread.join()
    assert time.monotonic() - started < 30  # without waiting for what is shut down, Ray takes 60 s and then ends this process
    assert len(ended) == 1
