"""SGLang's native ``POST /generate``: ids in, ids out, acceptance in the last event.

Three things differ from the OpenAI wires. ``output_ids`` is cumulative unless the server was started with
``--incremental-streaming-output`` (0.5.23; ``--stream-output`` in 0.5.7), and nothing in an event says which: its own running
count ``completion_tokens`` does. There is no usage chunk, the counts are in every event. And a request that the server refuses
is HTTP 200 with an error event, then ``[DONE]``.

``/v1/completions`` exists too, but streams text only in 0.5.7; ``/generate`` is the same in both versions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeVar

from specsweep.client.dialects._plausible import count
from specsweep.client.dialects._sglang_steps import fill_steps
from specsweep.client.dialects._steps import read_answer
from specsweep.client.dialects._stream import Json, fail
from specsweep.client.dialects._surprisal import fill_surprisal
from specsweep.client.prometheus import parse, total
from specsweep.client.trace import EngineCounters, Exchange, Sampling, Turn

T = TypeVar("T")


class Sglang:
    name = "sglang"
    path = "/generate"
    takes_ids = True
    metrics_path: str | None = "/metrics"  # with --enable-metrics

    def request(self, prompt: Sequence[int] | str, sampling: Sampling, *, model: str) -> bytes:
        """The complete body. ``model`` is not sent: ``/generate`` has no such field."""
        body: Json = {
            **({"text": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}),
            "sampling_params": {
                "max_new_tokens": sampling.max_tokens,
                "min_new_tokens": 0,
                "temperature": max(sampling.temperature, 0.0),  # below 1e-6 is greedy
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "ignore_eos": sampling.ignore_eos,
                "skip_special_tokens": False,
            },
            "stream": True,
            "return_logprob": sampling.logprobs,
            **({"top_logprobs_num": 0, "logprob_start_len": -1} if sampling.logprobs else {}),  # -1: not of the prompt
        }
        return json.dumps(body, separators=(",", ":")).encode()

    def read(self, exchange: Exchange, *, draft_length: int | None, n_prompt: int | None) -> Turn:
        """``draft_length``: tokens that one step can accept at most (a tree verifies more nodes); 0: nothing is drafted."""
        return read_answer(exchange, n_prompt, draft_length, _chunks, fill_steps, counts_all=lambda turn: False)

    def counters(self, metrics_text: str) -> EngineCounters:
        """Verify calls are counted from 0.5.23 on, accepted tokens nowhere: those are in each request's last event."""
        page = parse(metrics_text)
        return EngineCounters(
            drafts=total(page, "sglang:spec_verify_calls_total"),
            prompt_tokens=total(page, "sglang:prompt_tokens_total"),
            cached_prompt_tokens=total(page, "sglang:cached_tokens_total"),
            generation_tokens=total(page, "sglang:generation_tokens_total"),
            preemptions=total(page, "sglang:num_retracted_requests_total"),
            running=total(page, "sglang:num_running_reqs"),
            waiting=total(page, "sglang:num_queue_reqs"),
        )


def _chunks(events: Sequence[tuple[int, Json]], turn: Turn) -> tuple[str, Json]:
    """Fills chunks, ids and counts; returns the finish reason and the ``meta_info`` of the event that carried it."""
    finish, last = "", {}
    silent = 0
    logprobs: list[object] = []
    for t_ns, event in events:
        meta = event["meta_info"]
        reason = meta.get("finish_reason")
        counted = count("completion_tokens", meta["completion_tokens"])
        turn.n_prompt_server = meta.get("prompt_tokens")
        turn.n_completion_server = counted
        if reason is not None:
            finish, last = str(reason["type"]), meta
            if finish == "abort":  # 0.5.7 puts the last token alone into this event, so its ids are not looked at
                code = f" (status {reason['status_code']})" if reason.get("status_code") else ""
                fail(turn, "stream_error", f"the server aborted the request{code}: {reason.get('message') or 'no reason given'}")
                break
        new = _new_ids(event.get("output_ids") or [], len(turn.output_ids) + silent, counted)
        missing = counted - len(turn.output_ids) - silent - len(new)
        if new:
            turn.output_ids.extend(new)
            turn.chunk_t_ns.append(t_ns)
            turn.chunk_tokens.append(len(new))
        silent += max(missing, 0)
        if said := meta.get("output_token_logprobs"):
            logprobs += [entry[0] for entry in _new_ids(said, len(logprobs), counted)]
    fill_surprisal(turn, logprobs)
    if silent:
        turn.ids_complete = False
        turn.notes.append(f"the server counted {silent} tokens that it never streamed (0.5.7 with --stream-output loses them when it lags)")
    if cached := last.get("cached_tokens"):
        turn.notes.append(f"{cached} prompt tokens came from the prefix cache: the time to the first token is not that of a cold prompt")
    return finish, last


def _new_ids(ids: list[T], seen: int, counted: int) -> list[T]:
    """The ids (or their log-probabilities) of an event that had not come before. Cumulative if they are all that the server counted, else its newest."""
    return ids[seen:] if len(ids) == counted and seen else ids


DIALECT = Sglang()
