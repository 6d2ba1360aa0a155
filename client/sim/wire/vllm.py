"""vLLM's ``/v1/completions`` as version 0.32 writes it: a chunk a step, the truth of each step in the usage chunk.

Two things of it are odd, and people have been misled by both. Error events are printed with blanks where everything else is compact, and a
request that the engine (not the API server) refuses is HTTP 200, an error event, and ``[DONE]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from specsweep.client.sim.wire import (
    DONE,
    Answer,
    Counts,
    Json,
    Part,
    Refusal,
    Served,
    WireRequest,
    compact,
    json_text_of,
    sse,
    text_of,
    token_logprob,
)
from specsweep.client.sim.wire._checks import are_ids, is_count, json_object, number, text_length
from specsweep.client.sim.wire._http import uvicorn_head
from specsweep.client.sim.wire._prometheus import Series, python_page

DEFAULT_MAX_TOKENS = 16
SHOWN_ERRORS = 10  # of a validation message
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Vllm:
    name = "vllm"
    path = "/v1/completions"
    metrics_path = "/metrics"
    early_head = True
    trims_last_draft = False
    keeps_connections = True
    outlives_engine_s = 5.0
    listens_while_loading = False
    interval_unit = "tokens"
    last_chunk: tuple[bytes, ...] = (b"0\r\n\r\n",)

    def __init__(self, served: Served) -> None:
        self._served = served
        self._fingerprint = f"vllm-{served.version}-{crc32(served.model.encode()):08x}"
        self._labels = {"engine": "0", "model_name": served.model}

    def parse(self, body: bytes) -> WireRequest | Refusal:
        asked = json_object(body)
        if asked is None:
            return _refused(
                400, "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body', 'msg': 'JSON decode error'}", kind="Bad Request"
            )
        prompt = asked.get("prompt")
        if isinstance(prompt, list) and (wrong := _not_ids(prompt)):
            return _refused(400, wrong[0], kind="Bad Request", param=wrong[1])
        if asked.get("model") not in (None, self._served.model):
            return _refused(
                404,
                f"The model `{asked['model']}` does not exist. Valid aliases: {self._served.model}.",
                kind="NotFoundError",
                param="model",
            )
        if not prompt:
            return _refused(400, "You must pass at least one prompt")
        length = text_length(prompt) if isinstance(prompt, str) else len(prompt)
        limit = self._served.max_model_len
        if length > limit:
            return _refused(
                400,
                f"This model's maximum context length is {limit} tokens. However, your prompt contains {length} input tokens, which exceeds "
                "this limit even without any output tokens. Please reduce the length of the input prompt. "
                f"(parameter=input_tokens, value={length})",
                param="input_tokens",
            )
        tokens = asked.get("max_tokens")
        tokens = DEFAULT_MAX_TOKENS if tokens is None else tokens
        if not is_count(tokens) or tokens < 1:
            return _refused(400, f"max_tokens must be at least 1, got {tokens}. (parameter=max_tokens, value={tokens})", param="max_tokens")
        if length + tokens > limit:
            return _refused(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {tokens} output tokens and your prompt "
                f"contains {length} input tokens, for a total of {length + tokens} tokens. Please reduce the length of the input prompt or "
                f"the number of requested output tokens. (parameter=input_tokens, value={length})",
                param="input_tokens",
            )
        ids = prompt if are_ids(prompt) else []
        if ids and max(ids) >= self._served.vocab_size:
            return Refusal(200, events=(*self._error(f"Token id {max(ids)} is out of vocabulary", "BadRequestError", 400), DONE))
        options = asked.get("stream_options") or {}
        return WireRequest(
            prompt=ids,
            n_prompt=length,
            max_tokens=tokens,
            temperature=number(asked.get("temperature"), 1.0),
            ignore_eos=bool(asked.get("ignore_eos")),
            stream=bool(asked.get("stream")),
            include_usage=bool(options.get("include_usage")) or not asked.get("stream"),
            continuous_usage=bool(options.get("include_usage") and options.get("continuous_usage_stats")),
            with_ids=bool(asked.get("return_token_ids")),
            logprobs=asked.get("logprobs") is not None,
        )

    def head(self, *, stream: bool, status: int, length: int, close: bool, date: str) -> bytes:
        return uvicorn_head(stream=stream, status=status, length=length, close=close, date=date)

    def chunk(self, answer: Answer, parts: Sequence[Part], finish: str) -> list[bytes]:
        new = [i for part in parts for i in answer.take(part, self._served.vocab_size)]
        if not answer.request.stream:
            answer.text += text_of(new)
            return []
        answer.chunks += 1
        if answer.chunks > 1:
            return [self._later_chunk(answer, new, finish)]
        choice: Json = {"index": 0, "text": text_of(new), "logprobs": self._logprobs(answer, new)}
        choice |= {"finish_reason": finish or None, "stop_reason": None}
        with_ids = answer.request.with_ids
        choice |= {"prompt_token_ids": answer.request.prompt if with_ids else None, "token_ids": new if with_ids else None}
        return [sse({**self._common(answer), "choices": [choice], **self._beside(answer, finish)})]

    def _later_chunk(self, answer: Answer, new: Sequence[int], finish: str) -> bytes:
        """The same by hand, since nearly all events are of this kind: a third of the time of building and encoding it."""
        if not answer.prefix:
            answer.prefix = f'data: {compact(self._common(answer)).decode()[:-1]},"choices":[{{"index":0,"text":'
        ids = f"[{','.join(map(str, new))}]" if answer.request.with_ids else "null"
        logprobs = compact(self._logprobs(answer, new)).decode() if answer.request.logprobs else "null"
        reason, beside = f'"{finish}"' if finish else "null", self._beside(answer, finish)
        return (
            f'{answer.prefix}{json_text_of(new)},"logprobs":{logprobs},"finish_reason":{reason},"stop_reason":null,'
            f'"prompt_token_ids":null,"token_ids":{ids}}}]{"," + compact(beside)[1:-1].decode() if beside else ""}}}\n\n'
        ).encode()

    def _logprobs(self, answer: Answer, new: Sequence[int]) -> Json | None:
        """Of the sampled tokens alone, whatever number of others is asked for: there is nothing to tell of those."""
        if not answer.request.logprobs:
            return None
        value, texts = token_logprob(self._served.vocab_size), [text_of([i]) for i in new]
        before = len(text_of(answer.ids[: len(answer.ids) - len(new)]))
        offsets = [before + sum(map(len, texts[:i])) for i in range(len(texts))]
        return {"text_offset": offsets, "token_logprobs": [value] * len(new), "tokens": texts, "top_logprobs": [{t: value} for t in texts]}

    def _beside(self, answer: Answer, finish: str) -> Json:
        """What stands beside the choices of a chunk: the usage so far if it was asked for, the fingerprint in a last chunk without a usage chunk after it."""
        if answer.request.continuous_usage:
            return {"usage": _counted(answer)}
        return {"system_fingerprint": self._fingerprint} if finish and not answer.request.include_usage else {}

    def finish(self, answer: Answer, finish: str) -> list[bytes]:
        last = {"usage": _usage(answer), "system_fingerprint": self._fingerprint, **self._truth(answer)}
        if not answer.request.stream:
            choice: Json = {"index": 0, "text": answer.text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
            if answer.request.with_ids:
                choice |= {"token_ids": answer.ids, "prompt_logprobs": None, "prompt_token_ids": answer.request.prompt}
            return [compact({**self._common(answer), "choices": [choice], **last})]
        usage = [sse({**self._common(answer), "choices": [], **last})] if answer.request.include_usage else []
        return [*usage, DONE]

    def fail(self, message: str) -> list[bytes] | None:
        return [*self._error(message or DEAD, "InternalServerError", 500), DONE]

    def overloaded(self) -> Refusal:
        return _refused(503, "The server is overloaded: too many queued requests.", kind="ServiceUnavailableError")

    def dead(self) -> Refusal:
        return _refused(500, DEAD, kind="InternalServerError")

    def metrics_page(self, counts: Counts) -> str:
        label = self._labels
        spec = "vllm:spec_decode_num_"
        series: list[Series] = []
        if self._served.draft_length:
            per_pos = [({**label, "position": str(i)}, float(n)) for i, n in enumerate(counts.accepted_per_pos)]
            series += [
                (f"{spec}drafts_total", "counter", "Number of spec decoding drafts.", [(label, counts.drafts)]),
                (f"{spec}draft_tokens_total", "counter", "Number of draft tokens.", [(label, counts.draft_tokens)]),
                (f"{spec}accepted_tokens_total", "counter", "Number of accepted tokens.", [(label, counts.accepted_tokens)]),
                (f"{spec}accepted_tokens_per_pos_total", "counter", "Accepted tokens per draft position.", per_pos),
            ]
        done = [("stop", 0), ("length", counts.finished), ("abort", counts.aborted), ("error", 0)]
        series += [
            ("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", [(label, counts.running)]),
            ("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", [(label, counts.waiting)]),
            (
                "vllm:prefix_cache_queries_total",
                "counter",
                "Prefix cache queries, in terms of number of queried tokens.",
                [(label, counts.prompt_tokens if counts.cached_prompt_tokens else 0)],
            ),
            (
                "vllm:prefix_cache_hits_total",
                "counter",
                "Prefix cache hits, in terms of number of cached tokens.",
                [(label, counts.cached_prompt_tokens)],
            ),
            ("vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.", [(label, counts.preemptions)]),
            ("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", [(label, counts.prompt_tokens)]),
            (
                "vllm:prompt_tokens_cached_total",
                "counter",
                "Number of cached prompt tokens (local + external).",
                [(label, counts.cached_prompt_tokens)],
            ),
            ("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.", [(label, counts.generation_tokens)]),
            (
                "vllm:request_success_total",
                "counter",
                "Count of successfully processed requests.",
                [({**label, "finished_reason": reason}, float(n)) for reason, n in done],
            ),
        ]
        return python_page(series, self._served.started_s)

    def get(self, path: str) -> Json | str | None:
        served = self._served
        if path == "/version":
            return {"version": served.version}
        if path == "/v1/models":
            model = {"id": served.model, "object": "model", "created": int(served.started_s), "owned_by": "vllm", "root": served.model}
            return {"object": "list", "data": [{**model, "parent": None, "max_model_len": served.max_model_len}]}
        return {"server_load": 0} if path == "/load" else ("" if path == "/ping" else None)

    def _common(self, answer: Answer) -> Json:
        return {"id": answer.request_id, "object": "text_completion", "created": int(answer.arrived_s), "model": self._served.model}

    def _truth(self, answer: Answer) -> Json:
        length, kind = self._served.draft_length, self._served.step_truth
        if not length or kind == "none":
            return {}
        steps, accepted, drafted = len(answer.drafted), sum(answer.accepted), sum(answer.drafted)
        histogram = [0] * (length + 1)
        for a in answer.accepted:
            histogram[a] += 1
        found: Json = {
            "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
            "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
            "acceptance_histogram": histogram,
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
            "num_spec_tokens": length,
        }
        if kind == "detailed" and steps:
            found |= {"per_step_accepted": answer.accepted, "per_step_drafted": answer.drafted}
        return {"metrics": {"speculative_decoding": found}}

    @staticmethod
    def _error(message: str, kind: str, code: int) -> tuple[bytes, ...]:
        """Through ``json.dumps`` without separators, unlike the chunks."""
        text = compact(message).decode()
        return (f'data: {{"error": {{"message": {text}, "type": "{kind}", "param": null, "code": {code}}}}}\n\n'.encode(),)


def _counted(answer: Answer) -> Json:
    return {"prompt_tokens": answer.n_prompt, "total_tokens": answer.n_prompt + answer.sent, "completion_tokens": answer.sent}


def _usage(answer: Answer) -> Json:
    return _counted(answer) | ({"prompt_tokens_details": {"cached_tokens": answer.n_cached}} if answer.n_cached else {})


def _refused(status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None) -> Refusal:
    return Refusal(status, compact({"error": {"message": message, "type": kind, "param": param, "code": status}}))


def _not_ids(prompt: list[Any]) -> tuple[str, str] | None:
    """pydantic's complaint about a list that is neither of ids nor of texts nor of lists; None if it is one of ids."""
    if all(type(i) is int and i >= 0 for i in prompt) or all(isinstance(i, str) for i in prompt):
        return None
    found: list[dict[str, Any]] = []
    for i, value in enumerate(prompt):
        if type(value) is not int:
            found.append({"type": "int_type", "loc": f"body.prompt.{i}", "msg": "Input should be a valid integer", "input": str(value)})
        elif value < 0:
            at_least = "Input should be greater than or equal to 0"
            found.append({"type": "greater_than_equal", "loc": f"body.prompt.{i}", "msg": at_least, "input": str(value), "ctx": {"ge": 0}})
    bad = found[0]["loc"]
    for i, value in enumerate(prompt):
        found.append({"type": "list_type", "loc": f"body.prompt.{i}", "msg": "Input should be a valid list", "input": str(value)})
    count = len(found) + len(prompt) + 1  # one for each entry that is no text, and one for the list that is no text either
    lines = [f"  {error}" for error in found[:SHOWN_ERRORS]]
    return "\n".join([f"{count} validation errors:", *lines, f"  ...and {count - len(lines)} more errors"]), bad


def make(served: Served) -> Vllm:
    return Vllm(served)
