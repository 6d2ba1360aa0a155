"""Prompts in one order: what is shrunk, what is pooled, what is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Cell
from specsweep.analysis.spectrum import shrunk, shrunk_nats, spectrum, spectrum_figure


def cell(
    workload: str, als: dict[str, float], *, drafter: str = "eagle3", batch_size: int = 1, valid: bool = True, steps: int = 200
) -> Cell:
    axes = {
        "engine": "sim",
        "target": "t",
        "drafter": drafter,
        "draft_length": 3,
        "batch_size": batch_size,
        "isl": 256,
        "workload": workload,
    }
    rows = [{"conversation_id": name, "category": workload, "steps": steps, "step_tokens": round(al * steps)} for name, al in als.items()]
    attempt: dict[str, Any] = {
        "point": {"point_id": f"{workload}{drafter}{batch_size}", "axes": axes, "status": "measured"},
        "measurement": {"per_conversation": rows, "validity": dict.fromkeys(("acceptance", "valid", "tps"), valid), "checks": []},
    }
    return Cell(axes, (attempt,))


def test_prompts_of_all_tiers_stand_in_one_order() -> None:
    found = spectrum([cell("low", {"a": 3.5, "b": 2.6}), cell("high", {"c": 1.2, "d": 2.8})])
    assert [p.prompt_id for p in found] == ["c", "b", "d", "a"]
    assert [p.place for p in found] == [0.125, 0.375, 0.625, 0.875]
    assert [p.category for p in found] == ["high", "low", "high", "low"]


def test_places_are_averaged_over_drafters_and_batch_sizes_count_once() -> None:
    one = cell("low", {"a": 1.2, "b": 2.0, "c": 3.0})
    other = cell("low", {"a": 1.5, "b": 1.2, "c": 2.0}, drafter="ngram")
    found = spectrum([one, cell("low", {"a": 3.9, "b": 1.1, "c": 1.2}, batch_size=8), other])
    assert [(p.prompt_id, round(p.place, 3), len(p.values)) for p in found] == [("a", 0.333, 2), ("b", 0.333, 2), ("c", 0.833, 2)]
    assert found[2].spread == 0


def test_what_drafts_nothing_or_is_not_valid_says_nothing() -> None:
    assert spectrum([cell("low", {"a": 1.0}, drafter="none"), cell("low", {"a": 2.0}, valid=False)]) == []


def test_a_prompt_of_a_few_steps_is_not_put_at_the_end_by_chance() -> None:
    steps, tokens = [400.0, 400.0, 400.0, 4.0], [800.0, 1000.0, 1200.0, 16.0]
    values = shrunk(steps, tokens)
    assert values[:3] == pytest.approx([2.0, 2.5, 3.0], abs=0.05)
    assert 2.5 < values[3] < 3.4, "its own mean is 4"


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(1, 8)), min_size=1, max_size=30))
def test_shrinking_never_passes_the_common_mean(rows: list[tuple[int, float]]) -> None:
    steps = np.array([n for n, _ in rows], dtype=float)
    tokens = np.array([n * al for n, al in rows])
    common = tokens.sum() / steps.sum()
    means, values = tokens / steps, shrunk(steps.tolist(), tokens.tolist())
    assert np.all((values - common) * (means - common) >= -1e-9)
    assert np.all(np.abs(values - common) <= np.abs(means - common) + 1e-9)


def test_the_figure_says_that_numbers_are_simulated() -> None:
    found = spectrum([cell("low", {"a": 3.5, "b": 2.6}), cell("high", {"c": 1.2})])
    assert spectrum_figure(found, "Prompts", simulated=True).axes[0].get_title(loc="left").startswith("SIMULATED – ")


def test_surprisal_is_drawn_by_the_variance_within_answers() -> None:
    """Three long answers and one of four tokens, each token 0 or twice the mean: the variance of a token is its mean squared."""
    tokens, means = [400.0, 400.0, 400.0, 4.0], [0.5, 1.0, 1.5, 4.0]
    values = shrunk_nats(
        tokens, [n * m for n, m in zip(tokens, means, strict=True)], [2 * n * m * m for n, m in zip(tokens, means, strict=True)]
    )
    assert values[:3] == pytest.approx([0.5, 1.0, 1.5], abs=0.05)
    assert 1.0 < values[3] < 2.5
    exact = shrunk_nats(
        tokens, [n * m for n, m in zip(tokens, means, strict=True)], [n * m * m for n, m in zip(tokens, means, strict=True)]
    )
    assert exact == pytest.approx(means), "answers whose tokens are all alike leave nothing to chance"


@given(st.lists(st.lists(st.floats(0, 20), min_size=1, max_size=20), min_size=1, max_size=12))
def test_surprisal_never_passes_the_common_mean_and_stays_possible(answers: list[list[float]]) -> None:
    n, sums = np.array([len(a) for a in answers], dtype=float), np.array([sum(a) for a in answers])
    common, means = sums.sum() / n.sum(), sums / n
    values = shrunk_nats(n.tolist(), sums.tolist(), [sum(x * x for x in a) for a in answers])
    assert np.all((values - common) * (means - common) >= -1e-9)
    assert np.all(np.abs(values - common) <= np.abs(means - common) + 1e-9)
    assert np.all(values >= -1e-9)
