"""What a recorded stream or a stored trace says, as facts: the pure part of `specsweep inspect`.

A recording is read again by its dialect, so a stream that misleads can be looked at without the engine that sent it; a trace is
taken as it was stored. Both become the same rows, so that the two can be compared. The numbers over all requests are those of
:mod:`specsweep.analysis.acceptance`: an inspection must not have sums of its own that could disagree with a measurement.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from specsweep.analysis import acceptance
from specsweep.client.dialects import DIALECTS, Dialect, dialect
from specsweep.client.recording import RecordedRequest, Recording, read_recording
from specsweep.client.trace import EngineCounters, PointTrace, RequestTrace, read_trace
from specsweep.client.trace import ok as succeeded
from specsweep.orchestrator.errors import ConfigError

_DRAFT_FLAGS = (
    r"--spec-draft-n-max[ =](\d{1,4})\b",
    r'"?num_speculative_tokens"?\s*[:=]\s*(\d{1,4})\b',
    r"--speculative-num-steps[ =](\d{1,4})\b",
)
_PATHS = {"/completion": "llamacpp", "/generate": "sglang", "/v1/completions": "vllm", "/v1/chat/completions": "openai_chat"}
MOST_DRAFT_LENGTH = 4096  # a larger one is a slip, and steps of that length would be assumed
_PARQUET = b"PAR1"


@dataclass(frozen=True, slots=True)
class CounterCheck:
    """The engine's counters over one stretch of a file, beside the sums over its requests. ``None``: not counted, or not to be told."""

    stretch: str
    engine: Mapping[str, float | None]
    streams: Mapping[str, int | None]
    engine_per_position: tuple[float, ...]
    streams_per_position: tuple[int, ...]
    unfinished: int  # requests that failed after their first token: the engine counts what the stream never brought

    @property
    def differs(self) -> tuple[str, ...]:
        """The names of the counters that disagree; empty if nothing does, or if unfinished requests make it undecidable."""
        if self.unfinished:
            return ()
        both = [k for k, v in self.engine.items() if v is not None and self.streams.get(k) is not None]
        names = [k for k in both if self.engine[k] != self.streams[k]]
        here, there = self.streams_per_position, self.engine_per_position
        length = max(len(here), len(there))
        if there and [*here, *[0] * (length - len(here))] != [*there, *[0.0] * (length - len(there))]:
            names.append("accepted per position")
        return tuple(names)


@dataclass(slots=True)
class Inspection:
    path: Path
    kind: str  # recording | trace
    label: str
    version: str
    dialect: str
    draft_length: int | None
    draft_length_from: str
    names: list[str]
    requests: list[RequestTrace]
    checks: list[CounterCheck] = field(default_factory=list)
    measurement: Mapping[str, Any] | None = None  # what was stored beside a trace


def inspect_file(path: Path, *, dialect_name: str | None = None, draft_length: int | None = None) -> Inspection:
    """A recording, a ``trace.parquet``, or the folder of an attempt. Raises ``ConfigError`` for anything else."""
    if path.is_dir() and (path / "trace.parquet").is_file():
        path = path / "trace.parquet"
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; give a recording (.jsonl, .jsonl.gz), a trace.parquet, or the folder that holds one")
    try:
        with path.open("rb") as file:
            is_trace = file.read(4) == _PARQUET
        if is_trace:
            return _of_trace(path, read_trace(path), draft_length)
        return of_recording(path, read_recording(path), dialect_name=dialect_name, draft_length=draft_length)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def of_recording(path: Path, recording: Recording, *, dialect_name: str | None, draft_length: int | None) -> Inspection:
    wire = _dialect(path, recording, dialect_name)
    length, origin = _draft_length(recording.meta, draft_length)
    requests = [_read(index, request, wire, length) for index, request in enumerate(recording.requests)]
    return Inspection(
        path=path,
        kind="recording" + (", simulated" if recording.meta.get("simulated") else ""),
        label=str(recording.meta.get("label") or "").strip(" :"),
        version=_version(recording.meta.get("version")),
        dialect=wire.name,
        draft_length=length,
        draft_length_from=origin,
        names=[r.name for r in recording.requests],
        requests=requests,
        checks=_counter_checks(recording, requests, wire),
    )


def _dialect(path: Path, recording: Recording, given: str | None) -> Dialect:
    paths = {_PATHS[r.path] for r in recording.requests if r.path in _PATHS}
    named = given or recording.meta.get("dialect") or (next(iter(paths)) if len(paths) == 1 else None)
    known = ", ".join(DIALECTS)
    if named is None:
        raise ConfigError(f"{path}: the recording does not name its dialect; give --dialect NAME (known: {known})")
    if named not in DIALECTS:
        origin = "--dialect" if given else "the recording's meta line"
        raise ConfigError(
            f"{path}: dialect {named!r} (from {origin}) is not known here; known: {known}. Give --dialect NAME if one of them fits"
        )
    return dialect(str(named))


