"""llama-server's ``/completion`` as build b11434 writes it: an event a token, and the engine's own clock in each.

A verify step of four tokens is four events that leave together, with one ``predicted_ms``. The draft of the last step is trimmed to what
the answer may still hold. The head waits for the first token, so that refusals have a real status, and the connection is
closed after every stream though the head promises to keep it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from specsweep.client.sim.wire import Answer, Counts, Json, Part, Refusal, Served, WireRequest, compact, sse, text_of
from specsweep.client.sim.wire._checks import are_ids, json_object, number, text_length
from specsweep.client.sim.wire._http import httplib_head
from specsweep.client.sim.wire._prometheus import Series, plain_page

TYPES = {"ngram": "none,ngram-simple", "draft_model": "none,draft-simple", "eagle3": "none,draft-eagle3", "mtp": "none,draft-mtp"}
STOPS = {"length": "limit", "stop": "eos"}


class LlamaCpp:
    name = "llamacpp"
    path = "/completion"
    metrics_path = "/metrics"
    early_head = False
    trims_last_draft = True
    keeps_connections = False
    outlives_engine_s = 0.0
    listens_while_loading = True
    interval_unit = ""
    last_chunk: tuple[bytes, ...] = (b"0\r\n", b"\r\n")

    def __init__(self, served: Served) -> None:
        self._served = served

    def parse(self, body: bytes) -> WireRequest | Refusal:
        asked = json_object(body)
        if asked is None:
            return _refused(400, "Failed to parse request body as JSON", "invalid_request_error")
        prompt, limit = asked.get("prompt"), self._served.max_model_len
        if prompt is None:
            return _refused(400, '"prompt" must be provided', "invalid_request_error")
        if prompt in ([], ""):
            return _refused(400, '"prompt" must not be empty', "invalid_request_error")
        if not isinstance(prompt, str) and not are_ids(prompt):
            return _refused(400, '"prompt" must be a string, an list of tokens, a list of mixed strings & tokens', "invalid_request_error")
        ids = [] if isinstance(prompt, str) else prompt
        if ids and not 0 <= min(ids) <= max(ids) < self._served.vocab_size:
            return _refused(400, "Prompt contains invalid tokens", "invalid_request_error")
        length = text_length(prompt) if isinstance(prompt, str) else len(ids)
        if length >= limit:
            message = f"request ({length} tokens) exceeds the available context size ({limit} tokens), try increasing it"
            return _refused(400, message, "exceed_context_size_error", n_prompt_tokens=length, n_ctx=limit)
        wanted, room = _wanted(asked), limit - length
        return WireRequest(
            prompt=ids,
            n_prompt=length,
            max_tokens=room if wanted < 0 else min(max(wanted, 1), room),
            temperature=number(asked.get("temperature"), 0.8),
            ignore_eos=bool(asked.get("ignore_eos")),
            stream=bool(asked.get("stream")),
            asked=asked,
        )

    def head(self, *, stream: bool, status: int, length: int, close: bool, date: str) -> bytes:
        return httplib_head(stream=stream, status=status, length=length, close=close)

    def chunk(self, answer: Answer, parts: Sequence[Part], finish: str) -> list[bytes]:
        events: list[bytes] = []
        for part in parts:
            before = answer.sent
            new = answer.take(part, self._served.vocab_size)
            answer.text += text_of(new)
            if not answer.request.stream:
                continue
            silent = answer.lost_at if before <= answer.lost_at < answer.sent else -1
            numbers = [i for i in range(before, answer.sent) if i != silent]
            events += [sse(self._token(answer, token, i + 1)) for token, i in zip(new, numbers, strict=True)]
        answer.chunks += 1
        return events

    def finish(self, answer: Answer, finish: str) -> list[bytes]:
        asked = answer.request.asked
        wanted = _wanted(asked)
        cut = finish == "length" and answer.sent < wanted
        streamed = answer.request.stream
        event: Json = {
            "index": 0,
            "content": "" if streamed else answer.text,
            "tokens": [] if streamed or not asked.get("return_tokens") else answer.ids,
            "id_slot": answer.slot,
            "stop": True,
            "model": self._served.model,
            "tokens_predicted": answer.sent,
            "tokens_evaluated": answer.n_prompt,
            "generation_settings": self._settings(answer, wanted),
            "prompt": text_of(answer.request.prompt),
            "has_new_line": "\n" in answer.text,
            "truncated": cut,
            "stop_type": STOPS.get(finish, "none"),
            "stopping_word": "",
            "tokens_cached": answer.n_prompt + answer.sent - 1,
            "timings": self._timings(answer, answer.sent),
        }
        return [sse(event)] if streamed else [compact(event)]

    def fail(self, message: str) -> list[bytes] | None:
        return [sse({"error": {"code": 500, "message": message or "Compute error.", "type": "server_error"}})]

    def overloaded(self) -> Refusal:
        return _refused(503, "no slot available", "unavailable_error")

    def dead(self) -> Refusal:
        return _refused(500, "Compute error.", "server_error")

    def metrics_page(self, counts: Counts) -> str:
        uncached = counts.prompt_tokens - counts.cached_prompt_tokens
        spec = "llamacpp:spec_decode_num_"
        tokens_a_step = counts.generation_tokens / counts.steps if counts.steps else 0

        def plain(name: str, kind: str, text: str, value: float) -> Series:
            return f"llamacpp:{name}", kind, text, [({}, value)]

        series = [
            plain("prompt_tokens_total", "counter", "Number of prompt tokens processed, excluding cached tokens", uncached),
            plain("prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache", counts.cached_prompt_tokens),
            plain("prompt_seconds_total", "counter", "Total time spent processing prompts", counts.prompt_s),
            plain("tokens_predicted_total", "counter", "Number of generation tokens processed", counts.generation_tokens),
            plain("tokens_predicted_seconds_total", "counter", "Total time spent generating tokens", counts.decode_s),
            plain(
                "n_decode_total",
                "counter",
                "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding",
                counts.steps,
            ),
            plain("n_tokens_max", "counter", "Largest observed sequence length (prompt + generation)", counts.longest),
            plain("spec_decode_num_draft_tokens_total", "counter", "Speculative: Total draft tokens generated", counts.draft_tokens),
            plain(
                "spec_decode_num_accepted_tokens_total",
                "counter",
                "Speculative: Total draft tokens accepted by the target model",
                counts.accepted_tokens,
            ),
            plain("spec_decode_num_drafts_total", "counter", "Speculative: Total speculative decoding verification steps", counts.drafts),
            plain("prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s", _rate(uncached, counts.prompt_s)),
            plain(
                "predicted_tokens_seconds",
                "gauge",
                "Average generation throughput in tokens/s",
                _rate(counts.generation_tokens, counts.decode_s),
            ),
            plain("requests_processing", "gauge", "Number of requests processing", counts.running),
            plain("requests_deferred", "gauge", "Number of requests deferred", counts.waiting),
            plain("n_busy_slots_per_decode", "gauge", "Average number of busy slots per llama_decode() call", tokens_a_step),
        ]
        if self._served.draft_length and counts.drafts:
            per_pos = [({"position": str(i)}, int(n)) for i, n in enumerate(counts.accepted_per_pos)]
            series.append((f"{spec}accepted_tokens_per_pos_total", "counter", "Accepted tokens per draft position", per_pos))
        return plain_page(series)

    def get(self, path: str) -> Json | str | None:
        served = self._served
        if path == "/props":
            return {
                "default_generation_settings": {"n_ctx": served.max_model_len},
                "total_slots": served.max_batch,
                "model_path": served.model,
                "build_info": served.version,
            }
        return {"data": [{"id": served.model, "object": "model", "owned_by": "llamacpp"}]} if path == "/v1/models" else None

    def _token(self, answer: Answer, token: int, count: int) -> Json:
        """The event of token number ``count``."""
        event: Json = {
            "index": 0,
            "content": text_of([token]),
            "tokens": [token],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": count,
            "tokens_evaluated": answer.n_prompt,
        }
        if answer.request.asked.get("timings_per_token"):
            event["timings"] = self._timings(answer, count)
        return event

    def _timings(self, answer: Answer, count: int) -> Json:
        computed = answer.n_prompt - answer.n_cached
        prompt_ms = _ms(answer.first_s - answer.started_s)
        ms = _ms(answer.newest_s - answer.first_s)
        found: Json = {
            "cache_n": answer.n_cached,
            "prompt_n": computed,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / computed,
            "prompt_per_second": 1e3 / prompt_ms * computed,
            "predicted_n": count,
            "predicted_ms": ms,
            "predicted_per_token_ms": ms / (count - 1) if count > 1 else 0.0,
            "predicted_per_second": 1e3 / ms * (count - 1) if count > 1 else 0.0,
        }
        return found | ({"draft_n": sum(answer.drafted), "draft_n_accepted": sum(answer.accepted)} if answer.drafted else {})

    def _settings(self, answer: Answer, wanted: int) -> Json:
        """What the sampler was given, in single precision; the rest are the server's defaults."""
        asked = answer.request.asked
        return {
            "seed": asked.get("seed", 4294967295),
            "temperature": _single(answer.request.temperature),
            "dynatemp_range": 0.0,
            "dynatemp_exponent": 1.0,
            "top_k": asked.get("top_k", 40),
            "top_p": _single(number(asked.get("top_p"), 0.95)),
            "min_p": _single(number(asked.get("min_p"), 0.05)),
            "top_n_sigma": -1.0,
            "xtc_probability": 0.0,
            "xtc_threshold": _single(0.1),
            "typical_p": 1.0,
            "repeat_last_n": 64,
            "repeat_penalty": _single(number(asked.get("repeat_penalty"), 1.0)),
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "dry_multiplier": 0.0,
            "dry_base": 1.75,
            "dry_allowed_length": 2,
            "dry_penalty_last_n": 64,
            "dry_sequence_breakers": ["\n", ":", '"', "*"],
            "mirostat": 0,
            "mirostat_tau": 5.0,
            "mirostat_eta": _single(0.1),
            "adaptive_target": -1.0,
            "adaptive_decay": _single(0.9),
            "stop": [],
            "max_tokens": wanted,
            "n_predict": wanted,
            "n_keep": 0,
            "n_discard": 0,
            "ignore_eos": answer.request.ignore_eos,
            "stream": answer.request.stream,
            "logit_bias": [{"bias": None, "token": 0}] if answer.request.ignore_eos else [],
            "n_probs": 0,
            "min_keep": 0,
            "grammar": "",
            "grammar_lazy": False,
            "grammar_triggers": [],
            "preserved_tokens": [],
            "chat_format": "Content-only",
            "reasoning_format": "deepseek",
            "reasoning_in_content": False,
            "generation_prompt": "",
            "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
            "speculative.types": TYPES.get(self._served.drafter, "none"),
            "timings_per_token": bool(asked.get("timings_per_token")),
            "post_sampling_probs": False,
            "backend_sampling": False,
            "lora": [],
        }


def _refused(status: int, message: str, kind: str, **more: int) -> Refusal:
    return Refusal(status, compact({"error": {"code": status, "message": message, "type": kind, **more}}))


def _wanted(asked: Json) -> int:
    """Tokens that were asked for; -1: as many as fit."""
    value = asked.get("n_predict", asked.get("max_tokens"))
    return value if type(value) is int else -1


def _ms(seconds: float) -> float:
    """In whole microseconds, and never 0: the engine's clock."""
    return max(1, round(seconds * 1e6)) / 1e3


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else 0


def _single(value: float) -> float:
    (found,) = struct.unpack("f", struct.pack("f", value))
    return float(found)


def make(served: Served) -> LlamaCpp:
    return LlamaCpp(served)
