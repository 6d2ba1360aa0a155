"""Warm-up: real requests whose answers nobody measures.

An engine that answers ``/health`` has not yet compiled, captured or paged in what a full batch needs. So each batch size that is
about to be measured is run once, short, with prompts that are never measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

WARMUP_PROMPT = 32  # tokens of each prompt
WARMUP_TOKENS = 8  # of each answer


async def warm_up(url: str, bodies: Sequence[bytes], *, headers: dict[str, str], timeout_s: float) -> str | None:
    """Sends all bodies at once and reads the answers to their end. Returns what went wrong in the first failed one, None if all is well."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers={"Content-Type": "application/json", **headers}
    ) as session:
        answers = await asyncio.gather(*(_one(session, url, body) for body in bodies))
    return next((answer for answer in answers if answer is not None), None)


async def _one(session: aiohttp.ClientSession, url: str, body: bytes) -> str | None:
    try:
        async with session.post(url, data=body) as response:
            text = await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    if response.status != 200:
        return f"HTTP {response.status}: {text[:500].decode(errors='replace')}"
    return None
