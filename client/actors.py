"""Client processes as Ray actors: one closed loop each, together exactly one batch size.

One Python process can stamp some tens of thousands of chunks a second before it becomes the bottleneck that it measures, so
larger batches are split: slots as evenly as they go, requests in proportion. All actors open their connections first and then
get one start time on the clock that they share. When its window is over, each reads its own exchanges with the dialect and
hands back an Arrow table; the raw bytes leave the process only if they are to be recorded.

An actor that dies takes its slots with it, so what is left is not the batch size that was asked for: the point fails with
:class:`LostActor`, nothing of it is used, and the next measurement runs on fresh actors. Ray says that it does not know what
killed a process; which one it was, where, and with what exit is known and told.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from time import monotonic_ns
from typing import Any

import pyarrow as pa

from specsweep.client.dialects import dialect as find_dialect
from specsweep.client.event_loop import new_loop
from specsweep.client.load import KeepAlive, Load, LoadSpec, Sent
from specsweep.client.load_plan import deal, split_slots
from specsweep.client.local_ray import LocalRay, process_runs
from specsweep.client.trace import Exchange, PlannedRequest, PointTrace, RequestTrace, from_table, join_trace, to_table

SLOTS_PER_PROCESS = 64
_START_DELAY_S = 0.1  # from the order to start until the start: longer than any actor takes to hear it
_LOOK_S = 0.5  # how often waiting looks whether the processes are there


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server. ``headers`` go with every request (``Authorization`` …)."""

    base_url: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PointLoad:
    """Everything that the client needs to measure one point."""

    endpoint: Endpoint
    path: str
    dialect: str
    batch_size: int
    requests: Sequence[PlannedRequest]
    draft_length: int | None = None
    stall_s: float = 60.0
    record_raw: bool = False
    processes: int | None = None  # None: default_processes


@dataclass(slots=True)
class PointResult:
    """``raw``: (index, planned request, exchange) in the order of the index, or None if it was not asked for."""

    trace: PointTrace
    raw: list[tuple[int, PlannedRequest, Exchange]] | None = None


class ClientsUnavailable(RuntimeError):
    """No client process can be had, since Ray does not start: nothing can be measured, here or at the next point."""


class LostActor(RuntimeError):
    """A client process ended inside a measurement."""

    def __init__(self, actor: int, node: str, pid: int, fact: str) -> None:
        super().__init__(f"client actor {actor} (pid {pid} on {node}) was lost: {fact}")
        self.actor, self.node, self.pid, self.fact = actor, node, pid, fact


@dataclass(frozen=True, slots=True)
class Member:
    """One actor of the pool."""

    number: int
    node: str
    pid: int
    handle: Any


def default_processes(batch_size: int, max_processes: int = 8) -> int:
    """One process up to batch size 64, then one for each further 64, up to ``max_processes``."""
    return max(1, min(max_processes, ceil(batch_size / SLOTS_PER_PROCESS)))


