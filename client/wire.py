"""From the reads of a socket to the events of a stream, without losing when each event was complete.

The hot path of the client only stamps and appends: a finished exchange is a list of ``(t_ns, bytes)`` in the order of the
reads. Everything here runs after the measuring window and is pure, so recorded streams prove it. Three layers, each
a function: the head, the transfer coding, the server-sent events. The one rule that all of them keep: **the time of anything is
the time of the read that brought its last byte**. An event may span reads, and one read may complete several events; how the
network cut the bytes must never change the events, only their times.

The usual case, in which each read holds whole chunks and each chunk whole events, costs a few bytes operations an event;
anything else takes the general path through a carry buffer and gives the same result.

What is accepted: RFC 9112 chunked coding with extensions and trailers, Content-Length, and bodies that end with the
connection; event streams as in the WHATWG HTML standard, except that a lone CR is not taken for a line end (no engine sends it,
and a read that ends in CR would be ambiguous).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Read = tuple[int, bytes]
Headers = Sequence[tuple[str, str]]

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_END_OF_EVENT = re.compile(rb"\n\r?\n")  # begins with a plain byte, which is searched ten times as fast as an optional one
_MAX_SIZE_LINE = 4096  # a chunk-size line with its extensions; longer is not HTTP
_MAX_LENGTH_DIGITS = 18  # of a Content-Length


class Head(NamedTuple):
    """Status and header fields; ``reads``: what followed the head, with the times of its reads."""

    status: int  # 0: the reads end before the head does, or it is not HTTP
    headers: list[tuple[str, str]]
    reads: list[Read]


class Body(NamedTuple):
    """A body without its transfer coding."""

    pieces: list[Read]  # decoded bytes, each with the time of the read that completed it
    terminated: bool  # the framing itself said that the body is complete (last chunk, or Content-Length reached)
    error: str  # what is wrong with the framing; "" if nothing is


class EventStream(NamedTuple):
    events: list[Read]  # (t_ns, data): the joined ``data`` lines of each event that has any
    rest: bytes  # bytes after the last complete event: an event that was never finished


def header(headers: Headers, name: str) -> str:
    """The value of a header field, "" if it is not there. Names are compared without case."""
    wanted = name.lower()
    return next((value.strip() for key, value in headers if key.lower() == wanted), "")


def split_head(reads: Iterable[Read]) -> Head:
    """Cuts the status line and the header fields off. Interim answers (1xx) are skipped."""
    pending = bytearray()
    rest = iter(reads)
    for t_ns, data in rest:
        searched = max(0, len(pending) - 3)  # the end may have begun in the last three bytes
        pending += data
        while found := _END_OF_HEAD.search(pending, searched):
            head, searched = bytes(pending[: found.start()]), 0
            del pending[: found.end()]
            status, headers = _parse_head(head)
            if not 100 <= status < 200:
                return Head(status, headers, ([(t_ns, bytes(pending))] if pending else []) + list(rest))
    return Head(0, [], [])


def _parse_head(head: bytes) -> tuple[int, list[tuple[str, str]]]:
    lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
    words = lines[0].split(None, 2)
    said = words[1] if len(words) > 1 and words[0].startswith("HTTP/") else ""
    status = int(said) if len(said) == 3 and said.isdecimal() else 0
    fields = (line.partition(":") for line in lines[1:] if ":" in line)
    return status, [(name.strip(), value.strip()) for name, _, value in fields]


def dechunk(reads: Iterable[Read], headers: Headers) -> Body:
    """The body of an answer by the framing that its headers name. ``reads``: everything after the head."""
    if header(headers, "transfer-encoding").lower().split(",")[-1].strip() == "chunked":
        return _chunked(reads)
    length = header(headers, "content-length")
    if not length.isdecimal() or len(length) > _MAX_LENGTH_DIGITS:  # the body ends with the connection: nothing says whether all of it came
        return Body([r for r in reads if r[1]], False, f"Content-Length is not a number of bytes: {length[:40]!r}" if length else "")
    left = int(length)
    pieces: list[Read] = []
    for t_ns, data in reads:
        piece = data[:left]
        left -= len(piece)
        if piece:
            pieces.append((t_ns, piece))
    return Body(pieces, left == 0, "")


def _chunked(reads: Iterable[Read]) -> Body:
    pieces: list[Read] = []
    carry = b""  # bytes that cannot be judged yet: part of a size line, or of the CRLF after a chunk
    left = 0  # payload bytes of the current chunk that are still to come
    owed = False  # the CRLF after the current chunk is still to come
    ended = False  # the last chunk (size 0) was seen; trailer fields follow
    for t_ns, data in reads:
        if carry:
            data = carry + data
            carry = b""
        elif not left and not owed and not ended and (payload := _whole_chunk(data)):
            pieces.append((t_ns, payload))
            continue
        at, end = 0, len(data)
        while at < end:
            if left:
                stop = at + left
                if stop > end:
                    pieces.append((t_ns, data[at:]))
                    left -= end - at
                    break
                pieces.append((t_ns, data[at:stop]))
                at, left, owed = stop, 0, True
                continue
            newline = data.find(b"\n", at)
            if newline < 0:
                carry = data[at:]
                if len(carry) > _MAX_SIZE_LINE:
                    return Body(pieces, False, f"no chunk size within {_MAX_SIZE_LINE} bytes: {carry[:40]!r}")
                break
            line = data[at:newline]
            at = newline + 1
            if owed:
                if line not in (b"\r", b""):
                    return Body(pieces, False, f"chunk is longer than its size says: {line[:40]!r} follows it")
                owed = False
            elif ended:
                if line in (b"\r", b""):
                    return Body(pieces, True, "")
            else:
                size = line.partition(b";")[0].strip()
                try:
                    left = int(size, 16)
                except ValueError:
                    left = -1
                if left < 0 or size[:1] in b"+-_" or b"_" in size:
                    return Body(pieces, False, f"not a chunk size: {line[:40]!r}")
                ended = left == 0
    # A last chunk without the empty line after its trailers: every byte of the body has come all the same.
    return Body(pieces, ended, "")


def _whole_chunk(data: bytes) -> bytes:
    """The payload of a read that is exactly one chunk, the usual case of a stream; b"" for any other read."""
    newline = data.find(b"\r\n")
    size = data[:newline]
    if newline < 1 or not size.isalnum() or data[-2:] != b"\r\n":
        return b""
    try:
        fits = newline + 4 + int(size, 16) == len(data)
    except ValueError:
        return b""
    return data[newline + 2 : -2] if fits else b""


def split_events(pieces: Iterable[Read]) -> EventStream:
    """Server-sent events: split at blank lines, ``data:`` with or without a space, several data lines joined by a newline.

    Comments and other fields are dropped, and so are events without data. The bytes of an event that was never finished
    are handed back, because they tell a cut stream from one that ended.
    """
    events: list[Read] = []
    add = events.append
    carry = bytearray()  # an event that is still to be finished: grown in place, or one large event would be copied once a read
    for t_ns, data in pieces:
        usual = not carry and data[:6] == b"data: " and data[-2:] == b"\n\n"
        if usual and data.find(b"\n") == len(data) - 2 and data[-3:-2] != b"\r":
            add((t_ns, data[6:-2]))
            continue
        if usual and b"\r" not in data:
            for event in data[:-2].split(b"\n\n"):
                if event[:6] == b"data: " and b"\n" not in event:
                    add((t_ns, event[6:]))
                elif (joined := _data_of(event)) is not None:
                    add((t_ns, joined))
            continue
        searched = max(0, len(carry) - 3)  # a terminator may have begun in the last three bytes
        carry += data
        at = 0
        while found := _END_OF_EVENT.search(carry, searched):
            joined = _data_of(bytes(carry[at : found.start()]).removesuffix(b"\r"))
            if joined is not None:
                add((t_ns, joined))
            at = searched = found.end()
        del carry[:at]
    return EventStream(events, bytes(carry) if carry.strip(b"\r\n") else b"")


def sse_events(pieces: Iterable[Read]) -> list[Read]:
    """``(t_ns, data)`` of every complete event; see :func:`split_events`."""
    return split_events(pieces).events


def _data_of(event: bytes) -> bytes | None:
    """The joined data lines of one event; None if it has none (a comment, a keep-alive, a lone ``id:``)."""
    lines = [line[5:].removeprefix(b" ") for line in event.replace(b"\r\n", b"\n").split(b"\n") if line[:5] == b"data:"]
    return b"\n".join(lines) if lines else None
