"""Does it matter which prompts a benchmark holds? Tables 6 to 8 of the SPEED-Bench paper.

Several benchmarks are made from the same candidates, by chance and by an optimising choice, and the acceptance length (AL) of each
category is measured on each. Two numbers say how far they agree:

* relative range of a category: (largest AL − smallest AL) / mean AL, over the benchmarks (Table 6);
* Kendall's τ distance of two benchmarks, normalised: the share of all n(n − 1)/2 pairs of categories that they put in opposite order
  (Table 7 gives the mean and the largest over all pairs of benchmarks; 11 categories have 55 pairs). Rule for ties, which
  the paper does not need: a pair of categories with equal AL in either benchmark is in no order, and so is not in the opposite one.

A prompt's AL at temperature 0 does not depend on the benchmark that it stands in. So a prompt that several of them hold is measured
once: :func:`benchmarks` says which rows each one takes, :func:`to_measure` which rows that are together, and :func:`category_al`
makes each benchmark's AL from the measured ones, as the official framework does: the mean over the prompts of a category.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from specsweep.analysis.selection import greedy_swap, uniform
from specsweep.analysis.tabular import Column, Row, Table

BENCHMARKS = 10  # of each kind, as in the paper
Kind = Literal["uniform", "optimized"]
KINDS: tuple[Kind, ...] = ("uniform", "optimized")
Choices = Mapping[str, Sequence[int]]  # category → rows of its candidates
ByCategory = Mapping[str, Mapping[str, float]]  # benchmark → category → AL


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of several benchmarks: relative range by category, and the normalised Kendall distances of all pairs of benchmarks."""

    relative_range: Mapping[str, float]
    distances: tuple[float, ...]

    @property
    def distance_mean(self) -> float:
        return fmean(self.distances)

    @property
    def distance_max(self) -> float:
        return max(self.distances)


def agreement(al: ByCategory) -> Agreement:
    """Raises ``ValueError`` unless there are at least two benchmarks with the same two or more categories."""
    if len(al) < 2:
        raise ValueError(f"{len(al)} benchmark has nothing to agree with; measure at least 2")
    return Agreement(relative_range(al), kendall_distances(al))


def relative_range(al: ByCategory) -> dict[str, float]:
    """(max − min) / mean over the benchmarks, by category; a share, not per cent."""
    found = {}
    for category in _categories(al):
        values = [by_category[category] for by_category in al.values()]
        found[category] = (max(values) - min(values)) / fmean(values)
    return found


