"""Measuring one point on a running engine: from prompts to a trace with the engine's counters beside it, and the numbers of both.

The order matters. Everything that costs time (tokenising, serialising, opening connections) comes before the window; counters
are read when the engine is idle, before and after; parsing and statistics come after it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.actors import ClientPool, Endpoint, PointLoad, PointResult
from specsweep.client.dialects import Dialect, dialect
from specsweep.client.load_plan import plan_requests
from specsweep.client.recording import RecordingWriter
from specsweep.client.scrape import GaugeSampler, fetch_text
from specsweep.client.trace import EngineCounters, PlannedRequest, PointTrace, Sampling
from specsweep.client.workload import PromptSet
from specsweep.orchestrator.clusters import RunningEngine
from specsweep.orchestrator.errors import ConfigError, RequestError
from specsweep.orchestrator.points import Point

IDLE_WAIT_S = 30.0
IDLE_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    trace: PointTrace
    measurement: dict[str, Any]
    evidence: dict[str, str | bytes] = {}
    if result.raw is not None:
        evidence["raw.jsonl.gz"] = await asyncio.to_thread(recording, point, wire, engine_version, result.raw, before.text, after.text)
    return Measured(trace, numbers, evidence)


async def _in_thread(pool: ClientPool, load: PointLoad) -> PointResult:
    try:
        return await asyncio.to_thread(pool.measure, load)
    except asyncio.CancelledError:
        pool.abort()  # the thread ends with the clients
        raise


def recording(point: Point, wire: Dialect, engine_version: str, raw: Any, before: str, after: str) -> bytes:
    """The raw exchanges of a point in the recording format, as ``specsweep inspect`` reads it."""
    with tempfile.TemporaryDirectory(prefix="specsweep-raw-") as folder:
        path = Path(folder, "raw.jsonl.gz")
        with RecordingWriter(path) as writer:
            writer.meta(
                label=f"{point.short_id} {point.axes['engine']} {point.axes['drafter']}",
                dialect=wire.name,
                version=engine_version,
                draft_length=point.axes["draft_length"],
            )
            writer.metrics("before", before)
            for name, planned, exchange in raw:
                writer.request(str(name), wire.path, planned.body, exchange, plan={"phase": planned.phase, "prompt_id": planned.prompt_id})
            writer.metrics("after", after)
        return path.read_bytes()
