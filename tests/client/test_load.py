"""The closed loop against real sockets: how many are in flight, what is tried again, and what a dead server costs."""

from __future__ import annotations

import asyncio
import gc
from itertools import pairwise
from pathlib import Path
from time import monotonic_ns

import pytest
from stream_stubs import END, HEAD, Call, answer, answer_when_full, event, planned, self_signed, stub

from specsweep.client.load import KeepAlive, Load, LoadSpec, Sent, run_load


def spec(base_url: str, count: int, slots: int, *, stall_s: float = 5.0, connect_timeout_s: float = 5.0) -> LoadSpec:
    return LoadSpec(base_url, "/v1/completions", (), slots, planned(count), stall_s, connect_timeout_s=connect_timeout_s)


def ends(sent: list[Sent]) -> list[str]:
    return [s.exchange.ended for s in sorted(sent, key=lambda s: s.planned.index)]


async def slow(call: Call) -> None:
    await call.send(HEAD, *(event(str(i)) for i in range(4)), END, pause_s=0.01)


async def test_every_request_is_sent_once_over_kept_connections() -> None:
    async with stub() as server:
        sent, report = await run_load(spec(server.base_url, 40, 4))
        assert sorted(server.bodies) == sorted(p.body for p in planned(40))
        assert ends(sent) == ["complete"] * 40
        assert server.connections == 4 == report.connections
        assert report.retries == 0
        assert report.slots == 4
        assert report.t_start_ns <= report.t_queue_empty_ns
        assert report.cpu_s > 0
        assert gc.isenabled()
        assert all(s.exchange.status == 200 and s.exchange.headers for s in sent)
        assert not any(data.startswith(b"HTTP/") for s in sent for _, data in s.exchange.reads)


@pytest.mark.parametrize("slots", [8, 128])
async def test_exactly_so_many_requests_are_in_flight(slots: int) -> None:
    """128: no library's cap of 100 connections."""
    async with stub(answer_when_full(lambda: server, slots, 4 * slots)) as server:
        sent, _ = await run_load(spec(server.base_url, 4 * slots, slots, stall_s=30.0))
        assert ends(sent) == ["complete"] * (4 * slots)
        assert server.running_max == slots
        assert server.connections == slots


async def test_connections_are_opened_before_the_common_start() -> None:
    async with stub(slow) as server:
        load = Load(spec(server.base_url, 16, 8))
        assert await load.prepare() == 8
        assert server.connections == 8
        assert server.requests == 0
        start_at = monotonic_ns() + 150_000_000
        sent, _ = await load.run(start_at)
        assert all(s.exchange.t_send_ns >= start_at for s in sent)
        first_read = min(s.exchange.reads[0][0] for s in sent)
        assert all(s.exchange.t_send_ns < first_read for s in sent if s.planned.index < 8)  # all at once
        assert server.connections == 8


async def test_tls_handshake_is_apart_from_the_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with stub(answer_when_full(lambda: server, 32, 96), tls=context) as server:
        load = Load(spec(server.base_url, 96, 32, stall_s=30.0))
        opened_by = monotonic_ns()
        assert await load.prepare() == 32
        prepared = monotonic_ns()
        sent, _ = await load.run()
        assert ends(sent) == ["complete"] * 96
        assert server.running_max == 32
        first = [s.exchange for s in sent if s.exchange.connect_ns]
        assert len(first) == 32  # one handshake a slot, on its first request
        assert all(0 < e.connect_ns <= prepared - opened_by for e in first)
        assert all(e.t_send_ns >= prepared for e in first)  # so no time to first token holds a handshake


async def test_certificate_that_is_not_trusted_is_a_connect_failure(tmp_path: Path) -> None:
    context, _ = self_signed(tmp_path)
    async with stub(tls=context) as server:
        sent, report = await run_load(spec(server.base_url, 4, 1))
        assert all(end.startswith("connect: ") for end in ends(sent))
        assert "certificate" in ends(sent)[0].lower()
        assert server.requests == 0
        assert report.connections == 0


