"""What the client saw, as plain types and one Arrow schema.

This is the one module that both sides of the measurement share: the client fills it, the analysis reads it, and neither
knows more of the other. A trace is stored as Parquet, one row a turn (a request), with list columns for everything that
happens more than once in a turn. Facts that belong to the whole point (batch size, the actors' reports) travel in the
file's metadata, so that a trace is a complete record by itself: every number of a measurement can be recomputed from it.

Times are CLOCK_MONOTONIC nanoseconds of the coordinator's host, the one that gave the start. Stamps of client processes with
another clock are translated to it (:mod:`specsweep.client.clock`); their reports say how, and how far off that may be. Unknown
integers are ``None`` (scalars) or -1 (inside lists); nothing unknown is ever written as 0.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from specsweep.client.trace_table import require_columns

# 4: log-probabilities of tokens, where they were asked for, and what requests were sent again after; 3: conversations of several turns, and
# where a prompt comes from; 2: reports of client processes name their clocks; 1: all of one host
TRACE_SCHEMA_VERSION = 4

Phase = Literal["ramp", "main"]
Outcome = Literal["ok", "failed"]
# exact: proved against the server's own per-request truth; repaired: rebuilt exactly from it (or from server timings);
# assumed: nothing contradicts "one chunk is one step", nothing proves it; merged: chunks hold several steps and cannot be
# split; unknown: the stream says nothing about steps.
StepState = Literal["exact", "repaired", "assumed", "merged", "unknown"]
# The last three are of turns that were never sent: the turn before failed, the history has become too long, or our own process failed.
ErrorKind = Literal[
    "",
    "connect",
    "disconnected",
    "stalled",
    "http_status",
    "stream_error",
    "empty",
    "no_finish",
    "prompt_mismatch",
    "protocol",
    "aborted",
    "not_sent",
    "context",
    "client",
]
NOT_SENT = frozenset({"not_sent", "context", "client"})


@dataclass(frozen=True, slots=True)
class Sampling:
    """Everything about sampling that is sent with a request. Every field is sent; none is left to the server's default."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1  # -1: off
    seed: int = 0
    ignore_eos: bool = False
    logprobs: bool = False  # ask for each sampled token's log-probability, which costs the engine something: never where time is taken


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One turn that the client is to send. ``body`` is the complete, serialised JSON body: nothing is encoded in the window.

    The first turn of a conversation holds the user's later words, too: ``turns``. What is sent after an answer came is a request of its
    own, made by :meth:`later`; it has the place in the list that was kept free for it, right after the turn before.
    """

    index: int  # position in the point's request list, over all actors
    prompt_id: str  # the prompt; also the cluster of every bootstrap
    conversation_id: str
    turn: int
    category: str
    phase: Phase
    pass_index: int  # 0: the first time that this prompt is sent in the main phase; 1, 2, …: prompts were cycled
    n_prompt: int  # tokens sent
    max_tokens: int
    body: bytes
    sub_category: str = ""
    difficulty: str = ""
    source: str = ""  # the data set that the prompt is from
    isl_o200k: int = -1  # length of the first turn's bare text in o200k_base tokens; -1: not known
    isl_target: int = -1  # and in the target's own
    padding_share: float = 0.0  # of that text, 0 to 1
    repeated_share: float = 0.0  # of that text, what stood in it before, 0 to 1 (client.workload.repetition)
    text: str = ""  # the user's first words, where others follow
    turns: tuple[str, ...] = ()  # and those that follow, one a turn

    def later(self, turn: int, *, n_prompt: int, max_tokens: int, body: bytes) -> PlannedRequest:
        """The request of a later ``turn`` (1, 2, …) of the conversation that this one begins."""
        return dataclasses.replace(
            self, index=self.index + turn, turn=turn, n_prompt=n_prompt, max_tokens=max_tokens, body=body, text="", turns=()
        )


@dataclass(slots=True)
class Exchange:
    """One HTTP exchange as it came from the socket: the record that dialects parse and that raw recordings store."""

    t_send_ns: int
    status: int  # 0: no status line was read
    headers: list[tuple[str, str]]
    reads: list[tuple[int, bytes]]  # (t_ns, bytes) after the header, transfer coding included
    ended: str  # "complete" | "eof" | "stalled" | "reset" | "connect: …" | "client_abort" | "not_sent: …" (NOT_SENT) | an error's name
    t_end_ns: int = 0
    connect_ns: int = 0  # TCP and TLS set-up of this request; 0 on a kept connection
    attempts: int = 1  # 2: a kept connection was dropped before its first byte and the request was sent once more
    gap_ns: int = 0  # from the end of the turn before to the sending of this one; 0 for a first turn
    retried: list[str] = field(default_factory=list)  # how each failed try before this one ended (client.retry)


@dataclass(slots=True)
class Turn:
    """What one exchange says, after a dialect read it. Index 0 of every ``step_*`` list is the prefill step (the first token).

    A chunk is one event that carried tokens. A step is one decoding iteration of the engine. They are the same only where
    ``step_state`` says so.
    """

    outcome: Outcome = "failed"
    error_kind: ErrorKind = ""
    error: str = ""
    status: int = 0
    finish_reason: str = ""  # length | stop | ""
    n_prompt_server: int | None = None
    n_completion_server: int | None = None
    output_ids: list[int] = field(default_factory=list)
    chunk_t_ns: list[int] = field(default_factory=list)  # time of the read that completed the event
    chunk_tokens: list[int] = field(default_factory=list)
    step_t_ns: list[int] = field(default_factory=list)  # time of the read that completed the step's last event
    step_tokens: list[int] = field(default_factory=list)  # tokens that left the engine in this step
    step_drafted: list[int] = field(default_factory=list)  # draft tokens verified; 0: undrafted step; -1: not known
    step_accepted: list[int] = field(default_factory=list)  # draft tokens accepted, before any cut; -1: not known
    step_server_ms: list[float] = field(default_factory=list)  # engine clock at the end of each step, ms since its first token; [] if none
    step_coalesced: list[bool] = field(default_factory=list)  # completed by the same read as the step before it
    step_state: StepState = "unknown"
    last_cut: bool = False  # the last step may have lost tokens to the output cap or to EOS
    ids_complete: bool = True  # False: the server counted tokens that it never streamed
    srv_steps: int | None = None  # verify steps by the server's own count
    srv_accepted: int | None = None
    srv_drafted: int | None = None
    srv_accepted_per_step: list[int] = field(default_factory=list)
    srv_drafted_per_step: list[int] = field(default_factory=list)
    token_surprisal: list[float] = field(default_factory=list)  # -ln p of each of output_ids, nats; [] where it was not asked for
    notes: list[str] = field(default_factory=list)  # what was repaired or refused, and why; for people


@dataclass(slots=True)
class RequestTrace:
    """One row of a trace: what was planned, how the exchange went, what the stream said."""

    index: int
    prompt_id: str
    conversation_id: str
    turn: int
    category: str
    phase: Phase
    pass_index: int
    n_prompt: int  # tokens sent; -1: not known, or nothing was sent
    max_tokens: int
    actor: int
    slot: int
    t_send_ns: int
    t_end_ns: int
    connect_ns: int
    attempts: int
    ended: str
    read: Turn
    sub_category: str = ""
    difficulty: str = ""
    source: str = ""
    isl_o200k: int = -1  # as planned
    isl_target: int = -1
    padding_share: float = 0.0
    repeated_share: float = 0.0
    gap_ns: int = 0  # from the end of the turn before, in which our own process parsed its answer; 0 for a first turn
    retried: list[str] = field(default_factory=list)  # how each failed try before this one ended; times are those of the last one


@dataclass(frozen=True, slots=True)
class ActorReport:
    """One client process on one point. Lag: how late its event loop woke for a timer, i.e. how late a stamp can be."""

    actor: int
    host: str
    pid: int
    slots: int
    t_start_ns: int  # when its first request was to be sent
    t_queue_empty_ns: int  # when it had no request left to start
    wall_s: float
    cpu_s: float
    lag_ms_p50: float
    lag_ms_p99: float
    lag_ms_max: float
    lag_samples: int
    connections: int
    retries: int
    worker_cpu_s: float = 0.0  # of the process that prepared later turns, in the same time
    clock: str = ""  # which clock its stamps were taken on; "": the coordinator's own
    clock_offset_ns: int = 0  # that clock minus the coordinator's, as the window began
    clock_drift_ppm: float = 0.0  # how much faster it ran
    clock_bound_ns: int = 0  # no translated stamp is further than that from its true moment


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """The engine's own run counters, in one vocabulary. ``None``: this engine does not count it. Counters subtract; gauges keep the later value."""

    drafts: float | None = None  # verify steps with at least one draft token
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_pos: tuple[float, ...] = ()
    prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None
    generation_tokens: float | None = None
    preemptions: float | None = None
    running: float | None = None  # gauge
    waiting: float | None = None  # gauge

    def __sub__(self, earlier: EngineCounters) -> EngineCounters:
        def delta(a: float | None, b: float | None) -> float | None:
            return None if a is None else a - (b or 0.0)

        before = earlier.accepted_per_pos + (0.0,) * (len(self.accepted_per_pos) - len(earlier.accepted_per_pos))
        counters = {
            f.name: delta(getattr(self, f.name), getattr(earlier, f.name)) for f in dataclasses.fields(self) if f.name not in _GAUGES
        }
        return EngineCounters(
            **counters,
            accepted_per_pos=tuple(a - b for a, b in zip(self.accepted_per_pos, before, strict=False)),
            running=self.running,
            waiting=self.waiting,
        )


