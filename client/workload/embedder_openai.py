"""Embeddings from an endpoint that speaks OpenAI's API: theirs, or one of your own (``OPENAI_BASE_URL``).

The key comes from ``OPENAI_API_KEY`` and goes nowhere but into the request's header. Requests stay below the API's limits, some are
in flight at once, and what can heal (busy, rate limit, a lost connection) is tried again with growing pauses, or after the pause that the
server asks for. What cannot heal (a wrong key, no quota left, an unknown model) ends the run at once with the server's own words.

Of a longer text OpenAI's embedding models are given the first 8,191 ``cl100k_base`` tokens, which is all they read; without the cut
they would refuse it. Other endpoints count in other tokens, so they get whole texts and decide themselves.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import aiohttp
import numpy as np

from specsweep.client.workload.embedders import Vectors, unit
from specsweep.client.workload.errors import WorkloadError

OFFICIAL = "https://api.openai.com/v1"
INPUT_TOKENS = 8_191  # of one text
REQUEST_TOKENS = 250_000  # of all texts of a request; the API refuses more than 300,000
REQUEST_TEXTS = 256  # the API takes 2,048; a lost request should not cost that much
IN_FLIGHT = 4
ATTEMPTS = 6
TIMEOUT_S = 120.0
LONGEST_PAUSE_S = 60.0
_MAY_HEAL = {408, 409, 425, 429, 500, 502, 503, 504}


class _Refused(Exception):
    """An answer that another attempt will not change."""


@dataclass(frozen=True, slots=True)
class OpenAIEmbedder:
    """``first_pause_s``: before the second attempt of a request; each further pause is twice as long."""

    model: str
    base_url: str = OFFICIAL
    key: str = field(default="", repr=False)
    first_pause_s: float = 1.0

    @classmethod
    def from_environment(cls, model: str) -> OpenAIEmbedder:
        base_url = os.environ.get("OPENAI_BASE_URL", "").rstrip("/") or OFFICIAL
        key = os.environ.get("OPENAI_API_KEY", "")
        if not key and base_url == OFFICIAL:
            raise WorkloadError(f"embedder openai:{model} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for an endpoint of your own")
        return cls(model, base_url, key)

    @property
    def name(self) -> str:
        """Models behind this API have no revision that could be asked for; one at another address may be another model."""
        return f"openai:{self.model}" + ("" if self.base_url == OFFICIAL else f" at {self.base_url}")

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Blocks until all are there, so it is not for coroutines."""
        if (empty := next((i for i, text in enumerate(texts) if not text.strip()), None)) is not None:
            raise WorkloadError(f"embedder {self.name}: text {empty} is empty; leave it out")
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        rows = [row for batch in asyncio.run(self._all(texts)) for row in batch]
        if len({len(row) for row in rows}) > 1:
            raise WorkloadError(
                f"embedder {self.name}: the server's vectors differ in length, from {min(map(len, rows))} to {max(map(len, rows))}"
            )
        return unit(np.stack(rows), self.name)

    async def _all(self, texts: Sequence[str]) -> list[list[Vectors]]:
        gate = asyncio.Semaphore(IN_FLIGHT)
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            batches = _batches(texts, cut=self.base_url == OFFICIAL)
            return list(await asyncio.gather(*(self._batch(session, gate, batch) for batch in batches)))

    async def _batch(self, session: aiohttp.ClientSession, gate: asyncio.Semaphore, batch: Sequence[str]) -> list[Vectors]:
        pause, said = self.first_pause_s, ""
        for attempt in range(1, ATTEMPTS + 1):
            asked = None
            async with gate:
                try:
                    status, asked, answer = await self._post(session, batch)
                    if status == 200:
                        return _vectors(answer, len(batch))
                    said = f"HTTP {status}: {_message(answer)}"
                    if status not in _MAY_HEAL or "insufficient_quota" in str(answer):
                        raise _Refused(said)
                except _Refused as error:
                    hint = "; check OPENAI_API_KEY" if "HTTP 401" in str(error) else ""
                    raise WorkloadError(f"embedder {self.name} refuses: {error}{hint}") from error
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    said = f"{type(error).__name__}: {error}"
            if attempt < ATTEMPTS:
                await asyncio.sleep(min(asked if asked is not None else pause, LONGEST_PAUSE_S))
                pause *= 2
        raise WorkloadError(f"embedder {self.name} gave no answer in {ATTEMPTS} attempts; the last one: {said}")

    async def _post(self, session: aiohttp.ClientSession, batch: Sequence[str]) -> tuple[int, float | None, Any]:
        """Status, the pause that the server asks for, and the answer: parsed where it is JSON."""
        body = {"model": self.model, "input": list(batch), "encoding_format": "base64"}
        async with session.post(f"{self.base_url}/embeddings", json=body) as response:
            asked = response.headers.get("Retry-After", "")
            pause = float(asked) if asked.replace(".", "", 1).isdecimal() else None
            try:
                return response.status, pause, await response.json(content_type=None)
            except ValueError:
                return response.status, pause, await response.text(errors="replace")


def _batches(texts: Sequence[str], *, cut: bool) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        tokens = _tokens().encode(text)
        if cut and len(tokens) > INPUT_TOKENS:
            text, tokens = _beginning(tokens), tokens[:INPUT_TOKENS]
        if batch and (len(batch) == REQUEST_TEXTS or size + len(tokens) > REQUEST_TOKENS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(tokens)
    yield batch


def _beginning(tokens: Sequence[int]) -> str:
    """The text of the first tokens, without a character that the cut goes through."""
    return str(_tokens().decode(list(tokens[:INPUT_TOKENS]))).rstrip("�")


@cache
def _tokens() -> Any:
    import quicktok

    return quicktok.get_encoding("cl100k_base")


def _vectors(answer: Any, count: int) -> list[Vectors]:
    """The rows of an answer in the order of the texts. Raises :class:`_Refused` for one that is not of the API's form."""
    try:
        data = sorted(answer["data"], key=lambda item: int(item["index"]))
        if [item["index"] for item in data] != list(range(count)):
            raise _Refused(f"the answer holds vectors {[item['index'] for item in data][:5]} … for {count} texts")
        return [_vector(item["embedding"]) for item in data]
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise _Refused(f"the answer is not one of an embeddings endpoint ({type(error).__name__}: {error}): {str(answer)[:200]}") from error


def _vector(embedding: Any) -> Vectors:
    """Base64 of little-endian single floats, as asked for, or numbers, which is all that some servers send."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    return np.asarray(embedding, dtype=np.float32)


def _message(answer: Any) -> str:
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return str(error.get("message", error) if isinstance(error, dict) else error)[:300]
