"""Tables 2 and 3 of the paper: what SPEED-Bench and SpecBench consist of, and how long their prompts are.

Counts of the published sets must come out exactly, and lengths to their last printed digit: they are of the same texts by the same tokenizer.
Only mentions of programming languages have a tolerance, because the paper does not say by which rule it counted them. A stand-in for
SPEED-Bench (the offline split) is shown beside the paper's numbers and held against none of them, and decides no claim: it was written in that shape.

The averages that Table 3 prints are not those of its rows: SpecBench's is over thirteen categories of its own, two of which the table leaves out,
and SPEED-Bench's cannot be had from its rows at all. Both are stated as notes, computed from the print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.data_stats import CategoryStats, DataStats
from specsweep.analysis.data_stats_tables import SAME_CATEGORY
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, NumberCheck, Outcome, about_equal, all_of
from specsweep.analysis.reproduce.collected import PAPER_EMBEDDER, STAND_IN, DataSet, DataSets, below, extra, worded
from specsweep.analysis.tabular import Column, Row, Table

SEVERAL_TURNS = 0.2  # of the prompts, as the paper's text says; its table says 167 of 880
_ROUNDED = "rounding of the print"
_EXACT = "a count"
_BY_RULE = "the paper's rule of counting mentions is not published: one mention, or a tenth"
_LANGUAGES = {"CPP": "C++", "Javascript": "JavaScript"}  # as the paper writes them → as they are found

Count = Callable[[DataStats, str], float | None]


def composition(evidence: Evidence) -> Outcome:
    """Table 2. Extras: ``data_sets`` (:class:`.collected.DataSets`)."""
    sets = _sets(evidence)
    return Outcome(
        tables=(_composition_table(sets),), numbers=tuple(_counts(sets)), claims=_composition_claims(sets), notes=_unfilled(sets)
    )


def lengths(evidence: Evidence) -> Outcome:
    """Table 3. Extras: ``data_sets``."""
    from specsweep.analysis.isl_figure import isl_figure

    sets = _sets(evidence)
    drawn = {s.stats.name: {_shown(c.category): c.isl for c in s.stats.categories if c.isl} for s in sets}
    figures = {"table3_isl": lambda: isl_figure(drawn)} if any(drawn.values()) else {}
    return Outcome(
        tables=(_length_table(sets),),
        numbers=tuple(check for s in sets for check in _length_checks(s)),
        claims=_length_claims(sets),
        figures=figures,
        notes=(*printed_averages(), *_unfilled(sets)),
    )


def printed_averages() -> list[str]:
    """How far the averages that Table 3 prints are from the means of its rows, one sentence a benchmark."""
    found = []
    for benchmark in dict.fromkeys(row.benchmark for row in printed.table3()):
        means = [r for r in printed.table3() if r.benchmark == benchmark and r.statistic == "mean"]
        average = next(r.isl_tokens for r in means if r.category == "macro_average")
        of_rows = fmean(r.isl_tokens for r in means if r.category != "macro_average")
        found.append(f"The paper prints an average of {average:g} tokens for {benchmark}; the mean of its printed rows is {of_rows:.1f}.")
    return found


def _sets(evidence: Evidence) -> tuple[DataSet, ...]:
    found = extra(evidence, "data_sets", DataSets)
    return found.sets if found else ()


def _shown(category: str) -> str:
    return SAME_CATEGORY.get(category, category)


# --- Table 2 -----------------------------------------------------------------------------------------------------------------


def _of_size(stats: DataStats, scope: str) -> float | None:
    """Prompts in a category: one size for all, or with two sizes the smaller and the larger."""
    sizes = {c.samples for c in stats.categories}
    if "smaller" in scope or "other" in scope:
        return float(min(sizes) if "smaller" in scope else max(sizes)) if len(sizes) == 2 else None
    return float(sizes.pop()) if len(sizes) == 1 else None


def _similarity(stats: DataStats, _: str) -> float | None:
    """Numbers of another embedder are of another scale."""
    return stats.similarity_macro_mean if PAPER_EMBEDDER in stats.embedder else None


_PROPERTIES: Mapping[str, Count] = {
    "samples_per_category": _of_size,
    "total_samples": lambda s, _: float(s.samples),
    "data_sources": lambda s, _: float(len(s.sources)),
    "avg_pairwise_similarity": _similarity,
    "multiturn_prompts": lambda s, _: float(s.multi_turn),
    "max_turns": lambda s, _: float(s.most_turns),
    "has_subcategories": lambda s, _: float(bool(s.sub_categories)),
    "has_difficulties": lambda s, _: float(bool(s.difficulties)),
    "programming_language_mentions": lambda s, scope: float(s.programming_languages.get(_LANGUAGES.get(scope, scope), 0)),
    "distinct_languages_multilingual": lambda s, _: float(len(s.natural_languages)),
    "language_present_multilingual": lambda s, scope: float(scope.lower() in s.natural_languages),
}
_SPLITS = ("throughput", "buckets")  # rows about parts of SPEED-Bench that are no qualitative prompts


def _asked(row: printed.BenchmarkRow) -> Count | None:
    """How a row is answered from a set of conversations; None for rows about other parts of the benchmark, and for the sources of all of them."""
    if any(word in (row.scope or "") for word in _SPLITS) or (row.metric == "data_sources" and row.benchmark != "SpecBench"):
        return None
    return _PROPERTIES.get(row.metric)


def _counts(sets: Iterable[DataSet]) -> Iterable[NumberCheck]:
    for data in sets:
        for row in printed.table2():
            count = _asked(row)
            if row.benchmark != data.paper_name or count is None or row.value is None:
                continue
            paper = printed.Printed(row.value)
            ours = count(data.stats, row.scope or "")
            tolerance, reason = 0.0, _EXACT
            if row.metric == "avg_pairwise_similarity":
                tolerance, reason = paper.rounding, _ROUNDED
            elif row.metric == "programming_language_mentions":
                tolerance, reason = max(1.0, 0.1 * paper), _BY_RULE
            yield NumberCheck(_label(row), float(paper), None if ours is None else Estimate(ours), tolerance, reason)


def _label(row: printed.BenchmarkRow) -> str:
    return f"{row.metric.replace('_', ' ')}, " + (f"{row.scope}, " if row.scope else "") + row.benchmark


def _composition_table(sets: Sequence[DataSet]) -> Table:
    """The paper's two columns, then ours; a property is a row."""
    rows = []
    for metric, scope in dict.fromkeys((r.metric, r.scope) for r in printed.table2()):
        paper = {r.benchmark: r for r in printed.table2() if (r.metric, r.scope) == (metric, scope)}
        ours = [None if (count := _asked(next(iter(paper.values())))) is None else count(data.stats, scope or "") for data in sets]
        label = metric.replace("_", " ") + (f", {scope}" if scope else "")
        values = [row.value if (row := paper.get(name)) else None for name in ("SPEED-Bench", "SpecBench")]
        cells = (label, *(v or "–" for v in values), *("–" if v is None else f"{v:g}" for v in ours))
        record = {"property": label, "paper_speed_bench": values[0], "paper_specbench": values[1]}
        rows.append(Row(cells, {**record, **{data.stats.name: v for data, v in zip(sets, ours, strict=True)}}))
    columns = (
        Column("property", "property"),
        Column("paper_speed", "paper: SPEED-Bench", right=True),
        Column("paper_spec", "paper: SpecBench", right=True),
        *(Column(f"set{n}", data.stats.name, right=True) for n, data in enumerate(sets)),
    )
    return Table("table2", "Composition of the benchmarks", columns, tuple(rows))


