"""Experiments about data sets, choices and stability: each claim as it holds, as it fails, and as nobody can decide it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.data_stats import CategoryStats, describe
from specsweep.analysis.reproduce import blog_example, dataset_tables, printed, similarity_figures, similarity_matrices
from specsweep.analysis.reproduce.claims import Evidence, Outcome
from specsweep.analysis.reproduce.collected import CategoryChoice, Choices, DataSet, DataSets, extra
from specsweep.analysis.reproduce.selection_table import choice_of_method
from specsweep.analysis.reproduce.stability_tables import Stability, rankings, spread_of_al, study


@dataclass(frozen=True)
class Prompt:
    category: str
    turns: tuple[str, ...] = ("one",)
    sub_category: str = ""
    source: str = "somewhere"
    src_id: str = ""
    difficulty: str = ""


def verdicts(outcome: Outcome) -> dict[str, str]:
    return {c.key: c.verdict for c in outcome.claims}


def data(
    role: str, isl: Mapping[str, list[int]], similarity: Mapping[str, float] | None = None, *, published: bool = True, embedder: str = ""
) -> DataSet:
    rows = [Prompt(category) for category, lengths in isl.items() for _ in lengths]
    stats = describe(role, rows, [n for lengths in isl.values() for n in lengths], similarity=similarity, embedder=embedder)
    return DataSet("specbench" if role == "specbench" else "benchmark", published, stats)


def of(*sets: DataSet, **extras: object) -> Evidence:
    return Evidence(extras={"data_sets": DataSets(sets), **extras})


# --- the announcement's example ------------------------------------------------------------------------------------------------


def test_rates_and_al_of_the_example_follow_from_its_histogram() -> None:
    outcome = blog_example.recomputed(Evidence())
    assert len(outcome.numbers) == 8
    assert {n.verdict for n in outcome.numbers} == {"holds"}
    assert set(verdicts(outcome).values()) == {"holds"}
    histogram = {int(k): v for k, v in printed.blog_example()["printed"]["acceptance_length_histogram"].items()}
    assert blog_example.pooled_al(histogram) == pytest.approx(2.4968440236475975, abs=1e-12)


def test_the_mean_over_categories_is_refused_from_a_histogram() -> None:
    with pytest.raises(
        ValueError, match=r"cannot be computed from a histogram of 3 steps.*average the acceptance lengths of the categories"
    ):
        blog_example.macro_al({1: 1, 2: 2})


@given(st.dictionaries(st.integers(1, 9), st.integers(1, 1000), min_size=1))
def test_the_products_of_conditional_rates_are_the_pooled_al(histogram: dict[int, int]) -> None:
    product, total = 1.0, 0.0
    for rate in blog_example.conditional_rates(histogram).values():
        product *= rate
        total += product
    assert total == pytest.approx(blog_example.pooled_al(histogram))


def test_a_histogram_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="needs steps"):
        blog_example.pooled_al({1: 0})


# --- Tables 2 and 3 ------------------------------------------------------------------------------------------------------------


def printed_means(benchmark: str) -> dict[str, list[int]]:
    """Two prompts a category whose mean is the printed one, to its digit."""
    found = {}
    for row in printed.table3():
        if row.benchmark == benchmark and row.statistic == "mean" and row.category != "macro_average":
            tenths = round(10 * row.isl_tokens)
            found[row.category] = [tenths // 10] * (10 - tenths % 10) + [tenths // 10 + 1] * (tenths % 10)
    return found


def test_lengths_are_held_against_the_print_to_its_last_digit() -> None:
    isl = printed_means("SpecBench")
    good = {n.name: n.verdict for n in dataset_tables.lengths(of(data("specbench", isl))).numbers}
    assert good["ISL mean, coding, SpecBench"] == "holds"
    longer = isl | {"coding": [n + 1 for n in isl["coding"]]}
    bad = {n.name: n.verdict for n in dataset_tables.lengths(of(data("specbench", longer))).numbers}
    assert bad["ISL mean, coding, SpecBench"] == "failed"
    assert {k for k in good if good[k] != bad[k]} == {"ISL mean, coding, SpecBench"}
    missing = {n.name: n.verdict for n in dataset_tables.lengths(of(data("specbench", {"coding": isl["coding"]}))).numbers}
    assert missing["ISL mean, math, SpecBench"] == "not decidable"


def test_a_stand_in_is_held_against_nothing_and_decides_nothing() -> None:
    evidence = of(data("benchmark", {"math": [9]}, published=False), data("specbench", {"math": [5]}))
    for outcome in (dataset_tables.lengths(evidence), dataset_tables.composition(evidence)):
        assert not [n for n in outcome.numbers if "SPEED-Bench" in n.name]
        assert set(verdicts(outcome).values()) == {"not decidable"}
        assert any("stand-in" in c.evidence for c in outcome.claims)


def test_prompts_longer_than_specbenchs() -> None:
    spec = data("specbench", {"math": [5], "qa": [3, 4]})
    assert verdicts(dataset_tables.lengths(of(data("benchmark", {"math": [6], "qa": [4, 3]}), spec))) == {
        "longer-prompts": "holds",
        "qa-is-specbench": "holds",
    }
    assert verdicts(dataset_tables.lengths(of(data("benchmark", {"math": [4], "qa": [4, 4]}), spec))) == {
        "longer-prompts": "failed",
        "qa-is-specbench": "failed",
    }
    assert set(verdicts(dataset_tables.lengths(of(data("benchmark", {"math": [4]})))).values()) == {"not decidable"}


def test_translation_stands_under_multilingual() -> None:
    row = next(
        n
        for n in dataset_tables.lengths(of(data("specbench", {"translation": [32, 32]}))).numbers
        if n.name == "ISL median, multilingual, SpecBench"
    )
    assert row.verdict == "holds"


@pytest.mark.parametrize(("several", "verdict"), [(167, "holds"), (400, "failed")])
def test_composition_is_counted(several: int, verdict: str) -> None:
    rows = [Prompt("math", ("a", "b") if n < several else ("a",)) for n in range(880)]
    found = dataset_tables.composition(of(DataSet("benchmark", True, describe("x", rows, [1] * 880))))
    by_name = {n.name: n.verdict for n in found.numbers}
    assert by_name["total samples, qualitative, SPEED-Bench"] == "holds"
    assert by_name["multiturn prompts, qualitative, SPEED-Bench"] == verdict
    assert verdicts(found)["several-turns"] == verdict


def test_what_the_print_says_against_itself_is_a_note() -> None:
    first, second = sorted(dataset_tables.printed_averages())
    assert "406 tokens for SPEED-Bench; the mean of its printed rows is 306.2" in first + second
    assert "169 tokens for SpecBench; the mean of its printed rows is 172.9" in first + second


# --- Figures 2, 9 and 10, Table 8 ----------------------------------------------------------------------------------------------

CATEGORIES = ("multilingual", "coding", "math")


def chosen(greedy: float = 0.12, swap: float = 0.10, qp: float = 0.10, random: float = 0.2, *, spread: float = 0.02) -> Choices:
    one = CategoryChoice("", 40, Estimate(random, random - spread, random + spread), greedy, swap, qp, swap, swap - 0.01)
    return Choices("pool.parquet", 20, "e", "e", tuple(replace(one, category=c) for c in CATEGORIES))


def alike(role: str, *values: float, embedder: str = "e", published: bool = True) -> DataSet:
    isl = {c: [1, 1] for c in CATEGORIES}
    return data(role, isl, dict(zip(CATEGORIES, values, strict=True)), embedder=embedder, published=published)


def test_figure_2_holds_and_fails_the_other_way_round() -> None:
    ours, spec = alike("benchmark", 0.1, 0.2, 0.3), alike("specbench", 0.6, 0.5, 0.4)
    assert set(verdicts(similarity_figures.by_category(of(ours, spec, choices=chosen()))).values()) == {"holds"}
    other = of(alike("benchmark", 0.6, 0.5, 0.41), alike("specbench", 0.1, 0.15, 0.4), choices=chosen(0.25, 0.3, random=0.2))
    found = verdicts(similarity_figures.by_category(other))
    assert found.pop("largest-reductions") == "failed"
    assert found.pop("random-beats-specbench") == "failed"
    assert set(found.values()) == {"failed"}


def test_figure_2_without_data_decides_nothing() -> None:
    assert set(verdicts(similarity_figures.by_category(Evidence())).values()) == {"not decidable"}
    alone = verdicts(similarity_figures.by_category(of(alike("benchmark", 0.1, 0.2, 0.3), choices=chosen(swap=0.19, spread=0.03))))
    assert alone["below-random"] == "not decidable", "within the range of random choices"
    assert alone["below-specbench"] == alone["random-beats-specbench"] == "not decidable"


def test_a_stand_in_shows_the_way_of_choosing_and_nothing_about_specbench() -> None:
    sets = alike("benchmark", 0.1, 0.2, 0.3, published=False), alike("specbench", 0.6, 0.5, 0.4)
    found = verdicts(similarity_figures.by_category(of(*sets, choices=replace(chosen(), stand_in=True))))
    assert {k for k, v in found.items() if v == "holds"} == {"below-random", "swaps-help"}


def test_printed_similarities_are_compared_for_the_same_embedder_only() -> None:
    def numbers(embedder: str) -> set[str]:
        sets = of(alike("benchmark", 0.1, 0.14, 0.18, embedder=embedder), alike("specbench", 0.3, 0.22, 0.14, embedder=embedder))
        return {n.verdict for n in similarity_figures.by_category(sets).numbers}

    assert numbers("hashed") == {"not decidable"}
    assert numbers("openai:text-embedding-3-large") == {"holds", "failed"}, "0.14 and 0.22 agree, the reduction of multilingual does not"


def test_table_8() -> None:
    assert verdicts(choice_of_method(Evidence(extras={"choices": chosen()}))) == {"below-random": "holds", "qp-equal": "holds"}
    worse = verdicts(choice_of_method(Evidence(extras={"choices": chosen(swap=0.3, qp=0.2)})))
    assert worse == {"below-random": "failed", "qp-equal": "failed"}
    assert set(verdicts(choice_of_method(Evidence())).values()) == {"not decidable"}


def matrix(n: int, value: float, blocks: int = 0, high: float = 0.9) -> list[list[float]]:
    made = np.full((n, n), value)
    made[:blocks, :blocks] = high
    np.fill_diagonal(made, 1.0)
    made += np.linspace(0, 1e-4, n)[:, None] + np.linspace(0, 1e-4, n)[None, :]
    return [list(map(float, row)) for row in made]


def with_matrix(role: str, values: list[list[float]], *, published: bool = True) -> DataSet:
    return replace(data(role, {"math": [1] * len(values)}, published=published), matrices={"math": values})


def test_blocks_of_alike_prompts() -> None:
    dense, diffuse = matrix(40, 0.1, 18), matrix(30, 0.1)

    def found(spec: list[list[float]], ours: list[list[float]], *, published: bool = True) -> dict[str, str]:
        sets = of(with_matrix("specbench", spec), with_matrix("benchmark", ours, published=published))
        return verdicts(similarity_matrices.matrices("fig10", "math", sets))

    assert found(dense, diffuse) == {"denser": "holds", "lower": "holds"}
    assert found(diffuse, dense) == {"denser": "failed", "lower": "failed"}
    assert found(dense, diffuse, published=False) == {"denser": "not decidable", "lower": "not decidable"}
    assert found(dense, dense)["denser"] == "not decidable"
    assert verdicts(similarity_matrices.matrices("fig10", "math", Evidence())) == {"denser": "not decidable", "lower": "not decidable"}


def test_the_size_of_a_set_does_not_decide_which_pairs_are_alike() -> None:
    small, large = (np.asarray(matrix(n, 0.1, n // 2)) for n in (16, 64))
    a, b = similarity_matrices.dense_shares(small, large)
    assert a.overlaps(b)


# --- Tables 6 and 7 ------------------------------------------------------------------------------------------------------------


def pool(seed: int = 0) -> tuple[dict[str, np.ndarray], dict[int, dict[str, dict[int, float]]]]:
    """Categories with clusters of near copies, whose AL is that of the cluster: a choice that spreads over clusters always finds the same mean."""
    rng = np.random.default_rng(seed)
    candidates, al = {}, {}
    for c, category in enumerate(("a", "b", "c", "d")):
        sizes = [24, 4, 4, 4]
        centres = np.eye(12)[4 * 0 : 4]
        rows = np.concatenate([centre + 0.02 * rng.standard_normal((size, 12)) for centre, size in zip(centres, sizes, strict=True)])
        candidates[category] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        values = [2.0 + 0.05 * c + level for level, size in zip((0.0, 0.5, 1.0, 1.5), sizes, strict=True) for _ in range(size)]
        al[category] = dict(enumerate(values))
    return candidates, {7: al}


@pytest.fixture(scope="module")
def stable() -> Stability:
    candidates, measured = pool()
    return study("pool", candidates, measured, 4, embedder="e", draws=4, count=4)


def swapped(found: Stability) -> Stability:
    turned = {length: {"uniform": kinds["optimized"], "optimized": kinds["uniform"]} for length, kinds in found.found.items()}
    return replace(found, found=turned)


def test_an_optimised_choice_spreads_less(stable: Stability) -> None:
    def found(record: Stability) -> dict[str, str]:
        evidence = Evidence(extras={"stability": record})
        return verdicts(spread_of_al(evidence)) | verdicts(rankings(evidence))

    assert set(found(stable).values()) == {"holds"}
    assert set(found(swapped(stable)).values()) == {"failed"}
    same = {7: dict.fromkeys(("uniform", "optimized"), stable.found[7]["uniform"])}
    assert set(found(replace(stable, found=same)).values()) == {"not decidable"}
    assert set(verdicts(spread_of_al(Evidence())).values()) == {"not decidable"}
    assert set(verdicts(rankings(Evidence())).values()) == {"not decidable"}


def test_the_paper_numbers_are_compared_for_its_target_only(stable: Stability) -> None:
    assert {n.verdict for n in spread_of_al(Evidence(extras={"stability": stable})).numbers} == {"not decidable"}
    renamed = {7: {k: replace(s, relative_range={"roleplay": s.relative_range["a"]}) for k, s in stable.found[7].items()}}
    found = spread_of_al(Evidence(extras={"stability": replace(stable, found=renamed, of_the_paper=True)}))
    decided = {n.name: n.verdict for n in found.numbers if n.ours is not None}
    assert set(decided) == {"relative range of AL, roleplay, uniform (%)", "relative range of AL, roleplay, optimized (%)"}


def test_a_record_of_another_type_is_a_fault() -> None:
    with pytest.raises(TypeError, match=r"extras\['choices'\] is dict, not Choices"):
        extra(Evidence(extras={"choices": {}}), "choices", Choices)


def test_every_experiment_can_be_drawn_and_tabled_without_data() -> None:
    for experiment in (*dataset_tables.EXPERIMENTS, *similarity_figures.EXPERIMENTS, *similarity_matrices.EXPERIMENTS):
        outcome = experiment.examine(Evidence())
        assert all(c.verdict == "not decidable" for c in outcome.claims)
        assert not outcome.figures
    assert CategoryStats("x", 1, 0, 1, ()).isl_mean is None
