"""vLLM's ``POST /v1/completions`` with token ids in and out.

A chunk carries the new ids of one step, or of several if the API process lagged (or ``--stream-interval`` is on): nothing
marks it. The truth is in the last chunk, if the server was started with ``--per-request-spec-decode-metrics``: with
``detailed`` each step's accepted count, against which the chunks are walked; with ``summary`` a histogram. Without either, and
without drafting, single tokens prove themselves; otherwise chunks are taken for steps only as ``assumed``.

Log-probabilities are the target's before any sampling (``--logprobs-mode raw_logprobs``, the default), of accepted drafts too.

``top_k`` is sent as -1 (off) and every other sampling field as well: fields that are missing come from the model's
``generation_config.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specsweep.client.dialects._steps import read_answer
from specsweep.client.dialects._stream import Json
from specsweep.client.dialects._surprisal import fill_surprisal
from specsweep.client.dialects._vllm_steps import fill_steps
from specsweep.client.prometheus import by_position, parse, total
from specsweep.client.trace import EngineCounters, Exchange, Sampling, Turn


class Vllm:
    name = "vllm"
    path = "/v1/completions"
    takes_ids = True
    metrics_path: str | None = "/metrics"

    def request(self, prompt: Sequence[int] | str, sampling: Sampling, *, model: str) -> bytes:
        body: Json = {
            "model": model,
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": max(sampling.temperature, 0.0),
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": sampling.seed,
            "ignore_eos": sampling.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "skip_special_tokens": False,
            **({"logprobs": 0} if sampling.logprobs else {}),  # 0: of the sampled token alone
        }
        return json.dumps(body, separators=(",", ":")).encode()

    def read(self, exchange: Exchange, *, draft_length: int | None, n_prompt: int | None) -> Turn:
        """``draft_length``: 0 says that nothing is drafted; None that it is not known."""
        return read_answer(exchange, n_prompt, draft_length, _chunks, fill_steps, counts_all=lambda turn: turn.ids_complete)

    def counters(self, metrics_text: str) -> EngineCounters:
        page = parse(metrics_text)
        spec = "vllm:spec_decode_num_"
        cached = total(page, "vllm:prompt_tokens_cached_total")
        return EngineCounters(
            drafts=total(page, spec + "drafts_total"),
            draft_tokens=total(page, spec + "draft_tokens_total"),
            accepted_tokens=total(page, spec + "accepted_tokens_total"),
            accepted_per_pos=by_position(page, spec + "accepted_tokens_per_pos_total"),
            prompt_tokens=total(page, "vllm:prompt_tokens_total"),
            cached_prompt_tokens=total(page, "vllm:prefix_cache_hits_total") if cached is None else cached,
            generation_tokens=total(page, "vllm:generation_tokens_total"),
            preemptions=total(page, "vllm:num_preemptions_total"),
            running=total(page, "vllm:num_requests_running"),
            waiting=total(page, "vllm:num_requests_waiting"),
        )


def _chunks(events: Sequence[tuple[int, Json]], turn: Turn) -> tuple[str, Json | None]:
    """Fills chunks, ids and the server's counts; returns the finish reason and the per-request truth."""
    finish = ""
    truth: Json | None = None
    without_ids = 0
    logprobs: list[object] = []
    for t_ns, event in events:
        choices = event.get("choices")
        if choices:
            choice = choices[0]
            ids = choice.get("token_ids")
            if ids:
                turn.output_ids.extend(ids)
                turn.chunk_t_ns.append(t_ns)
                turn.chunk_tokens.append(len(ids))
            elif ids is None and choice.get("text"):
                without_ids += 1
                turn.chunk_t_ns.append(t_ns)
                turn.chunk_tokens.append(1)
            if said := choice.get("logprobs"):
                logprobs += said["token_logprobs"]
            finish = choice.get("finish_reason") or finish
        if usage := event.get("usage"):
            turn.n_prompt_server = usage.get("prompt_tokens")
            turn.n_completion_server = usage.get("completion_tokens")
        if metrics := event.get("metrics"):
            truth = metrics.get("speculative_decoding") or truth
    if without_ids:
        turn.ids_complete = False
        turn.notes.append(f"{without_ids} chunks carry text without ids (return_token_ids is not known here): each is counted as one token")
    fill_surprisal(turn, logprobs)
    return finish, truth


DIALECT = Vllm()
