"""The measured stream: one HTTP/1.1 connection that stamps what it reads, and does nothing else while it reads.

Why not an HTTP library: between the socket and the user of a library stand a parser, a queue, a future and a task switch for
every chunk. They cost several times the read itself, and they come *before* the time is taken, so a busy client reports its
own delay as the engine's step time. Here the event loop hands over the bytes, the time is taken, both are appended to a list,
and one comparison of the last seven bytes tells whether the answer is over. Splitting the head, undoing the chunked coding,
and reading events happen after the measuring window (``client.wire`` and the dialects), from the stamped reads.

What the window does need to know of HTTP is read once per answer from its first read: how the body ends (chunked, by length,
or by the end of the connection) and whether the connection may be used again. The chunked terminator is looked for at the
end of a read only, which is where it must be: nothing follows it before our next request. Trailer fields are not asked for
(no ``TE: trailers``) and no known engine sends them.

Time-outs need no timer per read: whoever drives the connections looks at :attr:`Connection.last_ns` now and then.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from time import monotonic_ns
from typing import cast
from urllib.parse import urlsplit

_TERMINATOR = b"\r\n0\r\n\r\n"  # the CRLF before it belongs to the last chunk (or to the head, if the body is empty)
_HEAD_END = b"\r\n\r\n"
_UNTIL_CLOSE = -1
# The largest single read. asyncio's 256 KiB makes it allocate that much for every 300-byte event before it is cut down again.
_READ_SIZE = 1 << 14


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect, taken apart from a base URL."""

    host: str
    port: int
    tls: bool
    prefix: str  # path of the base URL, without the trailing slash

    @property
    def authority(self) -> str:
        """The value of the Host field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def parse_base_url(base_url: str) -> Address:
    """Raises ``ValueError`` naming the URL and what is wrong with it."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"base_url {base_url!r}: scheme must be http or https, for example http://127.0.0.1:8000")
    if not parts.hostname:
        raise ValueError(f"base_url {base_url!r}: no host, for example http://127.0.0.1:8000")
    if parts.query or parts.fragment:
        raise ValueError(f"base_url {base_url!r}: must end before '?' and '#'; the path of the endpoint is added by the dialect")
    tls = parts.scheme == "https"
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"base_url {base_url!r}: {error}") from None
    return Address(parts.hostname, port if port is not None else (443 if tls else 80), tls, parts.path.rstrip("/"))