def _composition_claims(sets: Sequence[DataSet]) -> tuple[Claim, ...]:
    ours, spec = (next((s.stats for s in sets if s.role == role), None) for role in ("benchmark", "specbench"))
    share = Estimate(ours.multi_turn / ours.samples) if ours else None
    published = any(s.published for s in sets if s.role == "benchmark")
    stand_in = "" if published or ours is None else STAND_IN
    sizes: Mapping[str, Callable[[DataStats], float]] = {
        "several turns": lambda s: s.multi_turn,
        "turns": lambda s: s.most_turns,
        "languages": lambda s: len(s.natural_languages),
        "sources": lambda s: len(s.sources),
    }
    larger = {name: below(size(spec) if spec else None, size(ours) if ours else None) for name, size in sizes.items()}
    numbers = ", ".join(f"{name} {size(ours):g} against {size(spec):g}" for name, size in sizes.items()) if ours and spec else ""
    return (
        Claim(
            "several-turns",
            "About a fifth of the prompts are conversations of several turns",
            "Table 2",
            about_equal(share, Estimate(SEVERAL_TURNS), 0.1) if published else "not decidable",
            f"{ours.multi_turn} of {ours.samples}, {share.value:.1%}" + stand_in if ours and share else "no benchmark was read",
        ),
        Claim(
            "broader-than-specbench",
            "More conversations of several turns, longer ones, more languages and more sources than SpecBench",
            "Table 2",
            all_of(larger.values()) if published else "not decidable",
            (numbers or _missing(ours, spec)) + stand_in,
        ),
    )


def _missing(ours: DataStats | None, spec: DataStats | None) -> str:
    return " and ".join(
        word
        for word, there in (("no benchmark was read", ours), ("SpecBench's question file was not given (--specbench FILE)", spec))
        if not there
    )


# --- Table 3 -----------------------------------------------------------------------------------------------------------------


