"""What a plan will take, in seconds: good enough to order sessions and to decide whether to wait for them.

The model is a roofline's poor relative. Of a point with N requests at batch size B:

    waves     = N / B, and half a wave of warm-up
    prefill   = isl / prefill_tps          one prompt after the other, those of the warm-up too: they share the engine
    step      = step_ms + B · ms_per_request       the weights are read once a step, attention and sampling once a request
    decode    = osl / tokens_per_step · step · step_factor
    seconds   = overhead + turns · ((N + B) · prefill + waves · decode)

N counts conversations, and ``turns`` is how many of them one has on average. A prompt of natural length takes about a token every four
bytes, and a later turn's holds what was said and answered before it.

The coefficients stand under ``cost:`` in the files of the engine, the target and the drafter; what a file leaves out has the
values of :data:`DEFAULTS`. Points that were measured before correct it: a point with history takes what it took, and the
others of its target are scaled by the median ratio of measured to estimated time.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from specsweep.orchestrator.identity import capture
from specsweep.orchestrator.points import Point
from specsweep.orchestrator.workload_rules import extent_of, prompt_tokens

DEFAULTS: Mapping[str, float] = {
    "start_s": 60.0,
    "step_ms": 20.0,
    "ms_per_request": 0.5,
    "prefill_tps": 5000.0,
    "tokens_per_step": 2.0,
    "step_factor": 1.3,
}
POINT_OVERHEAD_S = 1.0  # warm-up, building and encoding of requests, counters, writing the results


def start_seconds(config: Mapping[str, Any]) -> float:
    """One engine start, until it is ready. An attached server is there already."""
    return 0.0 if config["cluster"]["kind"] == "attach" else _coefficient(config, "engine", "start_s")


def start_is_a_guess(config: Mapping[str, Any]) -> bool:
    """``start_s`` stands in the engine's file and was taken from small models; one that fills GPUs takes what its disk gives."""
    return config["cluster"]["kind"] != "attach" and config["engine"]["name"] != "sim" and bool(config["target"].get("gpus"))


def point_seconds(config: Mapping[str, Any]) -> float:
    """One point, without history."""
    workload, batch = config["workload"], config["batch_size"]
    requests = _conversations(config)
    turns = request_count(config) / requests
    step_ms = _coefficient(config, "target", "step_ms") + batch * _coefficient(config, "target", "ms_per_request")
    steps = workload["osl"] / _coefficient(config, "drafter", "tokens_per_step")
    decode_s = steps * step_ms / 1000 * _coefficient(config, "drafter", "step_factor")
    prefill_s = prompt_tokens(config) / _coefficient(config, "target", "prefill_tps")
    return float(POINT_OVERHEAD_S + turns * ((requests + batch) * prefill_s + (requests / batch + 0.5) * decode_s))


def request_count(config: Mapping[str, Any]) -> int:
    """Requests that a point sends: every turn of a conversation of ramp-up a slot, then of the main ones; a capture sends each prompt once."""
    conversations, extent = _conversations(config), extent_of(config)
    if capture(config) or extent is None:
        return conversations
    from specsweep.client.workload.extent import requests

    ramp = int(config["batch_size"])
    return requests(extent, conversations - ramp, ramp)


def _conversations(config: Mapping[str, Any]) -> int:
    if capture(config):
        return int(config["workload"]["prompts"])
    batch = int(config["batch_size"])
    return int(batch + max(config["workload"]["prompts"], config["measure"]["requests_per_slot"] * batch))


def estimate(points: Sequence[Point], history: Mapping[str, float]) -> list[float]:
    """Seconds of each point. ``history``: point_id → seconds that it took when it was measured."""
    raw = [point_seconds(p.config) for p in points]
    ratios: dict[str, list[float]] = {}
    for point, seconds in zip(points, raw, strict=True):
        if point.point_id in history:
            ratios.setdefault(str(point.axes["target"]), []).append(history[point.point_id] / seconds)
    scale = {target: statistics.median(found) for target, found in ratios.items()}
    return [history.get(p.point_id, seconds * scale.get(str(p.axes["target"]), 1.0)) for p, seconds in zip(points, raw, strict=True)]


def guessed(points: Sequence[Point], history: Mapping[str, float]) -> set[str]:
    """Ids of the points whose seconds rest on nothing that is known of their server, and are good for ordering only.

    They are those of an attached server or of a target whose file has no ``cost``, as long as no point of the target has a history.
    """
    timed = {str(p.axes["target"]) for p in points if p.point_id in history}
    return {
        p.point_id
        for p in points
        if str(p.axes["target"]) not in timed and (p.config["cluster"]["kind"] == "attach" or not p.config["target"].get("cost"))
    }


def measured_seconds(attempts: Sequence[Any]) -> float | None:
    """How long the newest valid attempt of a point took; None if there is none (or its times cannot be read)."""
    for attempt in reversed(attempts):
        if attempt.point.get("status") != "measured" or not attempt.valid:  # what disturbed it took time, too
            continue
        try:
            started, finished = (datetime.fromisoformat(attempt.point[k]) for k in ("started_utc", "finished_utc"))
        except (KeyError, TypeError, ValueError):
            continue
        return max(0.0, (finished - started).total_seconds())
    return None


def _coefficient(config: Mapping[str, Any], group: str, name: str) -> float:
    return float((config[group].get("cost") or {}).get(name) or DEFAULTS[name])
