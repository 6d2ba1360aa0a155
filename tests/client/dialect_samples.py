"""Exchanges for the dialects' tests: recorded ones by name, and small ones made by hand."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specsweep.client.dialects import dialect
from specsweep.client.recording import Recording, read_recording
from specsweep.client.trace import EngineCounters, Exchange, Turn

RECORDINGS = Path(__file__).parents[1] / "recordings"
MS = 1_000_000


@functools.cache
def recording(name: str) -> Recording:
    return read_recording(RECORDINGS / f"{name}.jsonl.gz")


@functools.cache
def turns(name: str, draft_length: int | None, dialect_name: str | None = None) -> dict[str, Turn]:
    """Every request of a recording, read with the number of prompt tokens that was sent."""
    found = recording(name)
    wire = dialect(dialect_name or found.meta["dialect"])
    sent = {r.name: len(r.body["prompt" if "prompt" in r.body else "input_ids"]) if r.body else None for r in found.requests}
    return {r.name: wire.read(r.exchange, draft_length=draft_length, n_prompt=sent[r.name]) for r in found.requests}


def stretches(name: str) -> Iterable[tuple[EngineCounters, list[str]]]:
    """Between two metrics pages: what the engine counted, and the requests that it served."""
    found = recording(name)
    wire = dialect(found.meta["dialect"])
    pages = [wire.counters(text) for _, text in found.metrics]
    for i, (start, end) in enumerate(zip(found.before, found.before[1:], strict=False)):
        yield pages[i + 1] - pages[i], [r.name for r in found.requests[start:end]]


def answer(*events: Any, ended: str = "complete", status: int = 200, closed: bool = True, every_ms: int = 1) -> Exchange:
    """A chunked event stream, one read an event; strings are sent as they are (``[DONE]``)."""
    reads = []
    for i, event in enumerate(events):
        data = b"data: %s\n\n" % (event if isinstance(event, str) else json.dumps(event)).encode()
        reads.append(((i + 1) * every_ms * MS, b"%x\r\n%s\r\n" % (len(data), data)))
    if closed:
        reads.append((len(events) * every_ms * MS, b"0\r\n\r\n"))
    return Exchange(t_send_ns=0, status=status, headers=[("Transfer-Encoding", "chunked")], reads=reads, ended=ended)


def refused(body: Any, status: int = 400) -> Exchange:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Exchange(0, status, [("Content-Length", str(len(data)))], [(1, data)], "complete")