def _statistic(c: CategoryStats, statistic: str) -> float | None:
    return c.isl_mean if statistic == "mean" else c.isl_median


def _length_checks(data: DataSet) -> Iterable[NumberCheck]:
    by_name = {_shown(c.category): c for c in data.stats.categories}
    for row in printed.table3():
        if row.benchmark != data.paper_name:
            continue
        if row.category == "macro_average":
            ours = data.stats.isl_macro_mean
        else:
            ours = _statistic(by_name[row.category], row.statistic) if row.category in by_name else None
        name = f"ISL {row.statistic}, {row.category}, {row.benchmark}"
        yield NumberCheck(name, float(row.isl_tokens), None if ours is None else Estimate(ours), row.isl_tokens.rounding + 1e-9, _ROUNDED)


def _length_table(sets: Sequence[DataSet]) -> Table:
    paper = {(r.benchmark, r.category, r.statistic): r.isl_tokens for r in printed.table3()}
    named = [(f"paper: {b}", b, None) for b in ("SPEED-Bench", "SpecBench")] + [(d.stats.name, "", d.stats) for d in sets]
    categories = dict.fromkeys(c for _, c, _ in paper if c != "macro_average")
    categories |= dict.fromkeys(_shown(c.category) for d in sets for c in d.stats.categories)
    rows = []
    for category in (*categories, "macro_average"):
        values: list[float | None] = []
        for _, benchmark, stats in named:
            for statistic in ("mean", "median"):
                values.append(_ours(stats, category, statistic) if stats else paper.get((benchmark, category, statistic)))
        keys = [f"{name}.isl_tokens_{statistic}" for name, _, _ in named for statistic in ("mean", "median")]
        label = "average of categories" if category == "macro_average" else category
        rows.append(
            Row(
                (label, *("–" if v is None else f"{v:,.1f}" for v in values)),
                {"category": category, **dict(zip(keys, values, strict=True))},
            )
        )
    columns = [Column("category", "category")]
    for n, (name, _, _) in enumerate(named):
        columns += [Column(f"{statistic}{n}", f"{name}, {statistic}", right=True) for statistic in ("mean", "median")]
    notes = (
        "ISL in o200k_base tokens of the bare text, summed over the user's turns of a conversation; translation stands under multilingual.",
    )
    return Table("table3", "ISL by category", tuple(columns), tuple(rows), notes)


def _ours(stats: DataStats, category: str, statistic: str) -> float | None:
    if category == "macro_average":
        return stats.isl_macro_mean if statistic == "mean" else None
    return next((_statistic(c, statistic) for c in stats.categories if _shown(c.category) == category), None)


def _length_claims(sets: Sequence[DataSet]) -> tuple[Claim, ...]:
    ours, spec = (next((s for s in sets if s.role == role), None) for role in ("benchmark", "specbench"))
    found = {role: {_shown(c.category): c.isl for c in s.stats.categories if c.isl} for role, s in (("ours", ours), ("spec", spec)) if s}
    longer = {
        category: below(fmean(found["spec"][category]), fmean(isl))
        for category, isl in found.get("ours", {}).items()
        if category in found.get("spec", {}) and category not in ("qa", "summarization")
    }
    stand_in = STAND_IN if ours and not ours.published else ""
    qa = [found[role]["qa"] for role in found if "qa" in found[role]]
    same = len(qa) == 2 and bool(ours and ours.published)
    return (
        Claim(
            "longer-prompts",
            "Prompts are longer than SpecBench's in every category but qa and summarization",
            "Table 3",
            all_of(longer.values()) if ours and ours.published else "not decidable",
            (worded(longer) if longer else _missing(ours.stats if ours else None, spec.stats if spec else None)) + stand_in,
        ),
        Claim(
            "qa-is-specbench",
            "The prompts of qa are SpecBench's: mean and median length are the same",
            "Table 3",
            ("holds" if sorted(qa[0]) == sorted(qa[1]) else "failed") if same else "not decidable",
            f"means {fmean(qa[0]):.2f} and {fmean(qa[1]):.2f} tokens"
            if same
            else "needs the published data set and SpecBench's question file",
        ),
    )


def _unfilled(sets: Iterable[DataSet]) -> tuple[str, ...]:
    stand_ins = [
        f"{s.stats.name} stands in for {'SpecBench' if s.role == 'specbench' else 'SPEED-Bench'}." for s in sets if not s.published
    ]
    return (*stand_ins, *(f"{s.stats.name}: {s.stats.unfilled} prompts without their text are left out." for s in sets if s.stats.unfilled))


EXPERIMENTS = (
    Experiment("table2", "SPEED-Bench and SpecBench: what they consist of", "", composition, ("data_sets",)),
    Experiment("table3", "Length of the prompts by category", "", lengths, ("data_sets",)),
)