def _draft_length(meta: Mapping[str, Any], given: int | None) -> tuple[int | None, str]:
    if given is not None:
        return given, "--draft-length"
    recorded = meta.get("draft_length")
    if recorded is not None:
        if type(recorded) is not int or not 0 <= recorded <= MOST_DRAFT_LENGTH:
            raise ValueError(f"draft_length is {str(recorded)[:40]!r}, not a count from 0 to {MOST_DRAFT_LENGTH}")
        return recorded, "the recording"
    for flag in _DRAFT_FLAGS:
        if found := re.search(flag, str(meta.get("label") or "")):
            return int(found.group(1)), "the launch flags"
    return None, ""


def _version(raw: object) -> str:
    """Recorders keep the answer to a version request as it came: a plain word, a JSON object, or an error."""
    text = str(raw or "")
    if text.startswith("{"):
        try:
            return str(json.loads(text).get("version", text))
        except ValueError:
            return text
    return "" if text.startswith("ERROR") else text


def _read(index: int, request: RecordedRequest, wire: Dialect, draft_length: int | None) -> RequestTrace:
    body = request.body if isinstance(request.body, dict) else {}
    prompt = body.get("prompt")
    n_prompt = len(prompt) if isinstance(prompt, list) else None
    turn = wire.read(request.exchange, draft_length=draft_length, n_prompt=n_prompt)
    exchange, plan = request.exchange, request.plan
    words = json.dumps(prompt if prompt is not None else body.get("messages"))
    asked = body.get("max_tokens", body.get("n_predict"))
    return RequestTrace(
        index=index,
        prompt_id=str(plan.get("prompt_id") or hashlib.sha256(words.encode()).hexdigest()[:12]),
        conversation_id=request.name,
        turn=int(plan.get("turn") or 0),
        category="",
        phase="ramp" if plan.get("phase") == "ramp" else "main",
        pass_index=0,
        n_prompt=n_prompt if n_prompt is not None else -1,
        max_tokens=asked if type(asked) is int and 0 <= asked < 2**31 else -1,
        actor=0,
        slot=0,
        t_send_ns=exchange.t_send_ns,
        t_end_ns=exchange.t_end_ns,
        connect_ns=exchange.connect_ns,
        attempts=exchange.attempts,
        ended=exchange.ended,
        read=turn,
    )


def _of_trace(path: Path, trace: PointTrace, draft_length: int | None) -> Inspection:
    facts = _beside(path, "point.json") or {}
    axes = facts.get("axes") or {}
    length, origin = _draft_length({"draft_length": axes.get("draft_length", trace.meta.get("draft_length"))}, draft_length)
    words = [str(axes[k]) for k in ("engine", "target", "drafter", "workload") if k in axes]
    engine = {k: v for k in _COUNTED if trace.counters is not None and (v := getattr(trace.counters, k)) is not None}
    return Inspection(
        path=path,
        kind="trace" + (", simulated" if trace.simulated else ""),
        label=" · ".join([*words, f"batch size {trace.batch_size}"]),
        version=str(trace.meta.get("engine_version") or trace.meta.get("version") or ""),
        dialect=str(trace.meta.get("dialect") or ""),
        draft_length=length,
        draft_length_from=origin and origin.replace("the recording", "the point"),
        names=[f"{r.index} {r.prompt_id}" + (f"/{r.turn}" if r.turn else "") for r in trace.requests],
        requests=trace.requests,
        checks=[_check("whole point", trace.counters, trace.requests)] if engine and trace.counters is not None else [],
        measurement=_beside(path, "measurement.json"),
    )


def _beside(path: Path, name: str) -> dict[str, Any] | None:
    try:
        found = json.loads((path.parent / name).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


# --- counters ------------------------------------------------------------------------------------------------------------------

_COUNTED = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")


def _counter_checks(recording: Recording, requests: Sequence[RequestTrace], wire: Dialect) -> list[CounterCheck]:
    pages = [(name, at, wire.counters(text)) for (name, text), at in zip(recording.metrics, recording.before, strict=True)]
    return [
        _check(f"{before} → {after}", later - earlier, requests[start:end])
        for (before, start, earlier), (after, end, later) in pairwise(pages)
        if end > start
    ]


def _check(stretch: str, delta: EngineCounters, requests: Sequence[RequestTrace]) -> CounterCheck:
    whole = succeeded(requests)
    return CounterCheck(
        stretch=stretch,
        engine={k: getattr(delta, k) for k in _COUNTED},
        streams={k: acceptance.stream_totals(whole)[k] for k in _COUNTED},
        engine_per_position=delta.accepted_per_pos,
        streams_per_position=accepted_by_position([a for r in whole for a in accepted(r)]),
        unfinished=sum(1 for r in requests if r.read.outcome == "failed" and r.read.chunk_tokens),
    )


def accepted(request: RequestTrace) -> list[int]:
    """Accepted draft tokens of each drafted step: by the server's list if it gives one, else by the steps of the stream."""
    read = request.read
    if read.srv_accepted_per_step or not acceptance.has_steps(read):
        return list(read.srv_accepted_per_step)
    steps = zip(read.step_drafted[1:], read.step_accepted[1:], strict=True)
    return [a for d, a in steps if d != 0 and a != acceptance.UNKNOWN]


def accepted_by_position(counts: Sequence[int]) -> tuple[int, ...]:
    """How many steps accepted at least 1, 2, 3 … draft tokens."""
    found = Counter(counts)
    return tuple(sum(n for k, n in found.items() if k >= i) for i in range(1, max(found, default=0) + 1))
