"""``trtllm-serve``'s ``/v1/completions`` as the 1.2 era writes it; there is no recording of it, so it is written from the source.

What sets it apart: fields that it does not know are refused, a new id in every chunk, the running average of tokens per
iteration in every choice, and failures that are nothing but a connection that ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from specsweep.client.sim.wire import DONE, Answer, Counts, Json, Part, Refusal, Served, WireRequest, compact, sse, text_of
from specsweep.client.sim.wire._checks import are_ids, is_count, json_object, number, text_length
from specsweep.client.sim.wire._http import uvicorn_head
from specsweep.client.sim.wire._prometheus import Series, python_page

# The request schema of the 1.2 era.
FIELDS = frozenset(
    [
        "model", "prompt", "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n", "presence_penalty",
        "seed", "stop", "stream", "stream_options", "suffix", "temperature", "top_p", "user", "prompt_logprobs", "use_beam_search",
        "top_k", "min_p", "repetition_penalty", "length_penalty", "early_stopping", "stop_token_ids", "include_stop_str_in_output",
        "ignore_eos", "min_tokens", "skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens",
        "add_special_tokens", "response_format", "return_context_logits", "detokenize", "lora_request", "disaggregated_params",
        "cache_salt",
    ]
)  # fmt: skip


class TrtLlm:
    name = "trtllm"
    path = "/v1/completions"
    metrics_path = "/prometheus/metrics"
    early_head = True
    trims_last_draft = False
    keeps_connections = True
    outlives_engine_s = 0.0
    listens_while_loading = False
    interval_unit = "steps"
    last_chunk: tuple[bytes, ...] = (b"0\r\n\r\n",)

    def __init__(self, served: Served) -> None:
        self._served = served

    def parse(self, body: bytes) -> WireRequest | Refusal:
        asked = json_object(body)
        if asked is None:
            return _malformed("[{'type': 'json_invalid', 'loc': ('body',), 'msg': 'JSON decode error'}]")
        for name in asked:
            if name not in FIELDS:
                extra = {"type": "extra_forbidden", "loc": ("body", name), "msg": "Extra inputs are not permitted", "input": asked[name]}
                return _malformed(str([extra]))
        for name in ("model", "prompt"):
            if asked.get(name) is None:
                return _malformed(str([{"type": "missing", "loc": ("body", name), "msg": "Field required", "input": None}]))
        prompt, limit = asked["prompt"], self._served.max_model_len
        tokens = asked.get("max_tokens")
        if tokens is not None and (not is_count(tokens) or tokens < 1):
            return _refused(f"max_tokens must be at least 1, got {tokens}")
        if not isinstance(prompt, str) and not are_ids(prompt):
            return _refused("prompt must be a string or a list of token ids")
        if not prompt:
            return _refused("prompt is empty")
        length = text_length(prompt) if isinstance(prompt, str) else len(prompt)
        ids = [] if isinstance(prompt, str) else prompt
        stream = bool(asked.get("stream"))
        if length >= limit or (ids and not 0 <= min(ids) <= max(ids) < self._served.vocab_size):
            # raised in the executor, on the first iteration over the answer: the head of a stream has left by then
            return Refusal(200, cut=True) if stream else _refused("the request was refused by the executor")
        room = limit - length
        options = asked.get("stream_options")
        return WireRequest(
            prompt=ids,
            n_prompt=length,
            max_tokens=room if tokens is None else min(tokens, room),  # clamped, with a warning in the server's log only
            temperature=number(asked.get("temperature"), 1.0),
            ignore_eos=bool(asked.get("ignore_eos")),
            stream=stream,
            include_usage=options is None or bool(options.get("include_usage")),
            with_ids=asked.get("detokenize") is False,
        )

    def head(self, *, stream: bool, status: int, length: int, close: bool, date: str) -> bytes:
        return uvicorn_head(stream=stream, status=status, length=length, close=close, date=date)

    def chunk(self, answer: Answer, parts: Sequence[Part], finish: str) -> list[bytes]:
        new = [i for part in parts for i in answer.take(part, self._served.vocab_size)]
        text = "" if answer.request.with_ids else text_of(new)
        answer.text += text
        answer.chunks += 1
        if not answer.request.stream:
            return []
        usage = _usage(answer) if answer.request.include_usage else None
        choice = self._choice(answer, text, new, finish)
        return [sse({**self._common(answer, answer.chunks), "choices": [choice], "usage": usage})]

    def finish(self, answer: Answer, finish: str) -> list[bytes]:
        if not answer.request.stream:
            choice = self._choice(answer, answer.text, answer.ids, finish)
            return [compact({**self._common(answer, 1), "choices": [choice], "usage": _usage(answer)})]
        last = {**self._common(answer, answer.chunks + 1), "object": "chat.completion.chunk", "choices": [], "usage": _usage(answer)}
        return [*([sse(last)] if answer.request.include_usage else []), DONE]

    def fail(self, message: str) -> list[bytes] | None:
        return None

    def overloaded(self) -> Refusal:
        return Refusal(503, _flat("the server is overloaded", "ServiceUnavailableError", 503))

    def dead(self) -> Refusal:
        return Refusal(500, _flat("the executor has shut down", "InternalServerError", 500))

    def metrics_page(self, counts: Counts) -> str:
        label = {"engine_type": "undefined", "model_name": self._served.model}
        done = "Count of successfully processed requests."
        series: list[Series] = [
            ("trtllm_request_success_total", "counter", done, [({"finished_reason": "length", **label}, counts.finished)])
        ]
        if self._served.draft_length:
            accept = (counts.accepted_tokens + counts.drafts) / counts.drafts if counts.drafts else 0.0
            spec = "trtllm_spec_decode_"
            series += [
                (f"{spec}num_draft_tokens_total", "counter", "Total draft tokens.", [(label, counts.draft_tokens)]),
                (f"{spec}num_accepted_tokens_total", "counter", "Total accepted draft tokens.", [(label, counts.accepted_tokens)]),
                (f"{spec}acceptance_length", "gauge", "Acceptance length.", [(label, accept)]),
            ]
        return python_page(series, self._served.started_s)

    def get(self, path: str) -> Json | str | None:
        served = self._served
        if path == "/version":
            return {"version": served.version}
        if path == "/v1/models":
            return {
                "object": "list",
                "data": [{"id": served.model, "object": "model", "created": int(served.started_s), "owned_by": "tensorrt_llm"}],
            }
        return None

    def _common(self, answer: Answer, number: int) -> Json:
        return {
            "id": f"cmpl-{(answer.seed * 31 + number) & 0xFFFFFFFF:08x}{answer.request_id[-24:]}",
            "object": "text_completion",
            "created": int(answer.newest_s),
            "model": self._served.model,
        }

    @staticmethod
    def _choice(answer: Answer, text: str, ids: Sequence[int], finish: str) -> Json:
        return {
            "index": 0,
            "text": text,
            "token_ids": ids if answer.request.with_ids else None,
            "logprobs": None,
            "finish_reason": finish or None,
            "stop_reason": None,
            "disaggregated_params": None,
            "avg_decoded_tokens_per_iter": answer.sent / answer.iterations,
        }


def _usage(answer: Answer) -> Json:
    return {"prompt_tokens": answer.n_prompt, "total_tokens": answer.n_prompt + answer.sent, "completion_tokens": answer.sent}


def _flat(message: str, kind: str, code: int) -> bytes:
    return compact({"object": "error", "message": message, "type": kind, "param": None, "code": code})


def _refused(message: str) -> Refusal:
    return Refusal(400, _flat(message, "BadRequestError", 400))


def _malformed(message: str) -> Refusal:
    """A body that does not fit the schema is answered in another shape."""
    return Refusal(400, compact({"error": message}))


def make(served: Served) -> TrtLlm:
    return TrtLlm(served)
