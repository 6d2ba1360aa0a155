"""The raw connection: when an answer is over, and what is left of the connection then."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_stubs import END, HEAD, Call, chunk, event, stub

from specsweep.client.protocol import Answer, Connection, body_framing, connect, parse_base_url, request_head
from specsweep.client.wire import dechunk, split_head


async def ask(base_url: str, body: bytes = b"{}") -> tuple[Answer, Connection]:
    address = parse_base_url(base_url)
    connection, _ = await connect(address, tls=None, timeout_s=5)
    answer = await asyncio.wait_for(connection.send(request_head(address, "/v1/completions", (), len(body)) + body), 5)
    return answer, connection


def body_of(answer: Answer) -> tuple[int, bytes, bool]:
    head = split_head(answer.reads)
    body = dechunk(head.reads, head.headers)
    return head.status, b"".join(data for _, data in body.pieces), body.terminated


async def test_chunked_answer_is_complete_and_the_connection_can_carry_the_next_one() -> None:
    async with stub() as server:
        answer, connection = await ask(server.base_url)
        assert answer.ended == "complete"
        assert body_of(answer) == (200, b'data: {"text":"a"}\n\ndata: {"text":"b"}\n\n', True)
        assert connection.reusable
        again = await connection.send(request_head(parse_base_url(server.base_url), "/", (), 2) + b"{}")
        assert again.ended == "complete"
        assert server.connections == 1
        assert server.requests == 2


@pytest.mark.parametrize("cut", range(1, 7))
async def test_terminator_split_over_two_reads(cut: int) -> None:
    tail = b"\r\n" + END

    async def handler(call: Call) -> None:
        whole = HEAD + event("a") + END
        at = len(whole) - len(tail) + cut
        await call.send(whole[:at], whole[at:], pause_s=0.02)

    async with stub(handler) as server:
        answer, connection = await ask(server.base_url)
        assert answer.ended == "complete"
        assert len(answer.reads) == 2
        assert connection.reusable


async def test_terminator_byte_by_byte_and_head_byte_by_byte() -> None:
    async def handler(call: Call) -> None:
        for piece in HEAD + event("a") + END:
            await call.send(bytes([piece]), pause_s=0.0005)

    async with stub(handler) as server:
        answer, _ = await ask(server.base_url)
        assert answer.ended == "complete"
        assert body_of(answer) == (200, b'data: {"text":"a"}\n\n', True)


async def test_zero_lines_inside_of_the_stream_do_not_end_it() -> None:
    """A chunk may end in the digit 0, and its size line may too."""

    async def handler(call: Call) -> None:
        await call.send(HEAD, chunk(b"data: 0"), chunk(b"\n\ndata: 10\n\n0"), b"10\r\n", b"x" * 16, b"\r\n", END, pause_s=0.01)

    async with stub(handler) as server:
        answer, _ = await ask(server.base_url)
        assert answer.ended == "complete"
        assert body_of(answer) == (200, b"data: 0\n\ndata: 10\n\n0" + b"x" * 16, True)


async def test_error_with_content_length_in_pieces() -> None:
    async def handler(call: Call) -> None:
        await call.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 12\r\n\r\n", b"too ", b"long", b"!!!!", pause_s=0.01)

    async with stub(handler) as server:
        answer, connection = await ask(server.base_url)
        assert answer.ended == "complete"
        assert body_of(answer) == (400, b"too long!!!!", True)
        assert connection.reusable


async def test_answer_that_ends_with_the_connection() -> None:
    async def handler(call: Call) -> None:
        await call.send(b"HTTP/1.0 200 OK\r\n\r\n", b"data: x\n\n", pause_s=0.01)
        call.writer.close()

    async with stub(handler) as server:
        answer, connection = await ask(server.base_url)
        assert answer.ended == "eof"
        assert body_of(answer)[:2] == (200, b"data: x\n\n")
        assert not connection.reusable


@pytest.mark.parametrize(("how", "ended"), [("close", "eof"), ("reset", "reset")])
async def test_server_that_dies_in_the_middle_of_a_stream(how: str, ended: str) -> None:
    async def handler(call: Call) -> None:
        await call.send(HEAD, event("a"), pause_s=0.02)
        call.writer.close() if how == "close" else call.cut()

    async with stub(handler) as server:
        answer, connection = await ask(server.base_url)
        if how == "reset":  # asyncio's abort closes without unread data, which Linux may send as FIN
            assert answer.ended in ("reset", "eof")
        else:
            assert answer.ended == ended
        assert body_of(answer)[2] is False
        assert answer.t_end_ns >= answer.reads[-1][0]
        assert not connection.reusable


async def test_connection_close_is_obeyed_and_interim_answers_are_skipped() -> None:
    async def handler(call: Call) -> None:
        await call.send(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")

    async with stub(handler) as server:
        answer, connection = await ask(server.base_url)
        assert answer.ended == "complete"
        assert body_of(answer)[:2] == (200, b"ok")
        assert not connection.reusable


async def test_bytes_after_the_end_of_an_answer_are_not_taken_for_the_next_one() -> None:
    async def handler(call: Call) -> None:
        await call.send(HEAD, event("a"), END, b"HTTP/1.1 200 OK\r\n\r\n", pause_s=0.02)

    async with stub(handler) as server:
        answer, connection = await ask(server.base_url)
        assert answer.ended == "complete"
        await asyncio.sleep(0.1)
        assert not connection.reusable
        assert body_of(answer)[2] is True
        late = await connection.send(b"")
        assert late.ended == "eof"
        assert late.reads == []


async def test_one_exchange_at_a_time() -> None:
    async with stub() as server:
        connection, _ = await connect(parse_base_url(server.base_url), tls=None, timeout_s=5)
        first = connection.send(request_head(parse_base_url(server.base_url), "/", (), 0))
        with pytest.raises(RuntimeError, match="busy"):
            connection.send(b"")
        assert (await first).ended == "complete"


async def test_stamps_are_the_times_of_the_reads() -> None:
    async def handler(call: Call) -> None:
        await call.send(HEAD, event("a"), event("b"), END, pause_s=0.05)

    async with stub(handler) as server:
        answer, _ = await ask(server.base_url)
        times = [t for t, _ in answer.reads]
        assert times == sorted(times)
        assert answer.t_send_ns <= times[0]
        assert answer.t_end_ns == times[-1]
        gaps_ms = [(b - a) / 1e6 for a, b in pairwise(times)]
        assert all(gap >= 45 for gap in gaps_ms)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_any_cutting_of_an_answer_ends_it_at_its_last_byte(pieces: list[bytes], data: st.DataObject) -> None:
    """However the network cuts a chunked answer, it is complete with its last byte and not before the terminator began."""
    whole = HEAD + b"".join(chunk(p) for p in pieces) + END
    cuts = sorted(data.draw(st.lists(st.integers(1, len(whole) - 1), unique=True, max_size=12)))
    reads = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    loop = asyncio.new_event_loop()
    try:
        connection = Connection(loop)
        connection.connection_made(_Wire())
        done = connection.send(b"")
        for read in reads[:-1]:
            connection.data_received(read)
            # The one ambiguity of looking at the tail only: payload that holds the terminator's very bytes where a read ends.
            if done.done():
                assert any(b"\r\n0\r\n\r\n" in chunk(p)[:-2] + b"\r\n" for p in pieces)
                return
        connection.data_received(reads[-1])
        assert done.done()
        assert done.result().ended == "complete"
        assert b"".join(data for _, data in done.result().reads) == whole
    finally:
        loop.close()


class _Wire(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


@pytest.mark.parametrize(
    ("head", "framing", "keep"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", None, True),
        (b"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING:  gzip, Chunked\r\nConnection: Close\r\n", None, False),
        (b"HTTP/1.1 500 X\r\nContent-Length: 7\r\n", 7, True),
        (b"HTTP/1.1 204 No Content\r\n", 0, True),
        (b"HTTP/1.1 200 OK\r\nX-Content-Length: 7\r\n", -1, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n", 7, False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 7\r\n", 7, True),
        (b"HTTP/1.1 200 OK\r\nconnection:close\r\nContent-Length: 7\r\n", 7, False),
        (b"HTTP/1.1 200 OK\r\nProxy-Connection: close\r\nContent-Length: 7\r\n", 7, True),
    ],
)
def test_body_framing(head: bytes, framing: int | None, keep: bool) -> None:
    assert body_framing(head) == (framing, keep)


@pytest.mark.parametrize(
    ("url", "word"),
    [("127.0.0.1:8000", "scheme"), ("ftp://x", "scheme"), ("http://", "host"), ("http://x?y=1", "'\\?'"), ("http://x:99999", "ort")],
)
def test_base_url_that_cannot_be_used_is_named(url: str, word: str) -> None:
    with pytest.raises(ValueError, match=word) as error:
        parse_base_url(url)
    assert repr(url) in str(error.value)


def test_base_url_parts() -> None:
    assert parse_base_url("https://h/api/").authority == "h"
    assert parse_base_url("https://h/api/").prefix == "/api"
    assert parse_base_url("http://[::1]:8000").authority == "[::1]:8000"
    head = request_head(parse_base_url("http://h:81/api"), "/v1/completions", (("Authorization", "Bearer x"),), 3)
    assert head.startswith(b"POST /api/v1/completions HTTP/1.1\r\nHost: h:81\r\n")
    assert b"\r\nAuthorization: Bearer x\r\n" in head


def test_header_that_would_break_the_request_is_refused() -> None:
    with pytest.raises(ValueError, match="Authorization"):
        request_head(parse_base_url("http://h"), "/", (("Authorization", "a\r\nHost: evil"),), 0)