_GAUGES = {"running", "waiting", "accepted_per_pos"}


@dataclass(frozen=True, slots=True)
class GaugeSample:
    """One look at the engine's gauges while the point ran, once a second at most. ``waiting`` None: the engine has no such gauge."""

    t_s: float  # since the looking began
    running: float
    waiting: float | None


@dataclass(slots=True)
class PointTrace:
    """All that the client saw of one point."""

    batch_size: int
    requests: list[RequestTrace]
    actors: list[ActorReport]
    counters: EngineCounters | None = None  # delta over the point
    running_max: float | None = None  # highest running-requests gauge seen (sampled at 1 Hz at most)
    gauges: list[GaugeSample] = field(default_factory=list)
    simulated: bool = False
    meta: dict[str, Any] = field(default_factory=dict)  # JSON-able: dialect, engine version, anything worth keeping


_ROW = [(f.name, f.type) for f in dataclasses.fields(RequestTrace) if f.name != "read"] + [
    (f.name, f.type) for f in dataclasses.fields(Turn)
]
_ARROW = {
    "int": pa.int64(),
    "int | None": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bool": pa.bool_(),
    "Phase": pa.string(),
    "Outcome": pa.string(),
    "StepState": pa.string(),
    "ErrorKind": pa.string(),
    "list[int]": pa.list_(pa.int64()),
    "list[float]": pa.list_(pa.float64()),
    "list[bool]": pa.list_(pa.bool_()),
    "list[str]": pa.list_(pa.string()),
}
SCHEMA = pa.schema([(name, _ARROW[str(kind)]) for name, kind in _ROW])
_ADDED: dict[int, dict[str, str | int | float | list[float]]] = {
    3: {
        "sub_category": "",
        "difficulty": "",
        "source": "",
        "isl_o200k": -1,
        "isl_target": -1,
        "padding_share": 0.0,
        "repeated_share": 0.0,
        "gap_ns": 0,
    },
    4: {"token_surprisal": [], "retried": []},
}  # by version: what the rows of earlier versions hold
_NULLABLE = frozenset(name for name, kind in _ROW if "None" in str(kind))
_WORDS = {"phase": get_args(Phase), "outcome": get_args(Outcome), "step_state": get_args(StepState), "error_kind": get_args(ErrorKind)}
_TURN_FIELDS = tuple(f.name for f in dataclasses.fields(Turn))
_REQUEST_FIELDS = tuple(f.name for f in dataclasses.fields(RequestTrace) if f.name != "read")


