"""The loop of speculative decoding with a chain of drafts, over a model's forward passes and its KV cache.

One step: the drafter proposes, the target reads its last token and all drafts in one pass, the drafts that it agrees with stay, its own
token after them comes for free, and the cache is cropped to what stayed. Without a drafter the same loop decodes plainly, so both arms
of a speedup run the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from transformers import DynamicCache

from specsweep.orchestrator.engines.hf_server.sampling import Draft, Sampler, Tensor
from specsweep.orchestrator.engines.hf_server.steps import Sampling, Step, cut


class Drafter(Protocol):
    """Of one request: what it remembers ends with it."""

    def propose(self, ids: Sequence[int], hidden: Tensor, length: int) -> Draft:
        """Up to ``length`` tokens after ``ids``, the prompt and all tokens so far, which only grow from call to call.

        ``hidden``: what the target's output layer read when it wrote the last of them.
        """
        ...


NewDrafter = Callable[[Sampler], Drafter]


class CachedModel:
    """A causal language model with the KV cache of one request, at batch size 1."""

    def __init__(self, model: Any) -> None:
        self._model = model
        # Without the model's config every layer keeps all tokens: a layer that keeps a sliding window only could not be cropped.
        self._cache = DynamicCache()
        self.length = 0

    def feed(self, ids: Sequence[int], rows: int) -> tuple[Tensor, Tensor]:
        """Reads more tokens. Returns logits (``rows`` × vocabulary) and what the output layer read (``rows`` × hidden), of the last rows."""
        read: list[Tensor] = []
        hook = self._model.get_output_embeddings().register_forward_pre_hook(lambda _module, given: read.append(given[0]))
        try:
            with torch.inference_mode():
                out = self._model(
                    input_ids=torch.tensor([list(ids)], device=self._model.device),
                    cache=self._cache,
                    use_cache=True,
                    logits_to_keep=rows,
                )
        finally:
            hook.remove()
        self.length += len(ids)
        return out.logits[0], read[0][0]

    def keep(self, length: int) -> None:
        """Forgets all tokens after the first ``length``."""
        if length < self.length:
            self._cache.crop(length - self.length)  # negative: so many tokens less
            self.length = length


class Chain:
    """A :class:`~specsweep.orchestrator.engines.hf_server.steps.Method`. ``drafter`` None: plain decoding."""

    def __init__(self, model: Any, end_tokens: frozenset[int], drafter: NewDrafter | None = None, length: int = 0) -> None:
        self._model = model
        self._end_tokens = end_tokens
        self._drafter = drafter
        self._length = length

    def generate(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[Step]:
        sampler = Sampler(sampling, self._model.device)
        drafter = self._drafter(sampler) if self._drafter else None
        end_tokens = frozenset() if sampling.ignore_eos else self._end_tokens
        target = CachedModel(self._model)
        ids, left = list(prompt), sampling.max_tokens
        logits, read = target.feed(ids, 1)
        new, hidden = [sampler.next(logits[-1])], read[-1]
        drafted = accepted = 0
        while True:
            ids += new
            tokens, finish = cut(new, left, end_tokens)
            left -= len(tokens)
            yield Step(tokens, drafted, accepted, finish)
            if finish:
                return
            draft = drafter.propose(ids, hidden, self._length) if drafter else Draft()
            drafted = len(draft.tokens)
            logits, read = target.feed([ids[-1], *draft.tokens], 1 + drafted)
            accepted, token = sampler.verify(draft, logits)
            target.keep(len(ids) + accepted)
            new, hidden = [*draft.tokens[:accepted], token], read[accepted]