def kendall_distance(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """The share of pairs of categories that the two put in opposite order: 0 is the same ranking, 1 the reverse of it."""
    categories = _categories({"first": a, "second": b})
    if len(categories) < 2:
        raise ValueError("one category has no ranking; a Kendall distance needs at least two")
    pairs = list(itertools.combinations(categories, 2))
    return sum((a[p] - a[q]) * (b[p] - b[q]) < 0 for p, q in pairs) / len(pairs)


def kendall_distances(al: ByCategory) -> tuple[float, ...]:
    """Of all pairs of benchmarks, in their order."""
    return tuple(kendall_distance(a, b) for a, b in itertools.combinations(al.values(), 2))


def benchmarks(candidates: Mapping[str, ArrayLike], k: int, *, count: int = BENCHMARKS, seed: int = 0) -> dict[Kind, dict[str, Choices]]:
    """``count`` benchmarks of each kind: kind → name → category → rows of that category's candidates.

    ``candidates``: category → (N, d) unit rows. Uniform ones are independent. Optimised ones differ by their first row, which is
    never the same twice in a category. A category's choices depend on the seed, its name and its candidates only, not on what
    other categories there are. Raises ``ValueError`` for a category with fewer than k, or fewer than ``count``, candidates.
    """
    made: dict[Kind, dict[str, dict[str, Sequence[int]]]] = {kind: {f"{kind}-{n}": {} for n in range(count)} for kind in KINDS}
    for category, x in candidates.items():
        rows = np.asarray(x)
        if len(rows) < max(k, count):
            raise ValueError(f"category {category!r} has {len(rows)} candidates; {max(k, count)} are needed for {count} benchmarks of {k}")
        draws = np.random.default_rng([seed, *category.encode()])
        starts = draws.choice(len(rows), count, replace=False).tolist()
        seeds = draws.integers(2**63, size=count).tolist()
        for n in range(count):
            made["uniform"][f"uniform-{n}"][category] = uniform(rows, k, seed=seeds[n]).indices
            made["optimized"][f"optimized-{n}"][category] = greedy_swap(rows, k, start=starts[n]).indices
    return {kind: dict(by_name) for kind, by_name in made.items()}


def overlap(choices: Mapping[str, Choices]) -> float:
    """Share of the prompts that two benchmarks have in common, over all pairs and categories, 0 to 1.

    Benchmarks that are nearly the same prompts agree whatever they measure, so their agreement is to be read beside it.
    """
    shares = [
        len(set(a[category]) & set(b[category])) / len(a[category])
        for a, b in itertools.combinations(choices.values(), 2)
        for category in a
    ]
    return fmean(shares)


def to_measure(made: Mapping[Kind, Mapping[str, Choices]]) -> dict[str, tuple[int, ...]]:
    """The rows of each category that any benchmark holds, each once, in order."""
    rows: dict[str, set[int]] = {}
    for choices in itertools.chain.from_iterable(by_name.values() for by_name in made.values()):
        for category, indices in choices.items():
            rows.setdefault(category, set()).update(indices)
    return {category: tuple(sorted(found)) for category, found in rows.items()}


def category_al(choices: Mapping[str, Choices], al: Mapping[str, Mapping[int, float]]) -> dict[str, dict[str, float]]:
    """AL by benchmark and category from the AL of each measured row (category → row → AL): the unweighted mean over the rows of a choice.

    Raises ``ValueError`` naming a row that was not measured: a benchmark without it would be another benchmark.
    """
    found: dict[str, dict[str, float]] = {}
    for name, by_category in choices.items():
        found[name] = {}
        for category, indices in by_category.items():
            measured = al.get(category, {})
            if missing := [i for i in indices if i not in measured]:
                raise ValueError(
                    f"benchmark {name!r}, category {category!r}: {len(missing)} of {len(indices)} rows have no AL, first row {missing[0]}"
                )
            found[name][category] = fmean(measured[i] for i in indices)
    return found


def range_table(found: Mapping[Kind, Agreement], draft_length: int) -> Table:
    """Table 6: relative range of AL in per cent by category; the categories in order of the uniform choice's range, the widest first."""
    first = next(iter(found.values())).relative_range
    rows = []
    for category in sorted(first, key=lambda c: -first[c]):
        shares = {kind: a.relative_range[category] for kind, a in found.items()}
        record = {
            "category": category,
            "draft_length": draft_length,
            **{f"{kind}_relative_al_range": share for kind, share in shares.items()},
        }
        rows.append(Row((category, *(f"{100 * share:.1f}" for share in shares.values())), record))
    columns = (Column("category", "category"), *(Column(kind, f"{kind} (%)", right=True) for kind in found))
    notes = ("(largest AL − smallest AL) / mean AL over the benchmarks of one kind.",)
    return Table("stability_range", "Relative range of AL", columns, tuple(rows), notes, {"DL": str(draft_length)})


def ranking_table(found: Mapping[int, Mapping[Kind, Agreement]]) -> Table:
    """Table 7: mean and largest normalised Kendall τ distance of the category rankings, by kind and draft length."""
    rows = []
    for draft_length, by_kind in found.items():
        for kind, a in by_kind.items():
            record = {
                "selection": kind,
                "draft_length": draft_length,
                "benchmark_pairs": len(a.distances),
                "kendall_distance_mean": a.distance_mean,
                "kendall_distance_max": a.distance_max,
            }
            rows.append(Row((kind, str(draft_length), f"{a.distance_mean:.3f}", f"{a.distance_max:.3f}"), record))
    columns = (Column("selection", "selection"), *(Column(k, h, right=True) for k, h in (("dl", "DL"), ("mean", "mean"), ("max", "max"))))
    notes = (
        "Share of the pairs of categories that two benchmarks put in opposite order, over all pairs of benchmarks; ties are in no order.",
    )
    return Table("stability_ranking", "Normalised Kendall τ distance of category rankings", columns, tuple(rows), notes)


def similarity_table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """Table 8: average pairwise similarity, category → selection → value; every category must have the same selections."""
    names = _categories(found)
    rows = tuple(
        Row((category, *(f"{values[n]:.2f}" for n in names)), {"category": category, **{f"similarity_{n}": values[n] for n in names}})
        for category, values in found.items()
    )
    columns = (Column("category", "category"), *(Column(n, n.replace("_", " + "), right=True) for n in names))
    notes = ("Mean cosine similarity over the pairs of chosen prompts; lower is more diverse.",)
    return Table("selection_similarity", "Average pairwise similarity by selection", columns, rows, notes)


def _categories(al: ByCategory) -> list[str]:
    """The categories, which every benchmark must have."""
    if not al:
        raise ValueError("no benchmark was given")
    first_name, first = next(iter(al.items()))
    for name, by_category in al.items():
        if by_category.keys() != first.keys():
            raise ValueError(f"{first_name!r} and {name!r} differ in {sorted(by_category.keys() ^ first.keys())}; all must have the same")
    return list(first)