def to_table(trace: PointTrace) -> pa.Table:
    """One row a turn; the point's facts as JSON under the metadata key ``specsweep``."""
    columns = {name: [getattr(r, name) for r in trace.requests] for name in _REQUEST_FIELDS}
    columns |= {name: [getattr(r.read, name) for r in trace.requests] for name in _TURN_FIELDS}
    head = {
        "schema_version": TRACE_SCHEMA_VERSION,
        "batch_size": trace.batch_size,
        "actors": [dataclasses.asdict(a) for a in trace.actors],
        "counters": None if trace.counters is None else dataclasses.asdict(trace.counters),
        "running_max": trace.running_max,
        "gauges": [dataclasses.astuple(g) for g in trace.gauges],
        "simulated": trace.simulated,
        "meta": trace.meta,
    }
    return pa.table(columns, schema=SCHEMA.with_metadata({"specsweep": json.dumps(head)}))


def from_table(table: pa.Table) -> PointTrace:
    """The inverse of :func:`to_table`. Raises ``ValueError`` for a table that is not a trace or of a newer schema; it names the column."""
    raw = (table.schema.metadata or {}).get(b"specsweep")
    if raw is None:
        raise ValueError("not a specsweep trace: the metadata key 'specsweep' is missing")
    try:
        head = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a whole trace: its metadata are not JSON: {error}") from error
    try:
        version = head["schema_version"]
        if version > TRACE_SCHEMA_VERSION:
            raise ValueError(f"trace schema {version} is newer than this version reads ({TRACE_SCHEMA_VERSION})")
        table = require_columns(table, SCHEMA, nullable=_NULLABLE, words=_WORDS, absent=_absent(version))
        return _from_rows(table.to_pylist(), head)
    except KeyError as error:
        raise ValueError(f"not a whole trace: its metadata have no field {error}") from error
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a whole trace: its metadata cannot be read: {error}") from error


