"""The last gate before an engine is measured."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from aiohttp import web

from specsweep.client.dialects import dialect
from specsweep.client.trace import Sampling
from specsweep.client.warmup import WARMUP_TOKENS, warm_up

WIRE = dialect("vllm")
BODIES = [WIRE.request([i, 2, 3], Sampling(max_tokens=WARMUP_TOKENS, ignore_eos=True), model="m") for i in range(4)]


def answer(tokens: int) -> str:
    chunks = "".join(f'data: {{"choices":[{{"index":0,"text":" a","token_ids":[{i}],"finish_reason":null}}]}}\n\n' for i in range(tokens))
    usage = f'{{"prompt_tokens":3,"completion_tokens":{tokens},"total_tokens":{tokens + 3}}}'
    end = 'data: {"choices":[{"index":0,"text":"","token_ids":[],"finish_reason":"length"}]}\n\n'
    return chunks + end + f'data: {{"choices":[],"usage":{usage}}}\n\ndata: [DONE]\n\n'


@asynccontextmanager
async def server(reply: Callable[[int], web.Response]) -> AsyncIterator[tuple[str, list[int]]]:
    """``reply``: from the number of the request."""
    asked: list[int] = []

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        asked.append(1)
        return reply(len(asked))

    app = web.Application()
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


async def ask(url: str, *, exactly: bool = True) -> str | None:
    read = partial(WIRE.read, draft_length=None, n_prompt=None)
    return await warm_up(url + WIRE.path, BODIES, read, exactly=exactly, headers={}, timeout_s=10)


def stream(tokens: int) -> web.Response:
    return web.Response(text=answer(tokens), content_type="text/event-stream")


async def test_an_engine_that_answers_in_full_is_ready() -> None:
    async with server(lambda n: stream(WARMUP_TOKENS)) as (url, asked):
        assert await ask(url) is None
        assert len(asked) == len(BODIES)


async def test_one_rank_that_gives_too_few_tokens_keeps_the_gate_shut() -> None:
    async with server(lambda n: stream(3 if n % 4 == 0 else WARMUP_TOKENS)) as (url, asked):
        wrong = await ask(url)
        assert wrong is not None
        assert "3 tokens where 8 were asked for" in wrong
        assert len(asked) == len(BODIES), "asked again, another rank might answer"


async def test_a_server_that_cannot_be_told_to_go_on_may_stop_early() -> None:
    async with server(lambda n: stream(3)) as (url, _):
        assert await ask(url, exactly=False) is None


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (lambda n: web.Response(status=503, text="loading"), "HTTP 503: loading"),
        (lambda n: web.Response(text='data: {"error":{"message":"out of memory","code":500}}\n\n', content_type="text/event-stream"), "out of memory"),
        (lambda n: web.Response(text="", content_type="text/event-stream"), ""),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_told_in_the_engines_words(reply: Callable[[int], web.Response], says: str) -> None:
    async with server(reply) as (url, _):
        wrong = await ask(url)
    assert wrong is not None
    assert says in wrong


async def test_an_engine_that_fails_now_and_then_is_for_its_points_to_show() -> None:
    async with server(lambda n: web.Response(status=500) if n == 2 else stream(WARMUP_TOKENS)) as (url, asked):
        assert await ask(url) is None
        assert len(asked) == len(BODIES) + 1