def check_set_up_lies_before_the_sending(sent: list[Sent]) -> None:
    """In each slot the next request's connection was opened after the end of one request and before the sending of the next."""
    for slot in {s.slot for s in sent}:
        own = sorted((s.exchange for s in sent if s.slot == slot), key=lambda e: e.t_send_ns)
        assert all(e.connect_ns > 0 for e in own)
        assert all(later.t_send_ns - earlier.t_end_ns >= later.connect_ns for earlier, later in pairwise(own))


async def test_kept_connection_that_is_seldom_dropped_before_the_first_byte_is_tried_once_more_and_counted() -> None:
    async def handler(call: Call) -> None:
        if call.on_connection == 4:
            call.cut() if call.connection % 2 else call.writer.close()
        else:
            await answer(call)

    async with stub(handler) as server:
        sent, report = await run_load(spec(server.base_url, 24, 2))
        assert ends(sent) == ["complete"] * 24
        retried = [s.exchange for s in sent if s.exchange.attempts == 2]
        assert len(retried) == report.retries == server.requests - 24
        assert 4 <= report.retries <= 5  # 24 requests over two slots: one in five is met by a drop
        assert all(e.connect_ns > 0 for e in retried)
        assert report.connections == 2 + report.retries
        assert set(server.bodies) == {p.body for p in planned(24)}


async def drop_what_is_kept(call: Call) -> None:
    """llama-server: a whole answer, no word of closing, and the next request on the connection meets its end."""
    if call.on_connection:
        call.writer.close()
    else:
        await answer(call)


async def test_server_that_drops_every_kept_connection_gets_a_new_one_for_each_request() -> None:
    async with stub(drop_what_is_kept) as server:
        keep_alive = KeepAlive()
        first = Load(spec(server.base_url, 40, 4), keep_alive)
        await first.prepare()
        sent, report = await first.run()
        assert ends(sent) == ["complete"] * 40
        assert 1 <= report.retries <= 4  # a slot finds out once at most
        assert report.connections == 40
        assert server.requests == 40 + report.retries
        check_set_up_lies_before_the_sending(sent)

        second = Load(spec(server.base_url, 40, 4), keep_alive)  # the next point: it is known by now
        await second.prepare()
        sent, report = await second.run()
        assert ends(sent) == ["complete"] * 40
        assert (report.retries, report.connections) == (0, 40)
        assert {s.exchange.attempts for s in sent} == {1}


@pytest.mark.parametrize("line", [b"HTTP/1.1 200 OK\r\nConnection: close", b"HTTP/1.0 200 OK"])
async def test_announced_close_is_believed(line: bytes) -> None:
    """The server answers, says that it will close, and takes its time to do so."""

    async def handler(call: Call) -> None:
        if call.on_connection:
            call.cut()
        await call.send(line + b"\r\nContent-Length: 2\r\n\r\n{}")

    async with stub(handler) as server:
        sent, report = await run_load(spec(server.base_url, 12, 2))
        assert ends(sent) == ["complete"] * 12
        assert (report.retries, report.connections) == (0, 12)
        assert server.requests == 12
        check_set_up_lies_before_the_sending(sent)


async def test_it_is_not_tried_a_third_time_and_never_after_a_first_byte() -> None:
    async def handler(call: Call) -> None:
        if call.number:  # only the first request is ever answered
            await call.send(*([HEAD] if b'"n":2' in call.body else []), pause_s=0.01)
            call.writer.close()
        else:
            await answer(call)

    async with stub(handler) as server:
        sent, report = await run_load(spec(server.base_url, 3, 1))
        assert ends(sent) == ["complete", "eof", "eof"]
        assert [s.exchange.attempts for s in sent] == [1, 2, 1]
        assert server.bodies.count(b'{"n":1}') == 2
        assert server.bodies.count(b'{"n":2}') == 1
        assert report.retries == 1


