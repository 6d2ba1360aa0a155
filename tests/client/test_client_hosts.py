"""Clients on two hosts: a real Ray cluster of two nodes, one of them in a time namespace, where CLOCK_MONOTONIC has another origin.

That is as true a second clock as one machine can give: its offset is known to the nanosecond, and nothing of ours is told of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from stream_stubs import DONE, END, HEAD, Call, Stub, planned, stub_in_thread, token_event
from test_sim_server import started
from test_sim_wire import prompt_of

from specsweep.analysis.measure import PointFacts, measure
from specsweep.client import actors, joined_ray, reaper
from specsweep.client.actors import ClientPool, ClientsUnavailable, Endpoint, LostActor, PointLoad
from specsweep.client.dialects import dialect
from specsweep.client.host import this_host
from specsweep.client.joined_ray import JoinedRay
from specsweep.client.load_plan import plan_requests
from specsweep.client.trace import PlannedRequest, PointTrace, Sampling
from specsweep.client.workload.prompts import Prompt

PATIENCE_S = 120.0
SHIFT_S = 100_000
TOKEN = "5c" * 32
BATCH = 16
FACTS = PointFacts(batch_size=BATCH, draft_length=3, drafter="eagle3")


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port", "", "http://head:6379"])
def test_addresses_that_cannot_be_joined_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address="):
        JoinedRay(address)


def test_a_head_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_ray, "_HEAD_S", 0.2)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        pool = ClientPool(address=address)
        with pytest.raises(ClientsUnavailable, match=f"no head of a Ray cluster answers at {address}: .*refused"):
            pool.start()
        pool.close()


def test_nodes_need_a_cluster() -> None:
    with pytest.raises(ValueError, match="without the address"):
        ClientPool(nodes=["a"])


# -- with two Ray nodes


@dataclass
class Cluster:
    """``ray start`` once a node, as on hosts of their own."""

    folder: Path
    ip: str
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    def start(self, name: str, *options: str, before: tuple[str, ...] = (), **environment: str) -> None:
        words = [*before, str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        words += [f"--temp-dir={self.folder}/{name}", *(options or (f"--address={self.address}", "--num-cpus=1"))]
        with self.log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                words, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + PATIENCE_S
        while "Ray runtime started" not in (said := self.log(name).read_text("utf-8", "replace")):
            assert self.processes[name].poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def lose(self, name: str) -> None:
        """As if its host had lost power, but for the connections, which are closed."""
        reaper.end_all(f"{self.folder}/{name}")
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        reaper.end_all(str(self.folder))
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def has_time_namespaces() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--time", "--monotonic", "1", "--fork", "true"], capture_output=True).returncode == 0


@contextmanager
def ray_cluster(cpus: int) -> Iterator[Cluster]:
    """Its head alone, with so many CPUs."""
    from ray.util import get_node_ip_address

    with pytest.MonkeyPatch.context() as patch, socket.socket() as probe:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.setenv("RAY_worker_niceness", "0")
        probe.bind(("127.0.0.1", 0))
        folder = Path(tempfile.mkdtemp(prefix="two-ray-", dir="/tmp"))  # short: sockets lie below it
        cluster = Cluster(folder, get_node_ip_address(), probe.getsockname()[1])
        probe.close()
        try:
            cluster.start("here", "--head", f"--port={cluster.port}", f"--num-cpus={cpus}", "--include-dashboard=false")
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """``here`` has our clock and one CPU, ``there`` another clock and one CPU."""
    if not has_time_namespaces():
        pytest.skip("a second clock needs root, util-linux's unshare and a kernel with time namespaces")
    with ray_cluster(cpus=1) as cluster:
        cluster.start("there", before=("unshare", "--time", "--monotonic", str(SHIFT_S), "--fork"))
        yield cluster


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(tmp_path_factory.mktemp("sim"), dialect="vllm", drafter="eagle3", draft_length=3, max_batch=BATCH) as (_, url):
        yield url


def sim_load(url: str, processes: int) -> PointLoad:
    wire = dialect("vllm")
    prompts = [Prompt(f"p{i}", "mixed", tuple(prompt_of(i)), "", 40) for i in range(BATCH + 4 * BATCH)]
    requests = plan_requests(
        prompts[BATCH:], prompts[:BATCH], batch_size=BATCH, sampling=Sampling(max_tokens=60), dialect=wire, model="m", stateful=False
    )
    return PointLoad(Endpoint(url), wire.path, "vllm", BATCH, requests, 3, 30.0, True, processes)


def numbers(trace: PointTrace) -> dict[str, Any]:
    trace.simulated = True
    return measure(trace, FACTS)


async def slow(call: Call) -> None:
    await call.send(HEAD, token_event([1]), token_event([2]), token_event([3, 4], "length"), DONE + END, pause_s=0.02)


def stub_load(server: Stub, batch_size: int, count: int, processes: int | None = None) -> PointLoad:
    requests: list[PlannedRequest] = planned(count, ramp=batch_size)
    return PointLoad(Endpoint(server.base_url), "/v1/completions", "vllm", batch_size, requests, 3, 20.0, False, processes)


@contextmanager
def joined(cluster: Cluster, **options: Any) -> Iterator[ClientPool]:
    with ExitStack() as stack:
        pool = ClientPool(address=cluster.address, **options)
        stack.callback(pool.close)
        pool.start()
        assert len(our_raylets(cluster)) == 1  # this host is a node now
        yield pool
    assert our_raylets(cluster) == []


@contextmanager
def losing(cluster: Cluster, node: str, server: Stub) -> Iterator[None]:
    """Loses the node once the server was asked a few times."""
    begun = server.requests

    def lose() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while server.requests < begun + 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        cluster.lose(node)

    thread = threading.Thread(target=lose)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def our_raylets(cluster: Cluster) -> list[str]:
    """Those of the cluster that a pool started."""
    lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["name", "cmdline"]) if p.info["name"] == "raylet"]
    return [line for line in lines if f":{cluster.port}" in line and "/specsweep-ray-" in line]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_batch_over_two_hosts_gives_the_figures_of_one(cluster: Cluster, simulator: str, capfd: pytest.CaptureFixture[str]) -> None:
    alone = ClientPool()
    try:
        with alone.team() as team:
            one_host = numbers(team.measure(sim_load(simulator, 2)).trace)
    finally:
        alone.close()
    with joined(cluster) as pool, pool.team() as team:
        assert (pool.cores, pool.processes(512), pool.processes(1)) == (2, 2, 1)
        with pytest.raises(ValueError, match=r"3 client processes were asked for.*2 CPUs"):
            team.measure(sim_load(simulator, 3))
        for _ in range(2):
            begin = time.monotonic_ns()
            result = team.measure(sim_load(simulator, 2))
            end = time.monotonic_ns()
            trace = result.trace
            far, near = sorted(trace.actors, key=lambda a: a.clock == "")
            assert len({m.node_id for m in team.members}) == 2

            # The clock: found to within the bound that is told, and the truth is exact.
            assert abs(far.clock_offset_ns - SHIFT_S * 10**9) <= far.clock_bound_ns < 10**9
            assert (near.clock, near.clock_offset_ns, near.clock_bound_ns) == ("", 0, 0)
            assert far.clock not in ("", this_host().clock)

            # One time line: every stamp lies within the measurement, in the order in which things happened.
            assert sorted({r.actor for r in trace.requests}) == [0, 1]
            for r in trace.requests:
                assert begin < r.t_send_ns < r.read.chunk_t_ns[0] <= r.read.chunk_t_ns[-1] <= r.t_end_ns < end
                assert r.read.step_t_ns[0] == r.read.chunk_t_ns[0]
            assert all(begin < a.t_start_ns < a.t_queue_empty_ns < end for a in trace.actors)
            by_index = {r.index: r for r in trace.requests}
            assert result.raw is not None
            assert [by_index[index].t_send_ns for index, _, _ in result.raw] == [exchange.t_send_ns for _, _, exchange in result.raw]

            found = numbers(trace)
            assert found["metrics"]["al_decode"] == one_host["metrics"]["al_decode"]
            assert found["accept_hist"] == one_host["accept_hist"]
            assert found["metrics"]["output_tokens_mean"] == one_host["metrics"]["output_tokens_mean"]
            for name in ("output_tps", "output_tps_steady", "user_tps_mean"):  # the simulator keeps its pace; the machine is what varies
                assert 0.5 < found["metrics"][name] / one_host["metrics"][name] < 2
            checks = {c["name"]: c for c in found["checks"]}
            assert checks["in_flight"]["value"] == BATCH
            assert checks["clock_bound"]["value"] == pytest.approx(2 * far.clock_bound_ns / 1e9 / found["window"]["seconds"])
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nodes_can_be_chosen_and_unlike_or_lost_ones_are_told(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order, because each step leaves the cluster as the next one needs it."""
    monkeypatch.chdir(tmp_path)  # Ray adds the driver's folder to its workers' path, and the checkout knows its own version
    unknown = r"nodes: 'elsewhere' is no node of this Ray cluster, which has .* 1 CPUs"
    with pytest.raises(ClientsUnavailable, match=unknown), joined(cluster, nodes=["elsewhere"]):
        pass

    with stub_in_thread(slow) as server, joined(cluster) as pool, pool.team() as first, pool.team() as second:
        # Two teams of one process each do not sit on one node.
        first.start(1)
        second.start(1)
        assert first.members[0].node_id != second.members[0].node_id

        # A node whose versions differ is refused by name, and what is on the others goes on.
        info = tmp_path / "other" / "specsweep-0.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: specsweep\nVersion: 0.0\n")
        cluster.start("old", PYTHONPATH=str(info.parent))
        assert pool.cores == 3
        with pytest.raises(ClientsUnavailable, match=r"Ray node .* runs specsweep 0\.0 instead of .*; every node must run the image"):
            second.measure(stub_load(server, 6, 24, 3))
        assert second.members == ()
        cluster.lose("old")
        deadline = time.monotonic() + PATIENCE_S
        while pool.cores > 2 and time.monotonic() < deadline:
            time.sleep(0.2)

        # A node that is lost in a window fails the point; the next one is measured on what is left.
        with losing(cluster, "there", server), pytest.raises(LostActor, match=r"was lost: .+"):
            second.measure(stub_load(server, 4, 4000, 2))
        while pool.cores > 1 and time.monotonic() < deadline + PATIENCE_S:
            time.sleep(0.2)
        trace = second.measure(stub_load(server, 4, 16)).trace
        assert [a.clock for a in trace.actors] == [""]
        assert {r.read.outcome for r in trace.requests} == {"ok"}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_head_that_is_replaced_costs_a_point_and_not_this_process(cluster: Cluster) -> None:
    """Ray ends a process whose head is gone for a minute, and one that calls a new head at the old address (it would end this one)."""
    with stub_in_thread(slow) as server, joined(cluster) as pool, pool.team() as team:
        with losing(cluster, "here", server), pytest.raises(LostActor):
            team.measure(stub_load(server, 2, 4000, 1))
        cluster.start("again", "--head", f"--port={cluster.port}", "--num-cpus=1", "--include-dashboard=false")
        trace = team.measure(stub_load(server, 2, 8, 1)).trace
        assert {r.read.outcome for r in trace.requests} == {"ok"}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_first_node_of_a_cluster_that_is_only_starting_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_cluster(cpus=0) as cluster:
        monkeypatch.setattr(actors, "_NODES_S", 0.5)
        with (
            pytest.raises(ClientsUnavailable, match=r"no node of the Ray cluster has a CPU to run a client on; it has .* 0 CPUs"),
            joined(cluster),
        ):
            pass
        monkeypatch.setattr(actors, "_NODES_S", PATIENCE_S)
        thread = threading.Thread(target=cluster.start, args=("later",))
        thread.start()
        with joined(cluster) as pool:
            assert pool.cores == 1
        thread.join()
