"""Requests that are sent again: only before the first token, so many times and no more, and never without saying so."""

from __future__ import annotations

import asyncio

import pytest
from stream_stubs import HEAD, Call, answer, event, planned, stub

from specsweep.client.actor import read_sent
from specsweep.client.load import LoadSpec, Sent, run_load
from specsweep.client.protocol import Answer
from specsweep.client.retry import MOST_RETRIES, pause_s, transient
from specsweep.orchestrator.fields import FIELDS

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno"


def answered(*reads: bytes, ended: str = "complete") -> Answer:
    return Answer(1, 2, [(1, data) for data in reads], ended)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (answered(BUSY), "HTTP 503"),
        (answered(BUSY[:20], BUSY[20:]), "HTTP 503"),
        (answered(TOO_MANY), "HTTP 429"),
        (answered(b"HTTP/1.1 500 Oops\r\n\r\n", ended="eof"), "HTTP 500"),
        (answered(ended="connect: refused"), "connect: refused"),
        (answered(ended="reset"), "reset before the first byte of an answer"),
        (answered(HEAD, ended="eof"), "eof before the first byte of an answer"),
        (answered(REFUSED), ""),
        (answered(HEAD, event("a"), ended="reset"), ""),
        (answered(HEAD + event("a"), ended="eof"), ""),
        (answered(HEAD, event("a")), ""),
        (answered(ended="stalled"), ""),
        (answered(HEAD, ended="stalled"), ""),
        (answered(ended="not_sent: turn 0 failed"), ""),
        (answered(ended="client_abort"), ""),
    ],
)
def test_what_may_be_sent_again(found: Answer, why: str) -> None:
    assert transient(found) == why


def test_the_pauses_grow_and_stay_short() -> None:
    pauses = [pause_s(n) for n in range(1, MOST_RETRIES + 1)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.1
    assert pauses[-1] == 2.0


def test_a_sweep_may_ask_for_as_many_retries_as_there_are() -> None:
    assert FIELDS["measure.retries"].high == MOST_RETRIES


def spec(url: str, requests: int, retries: int, slots: int = 1) -> LoadSpec:
    return LoadSpec(url, "/v1/completions", (), slots, planned(requests), 20.0, retries=retries)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsweep.client.load.pause_s", lambda retry: 0.0)


async def sent_with(first: bytes, retries: int, *, times: int) -> tuple[list[Sent], int]:
    """One request to a server that answers the first ``times`` requests with ``first``, later ones well; and how many it saw."""

    async def handler(call: Call) -> None:
        if call.number < times:
            await call.send(first)
        else:
            await answer(call)

    async with stub(handler) as server:
        sent, _ = await run_load(spec(server.base_url, 1, retries))
        return sent, server.requests


async def test_a_busy_server_is_asked_again_and_the_trace_says_how_often_and_why() -> None:
    sent, seen = await sent_with(BUSY, 3, times=2)
    assert seen == 3
    (row,) = read_sent(sent, actor=0, dialect="vllm", draft_length=0)
    assert row.retried == ["HTTP 503", "HTTP 503"]
    assert row.attempts == 1  # the last try went over its connection once
    assert sent[0].exchange.status == 200


async def test_no_more_retries_than_were_asked_for() -> None:
    sent, seen = await sent_with(BUSY, 2, times=9)
    assert seen == 3
    assert sent[0].exchange.status == 503
    assert sent[0].exchange.retried == ["HTTP 503", "HTTP 503"]


@pytest.mark.parametrize(("first", "status"), [(BUSY, 503), (TOO_MANY, 429)])
async def test_nothing_is_sent_again_unless_it_was_asked_for(first: bytes, status: int) -> None:
    sent, seen = await sent_with(first, 0, times=1)
    assert (seen, sent[0].exchange.status, sent[0].exchange.retried) == (1, status, [])


async def test_what_would_only_fail_again_is_not_sent_again() -> None:
    sent, seen = await sent_with(REFUSED, 5, times=1)
    assert (seen, sent[0].exchange.status, sent[0].exchange.retried) == (1, 400, [])


async def test_an_answer_that_breaks_after_its_first_token_is_a_result() -> None:
    async def handler(call: Call) -> None:
        await call.send(HEAD, event("a"))
        await asyncio.sleep(0.05)  # or both would be one read that the reset overtakes
        call.cut()

    async with stub(handler) as server:
        sent, _ = await run_load(spec(server.base_url, 1, 5))
        assert server.requests == 1
        assert sent[0].exchange.retried == []


async def test_refused_connections_are_tried_so_often_and_a_dead_server_still_ends_the_load() -> None:
    sent, _ = await run_load(spec("http://127.0.0.1:9", 20, 2))
    assert len(sent) == 20
    assert all(s.exchange.ended.startswith("connect: ") for s in sent)
    assert sum(len(s.exchange.retried) for s in sent) <= 3  # then it was given up: nothing more is sent


async def test_times_are_those_of_the_last_try() -> None:
    sent, _ = await sent_with(BUSY, 1, times=1)
    exchange = sent[0].exchange
    assert exchange.t_send_ns < exchange.reads[0][0] <= exchange.t_end_ns
