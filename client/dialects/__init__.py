"""The wire side of the engines: one module a wire, each with one object that satisfies :class:`Dialect`.

A dialect is pure. It turns token ids into a request body before the window, and the bytes of a finished exchange into a
:class:`~specsweep.client.trace.Turn` after it. It never touches a socket or a clock, so that recorded streams prove it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from specsweep.client.trace import EngineCounters, Exchange, Sampling, Turn

DIALECTS = ("llamacpp", "vllm", "sglang", "trtllm", "openai_chat")


class Dialect(Protocol):
    name: str
    path: str  # of the generation endpoint
    takes_ids: bool  # False: the prompt is sent as text and the server applies its template, so the ids are not known
    metrics_path: str | None

    def request(self, prompt: Sequence[int] | str, sampling: Sampling, *, model: str) -> bytes:
        """The complete JSON body. Sends exactly the fields that the engine knows."""
        ...

    def read(self, exchange: Exchange, *, draft_length: int | None, n_prompt: int | None) -> Turn:
        """Never raises for anything that a server can send: what is wrong ends in ``outcome``, ``error_kind`` and ``notes``."""
        ...

    def counters(self, metrics_text: str) -> EngineCounters: ...


def dialect(name: str) -> Dialect:
    """Raises ``KeyError`` naming the known dialects."""
    if name not in DIALECTS:
        raise KeyError(f"unknown dialect {name!r}; known: {', '.join(DIALECTS)}")
    return import_module(f"specsweep.client.dialects.{name}").DIALECT  # type: ignore[no-any-return]