def _absent(version: int) -> dict[str, str | int | float | list[float]]:
    return {name: value for added, columns in _ADDED.items() if version < added for name, value in columns.items()}


def _from_rows(rows: Sequence[dict[str, Any]], head: dict[str, Any]) -> PointTrace:
    requests = [RequestTrace(**{n: row[n] for n in _REQUEST_FIELDS}, read=Turn(**{n: row[n] for n in _TURN_FIELDS})) for row in rows]
    counters = head["counters"]
    if counters is not None:
        counters = EngineCounters(**{**counters, "accepted_per_pos": tuple(counters["accepted_per_pos"])})
    return PointTrace(
        batch_size=head["batch_size"],
        requests=requests,
        actors=[ActorReport(**a) for a in head["actors"]],
        counters=counters,
        running_max=head["running_max"],
        gauges=[GaugeSample(*g) for g in head.get("gauges", ())],  # traces of earlier versions have the maximum only
        simulated=head["simulated"],
        meta=head["meta"],
    )


def write_trace(trace: PointTrace, path: Path) -> None:
    pq.write_table(to_table(trace), path, compression="zstd", write_page_checksum=True)


def read_trace(path: Path) -> PointTrace:
    """Raises ``ValueError`` or ``OSError`` for a file that is no trace, or that is not what was written (pages carry a checksum)."""
    return from_table(pq.read_table(path, page_checksum_verification=True))


def ok(requests: Iterable[RequestTrace]) -> list[RequestTrace]:
    return [r for r in requests if r.read.outcome == "ok"]


def join_trace(parts: Sequence[PointTrace]) -> PointTrace:
    """The traces of several actors of one point as one, in the order of the requests."""
    first = parts[0]
    return PointTrace(
        batch_size=sum(p.batch_size for p in parts),
        requests=sorted((r for p in parts for r in p.requests), key=lambda r: r.index),
        actors=sorted((a for p in parts for a in p.actors), key=lambda a: a.actor),
        simulated=any(p.simulated for p in parts),
        meta=first.meta,
    )
