"""Two greedy outputs of one prompt are the same, or they part where the two best logits nearly tie. Anything else is a fault.

Speculation verifies several positions in one pass, and sums of floats in another order differ in their last digits. Where the two best
logits are closer than that, either token is the argmax, and after it the texts have nothing in common any more. So a difference is
neither forgiven by number nor taken for a fault: the logits at the first place that differs are computed anew and looked at.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsweep.client.workload import load_prompts, load_tokenizer
from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.preparation import for_target

# In float32, of the tiny target, whose logits reach 17: one pass over a text and one token at a time differ by 8e-5 at most (measured over
# 732 places), so a gap by twice that. The bound leaves the other arithmetic of an engine room, and one place in 700 is as close.
TOLERANCE = 1e-3
SCRIPT = Path(__file__).with_name("near_tie.py")

Logits = Callable[[Sequence[Sequence[int]]], list[dict[str, Any]]]  # as near_tie.py answers


@dataclass(frozen=True)
class Parting:
    """The first place where two outputs of a prompt differ. A token that is None: that output ended there."""

    prompt_id: str
    at: int  # index into the outputs
    text: tuple[int, ...]  # prompt and common output
    tokens: tuple[int | None, int | None]


def prompt_ids(attempt: Attempt, model: Path) -> dict[str, tuple[int, ...]]:
    """What was sent, by prompt: made again from the attempt's config with the tokenizer of ``model``."""
    config = attempt.point["config"]
    workload = for_target(config["workload"], config["target"])
    prompts = load_prompts(workload, isl=int(attempt.point["axes"]["isl"]), tokenizer=load_tokenizer(model))
    return {prompt.prompt_id: prompt.ids for prompt in prompts.main}


def partings(prompts: Mapping[str, Sequence[int]], one: Mapping[str, Sequence[int]], other: Mapping[str, Sequence[int]]) -> list[Parting]:
    """Raises ``AssertionError`` if the outputs are not of the same prompts."""
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    found = []
    for prompt_id in one:
        a, b = one[prompt_id], other[prompt_id]
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        if at < max(len(a), len(b)):
            tokens = (a[at] if at < len(a) else None, b[at] if at < len(b) else None)
            found.append(Parting(prompt_id, at, (*prompts[prompt_id], *a[:at]), tokens))
    return found


def logits_of(model: Path, python: str) -> Logits:
    """``python`` has torch and transformers."""

    def logits(texts: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [python, str(SCRIPT), str(model)], input=json.dumps([list(t) for t in texts]), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return logits


def faults(found: Sequence[Parting], logits: Logits, *, tolerance: float = TOLERANCE) -> list[str]:
    """A line for each parting that no near tie explains: where, which tokens, and the best logits there."""
    if not found:
        return []
    lines = []
    for parting, there in zip(found, logits([p.text for p in found]), strict=True):
        (first, high), (second, low) = there["best"][:2]
        ends = set(there["eos"])
        tied = {first, second}
        wrong = [t for t in parting.tokens if not (t in tied if t is not None else ends & tied)]
        if wrong or high - low > tolerance:
            best = ", ".join(f"{token}: {value:.6f}" for token, value in there["best"])
            words = " and ".join("the end" if t is None else f"token {t}" for t in parting.tokens)
            lines.append(f"{parting.prompt_id} parts at output token {parting.at} into {words}; best logits {best}")
    return lines


def unexplained(
    attempt: Attempt, one: Mapping[str, Sequence[int]], other: Mapping[str, Sequence[int]], *, model: Path, python: str
) -> list[str]:
    """:func:`faults` of two outputs of the prompts of ``attempt``. Empty: they are the same but for near ties."""
    return faults(partings(prompt_ids(attempt, model), one, other), logits_of(model, python))
