"""How surprised the target was by its own answers, prompt by prompt, in nats per token.

Of a token that was sampled with probability p the surprisal is ``-ln p``; what an answer is worth is the mean over its tokens. Two cases are
told apart, since they are two quantities:

* temperature 1: tokens are drawn from p, so that the mean is an unbiased estimate of the entropy per token, ``E[-ln p] = H``;
* temperature 0: the token is the likeliest, ``-ln max p`` is the min-entropy of that step, which is never above its entropy. A lower bound,
  and the quantity that greedy drafting meets: how sure the target is of the one token that a draft has to be.

Why not the entropy over the k likeliest tokens with the rest as one bin: it is a lower bound as well, costs the engine k numbers a token where
this costs one, and depends on k, which differs between engines and versions. One number a token means the same on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from specsweep.client.trace import PointTrace

GREEDY = "surprisal of the greedy token, -ln max p: the min-entropy of each step, a lower bound of its entropy"
SAMPLED = "surprisal of tokens sampled at temperature 1: its mean is an unbiased estimate of the entropy per token"


@dataclass(frozen=True, slots=True)
class PromptSurprisal:
    """Sums over all tokens of a prompt's answers: ``nats`` of surprisal, ``squares`` of its square, from which chance is told."""

    prompt_id: str
    category: str
    tokens: int
    nats: float
    squares: float


def meaning(temperature: float) -> str:
    return GREEDY if temperature == 0 else SAMPLED


def by_prompt(trace: PointTrace) -> list[PromptSurprisal]:
    """In the order of the trace. Raises ValueError for an answer without log-probabilities, with the reason that its request notes."""
    values: dict[str, tuple[str, list[float]]] = {}
    for request in trace.requests:
        read = request.read
        if not read.token_surprisal or len(read.token_surprisal) != len(read.output_ids):
            why = next((note for note in read.notes if "log-probabilities" in note), "the engine sent none")
            raise ValueError(f"the answer to prompt {request.prompt_id} has no log-probabilities: {why}")
        values.setdefault(request.prompt_id, (request.category, []))[1].extend(read.token_surprisal)
    return [
        PromptSurprisal(prompt_id, category, len(found), math.fsum(found), math.fsum(x * x for x in found))
        for prompt_id, (category, found) in values.items()
    ]


def summary(rows: Iterable[PromptSurprisal], temperature: float) -> dict[str, Any]:
    """JSON-able: the mean over all tokens, and every prompt's sums."""
    rows = list(rows)
    tokens = sum(row.tokens for row in rows)
    return {
        "unit": "nats per token",
        "meaning": meaning(temperature),
        "tokens": tokens,
        "mean": math.fsum(row.nats for row in rows) / tokens,
        "by_prompt": [asdict(row) for row in rows],
    }


def read_rows(measurement: Mapping[str, Any]) -> list[PromptSurprisal]:
    """What :func:`summary` wrote; empty for a measurement without log-probabilities."""
    return [PromptSurprisal(**row) for row in (measurement.get("logprobs") or {}).get("by_prompt") or ()]
