"""How many draft tokens a verify step accepts: conditional rates by position, by category, prompt length and temperature.

The rate at position i is the chance that draft token i is accepted, given that all before it were; it is what an engine's own counters
estimate, and it holds for every draft length at once. Categories are the names that prompts carry (a domain such as ``coding`` or an
entropy tier such as ``low_entropy``). A prompt may also have an *ease* of its own, a shift of the log-odds of all its rates: prompts of
one category differ in reality, and an interval that treats them as alike is too narrow.

Interpolation over prompt length is linear in its logarithm, flat outside the given range, because drafters fail by octaves of length and
nothing is known beyond the ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul
from typing import TypeVar

from specsweep.client.sim.settings import ModelError, Section, knots, number

DEFAULT = "default"  # the category that stands for all that are not named
LONG_DRAFT = 3  # the draft length that nearly all printed acceptance lengths are of
T = TypeVar("T")
Knots = tuple[tuple[float, tuple[float, ...]], ...]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``by_category``: (ISL in tokens, rates by position) in the order of ISL. Shares and rates lie in [0, 1]."""

    by_category: Mapping[str, Knots]
    isl_factor: Knots = ((1.0, (1.0,)),)  # multiplies every rate
    temperature_factor: Knots = ((0.0, (1.0,)),)
    draft_share: Mapping[str, float] = field(default_factory=lambda: {DEFAULT: 1.0})  # of the steps that draft at all
    prompt_spread: float = 0.0  # standard deviation of the ease over prompts, in log-odds
    trees: Mapping[int, tuple[float, ...]] = field(
        default_factory=dict
    )  # top-k: what a tree of that width multiplies the rates by, by position
    long_draft_factor: float = 1.0  # multiplies every rate for each draft token beyond LONG_DRAFT

    def rates(self, category: str, isl: int, temperature: float = 0.0, ease: float = 0.0, draft_length: int = 0) -> tuple[float, ...]:
        """Conditional acceptance rates by position; beyond the last one given, it repeats. ``category`` may be ``benchmark/category``."""
        known = _of(self.by_category, category)
        scale = _between(self.isl_factor, math.log(max(isl, 1)), log=True)[0] * _between(self.temperature_factor, temperature)[0]
        scale *= self.long_draft_factor ** max(draft_length - LONG_DRAFT, 0)
        found = (min(rate * scale, 1.0) for rate in _between(known, math.log(max(isl, 1)), log=True))
        return tuple(_shifted(rate, ease * self.prompt_spread) for rate in found)

    def widened(self, topk: int) -> Acceptance:
        """With a tree of ``topk`` candidates a position in place of a chain. Raises :class:`ModelError` for a width that is not described."""
        if topk not in self.trees:
            known = ", ".join(map(str, sorted(self.trees))) or "none: only chains"
            raise ModelError(f"topk={topk} is not described by the model (it has {known}); choose one, or add it under trees")
        return replace(
            self, by_category={c: tuple((isl, _times(rates, self.trees[topk])) for isl, rates in k) for c, k in self.by_category.items()}
        )

    def draft_probability(self, category: str) -> float:
        """The share of decode steps in which the drafter proposes anything. The others bring one token."""
        return _of(self.draft_share, category)


def _of(by_category: Mapping[str, T], category: str) -> T:
    """``specbench/coding`` accepts like ``coding`` where nothing else is said of it."""
    for name in (category, category.rpartition("/")[2]):
        if name in by_category:
            return by_category[name]
    return by_category[DEFAULT]


def _times(rates: tuple[float, ...], factors: tuple[float, ...]) -> tuple[float, ...]:
    """Position by position; the shorter one's last value repeats."""
    n = max(len(rates), len(factors))
    return tuple(min(a * b, 1.0) for a, b in zip(_padded(rates, n), _padded(factors, n), strict=True))


def _padded(values: tuple[float, ...], n: int) -> tuple[float, ...]:
    return values + values[-1:] * (n - len(values))


