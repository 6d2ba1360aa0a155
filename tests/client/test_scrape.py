"""Calls beside the measured stream: they answer, or they say nothing within their time-out; they never raise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from specsweep.client import scrape
from specsweep.client.dialects import dialect


@pytest.fixture
async def base_url() -> AsyncIterator[str]:
    running = iter([1, 5, 2] + [0] * 1000)
    waiting = iter([0, 2, 0] + [0] * 1000)

    async def metrics(_: web.Request) -> web.Response:
        gauges = {"running": next(running), "waiting": next(waiting)}
        return web.Response(text="".join(f'vllm:num_requests_{name}{{engine="0"}} {n}\n' for name, n in gauges.items()))

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async def private(request: web.Request) -> web.Response:
        return web.json_response({"ok": True}, status=200 if request.headers.get("Authorization") == "Bearer x" else 401)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/slow", slow), web.get("/private", private)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_health_text_and_json(base_url: str) -> None:
    token = {"Authorization": "Bearer x"}
    assert await scrape.is_healthy(base_url + "/private", headers=token)
    assert not await scrape.is_healthy(base_url + "/private")
    assert await scrape.is_healthy(base_url + "/private", any_answer=True)
    assert await scrape.fetch_json(base_url + "/private", headers=token) == {"ok": True}
    assert await scrape.fetch_json(base_url + "/private") is None
    assert await scrape.fetch_json(base_url + "/metrics") is None  # 200, but no JSON
    assert "num_requests_running" in (await scrape.fetch_text(base_url + "/metrics") or "")


async def test_nobody_there_and_an_answer_that_does_not_come(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "TIMEOUT_S", 0.1)
    assert not await scrape.is_healthy("http://127.0.0.1:9/health", any_answer=True)
    assert await scrape.fetch_text(base_url + "/slow") is None


async def test_gauge_sampler_keeps_each_look_and_the_highest_value(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "GAUGE_PERIOD_S", 0.01)
    async with scrape.GaugeSampler(base_url, dialect("vllm")) as gauges, asyncio.timeout(30):
        while len(gauges.samples) < 3:
            await asyncio.sleep(0.01)
    assert gauges.running_max == 5
    assert [(g.running, g.waiting) for g in gauges.samples[:3]] == [(1, 0), (5, 2), (2, 0)]
    times = [g.t_s for g in gauges.samples]
    assert times == sorted(times)


async def test_gauge_sampler_of_a_server_that_is_away_or_has_no_gauges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "GAUGE_PERIOD_S", 0.01)
    async with scrape.GaugeSampler("http://127.0.0.1:9", dialect("vllm")) as gauges:
        await asyncio.sleep(0.05)
    assert gauges.running_max is None
    async with scrape.GaugeSampler("http://127.0.0.1:9", dialect("openai_chat")) as gauges:
        await asyncio.sleep(0.02)
    assert gauges.running_max is None