class ClientPool:
    """The client processes of a sweep. Ray starts with the first measurement (or :meth:`start`) and once only.

    Blocking, and used from one thread at a time; an asyncio program calls it through ``asyncio.to_thread``. Only
    :meth:`abort` may come from another thread.
    """

    def __init__(self, max_processes: int = 8, *, address: str | None = None) -> None:
        if max_processes < 1:
            raise ValueError(f"max_processes={max_processes}: must be at least 1")
        self._max_processes = max_processes
        self._ray = LocalRay(address)
        self._members: list[Member] = []
        self._aborted = False
        self._measuring = threading.Lock()

    @property
    def members(self) -> tuple[Member, ...]:
        """The actors that are there now."""
        return tuple(self._members)

    def start(self, processes: int = 1) -> None:
        """Makes ``processes`` actors ready ahead of time, so that the first point does not wait for Ray.

        Raises :class:`ClientsUnavailable` with Ray's words if it does not start.
        """
        try:
            self._ray.start(num_cpus=max(4, self._max_processes))
        except RuntimeError as error:
            raise ClientsUnavailable(str(error)) from error
        self._grow(processes)

    def measure(self, load: PointLoad) -> PointResult:
        """Runs the closed loop over all actors and returns what they saw.

        Raises :class:`LostActor` if one ended, ``ValueError`` for a load that cannot be split,
        :class:`ClientsUnavailable` if Ray does not start. Failed requests raise nothing; they are rows of the trace.
        """
        with self._measuring:
            self._aborted = False
            return self._measure(load)

    def _measure(self, load: PointLoad) -> PointResult:
        processes = min(load.batch_size, load.processes or default_processes(load.batch_size, self._max_processes))
        slots = split_slots(load.batch_size, processes)
        specs = [_spec(load, actor, size, hand) for actor, (size, hand) in enumerate(zip(slots, deal(load.requests, slots), strict=True))]
        self.start(processes)
        team = self._members[:processes]
        try:
            self._all([m.handle.prepare.remote(spec) for m, spec in zip(team, specs, strict=True)], team)
            start_at_ns = monotonic_ns() + round(_START_DELAY_S * 1e9)
            self._all([m.handle.run.remote(start_at_ns) for m in team], team)
            parts = self._all([m.handle.read.remote(load.dialect, load.draft_length, load.record_raw) for m in team], team)
        except BaseException:  # also an interrupt: actors that may still be sending are of no use to the next point
            self._discard()
            raise
        trace = join_trace([from_table(table) for table, _ in parts])
        trace.meta = {"dialect": load.dialect, "path": load.path, "draft_length": load.draft_length}
        raw = sorted((entry for _, own in parts for entry in own), key=lambda e: e[0]) if load.record_raw else None
        return PointResult(trace, raw)

    def abort(self) -> None:
        """Ends a running :meth:`measure` (in another thread) with :class:`LostActor`."""
        self._aborted = True
        self._discard()

    def close(self) -> None:
        """Ends the actors and our Ray. The pool can be used again afterwards."""
        self._aborted = True
        with self._measuring:  # Ray takes a minute, and the process with it, if it is used while it is shut down
            self._members = []
            self._ray.stop()
        self._aborted = False

    def _grow(self, processes: int) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if any(not process_runs(m.pid) for m in self._members if m.node == platform.node()):
            self._discard()
        # On our own node, because they share its clock. No CPU is reserved: the actors of one sweep never compete with anyone's.
        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        make: Any = ray.remote(ClientActor).options(num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=here)
        first = len(self._members)
        handles = [make.remote(number) for number in range(first, processes)]
        unknown = [Member(first + i, platform.node(), 0, handle) for i, handle in enumerate(handles)]
        for member, (node, pid) in zip(unknown, self._all([h.who.remote() for h in handles], unknown), strict=True):
            self._members.append(Member(member.number, node, pid, member.handle))

    def _all(self, refs: Sequence[Any], team: Sequence[Member]) -> list[Any]:
        """The results of all; raises as soon as one of them is lost, instead of waiting for the others."""
        import ray

        pending = dict(zip(refs, team, strict=True))
        while pending:
            if self._aborted:  # also before the first actor is there, when there is none to kill
                member = next(iter(pending.values()))
                raise LostActor(member.number, member.node, member.pid, "ended by abort()")
            done, _ = ray.wait(list(pending), timeout=_LOOK_S)
            for ref in done:
                member = pending.pop(ref)
                try:
                    ray.get(ref)
                except ray.exceptions.RayActorError as error:
                    fact = "ended by abort()" if self._aborted else exit_fact(str(error))
                    raise LostActor(member.number, member.node, member.pid, fact) from error
            if done:
                continue
            for member in pending.values():  # Ray takes a quarter of a minute to see the death of its own node
                if not self._ray.alive:
                    raise LostActor(member.number, member.node, member.pid, "its Ray node died (raylet or gcs_server is gone)")
                if member.pid and member.node == platform.node() and not process_runs(member.pid):
                    raise LostActor(member.number, member.node, member.pid, "its process is gone, and Ray has not said why")
        return list(ray.get(list(refs)))

    def _discard(self) -> None:
        import ray

        members, self._members = self._members, []
        for member in members if self._ray.alive else ():  # what a dead Ray left is ended when it is started again
            ray.kill(member.handle, no_restart=True)


