"""vLLM's completions wire, as far as a client that measures needs it: token ids in, one event a step with its ids out, and the truth of
every step in the last event (``metrics.speculative_decoding`` as vLLM's ``--per-request-spec-decode-metrics detailed`` gives it).

Text stays empty: who wants it has the ids. Like the rest of the server this module knows no torch, so that it is tested without.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specsweep.orchestrator.engines.hf_server.steps import Sampling, Step

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
# Sampling fields that this server has not, and the value at which they do nothing.
NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1, "logprobs": None}


class Refusal(ValueError):
    """A request that cannot be served: HTTP 400 with this text."""


def read_request(body: bytes, *, model: str, vocab_size: int, max_model_len: int) -> tuple[list[int], Sampling]:
    """Prompt and sampling of a request. Raises Refusal naming the field, its value and what it may be."""
    try:
        asked = json.loads(body)
    except ValueError as error:
        raise Refusal(f"the body is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise Refusal("the body is not a JSON object")
    if asked.get("model") not in (None, model):
        raise Refusal(f"model={asked['model']}: this server has {model}")
    if asked.get("stream") is not True:
        raise Refusal("stream: this server only streams; send stream=true")
    prompt = asked.get("prompt")
    if not isinstance(prompt, list) or not prompt or any(type(i) is not int or not 0 <= i < vocab_size for i in prompt):
        raise Refusal(f"prompt: must be a list of token ids from 0 to {vocab_size - 1}, and not empty")
    for name, value in NEUTRAL.items():
        if asked.get(name, value) != value:
            raise Refusal(f"{name}={asked[name]}: this server does not have it; leave it at {value}")
    sampling = Sampling(
        max_tokens=_number(asked, "max_tokens", 16, low=1, whole=True),
        temperature=_number(asked, "temperature", 1.0, low=0),
        top_p=_number(asked, "top_p", 1.0, low=0, high=1),
        top_k=_number(asked, "top_k", -1, low=-1, whole=True),
        seed=_number(asked, "seed", 0, low=0, high=2**63 - 1, whole=True),
        ignore_eos=bool(asked.get("ignore_eos")),
    )
    if len(prompt) + sampling.max_tokens > max_model_len:
        raise Refusal(
            f"prompt of {len(prompt)} tokens and max_tokens={sampling.max_tokens}: the target's context is {max_model_len} tokens"
        )
    return prompt, sampling


def _number(asked: Mapping[str, Any], name: str, usual: Any, *, low: float, high: float = float("inf"), whole: bool = False) -> Any:
    value = asked.get(name)
    if value is None:
        return usual
    right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not right or not low <= value <= high:
        bounds = f"of at least {low:g}" + (f" and at most {high:g}" if high < float("inf") else "")
        raise Refusal(f"{name}={value}: must be a {'whole ' if whole else ''}number {bounds}")
    return value


@dataclass(slots=True)
class Answer:
    """One answer as it grows: from steps to the events of its stream."""

    request_id: str
    model: str
    created: int  # seconds since the epoch
    n_prompt: int
    draft_length: int  # 0: nothing is drafted, and the answer says nothing of drafts
    sent: int = 0
    drafted: list[int] = field(default_factory=list)  # of the steps that drafted
    accepted: list[int] = field(default_factory=list)

    def event(self, step: Step) -> bytes:
        self.sent += len(step.tokens)
        if step.drafted:
            self.drafted.append(step.drafted)
            self.accepted.append(step.accepted)
        choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": step.finish or None, "token_ids": list(step.tokens)}
        return _sse({**self._common(), "choices": [choice]})

    def last_event(self) -> bytes:
        usage = {"prompt_tokens": self.n_prompt, "completion_tokens": self.sent, "total_tokens": self.n_prompt + self.sent}
        truth = {"metrics": {"speculative_decoding": self._truth()}} if self.draft_length else {}
        return _sse({**self._common(), "choices": [], "usage": usage, **truth}) + DONE

    def _common(self) -> Json:
        return {"id": self.request_id, "object": "text_completion", "created": self.created, "model": self.model}

    def _truth(self) -> Json:
        steps, accepted, drafted = len(self.drafted), sum(self.accepted), sum(self.drafted)
        return {
            "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
            "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
            "acceptance_histogram": [self.accepted.count(n) for n in range(self.draft_length + 1)],
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
            "num_spec_tokens": self.draft_length,
            "per_step_accepted": self.accepted,
            "per_step_drafted": self.drafted,
        }


def error_event(message: str) -> bytes:
    """For a request that fails in the middle of its stream."""
    return _sse({"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}) + DONE


def error_body(message: str, code: int) -> Json:
    return {"error": {"message": message, "type": "BadRequestError" if code == 400 else "NotFoundError", "param": None, "code": code}}


class Counters:
    """What the metrics page counts, over all replicas, since the server's start."""

    def __init__(self, draft_length: int, replicas: int) -> None:
        self._draft_length = draft_length
        self._replicas = replicas
        self.in_flight = 0
        self._prompt_tokens = self._tokens = self._drafts = self._drafted = 0
        self._accepted_per_pos = [0] * draft_length

    def request(self, n_prompt: int) -> None:
        self._prompt_tokens += n_prompt

    def step(self, step: Step) -> None:
        self._tokens += len(step.tokens)
        if step.drafted:
            self._drafts += 1
            self._drafted += step.drafted
            for position in range(step.accepted):
                self._accepted_per_pos[position] += 1

    def page(self) -> str:
        """Prometheus text in vLLM's names."""
        running = min(self.in_flight, self._replicas)
        gauges = {"num_requests_running": running, "num_requests_waiting": self.in_flight - running}
        counts = {"prompt_tokens_total": self._prompt_tokens, "generation_tokens_total": self._tokens}
        # Each request has a cache of its own that ends with it, and nothing is ever taken from a running one.
        counts |= {"prompt_tokens_cached_total": 0, "num_preemptions_total": 0}
        if self._draft_length:
            counts["spec_decode_num_drafts_total"] = self._drafts
            counts["spec_decode_num_draft_tokens_total"] = self._drafted
            counts["spec_decode_num_accepted_tokens_total"] = sum(self._accepted_per_pos)
        lines = [f"vllm:{name} {value}" for name, value in (gauges | counts).items()]
        lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {n}' for i, n in enumerate(self._accepted_per_pos)]
        return "\n".join(lines) + "\n"


def _sse(event: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"
