"""Capturing the routing of one point on a running engine: its prompts once, its batch in flight, the engine's recorder running.

It looks like a measurement and is none. The recorder slows every pass and may turn kernels and graphs off, so nothing of the time that
it took is kept: no trace, no speed, ``untimed`` in the measurement. What is kept is what the recorder counted, in the form of
:mod:`specsweep.analysis.routing`, and the engine's own files beside it as long as they are small.

A capture is whole or it is nothing. A request that failed, a rank that wrote no file, counts that do not add up: each fails the point,
because a share of unused experts is only as good as the tokens that it is of.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specsweep.analysis.check import Check
from specsweep.analysis.routing import Routing, summarise, to_npz
from specsweep.client.actors import Endpoint, PointLoad, Team
from specsweep.client.dialects import Dialect, dialect
from specsweep.client.routing_dump import RoutingDump, RoutingDumpError, read_sglang
from specsweep.client.routing_recorder import Recorder, RecorderError
from specsweep.client.routing_window import FILL_PROMPT, Window, read_trtllm
from specsweep.client.trace import PlannedRequest, PointTrace
from specsweep.client.workload import PromptSet
from specsweep.orchestrator.capture_rules import captures_logprobs
from specsweep.orchestrator.clusters import RunningEngine
from specsweep.orchestrator.engines.trtllm import CAPTURE_ITERATIONS
from specsweep.orchestrator.errors import RequestError
from specsweep.orchestrator.measuring import Measured, check_context, in_thread, sampling, until_idle
from specsweep.orchestrator.points import Point

RECORDER_FOLDER = "routing"  # in the folder of an engine's files
RAW_LIMIT = 50_000_000  # bytes of engine files that are kept beside what was made of them
SCHEMA_VERSION = 1
MOST_FILLED = 512  # tokens of one filling answer
FILL_ID = 100  # any ordinary token


def capture_requests(point: Point, prompts: PromptSet, model: str) -> list[PlannedRequest]:
    """Every measured prompt once, in its order; there is no ramp, since there is no steady state to wait for.

    Raises ConfigError for a prompt that the target's context cannot hold.
    """
    check_context(point, prompts)
    wire, asked = dialect(point.config["engine"]["dialect"]), sampling(point.config)
    asked = dataclasses.replace(asked, logprobs=captures_logprobs(point.config))
    return [
        PlannedRequest(
            index=index,
            prompt_id=prompt.prompt_id,
            conversation_id=prompt.prompt_id,
            turn=0,
            category=prompt.category,
            phase="main",
            pass_index=0,
            n_prompt=len(prompt.ids),
            max_tokens=asked.max_tokens,
            body=wire.request(prompt.ids, asked, model=model),
        )
        for index, prompt in enumerate(prompts.main)
    ]


async def capture_point(
    point: Point, requests: Sequence[PlannedRequest], engine: RunningEngine, team: Team, *, found: Mapping[str, Any], files: int,
    actors: int | None,
) -> Measured:  # fmt: skip
    """``files``: how many one dump of this engine writes. Raises RequestError for a capture that is not whole, LostActor as a measurement does."""
    if engine.files is None:
        raise RequestError("the folder that the engine's recorder writes to cannot be read from here")
    wire = dialect(point.config["engine"]["dialect"])
    recorder = _recorder(point, requests, engine, wire, engine.files / RECORDER_FOLDER, files)
    await until_idle(wire, engine)
    try:
        await recorder.start()
        trace = await send(point, requests, engine, team, wire, actors)
        await until_idle(wire, engine)  # a pass that still runs is one of the capture
        await recorder.stop()
        raw = await recorder.dump()
        top_k = _top_k(point, found)
        dump = await asyncio.to_thread(_read, raw, recorder, trace, top_k)
        routing = Routing(dump.counts, dump.pass_ids, dump.physical_to_logical, top_k)
        numbers = await asyncio.to_thread(summarise, routing)
        _check_experts(numbers["experts"], point)
    except (RecorderError, RoutingDumpError, ValueError) as error:
        raise RequestError(f"nothing was captured: {error}") from error
    evidence: dict[str, str | bytes] = {"routing.npz": await asyncio.to_thread(to_npz, routing)}
    kept = sum(len(content) for content in raw.values()) <= RAW_LIMIT
    if kept:
        evidence |= {f"{RECORDER_FOLDER}/{name}": content for name, content in raw.items()}
    return Measured(None, measurement(numbers, trace, dump, raw, kept=kept, simulated=bool(found.get("simulated"))), evidence)


def tokens_of(trace: PointTrace) -> tuple[int, int]:
    """(prompt tokens, answer tokens) of all requests. Of an answer all but the last token are routed."""
    return sum(r.n_prompt for r in trace.requests), sum(sum(r.read.chunk_tokens) for r in trace.requests)


def _recorder(
    point: Point, requests: Sequence[PlannedRequest], engine: RunningEngine, wire: Dialect, folder: Path, files: int
) -> Recorder | Window:
    headers = dict(engine.headers)
    if point.config["engine"]["name"] != "trtllm":
        return Recorder(engine.base_url, folder, files=files, headers=headers)
    room = max(r.n_prompt + r.max_tokens for r in requests) - FILL_PROMPT  # of the context that the engine was started with
    tokens = max(1, min(MOST_FILLED, room))
    asked = dataclasses.replace(sampling(point.config), max_tokens=tokens, ignore_eos=True)
    ids = [FILL_ID] * FILL_PROMPT
    body = wire.request(ids, asked, model=engine.model_name)
    return Window(engine.base_url + wire.path, folder, files, CAPTURE_ITERATIONS, body, tokens, headers)


def _read(raw: Mapping[str, bytes], recorder: Recorder | Window, trace: PointTrace, top_k: int | None) -> RoutingDump:
    if isinstance(recorder, Window):
        prompt_tokens, output_tokens = tokens_of(trace)
        return read_trtllm(raw, wanted=prompt_tokens + output_tokens - len(trace.requests), fills=recorder.fills, top_k=top_k)
    return read_sglang(raw)


def whole(routed: int | None, wanted: int, *, drafts: bool) -> Check:
    """Whether the tokens that were routed are those that were sent: every prompt token once, and every answer token but the last of each.

    Drafts come on top. Where the experts a token are not known, nor is the number of tokens, and nothing is checked."""
    ok = routed is None or (routed >= wanted if drafts else routed == wanted)
    message = "" if ok else f"the recorder counted {routed} tokens; prompts and answers have {wanted} that are routed"
    value = None if routed is None else float(routed)
    return Check("routed_tokens", value, float(wanted), ok, ("all",), message)


async def send(
    point: Point, requests: Sequence[PlannedRequest], engine: RunningEngine, team: Team, wire: Dialect, actors: int | None
) -> PointTrace:
    """All requests at the point's batch size. Raises RequestError if one fails: a capture is whole or it is nothing."""
    load = PointLoad(
        endpoint=Endpoint(engine.base_url, engine.headers),
        path=wire.path,
        dialect=wire.name,
        batch_size=int(point.axes["batch_size"]),
        requests=list(requests),
        draft_length=point.axes["draft_length"] or 0,
        stall_s=float(point.config["measure"]["stall_seconds"]),
        processes=actors,
    )
    trace = (await in_thread(team, load)).trace
    failed = [request.read for request in trace.requests if request.read.outcome != "ok"]
    if failed:
        raise RequestError(
            f"{len(failed)} of {len(trace.requests)} requests failed, so their tokens are missing in the capture; the first: "
            f"{failed[0].error_kind}: {failed[0].error}"
        )
    return trace


