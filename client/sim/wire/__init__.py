"""The wires of the simulator: how each engine takes a request and writes its answer, byte for byte, without a socket or a clock.

A wire is the mirror of a dialect (:mod:`specsweep.client.dialects`), written from the recordings and from the engines' sources, never
from the dialect: two halves that were copied from each other would agree on any mistake. It is pure. What an engine decides
(which step, how many tokens, when) comes in as :class:`Part`; what comes out are the events of one step, which the server
frames and writes at the step's end.

What a wire cannot know it leaves out instead of inventing it: the counters page holds the series that the simulation has a
value for, in the engine's own words and order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

ABOUT_PATH = "/sim"  # on every wire: says that this is a simulation
WIRES = ("vllm", "sglang", "trtllm", "llamacpp")

Json = dict[str, Any]

# Token texts of about the length that real ones have. Which of them a token gets depends on its id alone.
_WORDS = (
    " the",
    " of",
    " a",
    "\n",
    " name",
    " =",
    "_",
    " and",
    "self",
    "(",
    ")",
    " in",
    ".",
    " to",
    " is",
    ",",
    " that",
    "import",
    " for",
    '"',
)


@dataclass(frozen=True, slots=True)
class Served:
    """What the simulated server says of itself and checks requests against. Lengths in tokens."""

    model: str
    version: str
    vocab_size: int = 128_256
    max_model_len: int = 131_072
    max_batch: int = 512
    max_batched_tokens: int = 8192
    kv_tokens: int | None = None
    drafter: str = "none"
    draft_length: int = 0  # 0: nothing is drafted
    step_truth: str = "detailed"  # vLLM's per-request acceptance: detailed, summary or none
    incremental: bool = True  # SGLang: whether output_ids are those of the chunk, or all so far
    stream_interval: int = 1
    started_s: float = 0.0  # Unix time of the server's start


@dataclass(frozen=True, slots=True)
class WireRequest:
    """What a request asks for, after the engine's checks and with the engine's defaults. ``prompt``: ids, or none for a text."""

    prompt: Sequence[int]
    n_prompt: int
    max_tokens: int
    temperature: float = 0.0
    ignore_eos: bool = False
    stream: bool = True
    include_usage: bool = False
    continuous_usage: bool = False  # vLLM: the usage so far in every chunk
    with_ids: bool = True
    logprobs: bool = False  # of the streamed tokens; on vLLM's wire
    asked: Json = field(default_factory=dict)  # the body, for wires that repeat it


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is no stream of tokens. With ``events`` it is HTTP 200 and a stream all the same, of these; ``cut``: without its end."""

    status: int
    body: bytes = b""
    events: tuple[bytes, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One request's share of one step. ``tokens``: after any cut; ``accepted``: before it."""

    tokens: int
    drafted: int
    accepted: int
    t_s: float  # Unix time at the end of the step
    resumed: bool = False  # by a prefill after a preemption


@dataclass(slots=True)
class Answer:
    """One request that is being answered. The wires write their running sums into it."""

    request: WireRequest
    request_id: str  # as the engine spells ids
    seed: int  # of its token ids: the same prompt gets the same answer, whatever drafts
    arrived_s: float  # Unix time
    started_s: float = 0.0  # when its prefill began
    n_prompt: int = 0  # as the server counts it
    n_cached: int = 0
    slot: int = 0
    lost_at: int = -1  # index of a token that is counted and never streamed
    chunks: int = 0
    sent: int = 0  # tokens, lost ones included
    drafted: list[int] = field(default_factory=list)  # of each step after the first that verified a draft
    accepted: list[int] = field(default_factory=list)
    iterations: int = 0  # steps, the prefill's included
    resumed: int = 0  # of them prefills after a preemption
    first_s: float = 0.0
    newest_s: float = 0.0
    ids: list[int] = field(default_factory=list)  # that were streamed
    text: str = ""
    prefix: str = ""  # what all events of the answer begin with, where a wire writes them by hand

    def take(self, part: Part, vocab_size: int) -> list[int]:
        """Books one step and returns the ids that it streams."""
        start = self.sent
        if not start:
            self.first_s = part.t_s
        self.newest_s = part.t_s
        self.sent += part.tokens
        self.iterations += 1
        self.resumed += part.resumed
        if part.drafted:
            self.drafted.append(part.drafted)
            self.accepted.append(part.accepted)
        seed = self.seed
        new = [token_id(seed, i, vocab_size) for i in range(start, self.sent)]
        if start <= self.lost_at < self.sent:
            del new[self.lost_at - start]
        self.ids += new
        return new


@dataclass(frozen=True, slots=True)
class Counts:
    """The engine's run counters, as :class:`~specsweep.client.sim.engine.SimCounters` has them, and what the server counts itself."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_pos: Sequence[int] = ()
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    running: int = 0
    waiting: int = 0
    steps: int = 0
    decodes: int = 0  # shares of requests in steps, prefills left out
    prompt_s: float = 0.0  # time that answers spent before their first token, and after it
    decode_s: float = 0.0
    longest: int = 0  # tokens of the longest sequence
    finished: int = 0
    aborted: int = 0


class Wire(Protocol):
    name: str
    path: str  # of the generation endpoint
    metrics_path: str
    early_head: bool  # the head of a stream leaves before the first token
    trims_last_draft: bool  # a last draft holds at most the tokens still allowed
    keeps_connections: bool
    outlives_engine_s: float  # how long the server still answers after the engine behind it died
    listens_while_loading: bool
    interval_unit: str  # of the server's stream interval: tokens, steps, or "" where there is none
    last_chunk: tuple[bytes, ...]  # of the chunked coding, as it leaves

    def parse(self, body: bytes) -> WireRequest | Refusal:
        """The engine's own checks, in its order."""
        ...

    def head(self, *, stream: bool, status: int, length: int, close: bool, date: str) -> bytes: ...

    def chunk(self, answer: Answer, parts: Sequence[Part], finish: str) -> list[bytes]:
        """The events of the parts that leave together. ``finish``: "" while the answer goes on."""
        ...

    def finish(self, answer: Answer, finish: str) -> list[bytes]:
        """What follows the last chunk."""
        ...

    def fail(self, message: str) -> list[bytes] | None:
        """The events that tell a failure in mid-stream; None where the engine just cuts the connection."""
        ...

    def overloaded(self) -> Refusal: ...

    def dead(self) -> Refusal:
        """To a request that comes after the engine behind the server has died."""
        ...

    def metrics_page(self, counts: Counts) -> str: ...

    def get(self, path: str) -> Json | str | None:
        """The answer to a GET of anything but health and counters; None: there is no such path."""
        ...


def wire(name: str, served: Served) -> Wire:
    """Raises ``ValueError`` naming the known wires."""
    if name not in WIRES:
        raise ValueError(f"dialect {name!r}: the simulator speaks {', '.join(WIRES)}")
    return import_module(f"specsweep.client.sim.wire.{name}").make(served)  # type: ignore[no-any-return]


LOWEST = 16  # ids below are left out: special tokens of many vocabularies


def token_id(seed: int, index: int, vocab_size: int) -> int:
    """Id number ``index`` of an answer: every id from ``LOWEST`` on is as likely as the others, which is all that a simulated token is."""
    low = LOWEST if vocab_size > LOWEST else 0
    return low + ((seed + (index + 1) * 2_654_435_761) & 0xFFFFFFFF) * (vocab_size - low) // 0x100000000


def token_logprob(vocab_size: int) -> float:
    """Of any simulated token, by the rule of :func:`token_id`."""
    return -math.log(vocab_size - LOWEST if vocab_size > LOWEST else vocab_size)


def text_of(ids: Sequence[int]) -> str:
    return "".join([_WORDS[i % len(_WORDS)] for i in ids])


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


_ESCAPED = [_encode(word)[1:-1] for word in _WORDS]


def json_text_of(ids: Sequence[int]) -> str:
    """:func:`text_of` as a JSON string, quotes included."""
    return '"' + "".join([_ESCAPED[i % len(_ESCAPED)] for i in ids]) + '"'


def compact(value: Any) -> bytes:
    """JSON as engines send it: no blanks, UTF-8."""
    return _encode(value).encode()


def sse(value: Any) -> bytes:
    return b"data: " + compact(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"
