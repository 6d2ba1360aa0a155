"""Whether two orders of the same prompts agree, and where the tiers of a data set stand in them.

Two rank correlations, since people ask for either: Kendall's tau-b (the share of pairs in the same order minus that in the other, ties
accounted for) and Spearman's rho. Intervals on Fisher's scale: tau after Fieller, Hartley and Pearson (1957), rho after Bonett and
Wright (2000). A prompt is one observation; that places of one series depend on each other through their ranks is in those variances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsweep.analysis.attempts import Attempt, axes_of, is_measured
from specsweep.analysis.spectrum import Place
from specsweep.analysis.stats import Interval, ratio_interval
from specsweep.analysis.surprisal import read_rows

LEAST = 5  # prompts below which the variances are not defined
Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Agreement:
    """``low`` and ``high``: None with too few prompts, or where the orders agree or disagree in every pair."""

    name: str
    value: float
    low: float | None
    high: float | None
    prompts: int


def agreement(one: Sequence[Place], other: Sequence[Place]) -> list[Agreement]:
    """Kendall's and Spearman's of the prompts that both orders have; empty with fewer than two of them, or if one order is all ties."""
    from scipy.stats import kendalltau, spearmanr  # type: ignore[import-untyped]  # imported late: it takes half a second

    places = {p.prompt_id: p.place for p in other}
    pairs = [(p.place, places[p.prompt_id]) for p in one if p.prompt_id in places]
    n = len(pairs)
    if n < 2 or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return []
    x, y = np.asarray(pairs).T
    tau, rho = float(kendalltau(x, y).statistic), float(spearmanr(x, y).statistic)
    return [
        _interval("Kendall's tau-b", tau, 0.437 / (n - 4) if n >= LEAST else None, n),
        _interval("Spearman's rho", rho, (1 + rho**2 / 2) / (n - 3) if n >= LEAST else None, n),
    ]


def _interval(name: str, value: float, variance: float | None, n: int) -> Agreement:
    if variance is None or abs(value) >= 1:
        return Agreement(name, value, None, None, n)
    z, reach = math.atanh(value), Z95 * math.sqrt(variance)
    return Agreement(name, value, math.tanh(z - reach), math.tanh(z + reach), n)


@dataclass(frozen=True, slots=True)
class Tier:
    """One workload of a sweep. ``nats``: per token over all its tokens, with the prompts as clusters; None where none were captured."""

    workload: str
    prompts: int
    nats: Interval | None
    places: Mapping[str, float]  # median place by what the prompts are ordered by, where they have one


def tiers(attempts: Iterable[Attempt], orders: Mapping[str, Sequence[Place]]) -> list[Tier]:
    """The workloads in order of their median place in the first of ``orders`` that has them, the least predictable first.

    A workload that several points captured is counted once: the first stands for all, as in the orders themselves.
    """
    members: dict[str, set[str]] = {}
    captured: dict[str, list[tuple[float, float]]] = {}
    for attempt in attempts:
        if not is_measured(attempt):
            continue
        workload, measurement = str(axes_of(attempt).get("workload")), attempt["measurement"]
        rows = read_rows(measurement)
        named = [r.prompt_id for r in rows] or [str(r["conversation_id"]) for r in measurement.get("per_conversation") or ()]
        members.setdefault(workload, set()).update(named)
        if rows:
            captured.setdefault(workload, [(r.nats, float(r.tokens)) for r in rows])
    found = [_tier(workload, ids, captured.get(workload), orders) for workload, ids in members.items()]
    return sorted((t for t in found if t.places), key=lambda t: (next(iter(t.places.values())), t.workload))


def _tier(workload: str, ids: set[str], sums: Sequence[tuple[float, float]] | None, orders: Mapping[str, Sequence[Place]]) -> Tier:
    places: dict[str, float] = {}
    for name, order in orders.items():
        own = [p.place for p in order if p.prompt_id in ids]
        if own:
            places[name] = float(np.median(own))
    nats = ratio_interval([s for s, _ in sums], [n for _, n in sums]) if sums else None
    return Tier(workload, len(ids), nats, places)


def as_json(found: Agreement | Tier) -> dict[str, Any]:
    if isinstance(found, Agreement):
        return {"name": found.name, "value": found.value, "low": found.low, "high": found.high, "prompts": found.prompts}
    nats = None if found.nats is None else {"value": found.nats.value, "low": found.nats.low, "high": found.nats.high}
    return {"workload": found.workload, "prompts": found.prompts, "nats_per_token": nats, "median_place": dict(found.places)}