def survival(rates: tuple[float, ...], draft_length: int) -> tuple[float, ...]:
    """Chance that at least 1, 2, … ``draft_length`` draft tokens of a step are accepted."""
    if not draft_length:
        return ()
    padded = rates[:draft_length] + rates[-1:] * (draft_length - len(rates))
    return tuple(accumulate(padded, mul))


def acceptance_length(rates: tuple[float, ...], draft_length: int, draft_probability: float = 1.0) -> float:
    """Expected tokens of a decode step that is not cut: 1 + share of drafted steps × expected accepted tokens."""
    return 1.0 + draft_probability * sum(survival(rates, draft_length))


def read_acceptance(section: Section) -> Acceptance:
    """The fields ``rates``, ``isl_factor``, ``temperature_factor``, ``draft_share`` and ``prompt_spread`` of a drafter."""
    where = section.name_of("rates")
    rates = section.entries("rates")
    if DEFAULT not in rates:
        raise ModelError(f"{where} has no entry {DEFAULT!r}: give the rates of every category that is not named")
    shares = section.raw("draft_share", 1.0)
    if not isinstance(shares, Mapping):
        shares = {DEFAULT: shares}
    if DEFAULT not in shares:
        raise ModelError(f"{section.name_of('draft_share')} has no entry {DEFAULT!r}: give the share of every category that is not named")
    return Acceptance(
        by_category={str(c): _by_isl(v, f"{where}.{c}") for c, v in rates.items()},
        isl_factor=knots(section.entries("isl_factor", {1: 1.0}), section.name_of("isl_factor"), _factor, low=1),
        temperature_factor=knots(section.entries("temperature_factor", {0: 1.0}), section.name_of("temperature_factor"), _factor),
        draft_share={str(c): number(v, f"{section.name_of('draft_share')}.{c}", high=1) for c, v in shares.items()},
        prompt_spread=section.number("prompt_spread", 0.0, high=5),
        trees={int(k): f for k, f in _trees(section.entries("trees", {}), section.name_of("trees"))},
        long_draft_factor=section.number("long_draft_factor", 1.0, high=1),
    )


def _trees(value: Mapping[object, object], name: str) -> Knots:
    if not value:
        return ()
    return knots(value, name, lambda v, where: [number(f, where, high=10) for f in (v if isinstance(v, list) else [v])], low=1)


def _by_isl(value: object, name: str) -> Knots:
    if not isinstance(value, Mapping):
        value = {1: value}
    found = knots(value, name, _rates, low=1)
    longest = max(len(rates) for _, rates in found)
    return tuple((isl, rates + rates[-1:] * (longest - len(rates))) for isl, rates in found)


def _rates(value: object, name: str) -> list[float]:
    if not isinstance(value, list | tuple) or not value:
        raise ModelError(f"{name}={value!r}: expected a list of rates by position, e.g. [0.8, 0.7, 0.6]")
    return [number(rate, f"{name}[{i}]", high=1) for i, rate in enumerate(value)]


def _factor(value: object, name: str) -> list[float]:
    return [number(value, name, high=10)]


def _between(points: Knots, x: float, *, log: bool = False) -> tuple[float, ...]:
    """Linear between the two knots around x; their own value outside. ``log``: the knots are taken by their logarithm, x is one already."""
    at = [math.log(k) if log else k for k, _ in points] if len(points) > 1 else [0.0]
    above = next((i for i, k in enumerate(at) if k >= x), len(at) - 1)
    if len(points) == 1 or above == 0 or x >= at[-1]:
        return points[-1 if x >= at[-1] else 0][1]
    weight = (x - at[above - 1]) / (at[above] - at[above - 1])
    return tuple(a + weight * (b - a) for a, b in zip(points[above - 1][1], points[above][1], strict=True))


def _shifted(rate: float, log_odds: float) -> float:
    if not log_odds or rate in (0.0, 1.0):
        return rate
    return 1 / (1 + math.exp(-(math.log(rate / (1 - rate)) + log_odds)))
