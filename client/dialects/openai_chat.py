"""``POST /v1/chat/completions``, for servers that have nothing else: text in, text out, and therefore less to know.

The server applies its own template, so the prompt's ids are not known and its length is the server's word. Deltas carry text, not
ids, on several channels (``content``, ``reasoning_content``, ``reasoning``, tool calls): the first token is the first delta
with text on any of them, never the chunk that only opens the role. How many tokens a delta holds is known only where the server
says it (running usage, or logprobs); otherwise each counts as one, a note says so, and ``n_completion_server`` is the figure
to use. Nothing here says what a step was: ``step_state`` is always "unknown" and the step lists stay empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specsweep.client.dialects._plausible import count
from specsweep.client.dialects._stream import Json, fail, judge, open_stream, read_guarded
from specsweep.client.dialects.vllm import DIALECT as _VLLM
from specsweep.client.trace import EngineCounters, Exchange, Sampling, Turn

_CHANNELS = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal")
_SILENT = (*_CHANNELS, "role", "name", "token_ids", "annotations", "audio")
_FINISH = {"tool_calls": "stop", "function_call": "stop"}


@dataclass(slots=True)
class _Seen:
    finish: str = ""
    counted: int = 0  # completion tokens by the running usage so far
    running: int = 0  # deltas whose tokens the running usage gave
    by_logprobs: int = 0
    guessed: int = 0  # deltas counted as one token for want of anything better
    empty: int = 0  # deltas without text, other than role and finish
    strange: set[str] = field(default_factory=set)  # fields with text that no known channel has


class OpenAIChat:
    name = "openai_chat"
    path = "/v1/chat/completions"
    takes_ids = False
    metrics_path: str | None = None

    def request(self, prompt: Sequence[int] | str, sampling: Sampling, *, model: str) -> bytes:
        """Raises ``TypeError`` for token ids. ``top_k`` and ``ignore_eos`` are no OpenAI fields: sent only when they are wanted."""
        if not isinstance(prompt, str):
            raise TypeError(
                "openai_chat takes the prompt as text, not as token ids: render the workload with text prompts for this dialect"
            )
        body: Json = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": sampling.max_tokens,
            "temperature": max(sampling.temperature, 0.0),
            "top_p": sampling.top_p,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        if sampling.top_k > 0:
            body["top_k"] = sampling.top_k
        if sampling.ignore_eos:
            body["ignore_eos"] = True
        return json.dumps(body, separators=(",", ":")).encode()

    def read(self, exchange: Exchange, *, draft_length: int | None, n_prompt: int | None) -> Turn:
        """``draft_length`` and ``n_prompt`` say nothing here: there are no steps, and the server's template is in its prompt count."""
        return read_guarded(lambda turn: _read(turn, exchange))

    def counters(self, metrics_text: str) -> EngineCounters:
        """There is no page to ask for; a vLLM page is understood, since that is what mostly stands behind."""
        return _VLLM.counters(metrics_text)


def _read(turn: Turn, exchange: Exchange) -> None:
    turn.ids_complete = False
    stream = open_stream(exchange, turn)
    if stream is None:
        return
    seen = _Seen()
    for t_ns, event in stream.events:
        _event(t_ns, event, turn, seen)
    _notes(turn, seen)
    judge(turn, stream, exchange, terminated=stream.done, finish=_FINISH.get(seen.finish, seen.finish), n_prompt=None)


def _event(t_ns: int, event: Json, turn: Turn, seen: _Seen) -> None:
    usage = event.get("usage") or {}
    counted = usage.get("completion_tokens")
    if counted is not None and count("usage.completion_tokens", counted) < seen.counted:
        raise ValueError(f"usage.completion_tokens fell from {seen.counted} to {counted}")
    if usage:
        turn.n_prompt_server = usage.get("prompt_tokens", turn.n_prompt_server)
        turn.n_completion_server = counted if counted is not None else turn.n_completion_server
    choices = event.get("choices")
    if not choices:
        return
    choice = choices[0]
    delta: Mapping[str, object] = choice.get("delta") or {}
    seen.finish = choice.get("finish_reason") or seen.finish
    has_text = any(delta.get(channel) for channel in _CHANNELS)
    new = counted - seen.counted if counted is not None else None
    if counted is not None:
        seen.counted = counted
    if new is None and not has_text:
        seen.strange.update(k for k, v in delta.items() if v and k not in _SILENT)
        seen.empty += not delta.get("role") and not choice.get("finish_reason")
        return
    if new is not None:
        if new <= 0:  # text of a token that was counted before, or an opening chunk
            return
        seen.running += 1
        tokens = new
    elif logprobs := (choice.get("logprobs") or {}).get("content"):
        seen.by_logprobs += 1
        tokens = len(logprobs)
    else:
        seen.guessed += 1
        tokens = 1
    turn.chunk_t_ns.append(t_ns)
    turn.chunk_tokens.append(tokens)


def _notes(turn: Turn, seen: _Seen) -> None:
    turn.step_state = "unknown"
    counted = turn.n_completion_server
    if counted is None and turn.chunk_tokens:
        turn.notes.append("the server sends no usage: the number of tokens is not known, deltas are counted instead")
    elif seen.guessed and counted != sum(turn.chunk_tokens):
        turn.notes.append(
            f"tokens per delta are not known: {len(turn.chunk_tokens)} deltas count as one each, the server counted {counted}"
        )
    if not turn.chunk_tokens and counted and seen.strange:
        names = ", ".join(sorted(seen.strange))
        fail(turn, "protocol", f"the server counted {counted} tokens, but no delta has text on a known channel (fields seen: {names})")
    elif seen.empty:
        turn.notes.append(f"{seen.empty} deltas carried no text")


DIALECT = OpenAIChat()
