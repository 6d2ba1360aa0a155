"""Servers of a few lines for the client's tests: real sockets, one handler per request."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import queue
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from specsweep.client.trace import PlannedRequest

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text: str) -> bytes:
    return chunk(b'data: {"text":"%s"}\n\n' % text.encode())


@dataclass
class Call:
    """One request as the stub sees it."""

    number: int  # over all connections, from 0
    connection: int
    on_connection: int  # from 0 for each connection
    body: bytes
    write: Callable[[bytes], None]
    writer: asyncio.StreamWriter

    async def send(self, *pieces: bytes, pause_s: float = 0.0) -> None:
        for piece in pieces:
            self.write(piece)
            await self.writer.drain()
            await asyncio.sleep(pause_s)

    def cut(self) -> None:
        """RST instead of FIN."""
        self.writer.transport.abort()


Handler = Callable[[Call], Awaitable[None]]


@dataclass
class Stub:
    base_url: str
    connections: int = 0
    requests: int = 0
    running: int = 0
    running_max: int = 0
    bodies: list[bytes] = field(default_factory=list)
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def die(self) -> None:
        """What a killed process leaves: no listener, every connection reset."""
        assert self.server is not None
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()


async def answer(call: Call) -> None:
    await call.send(HEAD, event("a"), event("b"), END)


@contextlib.asynccontextmanager
async def stub(handler: Handler = answer, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Stub]:
    """Reads requests by Content-Length and hands each to ``handler``; a handler that closed the writer ends the connection."""
    state = Stub("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, on_connection = state.connections, 0
        state.connections += 1
        state.writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                state.bodies.append(body)
                number, state.requests = state.requests, state.requests + 1
                state.running += 1
                state.running_max = max(state.running_max, state.running)
                try:
                    await handler(Call(number, connection, on_connection, body, writer.write, writer))
                finally:
                    state.running -= 1
                on_connection += 1
        state.writers.discard(writer)
        writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=tls, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    state.server = server
    state.base_url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield state
    finally:
        server.close()
        for writer in list(state.writers):
            writer.transport.abort()
        await asyncio.sleep(0)  # so that the handlers see it
        await asyncio.sleep(0)


def planned(count: int, *, ramp: int = 0) -> list[PlannedRequest]:
    """``count`` requests, the first ``ramp`` of them of the ramp phase."""
    return [PlannedRequest(i, f"p{i}", f"p{i}", 0, "text", "ramp" if i < ramp else "main", 0, 8, 16, b'{"n":%d}' % i) for i in range(count)]


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server context for 127.0.0.1 and the certificate to trust."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stub")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, key_pem = folder / "stub.pem", folder / "stub.key"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_pem.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key_pem)
    return context, pem


def token_event(ids: list[int], finish: str | None = None) -> bytes:
    """One chunk of a completion as vLLM streams it."""
    choice = {"index": 0, "text": "x" * len(ids), "finish_reason": finish, "token_ids": ids}
    return chunk(b"data: %s\n\n" % json.dumps({"id": "c", "object": "text_completion", "choices": [choice]}).encode())


DONE = chunk(b"data: [DONE]\n\n")


async def answer_tokens(call: Call) -> None:
    """Four tokens in three chunks."""
    await call.send(HEAD, token_event([1]), token_event([2, 3]), token_event([4], "length"), DONE + END, pause_s=0.005)


@contextlib.contextmanager
def stub_in_thread(handler: Handler) -> Iterator[Stub]:
    """The stub in a loop of its own, for tests that block."""
    started: queue.Queue[Stub] = queue.Queue()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with stub(handler) as state:
            started.put(state)
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield started.get(timeout=10)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def answer_when_full(state: Callable[[], Stub], slots: int, total: int, then: Handler = answer) -> Handler:
    """Answers only while ``slots`` requests are there, or the last of ``total`` has come: a client that keeps fewer in flight never ends."""
    change = asyncio.Condition()

    async def handler(call: Call) -> None:
        async with change:
            change.notify_all()
            await change.wait_for(lambda: state().running >= slots or state().requests >= total)
        await then(call)

    return handler
