"""The process of a simulated engine: ``python -m specsweep.client.sim.server SETTINGS.json PORT [HOST]``.

A raw asyncio protocol, uvloop where it is installed. It speaks HTTP/1.1 as far as the engines' servers do: one request after the other
on a connection, bodies by Content-Length, streams chunked with one chunk an event, all chunks of a step in one write. What the answer
says is the wire's business (:mod:`specsweep.client.sim.wire`), when it leaves is the service's.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from importlib import import_module
from pathlib import Path
from typing import cast

from specsweep.client.sim.service import Service
from specsweep.client.sim.service_settings import ServiceSettings, read_service
from specsweep.client.sim.settings import ModelError
from specsweep.client.sim.ticker import Ticker
from specsweep.client.sim.truth import TruthLog
from specsweep.client.sim.wire import ABOUT_PATH, Refusal, compact

IDLE_S = 5.0  # uvicorn's and cpp-httplib's patience with a kept connection
MAX_HEAD = 65_536


class Connection(asyncio.Protocol):
    """One client connection; the sink of the one answer that it waits for."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._service = host.service
        self._wire = host.service.wire
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._pending: int | None = None  # the request that is being answered
        self._answering = False
        self._streaming = False
        self._close_wanted = False
        self._idle: asyncio.TimerHandle | None = None

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._host.connections.add(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._host.connections.discard(self)
        self._stop_waiting()
        if self._pending is not None:
            self._service.abandon(self._pending)
            self._pending = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._answering:
            self._next()

    # --- the sink

    def refuse(self, refusal: Refusal) -> None:
        if refusal.cut or refusal.events:
            self.open(stream=True)
            if refusal.cut:
                self.abort(orderly=True)
            else:
                self.send(list(refusal.events), last=True)
        else:
            self._respond(refusal.status, refusal.body, "")

    def open(self, *, stream: bool) -> None:
        self._streaming = stream
        if stream:
            self._write(self._wire.head(stream=True, status=200, length=0, close=self._close_wanted, date=self._host.date()))

    def send(self, events: list[bytes], *, last: bool) -> None:
        if not self._streaming:
            self._respond(200, b"".join(events), "")
            return
        pieces = [piece for event in events for piece in (b"%x\r\n" % len(event), event, b"\r\n")]
        if last:
            pieces += self._wire.last_chunk
        self._write(b"".join(pieces))
        if last:
            self._done(keep=self._wire.keeps_connections)

    def abort(self, *, orderly: bool) -> None:
        self._pending = None
        if self._transport is not None:
            if orderly:
                self._transport.close()
            else:
                self._transport.abort()

    # --- requests

    def _next(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                self.abort(orderly=True)
            return
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        words = lines[0].split(" ")
        length = fields.get("content-length", "0")
        if len(words) != 3 or not length.isdecimal() or "transfer-encoding" in fields:
            self._close_wanted = True
            self._answering = True
            self._respond(400, b"Invalid HTTP request received.", "text/plain; charset=utf-8")
            return
        if len(self._buffer) < end + 4 + int(length):
            if fields.get("expect", "").lower() == "100-continue" and len(self._buffer) == end + 4:
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = bytes(self._buffer[end + 4 : end + 4 + int(length)])
        del self._buffer[: end + 4 + int(length)]
        self._stop_waiting()
        self._close_wanted = "close" in fields.get("connection", "").lower() or words[2] == "HTTP/1.0"
        self._answering = True
        self._dispatch(words[0], words[1].partition("?")[0], body)

    def _dispatch(self, method: str, path: str, body: bytes) -> None:
        if self._host.loading:
            self._respond(503, compact({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}), "")
        elif method == "POST" and path == self._wire.path:
            self._pending = None
            ordinal = self._service.accept(body, self)
            if self._answering:
                self._pending = ordinal
        elif (recorder := self._service.recorder) is not None and (said := recorder.order(path)) is not None:
            self._respond(200, said.encode(), "text/plain; charset=utf-8")
        elif method == "GET":
            self._get(path)
        else:
            self._respond(404, compact({"detail": "Not Found"}), "")

    def _get(self, path: str) -> None:
        service = self._service
        if path == "/health":
            healthy = not service.dead and not service.settings.troubles.never_healthy
            body = compact({"status": "ok"}) if healthy and self._wire.listens_while_loading else b""
            self._respond(200 if healthy else 503, body, "")
        elif path == self._wire.metrics_path:
            page = self._wire.metrics_page(service.counts())
            self._respond(200, page.encode(), "text/plain; version=1.0.0; charset=utf-8")
        elif path == ABOUT_PATH:
            self._respond(200, compact(service.about()), "")
        elif (found := self._wire.get(path)) is not None:
            self._respond(200, found.encode() if isinstance(found, str) else compact(found), "")
        else:
            self._respond(404, compact({"detail": "Not Found"}), "")

    # --- answers

    def _respond(self, status: int, body: bytes, media: str) -> None:
        head = self._wire.head(stream=False, status=status, length=len(body), close=self._close_wanted, date=self._host.date())
        if media:
            head = head.replace(b"application/json; charset=utf-8", media.encode()).replace(b"application/json", media.encode())
        self._write(head + body)
        self._done(keep=True)

    def _done(self, *, keep: bool) -> None:
        self._pending = None
        self._answering = self._streaming = False
        if self._transport is None:
            return
        if self._close_wanted or not keep:
            self._transport.close()
        elif self._buffer:
            self._next()
        else:
            self._wait()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _wait(self) -> None:
        self._stop_waiting()
        self._idle = self._host.loop.call_later(IDLE_S, self._close_idle)

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_idle(self) -> None:
        if self._transport is not None and not self._answering:
            self._transport.close()


class Host:
    """The server of one service: what its connections share."""

    def __init__(self, settings: ServiceSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.loading = False
        self.connections: set[Connection] = set()
        self.ended = asyncio.Event()
        self.exit_code = 0
        self._date = (0, "")
        known = json.loads(settings.prompts.read_text("utf-8")) if settings.prompts is not None else {}
        facts = {key: value if isinstance(value, dict) else {"category": value} for key, value in known.items()}
        self._log = TruthLog(settings.truth_log, {"dialect": settings.dialect, "model": str(settings.served.model)})
        self._ticker: Ticker | None = None
        self.service = Service(
            settings,
            timer=self._tick,
            clock_ns=time.monotonic_ns,
            unix_ns=time.time_ns() - time.monotonic_ns(),
            log=self._log,
            categories={key: str(fact["category"]) for key, fact in facts.items()},
            length_ratios={key: float(fact["length_ratio"]) for key, fact in facts.items() if "length_ratio" in fact},
            died=self._died,
            soon=loop.call_soon,
        )

    def date(self) -> str:
        """The Date field, formatted once a second."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True))
        return self._date[1]

    async def serve(self, host: str, port: int) -> int:
        """Until SIGTERM or until a trouble ends it; returns the exit code. ``port`` 0: any. Prints where it listens."""
        troubles = self.service.settings.troubles
        if troubles.dies_at_start:
            print(troubles.dies_at_start, file=sys.stderr, flush=True)
            return 1
        if not self.service.wire.listens_while_loading:
            await self._loading(troubles.slow_start_s)
        server = await self.loop.create_server(lambda: Connection(self), host, port, backlog=4096)
        print(f"listening on http://{host}:{server.sockets[0].getsockname()[1]}", flush=True)
        if self.service.wire.listens_while_loading and troubles.slow_start_s:
            self.loading = True
            await self._loading(troubles.slow_start_s)
            self.loading = False
        gc.disable()  # nothing here makes cycles, and a pause in a step would be one more truth to explain
        await self.ended.wait()
        server.close()
        self._log.flush()
        if self._ticker is not None:
            self._ticker.close()
        return self.exit_code

    async def _loading(self, seconds: float) -> None:
        """Can be ended as an engine can."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), seconds)

    def stop(self) -> None:
        self.ended.set()

    def _tick(self, callback: Callable[[], None]) -> Ticker:
        self._ticker = Ticker(self.loop, callback)
        return self._ticker

    def _died(self, at_once: bool) -> None:
        print("the simulated engine dies", file=sys.stderr, flush=True)
        if at_once:
            os.kill(os.getpid(), signal.SIGKILL)
        self.exit_code = 1
        self.loop.call_later(self.service.wire.outlives_engine_s, self.stop)


async def _main(settings: ServiceSettings, host: str, port: int) -> int:
    loop = asyncio.get_running_loop()
    server = Host(settings, loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    return await server.serve(host, port)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3) or not arguments[1].isdecimal():
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    try:
        settings = read_service(json.loads(Path(arguments[0]).read_text("utf-8")), folder=Path(arguments[0]).parent)
        settings.engine()
        settings.recorder()
    except (ModelError, ValueError, OSError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 2
    host = arguments[2] if len(arguments) > 2 else "127.0.0.1"
    with asyncio.Runner(loop_factory=_new_loop()) as runner:
        return runner.run(_main(settings, host, int(arguments[1])))


def _new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's where it is installed: it writes a step of 512 chunks in two thirds of the time."""
    with suppress(ImportError):
        return cast("Callable[[], asyncio.AbstractEventLoop]", import_module("uvloop").new_event_loop)
    return asyncio.new_event_loop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
