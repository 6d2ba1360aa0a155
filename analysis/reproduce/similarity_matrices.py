"""Figures 9 and 10 of the paper: the similarity of each pair of prompts, SpecBench beside the benchmark.

The paper calls SpecBench's matrices dense blocks and its own a diffuse low pattern. Asked so that no embedder's scale matters: of the tenth of all pairs
of both panels that are most alike, does SpecBench hold more than its share?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.data_stats_tables import SAME_CATEGORY
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, Outcome, ordering
from specsweep.analysis.reproduce.collected import STAND_IN, DataSet, DataSets, below, embedders, extra, named
from specsweep.analysis.reproduce.judging import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsweep.analysis.selection import Floats

ALIKE = 0.9  # quantile of the pairs of both panels beyond which a pair counts as alike


def matrices(figure: str, category: str, evidence: Evidence) -> Outcome:
    """Figures 9 (multilingual, SpecBench's translation) and 10 (math). Extras: ``data_sets`` with the matrices of that category."""
    sets = extra(evidence, "data_sets", DataSets)
    found = {
        role: (s.stats.name, np.asarray(m))
        for role in ("specbench", "benchmark")
        if (s := named(sets, role)) and (m := _matrix(s, category))
    }
    shares = dense_shares(*(found[role][1] for role in ("specbench", "benchmark"))) if len(found) == 2 else None
    benchmark = named(sets, "benchmark")
    decides = len(found) == 2 and benchmark is not None and benchmark.published
    stand_in = "" if decides or benchmark is None or benchmark.published else STAND_IN
    averages = {name: float(_pairs(m).mean()) for name, m in found.values()}
    words = ", ".join(f"{name} {value:.3f}" for name, value in averages.items())
    claims = (
        Claim(
            "denser",
            "SpecBench's prompts form dense blocks of high similarity, SPEED-Bench's a diffuse low pattern: more of SpecBench's pairs are alike",
            "Figures 9 and 10",
            ordering(*shares) if shares and decides else "not decidable",
            f"alike are {percent(shares[0])} of SpecBench's pairs and {percent(shares[1])} of the benchmark's{stand_in}"
            if shares
            else "needs the embeddings of both: --specbench FILE",
        ),
        Claim(
            "lower",
            f"The average similarity of the benchmark's prompts in {category} is below SpecBench's",
            "Figure 2",
            below(averages[found["benchmark"][0]], averages[found["specbench"][0]]) if decides else "not decidable",
            words + stand_in if words else "nothing was embedded",
        ),
    )
    figures = {figure: partial(_matrices, category, dict(found.values()))} if found else {}
    return Outcome(claims=claims, figures=figures, notes=embedders(sets, None))


def dense_shares(a: Floats, b: Floats) -> tuple[Estimate, Estimate]:
    """Share of the pairs of each that are alike, by the threshold of both together; intervals leave out one prompt at a time."""
    grid = np.linspace(0, 1, 1001)  # of each: the larger set is not to set the threshold alone
    threshold = float(np.quantile(np.concatenate([np.quantile(_pairs(m), grid) for m in (a, b)]), ALIKE))
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


EXPERIMENTS = (
    Experiment("fig9", "Similarity of each pair of prompts, multilingual", "", partial(matrices, "fig9", "multilingual"), ("data_sets",)),
    Experiment("fig10", "Similarity of each pair of prompts, math", "", partial(matrices, "fig10", "math"), ("data_sets",)),
)
