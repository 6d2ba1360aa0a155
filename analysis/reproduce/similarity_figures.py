"""Figure 2 of the paper: how alike the prompts of a category are, of the benchmark, of SpecBench, and of other choices from one pool.

An average over all pairs of a fixed set is no sample and has no interval; a random choice has one, the range of 95 % of random choices. What the
paper says about its own choice against others *from the same pools* can only be asked where a pool is at hand: then Algorithm 1 is run on
it. Against SpecBench stands the published set where it was prepared, else that choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.data_stats import DataStats
from specsweep.analysis.data_stats_tables import SAME_CATEGORY
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, NumberCheck, Outcome, Verdict, all_of
from specsweep.analysis.reproduce.collected import (
    PAPER_EMBEDDER,
    STAND_IN,
    Choices,
    DataSets,
    below,
    embedders,
    extra,
    named,
    with_range,
    worded,
)
from specsweep.analysis.reproduce.judging import most
from specsweep.analysis.tabular import Column, Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LARGEST_REDUCTIONS = frozenset({"multilingual", "coding"})
MULTILINGUAL_REDUCTION = printed.Printed("0.83")
_SOURCE, _NEEDS = "Figure 2", "needs SpecBench's question file (--specbench FILE)"
_RANDOM, _GREEDY, _SWAP = "random choice", "without swaps", "greedy + swap"

ByCategory = Mapping[str, Estimate]


def by_category(evidence: Evidence) -> Outcome:
    """Figure 2. Extras: ``data_sets`` and ``choices``; either may be missing."""
    sets, choices = extra(evidence, "data_sets", DataSets), extra(evidence, "choices", Choices)
    series = similarities(sets, choices)
    if not series:
        return Outcome(claims=(*_choice_claims({}, {}, {}), *_specbench_claims({}, {}, {}, stand_in=False)))
    spec = named(sets, "specbench")
    benchmark = named(sets, "benchmark")
    published = benchmark.stats.name if benchmark and benchmark.published else ""
    ours = series.get(published) or series.get(_SWAP) or (series.get(benchmark.stats.name, {}) if benchmark else {})
    against = series.get(spec.stats.name, {}) if spec else {}
    stand_in = not published and (choices is None or choices.stand_in)
    claims = (
        *_choice_claims(series.get(_SWAP, {}), series.get(_GREEDY, {}), series.get(_RANDOM, {})),
        *_specbench_claims(ours, series.get(_RANDOM, {}), against, stand_in),
    )
    return Outcome(
        tables=(_similarity_table(series),),
        numbers=tuple(_averages(sets)),
        claims=claims,
        figures={"fig2": partial(_bars, series)},
        notes=embedders(sets, choices),
    )


def similarities(sets: DataSets | None, choices: Choices | None) -> dict[str, ByCategory]:
    """The series of Figure 2 by name: each data set, and the choices from the pool."""
    series: dict[str, ByCategory] = {s.stats.name: of_set for s in (sets.sets if sets else ()) if (of_set := _of_set(s.stats))}
    if choices:
        series[_RANDOM] = {c.category: c.random for c in choices.categories}
        series[_GREEDY] = {c.category: Estimate(c.greedy) for c in choices.categories}
        series[_SWAP] = {c.category: Estimate(c.greedy_swap) for c in choices.categories}
    return series


def reductions(ours: ByCategory, theirs: ByCategory) -> dict[str, float]:
    """How much less alike, as a share of theirs, in the categories that both have."""
    return {c: 1 - ours[c].value / theirs[c].value for c in ours if c in theirs and theirs[c].value > 0}


def _of_set(stats: DataStats) -> dict[str, Estimate]:
    return {SAME_CATEGORY.get(c.category, c.category): Estimate(c.similarity) for c in stats.categories if c.similarity is not None}


def _choice_claims(swap: ByCategory, greedy: ByCategory, random: ByCategory) -> tuple[Claim, ...]:
    """About the way of choosing, which any pool can show."""
    lower = {c: below(swap[c], random[c]) for c in swap if c in random}
    swaps = {c: _not_above(swap[c].value, greedy[c].value) for c in swap if c in greedy}
    return (
        Claim(
            "below-random",
            "The chosen prompts are less alike than random choices from the same pool, in every category",
            _SOURCE,
            all_of(lower.values()),
            worded(lower),
        ),
        Claim("swaps-help", "Without the swaps the choice is more alike, on average", _SOURCE, _mean_below(swap, greedy), worded(swaps)),
    )


def _specbench_claims(ours: ByCategory, random: ByCategory, spec: ByCategory, stand_in: bool) -> tuple[Claim, ...]:
    """Against SpecBench. A stand-in is put beside it, and decides nothing."""
    lower = {c: below(ours[c], spec[c]) for c in ours if c in spec}
    beats = {c: below(random[c], spec[c]) for c in random if c in spec}
    less = reductions(ours, spec)
    ranked = sorted(less, key=lambda c: -less[c])
    largest: Verdict = "not decidable"
    if len(less) > len(LARGEST_REDUCTIONS) and less.keys() >= LARGEST_REDUCTIONS:
        largest = "holds" if frozenset(ranked[: len(LARGEST_REDUCTIONS)]) == LARGEST_REDUCTIONS else "failed"
    average = (
        f"{_mean(ours, less):.3f} against {_mean(spec, less):.3f}, {1 - _mean(ours, less) / _mean(spec, less):.0%} less" if less else ""
    )
    statements: tuple[tuple[str, str, Verdict, str], ...] = (
        (
            "below-specbench",
            "The prompts are less alike than SpecBench's in every category",
            all_of(lower.values()),
            worded(lower) if lower else "",
        ),
        (
            "random-beats-specbench",
            "A random choice is less alike than SpecBench in most categories",
            most(list(beats.values())),
            worded(beats) if beats else "",
        ),
        ("less-on-average", "On average over the categories the prompts are less alike than SpecBench's", _mean_below(ours, spec), average),
        (
            "largest-reductions",
            "The largest reductions are those of multilingual and coding",
            largest,
            ", ".join(f"{c} {less[c]:.0%}" for c in ranked),
        ),
    )
    return tuple(
        Claim(key, text, _SOURCE, "not decidable" if stand_in else verdict, words + (STAND_IN if stand_in else "") if words else _NEEDS)
        for key, text, verdict, words in statements
    )


def _not_above(value: float, other: float) -> Verdict:
    """Swaps never raise the sum that they lower, but they can where another embedder judges."""
    return "holds" if value <= other else "failed"


def _mean(values: ByCategory, categories: Mapping[str, object]) -> float:
    return fmean(values[c].value for c in categories)


def _mean_below(smaller: ByCategory, larger: ByCategory) -> Verdict:
    both = {c: None for c in smaller if c in larger}
    return below(_mean(smaller, both), _mean(larger, both)) if both else "not decidable"


def _averages(sets: DataSets | None) -> list[NumberCheck]:
    """The averages and reductions that the paper prints; of another embedder they are numbers of another scale, and nothing is compared."""
    found = [s for role in ("benchmark", "specbench") if (s := named(sets, role)) and s.published and PAPER_EMBEDDER in s.stats.embedder]
    by_name = {s.paper_name: s.stats for s in found}
    checks = []
    for row in printed.table2():
        if row.metric == "avg_pairwise_similarity" and row.value is not None:
            paper, stats = printed.Printed(row.value), by_name.get(row.benchmark)
            ours = None if stats is None or stats.similarity_macro_mean is None else Estimate(stats.similarity_macro_mean)
            checks.append(NumberCheck(f"average similarity, {row.benchmark}", float(paper), ours, paper.rounding, "rounding of the print"))
    less = reductions(*(_of_set(s.stats) for s in found)) if len(found) == 2 else {}
    share = Estimate(less["multilingual"]) if "multilingual" in less else None
    name = "reduction against SpecBench, multilingual"
    return [*checks, NumberCheck(name, float(MULTILINGUAL_REDUCTION), share, MULTILINGUAL_REDUCTION.rounding, "rounding of the print")]


def _similarity_table(series: Mapping[str, ByCategory]) -> Table:
    categories = dict.fromkeys(c for of_series in series.values() for c in of_series)
    rows = []
    for category in categories:
        values = [of_series.get(category) for of_series in series.values()]
        record = {"category": category, **{name: v.value if v else None for name, v in zip(series, values, strict=True)}}
        rows.append(Row((category, *(with_range(v) for v in values)), record))
    means = [fmean(e.value for e in of_series.values()) for of_series in series.values()]
    rows.append(Row(("average of categories", *(f"{m:.3f}" for m in means)), {"category": None, **dict(zip(series, means, strict=True))}))
    columns = (Column("category", "category"), *(Column(f"series{n}", name, right=True) for n, name in enumerate(series)))
    notes = (
        "Mean cosine similarity over the pairs of a category; lower is more diverse. In brackets the range of 95 % of random choices.",
    )
    return Table("fig2", "Average pairwise similarity", columns, tuple(rows), notes)


def _bars(series: Mapping[str, ByCategory]) -> Figure:
    from specsweep.analysis.similarity import Bar, category_figure

    bars = {name: {c: Bar(e.value, e.low, e.high) for c, e in of_series.items()} for name, of_series in series.items()}
    return category_figure(bars, "Average pairwise similarity of prompts")


EXPERIMENTS = (Experiment("fig2", "Similarity of the prompts of a category", "", by_category, ("data_sets", "choices")),)
