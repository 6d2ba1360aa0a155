"""The body of one client process: a closed loop, and its own reading of what it exchanged.

Plain Python that knows nothing of Ray, so that tests run it as it is. When its window is over it reads its exchanges with the dialect
and hands back an Arrow table; the raw bytes leave the process only if they are to be recorded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

import pyarrow as pa

from specsweep.client.dialects import dialect as find_dialect
from specsweep.client.event_loop import new_loop
from specsweep.client.host import Host, this_host
from specsweep.client.load import KeepAlive, Load, LoadSpec, Sent, new_worker
from specsweep.client.trace import Exchange, PlannedRequest, PointTrace, RequestTrace, to_table

if TYPE_CHECKING:
    from specsweep.client.turn_worker import TurnWorker


class ClientActor:
    def __init__(self, number: int) -> None:
        self._number = number
        self._runner = asyncio.Runner(loop_factory=new_loop)
        self._load: Load | None = None
        self._keep_alive: dict[str, KeepAlive] = {}  # by base URL: what one point learnt of a server serves the next
        self._worker: TurnWorker | None = None  # from the first conversation on; it ends with this process
        self._result: tuple[list[Sent], PointTrace] | None = None

    def who(self) -> tuple[Host, int]:
        """Its host and its process id."""
        return this_host(), os.getpid()

    def clock_ns(self) -> int:
        """CLOCK_MONOTONIC, on which it stamps."""
        return monotonic_ns()

    def prepare(self, spec: LoadSpec) -> int:
        """Opens the connections; returns how many are open. Raises ``WorkloadError`` if later turns cannot be prepared on this host."""
        self._result = None
        if spec.has_conversations and self._worker is None:
            self._worker = new_worker()
        self._load = Load(spec, self._keep_alive.setdefault(spec.base_url, KeepAlive()), self._worker if spec.has_conversations else None)
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
                sub_category=planned.sub_category,
                difficulty=planned.difficulty,
                source=planned.source,
                isl_o200k=planned.isl_o200k,
                isl_target=planned.isl_target,
                padding_share=planned.padding_share,
                repeated_share=planned.repeated_share,
                gap_ns=exchange.gap_ns,
                retried=exchange.retried,
                read=wire.read(exchange, draft_length=draft_length, n_prompt=planned.n_prompt if wire.takes_ids else None),
            )
        )
    return rows
