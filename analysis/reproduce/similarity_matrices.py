"""Figures 9 and 10 of the paper: the similarity of each pair of prompts, SpecBench beside the benchmark.

The paper calls SpecBench's matrices dense blocks and its own a diffuse low pattern. Asked so that no embedder's scale matters: of the tenth of all pairs
of both panels that are most alike, does SpecBench hold more than its share?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.data_stats_tables import SAME_CATEGORY
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, Outcome, ordering
from specsweep.analysis.reproduce.collected import DataSet, DataSets, below, embedders, extra, named
from specsweep.analysis.reproduce.judging import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsweep.analysis.selection import Floats

ALIKE = 0.9  # quantile of the pairs of both panels beyond which a pair counts as alike


def matrices(category: str, evidence: Evidence) -> Outcome:
    """Figures 9 (multilingual, SpecBench's translation) and 10 (math). Extras: ``data_sets`` with the matrices of that category."""
    sets = extra(evidence, "data_sets", DataSets)
    found = {
        role: (s.stats.name, np.asarray(m))
        for role in ("specbench", "benchmark")
        if (s := named(sets, role)) and (m := _matrix(s, category))
    }
    shares = dense_shares(*(found[role][1] for role in ("specbench", "benchmark"))) if len(found) == 2 else None
    averages = {name: float(_pairs(m).mean()) for name, m in found.values()}
    words = ", ".join(f"{name} {value:.3f}" for name, value in averages.items())
    claims = (
        Claim(
            "denser",
            "SpecBench's prompts form dense blocks of high similarity, SPEED-Bench's a diffuse low pattern: more of SpecBench's pairs are alike",
            "Figures 9 and 10",
            ordering(*shares) if shares else "not decidable",
            f"alike are {percent(shares[0])} of SpecBench's pairs and {percent(shares[1])} of the benchmark's"
            if shares
            else "needs the embeddings of both: --specbench FILE and --embedder NAME",
        ),
        Claim(
            "lower",
            f"The average similarity of the benchmark's prompts in {category} is below SpecBench's",
            "Figure 2",
            below(averages[found["benchmark"][0]], averages[found["specbench"][0]]) if len(found) == 2 else "not decidable",
            words or "nothing was embedded",
        ),
    )
    figures = {f"similarity_{category}": partial(_matrices, category, dict(found.values()))} if found else {}
    return Outcome(claims=claims, figures=figures, notes=embedders(sets, None))


def dense_shares(a: Floats, b: Floats) -> tuple[Estimate, Estimate]:
    """Share of the pairs of each that are alike, by the threshold of both together; intervals leave out one prompt at a time."""
    threshold = float(np.quantile(np.concatenate([_pairs(a), _pairs(b)]), ALIKE))
    first, second = (_dense(m, threshold) for m in (a, b))
    return first, second


def _dense(matrix: Floats, threshold: float) -> Estimate:
    from specsweep.analysis.stats import t_quantile

    n = len(matrix)
    alike = (matrix > threshold) & ~np.eye(n, dtype=bool)
    total, by_prompt = int(alike.sum()), alike.sum(axis=1)
    value = total / (n * (n - 1))
    if n < 3:
        return Estimate(value)
    without = (total - 2 * by_prompt) / ((n - 1) * (n - 2))
    error = float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))
    reach = float(t_quantile(np.asarray(n - 1.0), 0.95)) * error
    return Estimate(value, max(value - reach, 0.0), min(value + reach, 1.0), method="jackknife over prompts", clusters=n)


def _pairs(matrix: Floats) -> Floats:
    return np.asarray(matrix[~np.eye(len(matrix), dtype=bool)])


def _matrix(data: DataSet, category: str) -> Sequence[Sequence[float]] | None:
    return next((m for own, m in data.matrices.items() if SAME_CATEGORY.get(own, own) == category and len(m) > 1), None)


def _matrices(category: str, found: Mapping[str, Floats]) -> Figure:
    from specsweep.analysis.similarity import matrix_figure

    return matrix_figure(found, f"Similarity of prompts, {category}")


def _of(category: str) -> Callable[[Evidence], Outcome]:
    return partial(matrices, category)


EXPERIMENTS = (
    Experiment("fig9", "Similarity of each pair of prompts, multilingual", "", _of("multilingual"), ("data_sets",)),
    Experiment("fig10", "Similarity of each pair of prompts, math", "", _of("math"), ("data_sets",)),
)
