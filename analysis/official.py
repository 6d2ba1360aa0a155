"""The numbers of the official SPEED-Bench framework, under its own keys, from our traces.

Its definitions differ from ours on purpose and in known ways, so they are kept apart: every update is a step (the prefill token and the
cut last step included), acceptance length is the mean of request means, the first "step time" is the TTFT, and statistics are strings with
four decimals. Comparing a run with published numbers needs exactly these; nothing else in specsweep uses them.

Two definitions are known: :data:`MAIN`, the framework's main branch as of August 2026, and :data:`NEXT`, the acceptance change that its
open pull requests announce. The framework's Joint_Acceptance_Rate changes its meaning between them under one key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

import numpy as np

MAIN = "main 2026-08 a2fbac7ba"
NEXT = "announced 2026-08, open pull requests"
DEFINITIONS = (MAIN, NEXT)


@dataclass(frozen=True, slots=True)
class OfficialTurn:
    """One turn as the framework sees it: new tokens per update, and the times in seconds of the send and of each update."""

    question_id: str
    category: str
    sizes: tuple[int, ...]
    times: tuple[float, ...]  # one longer than ``sizes``


def without_final_eos(turn: OfficialTurn) -> OfficialTurn:
    """The framework's vLLM and SGLang wrappers take a final EOS id out, and with it an update that it leaves empty."""
    if not turn.sizes:
        return turn
    last = turn.sizes[-1] - 1
    sizes = turn.sizes[:-1] + ((last,) if last else ())
    return OfficialTurn(turn.question_id, turn.category, sizes, turn.times[: len(sizes) + 1])


# --- acceptance ----------------------------------------------------------------------------------------------------------------


def acceptance(turns: Sequence[OfficialTurn], definition: str = MAIN) -> dict[str, Any]:
    """Histogram, conditional and joint rates (pooled over steps), Request_AL, Category_AL and Average_AL (means of means).

    Turns without any update are left out: the framework stops with an error there. Raises ``ValueError`` for an unknown definition.
    """
    if definition not in DEFINITIONS:
        raise ValueError(f"unknown definition {definition!r}; known: {', '.join(DEFINITIONS)}")
    steps = [(t, t.sizes if definition == MAIN else trimmed(t.sizes)) for t in turns if t.sizes]
    histogram = dict(sorted(Counter(size for _, sizes in steps for size in sizes).items()))
    by_request: dict[str, list[int]] = {}
    category_of: dict[str, str] = {}
    for turn, sizes in steps:
        by_request.setdefault(turn.question_id, []).extend(sizes)
        category_of[turn.question_id] = turn.category
    request_al = {q: sum(sizes) / len(sizes) for q, sizes in by_request.items()}
    categories: dict[str, list[float]] = {}
    for question, al in request_al.items():
        categories.setdefault(category_of[question], []).append(al)
    return {
        "Acceptance_Length_Histogram": {str(k): n for k, n in histogram.items()},
        "Conditional_Acceptance_Rate": {str(k): v for k, v in conditional_rates(histogram).items()},
        "Joint_Acceptance_Rate": {str(k): v for k, v in joint_rates(histogram, definition).items()},
        "Request_AL": request_al,
        "Category_AL": {c: sum(v) / len(v) for c, v in categories.items()},
        **({"Average_AL": sum(request_al.values()) / len(request_al)} if request_al else {}),
    }


def trimmed(sizes: Sequence[int]) -> tuple[int, ...]:
    """The announced definition: a first update of one token and always the last one are dropped; nothing left counts as one step of 1."""
    body = tuple(sizes[1:] if sizes[0] == 1 else sizes)[:-1]
    return body or (1,)


def conditional_rates(histogram: Mapping[int, int]) -> dict[int, float]:
    """P(size ≥ k) / P(size ≥ previous observed size); 1.0 for the smallest observed size. A size that never occurs has no entry."""
    sizes = sorted(histogram)
    at_least = list(accumulate(histogram[k] for k in reversed(sizes)))[::-1]
    return {k: 1.0 if i == 0 else at_least[i] / at_least[i - 1] for i, k in enumerate(sizes)}


def joint_rates(histogram: Mapping[int, int], definition: str = MAIN) -> dict[int, float]:
    """Running product of the conditional rates; in the announced definition the running mean of those products after the first size."""
    conditional = conditional_rates(histogram)
    products = list(accumulate(conditional.values(), mul))
    if definition == MAIN:
        return dict(zip(conditional, products, strict=True))
    means = [sum(products[1 : i + 1]) / i for i in range(1, len(products))]
    return dict(zip(conditional, [*products[:1], *means], strict=True))


# --- timing --------------------------------------------------------------------------------------------------------------------


def timing(turns: Sequence[OfficialTurn], gpus: int = 0) -> dict[str, Any]:
    """The framework's timing keys. ``gpus``: its tensor-parallel size; 0 leaves ``Output TPS/gpu`` out."""
    answered = [t for t in turns if t.sizes]
    if not answered:
        return {}
    several = [t for t in answered if len(t.sizes) > 1]
    total = sum(sum(t.sizes) for t in turns)
    span = max(t.times[-1] for t in answered) - min(t.times[0] for t in answered)
    tps = {"Output TPS": total / span} if span > 0 else {}
    if tps and gpus:
        tps["Output TPS/gpu"] = tps["Output TPS"] / gpus
    return {
        **tps,
        "E2E Request Time": statistics([t.times[-1] - t.times[0] for t in answered]),
        "TTFT Time": statistics([t.times[1] - t.times[0] for t in answered]),
        "Request Generation Step Time": statistics([b - a for t in several for a, b in pairwise(t.times)]),
        "Request Generation Tokens Per Second": statistics(
            [(sum(t.sizes) - 1) / (t.times[-1] - t.times[1]) for t in several if t.times[-1] > t.times[1]]
        ),
        "Number of Output Tokens": statistics([sum(t.sizes) for t in turns]),
    }


def statistics(values: Sequence[float]) -> dict[str, Any]:
    """Minimum, maximum, mean, population standard deviation and quartiles as strings with four decimals; empty for no values."""
    if not values:
        return {}
    a = np.asarray(values, dtype=np.float64)
    return {
        "min": f"{a.min():.4f}",
        "max": f"{a.max():.4f}",
        "mean": f"{a.mean():.4f}",
        "std": f"{a.std():.4f}",
        "quantiles": {str(q): f"{np.quantile(a, q):.4f}" for q in (0.25, 0.5, 0.75)},
    }
