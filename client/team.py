"""A team of client processes: one closed loop each, together exactly one batch size.

Slots are split as evenly as they go, requests in proportion. All actors open their connections first and then get one start
time, each on its own clock; their stamps come back onto one time line (:mod:`specsweep.client.clock`). When its window is over, each
reads its own exchanges and hands back an Arrow table.

An actor that dies takes its slots with it, so what is left is not the batch size that was asked for: the point fails with
:class:`LostActor`, nothing of it is used, and the next measurement runs on fresh actors. No other team feels it. Ray says that it
does not know what killed a process; which one it was, where, and with what exit is known and told.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Self

from specsweep.client.actor import ClientActor
from specsweep.client.clock import translate, translate_exchange
from specsweep.client.host import Host, this_host
from specsweep.client.load import LoadSpec
from specsweep.client.load_plan import deal, split_slots
from specsweep.client.local_ray import process_runs
from specsweep.client.point_load import PointLoad, PointResult
from specsweep.client.team_clocks import Clocks
from specsweep.client.trace import PlannedRequest, from_table, join_trace
from specsweep.client.turn_worker import WorkerLost
from specsweep.client.workload.errors import WorkloadError

if TYPE_CHECKING:
    from specsweep.client.actors import ClientPool

_START_DELAY_S = 0.1  # from the order to start until the start: longer than any actor takes to hear it
_TRIES = 3  # to make the actors of a team
_LOOK_S = 0.5  # how often waiting looks whether the processes are there


class ClientsUnavailable(RuntimeError):
    """No client process can be had (Ray does not start, no node fits): nothing can be measured, here or at the next point."""


class LostActor(RuntimeError):
    """A client process, or the one beside it that prepares later turns, ended inside a measurement."""

    def __init__(self, actor: int, node: str, pid: int, fact: str) -> None:
        super().__init__(f"client actor {actor} (pid {pid} on {node}) was lost: {fact}")
        self.actor, self.node, self.pid, self.fact = actor, node, pid, fact


@dataclass(frozen=True, slots=True)
class Member:
    """One actor of a team. ``host`` None: it has not answered yet."""

    number: int
    node: str  # name of its host
    pid: int
    handle: Any
    node_id: str
    host: Host | None = None


class Team:
    """Client processes that measure one point at a time. They stay for the next one.

    Blocking, and used from one thread at a time; an asyncio program calls it through ``asyncio.to_thread``. Only :meth:`abort` and
    :meth:`close` may come from another thread.
    """

    def __init__(self, pool: ClientPool) -> None:
        self._pool = pool
        self._members: list[Member] = []
        self.placed: list[str] = []  # node ids of the members, and of those that are being made
        self._epoch = 0  # of the Ray that the members belong to
        self._aborted = False
        self._closed = False
        self._measuring = threading.Lock()
        self._roster = threading.Lock()  # of the members: they are discarded by other threads, too

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def members(self) -> tuple[Member, ...]:
        """The actors that are there now."""
        return tuple(self._members)

    def start(self, processes: int = 1) -> None:
        """Makes ``processes`` actors ready ahead of time. Raises as :meth:`measure`."""
        with self._measuring, self._using():
            self._grow(processes)

    def measure(self, load: PointLoad) -> PointResult:
        """Runs the closed loop over all actors and returns what they saw, on the time line of this host's CLOCK_MONOTONIC.

        Raises :class:`LostActor` if one ended, ``ValueError`` for a load that cannot be split, :class:`ClientsUnavailable` if Ray does
        not start or a node runs other versions, ``WorkloadError`` if later turns cannot be prepared on a client's host. Failed requests
        raise nothing; they are rows of the trace.
        """
        with self._measuring:
            processes = self._pool.processes(load.batch_size, load.processes)
            with self._using():
                return self._measure(load, processes)

    def abort(self) -> None:
        """Ends a running :meth:`measure` (in another thread) with :class:`LostActor`."""
        self._aborted = True
        self._discard()

    def close(self) -> None:
        """Ends the actors; a running :meth:`measure` ends with :class:`LostActor`. Safe to call again."""
        self._closed = True
        with self._measuring:
            self._discard()
        self._pool.forget(self)

    @contextmanager
    def _using(self) -> Iterator[None]:
        if self._closed:
            raise RuntimeError("this team of client processes is closed")
        self._aborted = False
        with self._pool.using() as epoch:
            if epoch != self._epoch:  # Ray was started again meanwhile: what these handles name is gone
                self._epoch, self._members, self.placed = epoch, [], []
            yield

    def _measure(self, load: PointLoad, processes: int) -> PointResult:
        slots = split_slots(load.batch_size, processes)
        specs = [_spec(load, actor, size, hand) for actor, (size, hand) in enumerate(zip(slots, deal(load.requests, slots), strict=True))]
        self._grow(processes)
        team = self._members[:processes]
        try:
            self._all([m.handle.prepare.remote(spec) for m, spec in zip(team, specs, strict=True)], team)
            clocks = Clocks.found(team, [m.host or this_host() for m in team], this_host(), self._clock_of)
            before = clocks.read()
            starts = clocks.starts(monotonic_ns() + round(_START_DELAY_S * 1e9), before)
            self._all([m.handle.run.remote(start) for m, start in zip(team, starts, strict=True)], team)
            lines = clocks.lines(before, clocks.read())
            parts = self._all([m.handle.read.remote(load.dialect, load.draft_length, load.record_raw) for m in team], team)
        except BaseException:  # also an interrupt: actors that may still be sending are of no use to the next point
            self._discard()
            raise
        traces = [from_table(table) for table, _ in parts]
        trace = join_trace([t if line is None else translate(t, line[1], line[0]) for t, line in zip(traces, lines, strict=True)])
        trace.meta = {"dialect": load.dialect, "path": load.path, "draft_length": load.draft_length}
        raw = [
            (index, planned, exchange if line is None else translate_exchange(exchange, line[1]))
            for (_, own), line in zip(parts, lines, strict=True)
            for index, planned, exchange in own
        ]
        return PointResult(trace, sorted(raw, key=lambda e: e[0]) if load.record_raw else None)

    def _clock_of(self, member: Member) -> int:
        return int(self._all([member.handle.clock_ns.remote()], [member])[0])

    def _grow(self, processes: int) -> None:
        """Until there are as many members. An actor that never ran has cost no measurement: what is left of the cluster is asked again.

        A node that died is offered by Ray for half a minute, until its silence is noticed; so the clients that replace those that died
        with it may be sent to it once more.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._recruit(processes)
            except LostActor as lost:
                if lost.pid or self._ended or not self._pool.ray.alive or not tries_left:
                    raise

    def _recruit(self, processes: int) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if any(_gone(m) for m in self._members):
            self._discard()
        first = len(self._members)
        nodes = self._pool.recruit(self, max(0, processes - first))
        body: Any = ray.remote(ClientActor)
        new = []
        for number, node in enumerate(nodes, first):
            there = NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
            # No CPU is reserved: the actors of one sweep never compete with anyone's.
            made = body.options(num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=there).remote(number)
            new.append(Member(number, node.name, 0, made, node.node_id))
        known = self._members[:]
        self._members = known + new
        try:
            answers = self._all([m.handle.who.remote() for m in new], new)
            for node, member, (found, pid) in zip(nodes, new, answers, strict=True):
                if unlike := this_host().unlike(found):
                    raise ClientsUnavailable(
                        f"Ray node {node.name} ({node.address}) runs {unlike}; every node must run the image that the sweep runs"
                    )
                known.append(Member(member.number, found.name, pid, member.handle, member.node_id, found))
            with self._roster:
                if self._ended:
                    raise _lost(known[-1], "ended by abort()")
                self._members = known
        except BaseException:
            self._discard()
            raise

    def _all(self, refs: Sequence[Any], team: Sequence[Member]) -> list[Any]:
        """The results of all; raises as soon as one of them is lost, instead of waiting for the others."""
        import ray

        pending, results = dict(zip(refs, team, strict=True)), {}
        while pending:
            if self._ended:  # also before the first actor is there, when there is none to kill
                raise _lost(next(iter(pending.values())), "ended by abort()")
            done, _ = ray.wait(list(pending), timeout=_LOOK_S)
            for ref in done:
                member = pending.pop(ref)
                try:
                    results[ref] = ray.get(ref)
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, WorkloadError):  # what the user can mend, without the actor's traceback
                        raise error.cause from None
                    if isinstance(error.cause, WorkerLost):
                        raise _lost(member, str(error.cause)) from None
                    raise
                except (ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError) as error:
                    raise _lost(member, "ended by abort()" if self._ended else exit_fact(str(error))) from error
            if done:
                continue
            for member in pending.values():  # Ray takes a quarter of a minute to see the death of its own node
                if not self._pool.ray.alive:
                    raise _lost(member, "its Ray node died (raylet or gcs_server is gone)")
                if _gone(member):
                    raise _lost(member, "its process is gone, and Ray has not said why")
        return [results[ref] for ref in refs]

    @property
    def _ended(self) -> bool:
        return self._aborted or self._closed

    def _discard(self) -> None:
        with self._roster:
            members, self._members, self.placed = self._members, [], []
        if not members:
            return
        import ray

        with self._pool.ray.use_if_alive() as epoch:  # what a dead Ray left is ended when it is started again
            for member in members if epoch == self._epoch else ():
                ray.kill(member.handle, no_restart=True)


def exit_fact(ray_message: str) -> str:
    """What Ray knows of the end of a process, without its list of guesses."""
    found = re.search(r"Worker exit type: (\S+) Worker exit detail: (.*?)(?: Some common causes|\n|$)", ray_message)
    if found:
        return f"{found[1]}: {found[2].strip()}"
    return next((line.strip() for line in reversed(ray_message.splitlines()) if line.strip()), "no reason was given")


def _lost(member: Member, fact: str) -> LostActor:
    return LostActor(member.number, member.node, member.pid, fact)


def _gone(member: Member) -> bool:
    """Whether its process is seen to be gone; False where it cannot be seen."""
    return member.host is not None and member.host.shares_processes(this_host()) and not process_runs(member.pid)


def _spec(load: PointLoad, actor: int, slots: int, requests: Sequence[PlannedRequest]) -> LoadSpec:
    return LoadSpec(
        load.endpoint.base_url,
        load.path,
        load.endpoint.headers,
        slots,
        requests,
        load.stall_s,
        actor=actor,
        chat=load.chat,
        retries=load.retries,
    )
