"""SGLang's ``/generate`` as version 0.5.23 writes it: no usage chunk, but the counts and a dozen times in every event.

The acceptance fields of the last event are written from the source, not from a recording (SGLang drafts on GPUs only). Every decode
step counts as a verify step, whether something was drafted or not, and ``spec_num_proposed_drafts`` is nominal: steps times DL.
"""

from __future__ import annotations

from collections.abc import Sequence

from specsweep.client.sim.wire import DONE, Answer, Counts, Json, Part, Refusal, Served, WireRequest, compact, sse, text_of
from specsweep.client.sim.wire._checks import are_ids, is_count, json_object, number, text_length
from specsweep.client.sim.wire._http import uvicorn_head
from specsweep.client.sim.wire._prometheus import Series, python_page

DEFAULT_MAX_TOKENS = 128


class Sglang:
    name = "sglang"
    path = "/generate"
    metrics_path = "/metrics"
    early_head = True
    trims_last_draft = False
    keeps_connections = True
    outlives_engine_s = 0.0
    listens_while_loading = False
    interval_unit = "tokens"
    last_chunk: tuple[bytes, ...] = (b"0\r\n\r\n",)

    def __init__(self, served: Served) -> None:
        self._served = served

    def parse(self, body: bytes) -> WireRequest | Refusal:
        asked = json_object(body)
        if asked is None:
            return Refusal(400, compact({"error": {"message": "JSON decode error"}}))
        text, ids, stream = asked.get("text"), asked.get("input_ids"), bool(asked.get("stream"))
        if (text is None) == (ids is None):
            return _refused("Either text, input_ids or input_embeds should be provided.", stream)
        if ids is not None and not are_ids(ids):
            return Refusal(400, compact({"error": {"message": "input_ids should be a list of integers"}}))
        given = asked.get("sampling_params") or {}
        tokens = given.get("max_new_tokens", DEFAULT_MAX_TOKENS)
        if not is_count(tokens) or tokens < 0:
            return _refused(f"max_new_tokens must be at least 0, got {tokens}.", stream)
        length = len(ids) if ids is not None else text_length(str(text))
        limit = self._served.max_model_len
        if length + tokens > limit:
            message = (
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a total of "
                f"{length + tokens} tokens: {length} tokens from the input messages and {tokens} tokens for the completion. Please reduce the "
                "number of tokens in the input messages or the completion to fit within the limit."
            )
            return _refused(message, stream)
        if ids and not 0 <= min(ids) <= max(ids) < self._served.vocab_size:
            return Refusal(200, cut=True)  # the lookup fails on the device, which takes the server down
        return WireRequest(
            prompt=ids or [],
            n_prompt=length,
            max_tokens=max(tokens, 1),
            temperature=number(given.get("temperature"), 1.0),
            ignore_eos=bool(given.get("ignore_eos")),
            stream=stream,
        )

    def head(self, *, stream: bool, status: int, length: int, close: bool, date: str) -> bytes:
        return uvicorn_head(stream=stream, status=status, length=length, close=close, date=date)

    def chunk(self, answer: Answer, parts: Sequence[Part], finish: str) -> list[bytes]:
        new = [i for part in parts for i in answer.take(part, self._served.vocab_size)]
        text = text_of(new)
        answer.text += text
        if not answer.request.stream and not finish:
            return []
        cumulative = not self._served.incremental or not answer.request.stream
        event = {
            "text": answer.text if cumulative else text,
            "output_ids": answer.ids if cumulative else new,
            "meta_info": self._meta(answer, finish),
        }
        answer.chunks += 1
        return [sse(event)] if answer.request.stream else [compact(event)]

    def finish(self, answer: Answer, finish: str) -> list[bytes]:
        return [DONE] if answer.request.stream else []

    def fail(self, message: str) -> list[bytes] | None:
        return [sse({"error": {"message": message or "The server was shut down."}}), DONE]

    def overloaded(self) -> Refusal:
        reason = {"type": "abort", "message": "The request queue is full.", "status_code": 503, "err_type": None}
        meta = {"id": "0" * 32, "finish_reason": reason, "prompt_tokens": 0, "weight_version": "default", "num_retractions": 0}
        event = {"text": "", "output_ids": [], "meta_info": {**meta, "completion_tokens": 0, "cached_tokens": 0}}
        return Refusal(200, events=(sse(event), DONE))

    def dead(self) -> Refusal:
        return Refusal(500, compact({"error": {"message": "The server was shut down."}}))

    def metrics_page(self, counts: Counts) -> str:
        served = self._served
        plain = {"engine_type": "unified", "model_name": served.model}
        ranks = {**plain, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
        streamed = {**plain, "is_streaming": "true"}
        accept = 1 + counts.accepted_tokens / counts.drafts if counts.drafts else 0.0
        rate = counts.accepted_tokens / counts.draft_tokens if counts.draft_tokens else 0.0
        series: list[Series] = [
            (
                "sglang:max_total_num_tokens",
                "gauge",
                "Maximum total number of tokens in the KV cache pool.",
                [(ranks, served.kv_tokens or served.max_batch * served.max_model_len)],
            ),
            ("sglang:num_running_reqs", "gauge", "The number of running requests.", [(ranks, counts.running)]),
            ("sglang:num_queue_reqs", "gauge", "The number of requests in the waiting queue.", [(ranks, counts.waiting)]),
            (
                "sglang:spec_accept_length",
                "gauge",
                "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
                [(ranks, accept)],
            ),
            (
                "sglang:spec_accept_rate",
                "gauge",
                "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).",
                [(ranks, rate)],
            ),
            ("sglang:prompt_tokens_total", "counter", "Number of prefill tokens processed.", [(streamed, counts.prompt_tokens)]),
            ("sglang:generation_tokens_total", "counter", "Number of generation tokens processed.", [(streamed, counts.generation_tokens)]),
            ("sglang:num_requests_total", "counter", "Number of requests processed.", [(streamed, counts.finished)]),
        ]
        if served.draft_length:
            calls = "Number of speculative verify calls."
            series.append(("sglang:spec_verify_calls_total", "counter", calls, [(ranks, counts.decodes)]))
        if counts.preemptions:  # as with every labelled series, there is none before the first
            retracted = "Total number of retracted requests."
            series.append(("sglang:num_retracted_requests_total", "counter", retracted, [(ranks, counts.preemptions)]))
        if counts.cached_prompt_tokens:
            cached = "Number of cached prompt tokens."
            series.append(("sglang:cached_tokens_total", "counter", cached, [(streamed, counts.cached_prompt_tokens)]))
        return python_page(series, None)

    def get(self, path: str) -> Json | str | None:
        served = self._served
        if path in ("/server_info", "/get_server_info"):
            return {
                "model_path": served.model,
                "served_model_name": served.model,
                "context_length": served.max_model_len,
                "max_running_requests": served.max_batch,
                "disable_radix_cache": True,
                "stream_interval": served.stream_interval,
                "disable_overlap_schedule": False,
                "internal_states": [{"memory_usage": {"token_capacity": served.kv_tokens or served.max_batch * served.max_model_len}}],
                "version": served.version,
            }
        if path in ("/model_info", "/get_model_info"):
            return {"model_path": served.model, "is_generation": True}
        return None

    def _meta(self, answer: Answer, finish: str) -> Json:
        length = self._served.draft_length
        meta: Json = {
            "id": answer.request_id,
            "finish_reason": {"type": "length", "length": answer.sent} if finish == "length" else {"type": finish} if finish else None,
            "prompt_tokens": answer.n_prompt,
            "weight_version": "default",
            "num_retractions": answer.resumed,
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "forward_entry_time": answer.started_s,
            "prefill_finished_time": answer.first_s,
            "queue_time": max(answer.started_s - answer.arrived_s, 0.0),
            "reasoning_tokens": 0,
            "completion_tokens": answer.sent,
            "cached_tokens": answer.n_cached,
        }
        if finish:
            meta["weight_versions"] = [{"version": "default", "start": 0, "end": answer.sent}]
        meta |= {"cached_tokens_details": None, "dp_rank": None}
        if finish:
            decode_s = answer.newest_s - answer.first_s
            meta |= self._acceptance(answer) if length else {}
            meta |= {
                "e2e_latency": answer.newest_s - answer.arrived_s,
                "request_received_ts": answer.arrived_s,
                "first_token_latency": answer.first_s - answer.arrived_s,
                "api_server_dispatch_finish_ts": answer.arrived_s,
                "response_sent_to_client_ts": answer.first_s,
                "request_finished_ts": answer.newest_s,
                "decode_throughput": (answer.sent - 1) / decode_s if decode_s > 0 else 0.0,
            }
        elif not answer.chunks:
            meta["response_sent_to_client_ts"] = answer.newest_s
        return meta

    def _acceptance(self, answer: Answer) -> Json:
        length, steps = self._served.draft_length, answer.iterations - 1 - answer.resumed
        accepted = sum(answer.accepted)
        histogram = [steps - len(answer.accepted)] + [0] * length
        for a in answer.accepted:
            histogram[a] += 1
        return {
            "spec_accept_rate": accepted / (steps * length) if steps else 0.0,
            "spec_accept_length": answer.sent / steps if steps else 0.0,
            "spec_num_correct_drafts": accepted,
            "spec_num_proposed_drafts": steps * length,
            "spec_verify_ct": steps,
            "spec_correct_drafts_histogram": histogram,
        }


def _refused(message: str, stream: bool) -> Refusal:
    """Even a plain validation error is HTTP 200 once a stream was asked for."""
    error = {"error": {"message": message}}
    return Refusal(200, events=(sse(error), DONE)) if stream else Refusal(400, compact(error))


def make(served: Served) -> Sglang:
    return Sglang(served)
