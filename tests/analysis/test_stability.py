"""Relative ranges and rankings computed by hand, and what is measured for them."""

from __future__ import annotations

import numpy as np
import pytest

from specsweep.analysis.selection import greedy, normalised
from specsweep.analysis.stability import (
    Agreement,
    agreement,
    benchmarks,
    category_al,
    kendall_distance,
    kendall_distances,
    overlap,
    range_table,
    ranking_table,
    relative_range,
    similarity_table,
    to_measure,
)

AL = {
    "a": {"coding": 3.0, "math": 2.5, "roleplay": 1.5, "writing": 2.0},
    "b": {"coding": 3.2, "math": 2.5, "roleplay": 2.1, "writing": 1.9},  # roleplay and writing change places
    "c": {"coding": 2.8, "math": 2.9, "roleplay": 1.8, "writing": 1.7},  # coding and math as well
}


def candidates(n: int = 40, d: int = 6, seed: int = 0) -> np.ndarray:
    return normalised(np.random.default_rng(seed).standard_normal((n, d)))


def test_relative_range() -> None:
    assert relative_range(AL) == pytest.approx(
        {"coding": 0.4 / 3.0, "math": 0.4 / (7.9 / 3), "roleplay": 0.6 / 1.8, "writing": 0.3 / (5.6 / 3)}
    )


def test_kendall_distance_counts_opposite_pairs() -> None:
    assert kendall_distances(AL) == pytest.approx((1 / 6, 2 / 6, 1 / 6))
    found = agreement(AL)
    assert found.distance_mean == pytest.approx(4 / 18)
    assert found.distance_max == pytest.approx(2 / 6)


def test_kendall_distance_of_eleven_categories_is_in_steps_of_a_55th() -> None:
    ranking = {f"c{i}": float(i) for i in range(11)}
    assert kendall_distance(ranking, ranking) == 0
    assert kendall_distance(ranking, {c: -v for c, v in ranking.items()}) == 1
    assert kendall_distance(ranking, {**ranking, "c3": 4.5}) == pytest.approx(1 / 55)  # past its neighbour c4 alone


def test_a_tie_is_no_order_and_so_not_the_opposite_one() -> None:
    assert kendall_distance({"x": 1.0, "y": 1.0, "z": 2.0}, {"x": 1.0, "y": 2.0, "z": 1.5}) == pytest.approx(1 / 3)  # y and z only


def test_benchmarks_must_have_the_same_categories() -> None:
    with pytest.raises(ValueError, match=r"'a' and 'b' differ in \['math'\]"):
        relative_range({"a": {"coding": 1.0, "math": 1.0}, "b": {"coding": 1.0}})
    with pytest.raises(ValueError, match="one category has no ranking"):
        kendall_distance({"x": 1.0}, {"x": 2.0})
    with pytest.raises(ValueError, match="nothing to agree with"):
        agreement({"a": AL["a"]})


def test_ten_of_each_kind_that_differ_as_said() -> None:
    x = {"coding": candidates(), "math": candidates(seed=1)}
    made = benchmarks(x, 8)
    assert {kind: len(by_name) for kind, by_name in made.items()} == {"uniform": 10, "optimized": 10}
    for by_name in made.values():
        for choices in by_name.values():
            assert all(len(set(indices)) == 8 for indices in choices.values())
    assert len({tuple(choices["coding"]) for choices in made["uniform"].values()}) == 10
    similar = {kind: [x["coding"][list(c["coding"])] for c in by_name.values()] for kind, by_name in made.items()}
    likeness = {kind: np.mean([float(np.linalg.norm(s.sum(0))) for s in sets]) for kind, sets in similar.items()}
    assert likeness["optimized"] < likeness["uniform"] / 2


def test_optimised_benchmarks_start_at_different_rows() -> None:
    """Candidates of which greedy must keep its start: in so many dimensions all are alike, and no swap helps."""
    x = np.eye(30)
    made = benchmarks({"coding": x}, 5)["optimized"]
    starts = [choices["coding"][0] for choices in made.values()]
    assert len(set(starts)) == 10
    assert all(tuple(c["coding"]) == greedy(x, 5, start=s).indices for c, s in zip(made.values(), starts, strict=True))


def test_choices_depend_on_the_seed_and_not_on_other_categories() -> None:
    alone = benchmarks({"math": candidates(seed=1)}, 5, count=3, seed=4)
    beside = benchmarks({"coding": candidates(), "math": candidates(seed=1)}, 5, count=3, seed=4)
    for kind, by_name in alone.items():
        assert {n: c["math"] for n, c in by_name.items()} == {n: c["math"] for n, c in beside[kind].items()}
    assert alone != benchmarks({"math": candidates(seed=1)}, 5, count=3, seed=5)


def test_too_few_candidates() -> None:
    with pytest.raises(ValueError, match="'coding' has 8 candidates; 10 are needed"):
        benchmarks({"coding": candidates(8)}, 5)


def test_each_prompt_is_measured_once_and_serves_every_benchmark() -> None:
    made = {"uniform": {"u0": {"coding": (0, 2)}, "u1": {"coding": (2, 3)}}, "optimized": {"o0": {"coding": (5, 0)}}}
    rows = to_measure(made)
    assert rows == {"coding": (0, 2, 3, 5)}
    measured = {"coding": {0: 1.0, 2: 2.0, 3: 4.0, 5: 1.5}}
    assert category_al(made["uniform"], measured) == {"u0": {"coding": 1.5}, "u1": {"coding": 3.0}}
    with pytest.raises(ValueError, match="'o0', category 'coding': 1 of 2 rows have no AL, first row 5"):
        category_al(made["optimized"], {"coding": {0: 1.0}})


def test_tables() -> None:
    found = {
        "uniform": agreement(AL),
        "optimized": Agreement({"coding": 0.006, "math": 0.01, "roleplay": 0.02, "writing": 0.0}, (0.0, 0.018)),
    }
    table = range_table(found, 7)
    assert [row.cells for row in table.rows] == [
        ("roleplay", "33.3", "2.0"),
        ("writing", "16.1", "0.0"),
        ("math", "15.2", "1.0"),
        ("coding", "13.3", "0.6"),
    ]
    assert table.rows[0].record["uniform_relative_al_range"] == pytest.approx(1 / 3)
    assert table.caption == "DL 7"
    rankings = ranking_table({3: found, 7: found})
    assert [row.cells for row in rankings.rows][:2] == [("uniform", "3", "0.222", "0.333"), ("optimized", "3", "0.009", "0.018")]
    assert len(rankings.rows) == 4
    similar = similarity_table({"writing": {"random": 0.294, "greedy_swap": 0.18, "qp": 0.176}})
    assert similar.rows[0].cells == ("writing", "0.29", "0.18", "0.18")
    assert "greedy + swap" in similar.to_markdown()


def test_how_much_benchmarks_share_is_a_mean_over_pairs_and_categories() -> None:
    choices = {"a": {"x": (0, 1), "y": (0, 1)}, "b": {"x": (0, 1), "y": (1, 2)}, "c": {"x": (2, 3), "y": (4, 5)}}
    assert overlap(choices) == pytest.approx((2 + 1) / 2 / 6)
