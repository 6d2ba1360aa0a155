"""The simulated server without sockets and in virtual time: real connections and service, fake transports and clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from specsweep.client.sim.server import Connection
from specsweep.client.sim.service import Service
from specsweep.client.sim.service_settings import read_service
from specsweep.client.sim.truth import TrueRequest, TruthLog
from specsweep.client.trace import Exchange
from specsweep.client.wire import split_head

UNIX_NS = 1_796_000_000_000_000_000


@dataclass
class Clock:
    now_ns: int = 1_000_000_000_000
    due_ns: int | None = None
    callback: Callable[[], None] | None = None

    def timer(self, callback: Callable[[], None]) -> Clock:
        self.callback = callback
        return self

    def at(self, t_ns: int) -> None:
        self.due_ns = t_ns

    def fire(self) -> bool:
        """Jumps to the next time that something is due. False if nothing is."""
        if self.due_ns is None:
            return False
        self.now_ns, self.due_ns = max(self.now_ns, self.due_ns), None
        assert self.callback is not None
        self.callback()
        return True


@dataclass
class Transport:
    """What the server wrote, write by write."""

    clock: Clock
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    ended: str = ""  # closed | reset

    def write(self, data: bytes) -> None:
        assert not self.ended, "a write after the end"
        self.writes.append((self.clock.now_ns, bytes(data)))

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or "reset"

    def is_closing(self) -> bool:
        return bool(self.ended)


class MemoryLog(TruthLog):
    def __init__(self) -> None:
        super().__init__(None, {})
        self.requests: list[TrueRequest] = []

    def add(self, request: TrueRequest) -> None:
        self.requests.append(request)


@dataclass
class Call:
    """One request on a connection of its own."""

    transport: Transport
    connection: Connection
    sent_ns: int

    @property
    def raw(self) -> bytes:
        return b"".join(data for _, data in self.transport.writes)

    def exchange(self) -> Exchange:
        """As the client would have recorded it, every write a read."""
        head = split_head(self.transport.writes)
        ended = {"closed": "eof", "reset": "reset", "": "stalled"}[self.transport.ended]
        return Exchange(self.sent_ns, head.status, head.headers, head.reads, ended)


class Simulation:
    """A simulated server with the given settings; the tiny model unless they name another."""

    def __init__(
        self, categories: Mapping[str, str] | None = None, *, soon: Callable[[Callable[[], None]], object] | None = None, **settings: Any
    ) -> None:
        self.clock = Clock()
        self.log = MemoryLog()
        self.deaths: list[bool] = []
        self.settings = read_service({"model": "tiny", "model_name": "m", **settings}, folder=Path())
        self.service = Service(
            self.settings,
            timer=self.clock.timer,
            clock_ns=lambda: self.clock.now_ns,
            unix_ns=UNIX_NS - self.clock.now_ns,
            log=self.log,
            categories=categories,
            died=self.deaths.append,
            soon=soon,
        )
        loop = SimpleNamespace(call_later=lambda delay, callback: SimpleNamespace(cancel=lambda: None))
        self._host: Any = SimpleNamespace(
            service=self.service, loop=loop, loading=False, connections=set(), date=lambda: "Mon, 30 Nov 2026 03:08:52 GMT"
        )

    def send(self, method: str, path: str, body: bytes = b"", *, close: bool = True) -> Call:
        transport = Transport(self.clock)
        connection = Connection(self._host)
        connection.connection_made(transport)  # type: ignore[arg-type]
        fields = f"Host: x\r\nContent-Length: {len(body)}\r\n" + ("Connection: close\r\n" if close else "")
        call = Call(transport, connection, self.clock.now_ns)
        connection.data_received(f"{method} {path} HTTP/1.1\r\n{fields}\r\n".encode() + body)
        return call

    def post(self, body: Any, *, close: bool = True) -> Call:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", self.service.wire.path, data, close=close)

    def run(self, steps: int = 100_000) -> None:
        """Until nothing is to be done, or for so many steps."""
        while steps and not self.deaths and self.clock.fire():
            steps -= 1

    def get(self, path: str) -> tuple[int, bytes]:
        call = self.send("GET", path)
        head, _, body = call.raw.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def page(self) -> str:
        return self.get(self.service.wire.metrics_path)[1].decode()
