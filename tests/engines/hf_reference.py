"""Runs in the environment of the engine ``hf`` (torch), started by test_hf.py: our loop beside references, on the tiny pair in float32.

    python hf_reference.py TINY_PAIR      → JSON on stdout

References: transformers' own greedy and assisted generation, and loops without any cache that read the whole text in each step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specsweep.orchestrator.engines.hf_server.chain import Chain
from specsweep.orchestrator.engines.hf_server.drafters import DraftModel, Medusa, PromptLookup
from specsweep.orchestrator.engines.hf_server.loading import medusa_heads
from specsweep.orchestrator.engines.hf_server.sampling import Draft, Sampler
from specsweep.orchestrator.engines.hf_server.steps import Sampling

TEXTS = (
    "import os\nimport sys\n\ndef main(argv):\n    if len(argv) != 2:\n        print('usage: copy FILE', file=sys.stderr)\n        return 2\n",
    "The function returns a list of the names of the files in the directory. If the directory does not exist,",
    "class Queue:\n    def __init__(self):\n        self.items = []\n\n    def put(self, item):\n        self.items.append(item)\n",
)
LENGTH, TOKENS, DRAWS = 3, 32, 2000


def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)


def ours(method: Chain, prompt: list[int], **sampling: Any) -> dict[str, Any]:
    steps = list(method.generate(prompt, Sampling(max_tokens=TOKENS, ignore_eos=True, **sampling)))
    return {
        "ids": [t for s in steps for t in s.tokens],
        "drafted": [s.drafted for s in steps[1:]],
        "accepted": [s.accepted for s in steps[1:]],
    }


def reference(target: Any, propose: Callable[[list[int]], list[int]], prompt: list[int]) -> dict[str, Any]:
    """Speculative decoding as it is told in a sentence: no cache, no cropping, the target's argmax at every place."""
    ids = [*prompt, int(target(torch.tensor([prompt])).logits[0, -1].argmax())]
    drafted, accepted = [], []
    while len(ids) < len(prompt) + TOKENS:
        draft = propose(ids)
        wanted = target(torch.tensor([ids + draft])).logits[0].argmax(-1).tolist()[len(ids) - 1 :]
        right = 0
        while right < len(draft) and draft[right] == wanted[right]:
            right += 1
        drafted.append(len(draft))
        accepted.append(right)
        ids += [*draft[:right], wanted[right]]
    return {"ids": ids[len(prompt) : len(prompt) + TOKENS], "drafted": drafted, "accepted": accepted}


def argmax_draft(small: Any) -> Callable[[list[int]], list[int]]:
    def propose(ids: list[int]) -> list[int]:
        text = list(ids)
        for _ in range(LENGTH):
            text.append(int(small(torch.tensor([text])).logits[0, -1].argmax()))
        return text[len(ids) :]

    return propose


def lookup_draft(longest: int) -> Callable[[list[int]], list[int]]:
    def propose(ids: list[int]) -> list[int]:
        for size in range(longest, 0, -1):
            for start in range(len(ids) - size):
                if ids[start : start + size] == ids[-size:]:
                    return ids[start + size : start + size + LENGTH]
        return []

    return propose


def medusa_draft(target: Any, heads: Any) -> Callable[[list[int]], list[int]]:
    """From the state that wrote the last token: the state at the token before it."""

    def propose(ids: list[int]) -> list[int]:
        state = target.model(torch.tensor([ids[:-1]])).last_hidden_state[0, -1]
        return [int(heads.logits(k, state).argmax()) for k in range(LENGTH)]

    return propose


def of_transformers(target: Any, prompt: list[int], first: int, **how: Any) -> dict[str, Any]:
    """Its generation after the prefill's token, and in how many passes of the target."""
    passes = []
    hook = target.register_forward_hook(lambda *_: passes.append(1))
    ids = torch.tensor([[*prompt, first]])
    try:
        out = target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS - 1, eos_token_id=None, **how
        )
    finally:
        hook.remove()
    return {"ids": out[0, len(prompt) :].tolist(), "passes": len(passes)}


def frequencies(target: Sequence[float], drafted: Sequence[float] | None, token: int) -> list[float]:
    """How often each token comes out of the verification of one draft, whose token is drawn from ``drafted`` (None: always ``token``)."""
    sampler = Sampler(Sampling(1, temperature=1.0, seed=1))
    logits = torch.tensor(target).log().repeat(2, 1)
    chances = None if drafted is None else torch.tensor([drafted])
    counts = [0] * len(target)
    for _ in range(DRAWS):
        draft = [token if chances is None else sampler.draw(chances[0])]
        kept, other = sampler.verify(Draft(draft, chances), logits)
        counts[draft[0] if kept else other] += 1
    return [n / DRAWS for n in counts]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder / "target")
    target, small = model(folder / "target"), model(folder / "draft")
    heads = medusa_heads(folder / "medusa", target)
    for each in (target, small):
        each.generation_config.eos_token_id = None
    small.generation_config.update(
        num_assistant_tokens=LENGTH, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0
    )
    drafters = {
        "draft_model": (lambda sampler: DraftModel(small, sampler), argmax_draft(small)),
        "ngram": (lambda _: PromptLookup(4, 1), lookup_draft(4)),
        "medusa": (lambda _: Medusa(heads), medusa_draft(target, heads)),
    }
    assisted = {"draft_model": {"assistant_model": small}, "ngram": {"prompt_lookup_num_tokens": LENGTH, "max_matching_ngram_size": 4}}
    out: dict[str, Any] = {"prompts": []}
    for text in TEXTS:
        prompt = tokenizer(text).input_ids
        plain = ours(Chain(target, frozenset()), prompt)
        found: dict[str, Any] = {"plain": plain, "transformers": of_transformers(target, prompt, plain["ids"][0])}
        for name, (drafter, propose) in drafters.items():
            chain = Chain(target, frozenset(), drafter, LENGTH)
            found[name] = {"ours": ours(chain, prompt), "reference": reference(target, propose, prompt)}
            if name in assisted:
                found[name]["transformers"] = of_transformers(target, prompt, plain["ids"][0], **assisted[name])
            if text is TEXTS[0]:
                found[name]["sampled"] = [ours(chain, prompt, temperature=0.8, top_p=0.9, seed=7) for _ in range(2)]
        out["prompts"].append(found)
    distribution = [0.5, 0.3, 0.15, 0.05]
    out["distribution"] = distribution
    out["drawn"] = {
        "certain": frequencies(distribution, None, 1),
        "sampled": frequencies(distribution, [0.1, 0.2, 0.3, 0.4], 0),
    }
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    with torch.inference_mode():
        main(Path(sys.argv[1]))
