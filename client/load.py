"""The closed loop of one client process: exactly ``slots`` requests in flight until there are none left to start.

A slot is a coroutine with a connection of its own. It takes the next planned request, sends it, waits for its end, and takes
the next; so the number in flight is a property of the structure and not of a counter. A conversation of several turns stays in its
slot to the end: between two turns another process (:mod:`specsweep.client.turn_worker`) makes the next request of the answer, and the slot
only waits for it. The gap is recorded with the request. A turn that fails ends its conversation; those that would have followed are
recorded as not sent. Without that process no conversation goes on, so its end is that of the load.

Nothing here parses, encodes or decides while requests are in flight. Connections (TCP and TLS) are opened before the common
start, request bodies are complete, the garbage collector rests, and heads are split when the window is over. A failing request
never ends the loop. A dead server does: when connections are refused several times in a row for every slot, the rest is
recorded as not sent, instead of burning through the plan at the speed of refusals. Where a sweep asks for retries, a request that fails
before its first token is sent again (:mod:`specsweep.client.retry`), and carries how each failed try ended.

To use a connection again saves its set-up, and is a bet that the server does not close it just as the next request is on its way.
llama-server closes nearly every one after a stream, and no header says so. So the bets are counted: while most were won, a
request that fell into such a gap is sent once more, and says so; once most were lost, every request gets a connection of its
own. A server that announces the end is believed. The set-up lies before the time of sending, so no latency holds it; how long it
took stands beside each request.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
import ssl
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING

from specsweep.client.lag import Lag, LagProbe
from specsweep.client.protocol import Address, Answer, Connection, connect, parse_base_url, request_head
from specsweep.client.retry import pause_s, transient
from specsweep.client.trace import ActorReport, Exchange, PlannedRequest
from specsweep.client.wire import split_head

if TYPE_CHECKING:  # loaded where there are later turns, not by clients of single turns
    from specsweep.client.conversation import ChatRecipe
    from specsweep.client.turn_worker import TurnWorker

_CONNECTS_AT_ONCE = 64  # below the usual listen backlog of 100: a dropped SYN costs a second
_REFUSED_PAUSE_S = 0.05
_REFUSALS_PER_SLOT = 3


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """What one process sends, and how. Times are seconds."""

    base_url: str
    path: str
    headers: tuple[tuple[str, str], ...]
    slots: int
    requests: Sequence[PlannedRequest]
    stall_s: float  # no byte for so long ends a request (this bounds the time to the first byte too)
    actor: int = 0
    connect_timeout_s: float = 10.0
    lag_period_s: float = 0.005
    chat: ChatRecipe | None = None  # how later turns are made; needed if a request has any
    retries: int = 0  # of a request that fails before its first token; 0: a failure is a result

    @property
    def has_conversations(self) -> bool:
        return any(planned.turns for planned in self.requests)


@dataclass(frozen=True, slots=True)
class Sent:
    """A planned request, the slot that sent it, and what came of it."""

    planned: PlannedRequest
    slot: int
    exchange: Exchange


@dataclass(slots=True)
class KeepAlive:
    """How often a server did, and did not, answer on a connection that had already carried an answer."""

    answered: int = 0
    dropped: int = 0

    @property
    def trusted(self) -> bool:
        return self.dropped == 0 or self.dropped < self.answered


@dataclass(slots=True)
class _Outcome:
    """An answer before its head is split."""

    planned: PlannedRequest
    slot: int
    answer: Answer
    connect_ns: int
    attempts: int
    gap_ns: int = 0
    retried: tuple[str, ...] = ()
    t_first_ns: int = 0  # when it was sent for the first time, if it was sent again


class Load:
    """One closed loop: :meth:`prepare` opens the connections, :meth:`run` sends everything once and reports.

    ``keep_alive``: what earlier loads found out about this server, and what this one adds. ``worker``: makes the requests of later turns.
    """

    def __init__(self, spec: LoadSpec, keep_alive: KeepAlive | None = None, worker: TurnWorker | None = None) -> None:
        if spec.slots < 1:
            raise ValueError(f"slots={spec.slots}: must be at least 1")
        if spec.stall_s <= 0:
            raise ValueError(f"stall_s={spec.stall_s}: must be positive")
        if spec.has_conversations and (spec.chat is None or worker is None):
            raise ValueError("requests hold conversations of several turns, which need a recipe (chat) and a worker that follows it")
        self._spec = spec
        self._address = parse_base_url(spec.base_url)
        self._tls = tls_context(self._address)
        self._queue = deque(spec.requests)
        self._slots = [_Slot(n) for n in range(spec.slots)]
        self._outcomes: list[_Outcome] = []
        self._t_queue_empty_ns = 0
        self._connections = 0
        self._keep_alive = KeepAlive() if keep_alive is None else keep_alive
        self._worker = worker
        self._refused_in_a_row = 0
        self._given_up = ""  # why nothing more is sent

    async def prepare(self) -> int:
        """Opens one connection a slot; returns how many could be opened. One that could not is tried again when it is needed.

        With conversations of several turns the worker is made ready first; raises what :meth:`TurnWorker.begin` does.
        """
        if self._worker is not None and self._spec.chat is not None and self._spec.has_conversations:
            await self._worker.begin(self._spec.chat, self._spec.requests)
        at_once = asyncio.Semaphore(_CONNECTS_AT_ONCE)

        async def open_one(slot: _Slot) -> None:
            async with at_once:
                await self._connect(slot)

        await asyncio.gather(*(open_one(slot) for slot in self._slots))
        self._refused_in_a_row = 0
        return sum(slot.connection is not None for slot in self._slots)

    async def run(self, start_at_ns: int = 0) -> tuple[list[Sent], ActorReport]:
        """Sends from ``start_at_ns`` (CLOCK_MONOTONIC; past: at once) on, and returns when every request has ended.

        Raises :class:`~specsweep.client.turn_worker.WorkerLost`; what was sent by then is no measurement.
        """
        probe = LagProbe(self._spec.lag_period_s)
        with _collector_at_rest():
            await asyncio.sleep(max(0, start_at_ns - monotonic_ns()) / 1e9)
            watch = asyncio.create_task(self._watch_stalls())
            started_ns, cpu_s, worker_s = monotonic_ns(), _cpu_s(), self._worker_s
            probe.start()
            slots = [asyncio.create_task(self._run_slot(slot)) for slot in self._slots]
            try:
                await asyncio.gather(*slots)
            finally:
                for task in slots:  # that are left if one raised
                    task.cancel()
                lag = probe.stop()
                watch.cancel()
                self._close()
            wall_s, cpu_s = (monotonic_ns() - started_ns) / 1e9, _cpu_s() - cpu_s
        return self._sent(), self._report(started_ns, wall_s, cpu_s, self._worker_s - worker_s, lag)

    # -- in the window

    async def _run_slot(self, slot: _Slot) -> None:
        spec = self._spec
        while (planned := self._next()) is not None:
            head = request_head(self._address, spec.path, spec.headers, len(planned.body))
            outcome = await self._exchange(slot, planned, head + planned.body)
            self._outcomes.append(outcome)
            if planned.turns:
                await self._run_later_turns(slot, outcome)

    async def _run_later_turns(self, slot: _Slot, last: _Outcome) -> None:
        spec, first, worker = self._spec, last.planned, self._worker
        assert spec.chat is not None
        assert worker is not None
        for turn in range(1, len(first.turns) + 1):
            made = await worker.next_turn(first, turn, last.planned.n_prompt, last.answer)
            if isinstance(made, str):
                return self._leave_out(first, turn, slot.number, made)
            n_prompt, body = made
            later = first.later(turn, n_prompt=n_prompt, max_tokens=spec.chat.sampling.max_tokens, body=body)
            head = request_head(self._address, spec.path, spec.headers, len(body))
            ended_ns = last.answer.t_end_ns
            last = await self._exchange(slot, later, head + body)
            last.gap_ns = (last.t_first_ns or last.answer.t_send_ns) - ended_ns
            self._outcomes.append(last)

    def _leave_out(self, first: PlannedRequest, turn: int, slot: int, why: str) -> None:
        """Records ``turn`` and all after it as not sent. ``why``: how an unsent exchange ended."""
        now, max_tokens = monotonic_ns(), first.max_tokens if self._spec.chat is None else self._spec.chat.sampling.max_tokens
        for left in range(turn, len(first.turns) + 1):
            planned = first.later(left, n_prompt=-1, max_tokens=max_tokens, body=b"")
            ended = why if left == turn else f"not_sent: turn {left - 1} of this conversation was not sent"
            self._outcomes.append(_Outcome(planned, slot, Answer(now, now, [], ended), 0, 0))

    def _next(self) -> PlannedRequest | None:
        if self._given_up or not self._queue:
            return None
        planned = self._queue.popleft()
        if not self._queue:
            self._t_queue_empty_ns = monotonic_ns()
        return planned

    async def _exchange(self, slot: _Slot, planned: PlannedRequest, request: bytes) -> _Outcome:
        """Never raises for anything that a server or a network can do."""
        outcome = await self._try(slot, planned, request)
        first_ns = outcome.answer.t_send_ns
        while len(outcome.retried) < self._spec.retries and not self._given_up and (why := transient(outcome.answer)):
            retried = (*outcome.retried, why)
            await asyncio.sleep(pause_s(len(retried)))
            outcome = await self._try(slot, planned, request)
            outcome.retried, outcome.t_first_ns = retried, first_ns
        return outcome

    async def _try(self, slot: _Slot, planned: PlannedRequest, request: bytes) -> _Outcome:
        for attempt in (1, 2):
            open_already = slot.connection is not None and slot.connection.reusable and (not slot.used or self._keep_alive.trusted)
            if not open_already:
                refusal = await self._connect(slot)
                if refusal:
                    now = monotonic_ns()
                    await self._refused(refusal)
                    return _Outcome(planned, slot.number, Answer(now, now, [], f"connect: {refusal}"), 0, attempt)
            connection = slot.connection
            assert connection is not None
            used_before, slot.used = slot.used, True
            answer = await connection.send(request)
            dropped = open_already and not answer.reads and answer.ended in ("eof", "reset")
            if used_before:
                self._keep_alive.answered += bool(answer.reads)
                self._keep_alive.dropped += dropped
            # Only here may a request be sent twice: the server closed a connection that lay open while our request was on its
            # way to it, so it cannot have begun to answer. Anything else that fails is a result.
            if not dropped:
                break
        return _Outcome(planned, slot.number, answer, slot.take_connect_ns(), attempt)

    async def _connect(self, slot: _Slot) -> str:
        """Gives the slot a new connection; returns why it could not, or ""."""
        if slot.connection is not None:
            slot.connection.abort()
        slot.connection, slot.connect_ns, slot.used = None, 0, False
        try:
            slot.connection, slot.connect_ns = await connect(self._address, tls=self._tls, timeout_s=self._spec.connect_timeout_s)
        except OSError as error:
            return _words(error, self._spec.connect_timeout_s)
        self._connections += 1
        self._refused_in_a_row = 0
        return ""

    async def _refused(self, refusal: str) -> None:
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= _REFUSALS_PER_SLOT * self._spec.slots:
            self._given_up = f"not sent: {self._refused_in_a_row} connections in a row failed, the last one with: {refusal}"
        await asyncio.sleep(_REFUSED_PAUSE_S)

    async def _watch_stalls(self) -> None:
        stall_ns = self._spec.stall_s * 1e9
        while True:
            await asyncio.sleep(min(1.0, self._spec.stall_s / 4))
            now = monotonic_ns()
            for slot in self._slots:
                if slot.connection is not None and slot.connection.busy and now - slot.connection.last_ns > stall_ns:
                    slot.connection.end("stalled")

    def _close(self) -> None:
        for slot in self._slots:
            if slot.connection is not None:
                slot.connection.abort()

    # -- after the window

    def _sent(self) -> list[Sent]:
        for planned in self._queue:
            now = monotonic_ns()
            self._outcomes.append(_Outcome(planned, -1, Answer(now, now, [], f"connect: {self._given_up}"), 0, 0))
            self._leave_out(planned, 1, -1, "not_sent: turn 0 of this conversation was not sent")
        self._queue.clear()
        return [Sent(o.planned, o.slot, _exchange_of(o)) for o in self._outcomes]

    @property
    def _worker_s(self) -> float:
        return 0.0 if self._worker is None else self._worker.cpu_s

    def _report(self, started_ns: int, wall_s: float, cpu_s: float, worker_cpu_s: float, lag: Lag) -> ActorReport:
        return ActorReport(
            actor=self._spec.actor,
            host=platform.node(),
            pid=os.getpid(),
            slots=self._spec.slots,
            t_start_ns=started_ns,
            t_queue_empty_ns=self._t_queue_empty_ns or monotonic_ns(),
            wall_s=wall_s,
            cpu_s=cpu_s,
            lag_ms_p50=lag.p50_ms,
            lag_ms_p99=lag.p99_ms,
            lag_ms_max=lag.max_ms,
            lag_samples=lag.samples,
            connections=self._connections,
            retries=sum(o.attempts == 2 for o in self._outcomes),
            worker_cpu_s=worker_cpu_s,
        )


@dataclass(slots=True)
class _Slot:
    number: int
    connection: Connection | None = None
    used: bool = False  # the present connection has carried a request
    connect_ns: int = 0  # of the present connection, until its first request has taken it

    def take_connect_ns(self) -> int:
        spent, self.connect_ns = self.connect_ns, 0
        return spent


async def run_load(spec: LoadSpec, start_at_ns: int = 0) -> tuple[list[Sent], ActorReport]:
    """:class:`Load` in one go: connections first, then everything that is planned."""
    worker = new_worker() if spec.has_conversations else None
    load = Load(spec, worker=worker)
    try:
        await load.prepare()
        return await load.run(start_at_ns)
    finally:
        if worker is not None:
            worker.close()


def new_worker() -> TurnWorker:
    """The process itself starts as it is first made ready for a load."""
    from specsweep.client.turn_worker import TurnWorker  # with tokenizers behind it: not for clients of single turns

    return TurnWorker()


def tls_context(address: Address) -> ssl.SSLContext | None:
    """The system's trust store. A private authority is added the usual way, by ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``."""
    return ssl.create_default_context() if address.tls else None


def _exchange_of(outcome: _Outcome) -> Exchange:
    answer = outcome.answer
    head = split_head(answer.reads)
    return Exchange(
        t_send_ns=answer.t_send_ns,
        status=head.status,
        headers=head.headers,
        reads=head.reads,
        ended=answer.ended,
        t_end_ns=answer.t_end_ns,
        connect_ns=outcome.connect_ns,
        attempts=outcome.attempts,
        gap_ns=outcome.gap_ns,
        retried=list(outcome.retried),
    )


def _words(error: OSError, timeout_s: float) -> str:
    if isinstance(error, TimeoutError) and not error.args:
        return f"no connection within {timeout_s:g} s"
    return f"{type(error).__name__}: {error}"


def _cpu_s() -> float:
    """User and system seconds of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """No collection in the window: one over a million stamped reads holds the loop for a tenth of a second.

    Nothing is lost by it, since reads, tuples and bytes form no cycles.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.unfreeze()