async def test_stream_that_stalls_is_ended_and_the_slot_goes_on() -> None:
    async def handler(call: Call) -> None:
        if call.number == 1:
            await call.send(HEAD, event("a"))
            await asyncio.sleep(60)
        await answer(call)

    async with stub(handler) as server:
        started = monotonic_ns()
        sent, _ = await run_load(spec(server.base_url, 4, 1, stall_s=0.3))
        assert ends(sent) == ["complete", "stalled", "complete", "complete"]
        stalled = next(s.exchange for s in sent if s.exchange.ended == "stalled")
        assert stalled.status == 200
        assert 0.3 <= (stalled.t_end_ns - stalled.reads[-1][0]) / 1e9 < 30
        assert (monotonic_ns() - started) / 1e9 < 30  # of the 60 s that the server is silent
        assert server.connections == 2


async def test_server_that_never_answers_stalls_too() -> None:
    async def handler(call: Call) -> None:
        await asyncio.sleep(60)

    async with stub(handler) as server:
        sent, _ = await run_load(spec(server.base_url, 2, 2, stall_s=0.2))
        assert ends(sent) == ["stalled"] * 2
        assert all(s.exchange.status == 0 for s in sent)


async def test_error_answer_keeps_the_connection() -> None:
    async def handler(call: Call) -> None:
        await call.send(b'HTTP/1.1 400 Bad Request\r\nContent-Length: 15\r\n\r\n{"error":"bad"}')

    async with stub(handler) as server:
        sent, report = await run_load(spec(server.base_url, 6, 2))
        assert [s.exchange.status for s in sent] == [400] * 6
        assert report.connections == 2


async def test_server_that_dies_in_the_middle_ends_the_load_soon() -> None:
    """Streams in flight are cut, then connections are refused: the rest is recorded as not sent, after a few refusals only."""

    async def handler(call: Call) -> None:
        if call.number >= 8:
            await call.send(HEAD, event("a"), pause_s=0.02)
            await server.die()
            await asyncio.sleep(1)
        await answer(call)

    async with stub(handler) as server:
        sent, report = await run_load(spec(server.base_url, 400, 4))
        assert len(sent) == 400
        assert sorted(s.planned.index for s in sent) == list(range(400))
        by_end = ends(sent)
        assert by_end[:8] == ["complete"] * 8
        assert set(by_end[8:12]) <= {"eof", "reset"}
        assert all(end.startswith("connect: ") for end in by_end[12:])
        not_sent = [s for s in sent if s.exchange.attempts == 0]
        assert len(not_sent) >= 400 - 12 - 3 * 4 - 4
        assert "Refused" in not_sent[0].exchange.ended
        assert report.t_queue_empty_ns > 0


async def test_nobody_listens_at_all() -> None:
    async with stub() as server:
        await server.die()
        sent, report = await run_load(spec(server.base_url, 50, 2))
        assert all(end.startswith("connect: ") for end in ends(sent))
        assert sum(s.exchange.attempts == 1 for s in sent) <= 8
        assert report.connections == 0


async def test_connection_that_cannot_be_set_up_in_time() -> None:
    """TLS to a server that speaks plain HTTP and waits: the handshake never ends."""
    async with stub() as server:
        url = server.base_url.replace("http://", "https://")
        sent, _ = await run_load(spec(url, 1, 1, connect_timeout_s=0.2))
        assert ends(sent)[0].startswith("connect: no connection within 0.2 s")


async def test_one_refusal_does_not_end_the_load() -> None:
    """A listener that is away for a moment costs the requests of that moment only."""

    async def handler(call: Call) -> None:
        await answer(call)
        call.writer.close()

    async with stub(handler) as server:
        sent, report = await run_load(spec(server.base_url, 30, 3))
        assert ends(sent) == ["complete"] * 30
        assert report.connections >= 30


@pytest.mark.parametrize(("field", "value"), [("slots", 0), ("stall_s", 0.0)])
def test_bad_spec_is_named(field: str, value: float) -> None:
    kwargs = {"slots": 1, "stall_s": 1.0} | {field: value}
    with pytest.raises(ValueError, match=field):
        Load(LoadSpec("http://127.0.0.1:1", "/", (), requests=planned(1), **kwargs))  # type: ignore[arg-type]
