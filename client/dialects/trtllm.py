"""TensorRT-LLM's ``trtllm-serve``: ``POST /v1/completions`` with token ids in and out.

``detokenize: false`` is what makes it stream ids (``token_ids``, a delta; the text is empty then). Fields that it does not know
are refused with 400, so nothing of another engine's dialect is sent. Each choice carries ``avg_decoded_tokens_per_iter``,
tokens over decoding iterations so far, which gives back the iteration number at every chunk: an exact check for merged chunks.

What it does on failure: the connection is cut, without an event and without ``[DONE]``. A request that asks for more tokens than the
server's ``max_seq_len`` leaves room for is answered shorter, with ``finish_reason: length`` and no word about it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specsweep.client.dialects._steps import read_answer
from specsweep.client.dialects._stream import Json
from specsweep.client.dialects._surprisal import fill_surprisal
from specsweep.client.dialects._trtllm_steps import fill_steps
from specsweep.client.prometheus import parse, total
from specsweep.client.trace import EngineCounters, Exchange, Sampling, Turn


class TrtLlm:
    name = "trtllm"
    path = "/v1/completions"
    takes_ids = True
    metrics_path: str | None = "/prometheus/metrics"  # with return_perf_metrics; drains nothing that we read elsewhere

    def request(self, prompt: Sequence[int] | str, sampling: Sampling, *, model: str) -> bytes:
        body: Json = {
            "model": model,
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": max(sampling.temperature, 0.0),
            "top_p": sampling.top_p,
            "top_k": max(sampling.top_k, 0),  # 0: off
            "seed": sampling.seed,
            "ignore_eos": sampling.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
            "detokenize": False,
            **({"logprobs": 1} if sampling.logprobs else {}),  # 0 is taken for "none"
        }
        return json.dumps(body, separators=(",", ":")).encode()

    def read(self, exchange: Exchange, *, draft_length: int | None, n_prompt: int | None) -> Turn:
        """``draft_length``: 0 says that nothing is drafted; None that it is not known."""
        return read_answer(exchange, n_prompt, draft_length, _chunks, fill_steps, counts_all=lambda turn: True)

    def counters(self, metrics_text: str) -> EngineCounters:
        """Draft and accepted tokens only (newer versions); there is no counter of verify steps and none by position."""
        page = parse(metrics_text)
        return EngineCounters(
            draft_tokens=total(page, "trtllm_spec_decode_num_draft_tokens_total"),
            accepted_tokens=total(page, "trtllm_spec_decode_num_accepted_tokens_total"),
        )


def _chunks(events: Sequence[tuple[int, Json]], turn: Turn) -> tuple[str, list[float | None]]:
    """Fills chunks, ids and counts; returns the finish reason and, for each chunk, tokens per iteration so far."""
    finish = ""
    averages: list[float | None] = []
    logprobs: list[object] = []
    for t_ns, event in events:
        for choice in event.get("choices") or ():
            if ids := choice.get("token_ids"):
                turn.output_ids.extend(ids)
                turn.chunk_t_ns.append(t_ns)
                turn.chunk_tokens.append(len(ids))
                averages.append(choice.get("avg_decoded_tokens_per_iter"))
            elif averages and choice.get("avg_decoded_tokens_per_iter") is not None:
                averages[-1] = choice["avg_decoded_tokens_per_iter"]  # a last event without ids: the newest count
            if said := choice.get("logprobs"):
                logprobs += said["token_logprobs"]
            finish = choice.get("finish_reason") or finish
        if usage := event.get("usage"):
            turn.n_prompt_server = usage.get("prompt_tokens")
            turn.n_completion_server = usage.get("completion_tokens")
    fill_surprisal(turn, logprobs)
    return finish, averages


DIALECT = TrtLlm()
