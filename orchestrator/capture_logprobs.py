"""Capturing the log-probabilities of one point's answers: its prompts once, each sampled token with what the target thought of it.

The engine is started as for any measurement, so speeds could be had, and they would be wrong in silence: a softmax over the vocabulary, its copy
to the host and longer events are paid for in every step. So this is a capture like that of the routing: untimed, on no front and in no
comparison, in a session of its own. The trace is kept, since it holds the numbers token by token; its stamps are those of an engine
that did more than serve, and its metadata say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from specsweep.analysis.surprisal import by_prompt, summary
from specsweep.client.actors import Team
from specsweep.client.dialects import dialect
from specsweep.client.trace import PlannedRequest, PointTrace
from specsweep.orchestrator.capture import send, untimed
from specsweep.orchestrator.clusters import RunningEngine
from specsweep.orchestrator.errors import RequestError
from specsweep.orchestrator.measuring import Measured, until_idle
from specsweep.orchestrator.points import Point


async def capture_logprobs(
    point: Point, requests: Sequence[PlannedRequest], engine: RunningEngine, team: Team, *, found: Mapping[str, Any], actors: int | None
) -> Measured:
    """Raises RequestError if one answer fails or comes without its log-probabilities, LostActor as a measurement does."""
    wire = dialect(point.config["engine"]["dialect"])
    await until_idle(wire, engine)
    trace = await send(point, requests, engine, team, wire, actors)
    simulated = bool(found.get("simulated"))
    trace.simulated = simulated
    trace.meta["untimed"] = "log-probabilities were asked for: the times are not those of serving"
    try:
        numbers = await asyncio.to_thread(lambda: summary(by_prompt(trace), float(point.config["temperature"])))
    except ValueError as error:
        raise RequestError(f"nothing was captured: {error}") from error
    return Measured(trace, measurement(numbers, trace, simulated=simulated), {})


def measurement(numbers: dict[str, Any], trace: PointTrace, *, simulated: bool) -> dict[str, Any]:
    """``measurement.json`` of a capture. It has no metric; it is valid, since one that is not whole was refused."""
    return {**untimed(trace, simulated=simulated, valid=True), "logprobs": numbers}
