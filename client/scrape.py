"""Every HTTP call that is not the measured stream: health, counters, what a server says of itself.

Plain aiohttp, a fresh session a call: these calls are few and far between, and must never share a connection or a limit with the
stream that is measured. Gauges are read once a second at most, since an engine answers ``/metrics`` from the loop that decodes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp

from specsweep.client.dialects import Dialect
from specsweep.client.trace import GaugeSample

TIMEOUT_S = 10.0
HEALTH_TIMEOUT_S = 2.0
GAUGE_PERIOD_S = 1.0


async def is_healthy(url: str, *, headers: Mapping[str, str] | None = None, any_answer: bool = False) -> bool:
    """Whether ``url`` answers 200; with ``any_answer`` whether anything answers at all."""
    found = await _get(url, headers, HEALTH_TIMEOUT_S)
    return found is not None and (any_answer or found[0] == 200)


async def fetch_text(url: str, *, headers: Mapping[str, str] | None = None) -> str | None:
    """The body of a 200 answer, else None."""
    found = await _get(url, headers, TIMEOUT_S)
    return found[1] if found is not None and found[0] == 200 else None


async def fetch_json(url: str, *, headers: Mapping[str, str] | None = None) -> Any:
    """The parsed body of a 200 answer, else None."""
    text = await fetch_text(url, headers=headers)
    with suppress(ValueError):
        return None if text is None else json.loads(text)
    return None


async def _get(url: str, headers: Mapping[str, str] | None, timeout_s: float) -> tuple[int, str] | None:
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with aiohttp.ClientSession(timeout=timeout, headers=dict(headers or {})) as session, session.get(url) as response:
            return response.status, await response.text(errors="replace")
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None


class GaugeSampler:
    """What the engine's gauges of running and waiting requests said while it was entered, as an async context manager."""

    def __init__(self, base_url: str, dialect: Dialect, *, headers: Mapping[str, str] | None = None) -> None:
        self.samples: list[GaugeSample] = []  # empty: the engine has no such gauge, or there was no time for a look
        self._url = None if dialect.metrics_path is None else base_url + dialect.metrics_path
        self._dialect = dialect
        self._headers = headers
        self._task: asyncio.Task[None] | None = None

    @property
    def running_max(self) -> float | None:
        return max((sample.running for sample in self.samples), default=None)

    async def __aenter__(self) -> GaugeSampler:
        if self._url is not None:
            self._task = asyncio.create_task(self._sample())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _sample(self) -> None:
        assert self._url is not None
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            await asyncio.sleep(GAUGE_PERIOD_S)
            text = await fetch_text(self._url, headers=self._headers)
            if text is None:
                continue
            found = self._dialect.counters(text)
            if found.running is not None:
                self.samples.append(GaugeSample(round(loop.time() - began, 3), found.running, found.waiting))