def request_head(address: Address, path: str, headers: tuple[tuple[str, str], ...], body_length: int) -> bytes:
    """The bytes of a POST request before its JSON body. Raises ``ValueError`` for a header that would break out of its line."""
    lines = [
        f"POST {address.prefix}{path} HTTP/1.1",
        f"Host: {address.authority}",
        "Content-Type: application/json",
        "Accept: text/event-stream, application/json",
        f"Content-Length: {body_length}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    for line in lines:
        if "\r" in line or "\n" in line:
            raise ValueError(f"header {line.split(':')[0]!r}: the value holds a line break")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@dataclass(slots=True)
class Answer:
    """One answer as it was read, head included and untouched."""

    t_send_ns: int
    t_end_ns: int
    reads: list[tuple[int, bytes]]
    ended: str  # complete | eof | stalled | reset | client_abort | an error's name


def body_framing(head: bytes) -> tuple[int | None, bool]:
    """How the body after ``head`` (status line and fields, any case) ends, and whether the connection lives on after it.

    The first is None for chunked, a length in bytes, or -1 for "until the connection ends".
    """
    fields = head.lower()
    status = fields[9:12]
    at = fields.find(b"\r\nconnection:")
    options = fields[at + 13 : fields.find(b"\r\n", at + 2)] if at >= 0 else b""
    keep = b"keep-alive" in options if fields.startswith(b"http/1.0") else b"close" not in options
    if status in (b"204", b"304"):
        return 0, keep
    at = fields.find(b"\r\ntransfer-encoding:")
    if at >= 0 and b"chunked" in fields[at + 20 : fields.find(b"\r\n", at + 2)]:
        return None, keep
    at = fields.find(b"\r\ncontent-length:")
    if at >= 0:
        value = fields[at + 17 : fields.find(b"\r\n", at + 2)].strip()
        if value.isdigit():
            return int(value), keep
    return _UNTIL_CLOSE, False


class Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time.

    After :meth:`send`, the returned future ends with an :class:`Answer` in every case; it never raises. Whether the connection
    can carry another request is in :attr:`reusable`.
    """

    __slots__ = ("_append", "_chunked", "_done", "_keep", "_left", "_loop", "_reads", "_t_send_ns", "_transport", "lost")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[Answer] | None = None
        self._reads: list[tuple[int, bytes]] = []
        self._append = self._reads.append
        self._chunked = False
        self._left: int | None = None  # bytes of the body still to come; None until the head has been read
        self._keep = True
        self._t_send_ns = 0
        self.lost = False

    @property
    def busy(self) -> bool:
        return self._done is not None

    @property
    def reusable(self) -> bool:
        return not self.lost and self._keep and self._done is None and self._transport is not None and not self._transport.is_closing()

    @property
    def last_ns(self) -> int:
        """When something last happened in the running exchange: its newest read, or its sending."""
        return self._reads[-1][0] if self._reads else self._t_send_ns

    def send(self, request: bytes) -> asyncio.Future[Answer]:
        """Sends one complete request. On a connection that has ended in the meantime, the answer is an empty one, at once."""
        if self._done is not None:
            raise RuntimeError("send on a connection that is busy")
        self._reads = []
        self._append = self._reads.append
        self._chunked = False
        self._left = None
        self._done = self._loop.create_future()
        done = self._done
        self._t_send_ns = monotonic_ns()
        if self._transport is None or self.lost or not self._keep or self._transport.is_closing():
            self._finish("eof")
        else:
            self._transport.write(request)
        return done

    def end(self, ended: str) -> None:
        """Gives the running exchange up and drops the connection."""
        self._keep = False
        self._finish(ended)
        self.abort()

    def abort(self) -> None:
        self.lost = True
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # TCP_NODELAY is set by asyncio on every TCP connection
        if hasattr(transport, "max_size"):
            transport.max_size = _READ_SIZE

    def data_received(self, data: bytes) -> None:
        self._append((monotonic_ns(), data))
        if self._chunked:
            if data.endswith(_TERMINATOR) or (len(data) < len(_TERMINATOR) and self._terminator_in_pieces()):
                self._finish("complete")
        else:
            self._unchunked(data)

    def eof_received(self) -> None:
        self._keep = False
        self._finish("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if exc is None:
            self._finish("eof")
        else:
            self._finish("reset" if isinstance(exc, ConnectionError) else type(exc).__name__)

    # -- once per answer, or for answers that are no stream

    def _terminator_in_pieces(self) -> bool:
        """The newest read is shorter than the terminator: look at the end of what came before it too."""
        tail = b""
        for _, data in reversed(self._reads):
            tail = data + tail
            if len(tail) >= len(_TERMINATOR):
                break
        return tail.endswith(_TERMINATOR)

    def _unchunked(self, data: bytes) -> None:
        if self._done is None:  # bytes that nobody asked for: whatever they are, they would be taken for the next answer
            self.end("protocol")
        elif self._left is None:
            self._read_head()
        elif self._left != _UNTIL_CLOSE:
            self._left -= len(data)
            if self._left <= 0:
                self._finish("complete")

    def _read_head(self) -> None:
        got = self._reads[0][1] if len(self._reads) == 1 else b"".join(data for _, data in self._reads)
        at = got.find(_HEAD_END)
        while at >= 0 and got[9:10] == b"1":  # an interim answer (100 Continue): the real one follows
            got = got[at + len(_HEAD_END) :]
            at = got.find(_HEAD_END)
        if at < 0:
            return
        framing, self._keep = body_framing(got[: at + 2])
        if framing is None:
            self._chunked = True
            if got.endswith(_TERMINATOR):
                self._finish("complete")
            return
        self._left = framing
        if framing != _UNTIL_CLOSE:
            self._left = framing - (len(got) - at - len(_HEAD_END))
            if self._left <= 0:
                self._finish("complete")

    def _finish(self, ended: str) -> None:
        done, self._done = self._done, None
        self._chunked = False
        if done is None or done.done():
            return
        now = self._reads[-1][0] if ended == "complete" else monotonic_ns()
        done.set_result(Answer(self._t_send_ns, now, self._reads, ended))
        self._reads = []  # what still comes belongs to no answer
        self._append = self._reads.append


async def connect(address: Address, *, tls: ssl.SSLContext | None, timeout_s: float) -> tuple[Connection, int]:
    """Opens a connection; returns it with the nanoseconds that TCP and TLS set-up took.

    Raises ``OSError`` (``ssl.SSLError`` and ``TimeoutError`` are such).
    """
    loop = asyncio.get_running_loop()
    started = monotonic_ns()
    async with asyncio.timeout(timeout_s):
        _, connection = await loop.create_connection(
            lambda: Connection(loop), address.host, address.port, ssl=tls, server_hostname=address.host if tls else None
        )
    return connection, monotonic_ns() - started
