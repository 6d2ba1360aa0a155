"""Warm-up: real requests whose answers nobody measures, and the last gate before an engine is measured.

An engine that answers ``/health`` has not yet compiled, captured or paged in what a full batch needs, and behind one address some of its
data-parallel ranks may not be there yet. So each batch size that is about to be measured is run once, short, with prompts that are never
measured, and every answer of it must have as many tokens as were asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic_ns

import aiohttp

from specsweep.client.trace import Exchange, Turn

WARMUP_PROMPT = 32  # tokens of each prompt
WARMUP_TOKENS = 8  # of each answer
TRIES = 2  # of each request


async def warm_up(
    url: str, bodies: Sequence[bytes], read: Callable[[Exchange], Turn], *, exactly: bool, headers: dict[str, str], timeout_s: float
) -> str | None:
    """Sends all bodies at once and reads the answers to their end; bad ones are asked for once more. Returns what is wrong with the first
    that stays bad, None if all is well.

    ``read``: the dialect's reading of one answer. ``exactly``: each must have :data:`WARMUP_TOKENS` tokens; else at least one.
    """
    async with _session(headers, timeout_s) as session:
        for _ in range(TRIES):
            answers = await asyncio.gather(*(_one(session, url, body) for body in bodies))
            turns = [answer if isinstance(answer, str) else read(answer) for answer in answers]
            if (short := next((n for turn in turns if (n := _too_few(turn, exactly)) is not None), None)) is not None:
                # Not asked again: behind one address another part of the engine would answer.
                return (
                    f"an answer has {short} tokens where {WARMUP_TOKENS} were asked for: a part of the engine is not up, or cannot decode"
                )
            failures = {body: words for body, turn in zip(bodies, turns, strict=True) if (words := _failure(turn)) is not None}
            bodies = tuple(failures)  # an engine that fails now and then is for its points to show
    return next(iter(failures.values()), None)


async def ask(url: str, body: bytes, *, headers: dict[str, str], timeout_s: float) -> str | None:
    """Sends one request and reads its answer to the end, whatever it says. Returns why there was none."""
    async with _session(headers, timeout_s) as session:
        answer = await _one(session, url, body)
    return answer if isinstance(answer, str) else None


def _session(headers: dict[str, str], timeout_s: float) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, headers={"Content-Type": "application/json", **headers})


def _failure(turn: Turn | str) -> str | None:
    if isinstance(turn, str):
        return turn
    return None if turn.outcome == "ok" else f"{turn.error_kind or turn.outcome}: {turn.error or 'no reason was given'}"


def _too_few(turn: Turn | str, exactly: bool) -> int | None:
    """How many tokens a complete answer has, if they are not as many as they should be."""
    if isinstance(turn, str) or turn.outcome != "ok":
        return None
    tokens = sum(turn.chunk_tokens) if turn.n_completion_server is None else turn.n_completion_server
    return None if tokens == WARMUP_TOKENS or (tokens and not exactly) else tokens


async def _one(session: aiohttp.ClientSession, url: str, body: bytes) -> Exchange | str:
    began = monotonic_ns()
    try:
        async with session.post(url, data=body) as response:
            text = await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    if response.status != 200:
        return f"HTTP {response.status}: {text[:500].decode(errors='replace')}"
    kind = response.headers.get("Content-Type", "")
    now = monotonic_ns()
    return Exchange(began, response.status, [("Content-Type", kind)], [(now, text)], "eof", now)
