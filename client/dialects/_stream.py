"""What all dialects share: from a finished exchange to JSON events, and the one rule of success.

A request is a success only if the server said how it finished (``length`` or ``stop``), no error object came, and the terminator
of that wire was seen. ``[DONE]`` alone proves nothing (vLLM sends it after an error), HTTP 200 proves nothing (headers leave
before the first token), and a connection that ends is not an end. The kinds are told apart because people act differently on
them: ``disconnected`` is a dead server, ``stalled`` a hung one, ``stream_error`` has the server's own words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from specsweep.client.dialects._plausible import require
from specsweep.client.trace import NOT_SENT, ErrorKind, Exchange, Turn
from specsweep.client.wire import Body, dechunk, header, split_events

_FINISHED = ("length", "stop")
_SHOWN = 300  # characters of a server's answer that are kept in an error message

Json = dict[str, Any]

# What json.loads raises: no JSON at all (no UTF-8, an integer of thousands of digits), or nested deeper than the interpreter's stack.
_NOT_JSON = (ValueError, RecursionError)
# What reading JSON of an unexpected shape raises. ArithmeticError: a number that no float holds.
_NOT_OF_THIS_SHAPE = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


@dataclass(slots=True)
class Stream:
    """The JSON events of one answer, and what else the bytes said. Texts are empty if there is nothing to say."""

    events: list[tuple[int, Json]] = field(default_factory=list)
    done: bool = False  # ``[DONE]`` was seen
    terminated: bool = False  # the transfer coding said that the body is complete
    empty: bool = True  # not one byte of a body, and none was to come: a chunked body that never began is a lost connection
    error: str = ""  # the server's words of the first error object in the stream
    broken: str = ""  # an event that could not be parsed
    framing: str = ""  # what is wrong with the transfer coding; nothing after that point was read
    rest: str = ""  # bytes after the last complete event


def open_stream(exchange: Exchange, turn: Turn) -> Stream | None:
    """The stream of an answer, or None when there is none: then ``turn`` already says why the request failed."""
    turn.status = exchange.status
    if exchange.status == 0:
        kind, words = _before_answer(exchange.ended)
        fail(turn, kind, words)
        return None
    body = dechunk(exchange.reads, exchange.headers)
    if exchange.status != 200:
        fail(turn, "http_status", f"HTTP {exchange.status}: {_error_body(body)}")
        return None
    stream = _events(body)
    framed = bool(header(exchange.headers, "transfer-encoding") or header(exchange.headers, "content-length"))
    stream.empty = not body.pieces and (body.terminated or not framed)
    return stream


def _before_answer(ended: str) -> tuple[ErrorKind, str]:
    ours, _, why = ended.partition(": ")
    if ours in NOT_SENT:
        return cast(ErrorKind, ours), why or "not sent"
    if ended.startswith("connect"):
        return "connect", ended.removeprefix("connect").lstrip(": ") or "cannot connect"
    if ended == "stalled":
        return "stalled", "no answer at all within the stall limit"
    if ended == "client_abort":
        return "aborted", "the client closed the connection before the answer"
    return "disconnected", f"the connection ended before a status line ({ended})"


def _events(body: Body) -> Stream:
    stream = Stream(terminated=body.terminated, framing=body.error)
    found, rest = split_events(body.pieces)
    add = stream.events.append
    loads = json.loads
    for t_ns, data in found:
        if data == b"[DONE]":
            stream.done = True
            continue
        try:
            event = loads(data.decode())
        except _NOT_JSON as error:
            stream.broken = stream.broken or f"an event is not JSON ({error}): {data[:80]!r}"
            continue
        if type(event) is not dict:
            stream.broken = stream.broken or f"an event is not an object: {data[:80]!r}"
        elif event.get("error") and not stream.error:
            stream.error = error_words(event["error"])
        else:
            add((t_ns, event))
    if rest:
        stream.rest = _unfinished(rest, stream)
    return stream


def _unfinished(rest: bytes, stream: Stream) -> str:
    """Bytes after the last complete event: a cut event, or a bare JSON error that is no event at all."""
    try:
        bare = json.loads(rest.decode())
    except _NOT_JSON:
        return f"the last event was cut after {len(rest)} bytes: {rest[:60]!r}"
    if isinstance(bare, dict) and bare.get("error"):
        stream.error = stream.error or error_words(bare["error"])
    return f"the body holds JSON that is no event: {rest[:60]!r}"


def error_words(error: object) -> str:
    """What a server says in an error object: its message, and the numbers that llama-server puts beside it."""
    if not isinstance(error, dict):
        return str(error)[:_SHOWN]
    words = str(error.get("message") or json.dumps(error))[:_SHOWN]
    extra = [f"{key} {error[key]}" for key in ("type", "n_prompt_tokens", "n_ctx") if error.get(key) is not None]
    return f"{words} ({', '.join(extra)})" if extra else words


def _error_body(body: Body) -> str:
    data = b"".join(piece for _, piece in body.pieces)
    try:
        answer = json.loads(data.decode())
    except _NOT_JSON:
        return data[:_SHOWN].decode("utf-8", "replace").strip() or "no body"
    if isinstance(answer, dict):
        return error_words(answer.get("error") or answer.get("detail") or answer)
    return str(answer)[:_SHOWN]


def fail(turn: Turn, kind: ErrorKind, words: str) -> None:
    """The first reason stays: what follows from it is not another one."""
    if not turn.error_kind:
        turn.outcome, turn.error_kind, turn.error = "failed", kind, words


def judge(
    turn: Turn, stream: Stream, exchange: Exchange, *, terminated: bool, finish: str, n_prompt: int | None, counts_all: bool = False
) -> None:
    """Sets the outcome of a stream. ``terminated``: the terminator of this wire was seen; ``finish``: the server's finish reason.

    ``counts_all``: this wire streams every id that the server counts, so a count above the ids is no lost id but a contradiction.
    ``turn`` must already hold the tokens and the server's counts.
    """
    seen = f"after {sum(turn.chunk_tokens)} tokens" if turn.chunk_tokens else "before the first token"
    turn.finish_reason = finish if finish in _FINISHED else ""
    if stream.error:
        fail(turn, "stream_error", f"{stream.error} ({seen})")
    elif not terminated and exchange.ended == "client_abort":
        fail(turn, "aborted", f"the client closed the connection {seen}")
    elif not terminated and exchange.ended == "stalled":
        fail(turn, "stalled", f"silence {seen}, within the stall limit nothing more came")
    elif stream.empty:
        fail(turn, "empty", "HTTP 200 with an empty body")
    elif not terminated and stream.framing:
        fail(turn, "protocol", f"{stream.framing} ({seen})")
    elif not terminated and not stream.terminated:
        fail(turn, "disconnected", f"the connection ended {seen} without the end of the stream ({exchange.ended})")
    elif finish and finish not in _FINISHED:
        fail(turn, "stream_error", f"the server finished with {finish!r} {seen}")
    elif stream.broken:  # before what is missing because of it
        fail(turn, "protocol", stream.broken)
    elif not terminated or not finish:
        fail(turn, "no_finish", f"the body is complete but the stream has no {'finish reason' if terminated else 'terminator'} ({seen})")
    elif n_prompt is not None and turn.n_prompt_server is not None and turn.n_prompt_server != n_prompt:
        fail(turn, "prompt_mismatch", f"sent {n_prompt} prompt tokens, the server counted {turn.n_prompt_server}: it added or dropped some")
    elif contradiction := _miscounted(turn, counts_all=counts_all):
        fail(turn, "protocol", contradiction)
    elif not turn.chunk_tokens and not turn.n_completion_server:
        fail(turn, "empty", "the stream finished without a single token")
    elif not turn.error_kind:
        turn.outcome = "ok"
        if not turn.chunk_tokens:
            turn.step_state = "unknown"
            turn.notes.append(f"no token events, only the server's count of {turn.n_completion_server}: no first token, no steps")
    if stream.broken and turn.error_kind != "protocol":
        turn.notes.append(stream.broken)
    if terminated and stream.framing:  # all that was to be read had come: worth a note, not the request
        turn.notes.append(f"after the end of the stream the chunked coding is broken ({stream.framing})")
    elif stream.rest:
        turn.notes.append(stream.rest)


def _miscounted(turn: Turn, *, counts_all: bool) -> str:
    """Why the server's count of output tokens and what it streamed exclude each other; "" if they do not.

    More than was streamed can be a cause that is known: tokens that are no event (llama-server), ids that were lost (SGLang). Fewer
    has none, and rates over either number would be made up.
    """
    counted, streamed = turn.n_completion_server, len(turn.output_ids)
    if counted is None:
        return ""
    if counted < streamed or (counts_all and turn.chunk_tokens and counted != streamed):
        return f"the server counted {counted} output tokens and streamed {streamed} ids: one of the two is wrong"
    if turn.chunk_tokens and not counted:
        return f"the server counted no output token and streamed {len(turn.chunk_tokens)} chunks with some"
    return ""


def read_guarded(parse: Callable[[Turn], None]) -> Turn:
    """Runs a dialect's reading of an answer. A server can send JSON of any shape: what cannot be read so fails as ``protocol``."""
    turn = Turn()
    try:
        parse(turn)
        require(turn)
    except _NOT_OF_THIS_SHAPE as error:
        status, turn = turn.status, Turn()
        turn.status = status
        words = str(error)[:_SHOWN]
        fail(turn, "protocol", f"the events do not have the shape of this dialect ({type(error).__name__}: {words})")
    turn.error = _storable(turn.error)
    turn.notes = [_storable(note) for note in turn.notes]
    return turn


def _storable(words: str) -> str:
    """JSON can hold half of a surrogate pair, UTF-8 (and so a trace) cannot."""
    return words.encode("utf-8", "replace").decode()


def coalesced(step_t_ns: list[int]) -> list[bool]:
    """For each step, whether the read that completed it also completed the step before it."""
    return [i > 0 and t == step_t_ns[i - 1] for i, t in enumerate(step_t_ns)]