def _top_k(point: Point, found: Mapping[str, Any]) -> int | None:
    """Experts per token, as the target's file says, or the running simulation."""
    known = found.get("experts_per_token") or (point.config["target"].get("experts") or {}).get("per_token")
    return int(known) if known else None


def _check_experts(counted: int, point: Point) -> None:
    """Raises RequestError where the recorder counted more experts than the target has: copies that it did not map, or another model."""
    known = (point.config["target"].get("experts") or {}).get("count")
    if known and counted > known:
        raise RequestError(
            f"nothing was captured: the recorder counted {counted} experts, target.experts.count={known}; set it to what the model has, or "
            "start the engine without redundant experts"
        )


def untimed(trace: PointTrace, *, simulated: bool, valid: bool) -> dict[str, Any]:
    """What ``measurement.json`` of every capture says: there is no metric, and ``valid`` tells whether the capture is whole."""
    prompt_tokens, output_tokens = tokens_of(trace)
    return {
        "schema_version": SCHEMA_VERSION,
        "simulated": simulated,
        "untimed": True,
        "metrics": {},
        "absent": {},
        "ci": {},
        "checks": [],
        "validity": {"valid": valid, "tps": False, "steps": False, "acceptance": False},
        "counts": {
            "requests": len(trace.requests),
            "ok": len(trace.requests),
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
        },
    }


def measurement(
    numbers: dict[str, Any], trace: PointTrace, dump: RoutingDump, raw: Mapping[str, bytes], *, kept: bool, simulated: bool
) -> dict[str, Any]:
    """``measurement.json`` of a capture. It has no metric; ``valid`` says that the capture is whole."""
    prompt_tokens, output_tokens = tokens_of(trace)
    drafts = any(sum(request.read.step_drafted) > 0 for request in trace.requests)
    check = whole(numbers["tokens"], prompt_tokens + output_tokens - len(trace.requests), drafts=drafts)
    return {
        **untimed(trace, simulated=simulated, valid=check.ok),
        "checks": [check.as_dict()],
        "routing": {
            **numbers,
            "ranks": dump.ranks,
            "ranks_added": dump.ranks_added,
            "empty_passes": dump.empty_passes,
            "files": {name: len(content) for name, content in raw.items()},
            "files_kept": kept,
        },
    }