class ClientActor:
    """The body of one actor; plain Python, so that tests run it without Ray."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._runner = asyncio.Runner(loop_factory=new_loop)
        self._load: Load | None = None
        self._keep_alive: dict[str, KeepAlive] = {}  # by base URL: what one point learnt of a server serves the next
        self._result: tuple[list[Sent], PointTrace] | None = None

    def who(self) -> tuple[str, int]:
        return platform.node(), os.getpid()

    def prepare(self, spec: LoadSpec) -> int:
        """Opens the connections; returns how many are open."""
        self._result = None
        self._load = Load(spec, self._keep_alive.setdefault(spec.base_url, KeepAlive()))
        return self._runner.run(self._load.prepare())

    def run(self, start_at_ns: int) -> None:
        """The window. Nothing is returned, so that nothing is serialised while other actors may still measure."""
        if self._load is None:
            raise RuntimeError("run before prepare")
        sent, report = self._runner.run(self._load.run(start_at_ns))
        self._load = None
        self._result = sent, PointTrace(report.slots, [], [report])

    def read(self, dialect: str, draft_length: int | None, keep_raw: bool) -> tuple[pa.Table, list[tuple[int, PlannedRequest, Exchange]]]:
        """The exchanges of the window as a trace table, and themselves if they are wanted."""
        if self._result is None:
            raise RuntimeError("read before run")
        (sent, trace), self._result = self._result, None
        trace.requests = read_sent(sent, actor=self._number, dialect=dialect, draft_length=draft_length)
        return to_table(trace), [(s.planned.index, s.planned, s.exchange) for s in sent] if keep_raw else []


def read_sent(sent: Sequence[Sent], *, actor: int, dialect: str, draft_length: int | None) -> list[RequestTrace]:
    """Rows of a trace: each exchange as the dialect reads it."""
    wire = find_dialect(dialect)
    rows = []
    for s in sent:
        planned, exchange = s.planned, s.exchange
        rows.append(
            RequestTrace(
                index=planned.index,
                prompt_id=planned.prompt_id,
                conversation_id=planned.conversation_id,
                turn=planned.turn,
                category=planned.category,
                phase=planned.phase,
                pass_index=planned.pass_index,
                n_prompt=planned.n_prompt,
                max_tokens=planned.max_tokens,
                actor=actor,
                slot=s.slot,
                t_send_ns=exchange.t_send_ns,
                t_end_ns=exchange.t_end_ns,
                connect_ns=exchange.connect_ns,
                attempts=exchange.attempts,
                ended=exchange.ended,
                read=wire.read(exchange, draft_length=draft_length, n_prompt=planned.n_prompt if wire.takes_ids else None),
            )
        )
    return rows


def exit_fact(ray_message: str) -> str:
    """What Ray knows of the end of a process, without its list of guesses."""
    found = re.search(r"Worker exit type: (\S+) Worker exit detail: (.*?)(?: Some common causes|\n|$)", ray_message)
    if found:
        return f"{found[1]}: {found[2].strip()}"
    return next((line.strip() for line in reversed(ray_message.splitlines()) if line.strip()), "no reason was given")


def _spec(load: PointLoad, actor: int, slots: int, requests: Sequence[PlannedRequest]) -> LoadSpec:
    return LoadSpec(load.endpoint.base_url, load.path, load.endpoint.headers, slots, requests, load.stall_s, actor=actor)
