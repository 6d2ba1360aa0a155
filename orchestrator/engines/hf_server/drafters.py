"""Drafters for :class:`~specsweep.orchestrator.engines.hf_server.chain.Chain`: a draft model, prompt lookup, Medusa heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from specsweep.orchestrator.engines.hf_server.chain import CachedModel
from specsweep.orchestrator.engines.hf_server.sampling import Draft, Sampler, Tensor


class DraftModel:
    """A smaller model with the target's vocabulary drafts token by token, sampled as the target is. It always drafts ``length`` tokens."""

    def __init__(self, model: Any, sampler: Sampler) -> None:
        self._model = CachedModel(model)
        self._sampler = sampler

    def propose(self, ids: Sequence[int], hidden: Tensor, length: int) -> Draft:
        self._model.keep(len(ids) - 1)  # its cache agrees so far: what it drafted and the target kept, but for the last token
        unread = list(ids[self._model.length :])
        tokens: list[int] = []
        rows: list[Tensor] = []
        while len(tokens) < length:
            logits, _ = self._model.feed(unread, 1)
            if self._sampler.greedy:
                token = int(logits[-1].argmax())
            else:
                rows.append(self._sampler.probabilities(logits[-1]))
                token = self._sampler.draw(rows[-1])
            tokens.append(token)
            unread = [token]
        return Draft(tokens, torch.stack(rows) if rows else None)


class PromptLookup:
    """Drafts what followed the first place where the last ``longest``, …, ``shortest`` tokens stood before, in prompt or answer.

    The places are kept in a table that grows with the text: a search of a long prompt in every step would cost more than a step.
    """

    def __init__(self, longest: int, shortest: int) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._followed: dict[tuple[int, ...], int] = {}  # an n-gram → where the text went on after it, the first time
        self._known = 0  # n-grams that end here or earlier are in the table

    def propose(self, ids: Sequence[int], hidden: Tensor, length: int) -> Draft:
        for end in range(self._known + 1, len(ids)):  # one that ends with the text is followed by nothing yet
            for size in self._sizes:
                if size <= end:
                    self._followed.setdefault(tuple(ids[end - size : end]), end)
        self._known = len(ids) - 1
        for size in self._sizes:
            start = self._followed.get(tuple(ids[-size:]))
            if start is not None:
                return Draft(ids[start : start + length])
        return Draft()


class MedusaHeads:
    """Medusa-1 heads (arXiv 2401.10774), as their authors store them: ``{head}.{layer}.linear.weight`` and ``.bias`` of residual blocks,
    then ``{head}.{layers}.weight``, an output layer. Heads without one use the target's."""

    def __init__(self, weights: Mapping[str, Tensor], heads: int, layers: int, output: Any) -> None:
        """``output``: the target's output layer. Raises KeyError for a tensor that is missing."""
        self.heads = heads
        self._blocks = [[(weights[f"{k}.{i}.linear.weight"], weights[f"{k}.{i}.linear.bias"]) for i in range(layers)] for k in range(heads)]
        self._outputs = [weights.get(f"{k}.{layers}.weight") for k in range(heads)]
        self._output = output

    def logits(self, number: int, hidden: Tensor) -> Tensor:
        """Of head ``number`` (from 0), for the token at distance ``number`` + 2 from the one whose state ``hidden`` is."""
        for weight, bias in self._blocks[number]:
            hidden = hidden + F.silu(F.linear(hidden, weight, bias))
        own = self._outputs[number]
        return self._output(hidden) if own is None else F.linear(hidden, own)


class Medusa:
    """The best token of every head, all read from one state of the target: a chain drafted without a pass of any model."""

    def __init__(self, heads: MedusaHeads) -> None:
        self._heads = heads

    def propose(self, ids: Sequence[int], hidden: Tensor, length: int) -> Draft:
        with torch.inference_mode():
            return Draft(torch.stack([self._heads.logits(k, hidden).argmax(-1) for k in range(length)]).tolist())
