"""From logits to tokens: the sampler of one request, and the verification of drafts.

A draft is kept by the rejection rule of speculative sampling (arXiv 2211.17192, algorithm 1), which leaves the target's distribution
as it is: token x with draft probability q(x) and target probability p(x) is accepted with min(1, p(x) / q(x)), and at the first
rejection a token is drawn from max(0, p - q), normalised. A drafter that gives no probabilities is certain of its token (q = 1), which
covers prompt lookup and the argmax of heads. Greedily it is the longest prefix that agrees with the target's argmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specsweep.orchestrator.engines.hf_server.steps import Sampling

Tensor = Any  # torch has no part in the environment that checks types


@dataclass(frozen=True, slots=True)
class Draft:
    """A chain of tokens, and the distributions that they were drawn from (tokens × vocabulary); None: certain."""

    tokens: Sequence[int] = ()
    probabilities: Tensor | None = None


class Sampler:
    """Of one request: its seed gives the same tokens again on the same machine."""

    def __init__(self, sampling: Sampling, device: Any = "cpu") -> None:
        self.greedy = sampling.temperature <= 0
        self._sampling = sampling
        self._generator = torch.Generator(device).manual_seed(sampling.seed)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Rows of logits after temperature, top-k and top-p, in that order. Not for greedy decoding, which has none."""
        scaled = logits.float() / self._sampling.temperature
        if 0 < self._sampling.top_k < scaled.shape[-1]:
            lowest = scaled.topk(self._sampling.top_k, -1).values[..., -1:]
            scaled = scaled.masked_fill(scaled < lowest, float("-inf"))
        found = scaled.softmax(-1)
        if self._sampling.top_p < 1:
            ordered, places = found.sort(-1, descending=True)
            beyond = ordered.cumsum(-1) - ordered >= self._sampling.top_p  # the token that crosses the limit stays
            found = found.masked_fill(torch.zeros_like(beyond).scatter(-1, places, beyond), 0.0)
            found = found / found.sum(-1, keepdim=True)
        return found

    def draw(self, probabilities: Tensor) -> int:
        """One token of a distribution that need not be normalised."""
        return int(torch.multinomial(probabilities, 1, generator=self._generator))

    def next(self, logits: Tensor) -> int:
        """The token after one row of logits."""
        return int(logits.argmax()) if self.greedy else self.draw(self.probabilities(logits))

    def verify(self, draft: Draft, logits: Tensor) -> tuple[int, int]:
        """How many drafts stay, and the target's token after them. ``logits``: the target's at the last token and at every draft."""
        if self.greedy:
            wanted = logits.argmax(-1).tolist()
            accepted = next((i for i, token in enumerate(draft.tokens) if token != wanted[i]), len(draft.tokens))
            return accepted, wanted[accepted]
        targets = self.probabilities(logits)
        chances = torch.rand(len(draft.tokens), generator=self._generator, device=targets.device).tolist()
        for i, (token, chance) in enumerate(zip(draft.tokens, chances, strict=True)):
            target = targets[i]
            drafted = 1.0 if draft.probabilities is None else float(draft.probabilities[i, token])
            if chance * drafted < float(target[token]):
                continue
            if draft.probabilities is None:
                rest = target.clone()
                rest[token] = 0.0
            else:
                rest = (target - draft.probabilities[i]).clamp(min=0.0)
            return i, self.draw(rest)
        return len(draft.tokens), self.draw(targets[-1])
