"""Similarity of data sets: averages by hand, one scale for what is compared, figures that draw and are the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specsweep.analysis.selection import normalised
from specsweep.analysis.similarity import (
    LARGEST,
    Bar,
    by_category,
    category_figure,
    colour_range,
    matrix_figure,
    similarity_matrix,
    write_figure,
)

X = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-0.6, 0.8]])


def test_matrix_holds_the_cosine_of_each_pair() -> None:
    assert similarity_matrix(X)[:3, :3] == pytest.approx(np.array([[1, 0.6, 0], [0.6, 1, 0.8], [0, 0.8, 1]]))


def test_matrices_that_nobody_could_look_at() -> None:
    for rows in (1, LARGEST + 1):
        with pytest.raises(ValueError, match=f"2 to {LARGEST} rows"):
            similarity_matrix(np.ones((rows, 1)))


def test_average_by_category() -> None:
    assert by_category(X, ["a", "b", "a", "a"]) == pytest.approx({"a": (0 - 0.6 + 0.8) / 3})  # b has no pair
    with pytest.raises(ValueError, match="4 embeddings and 2 categories"):
        by_category(X, ["a", "b"])


def test_one_scale_for_all_and_no_word_of_the_diagonal() -> None:
    low = similarity_matrix(X[:2])
    high = similarity_matrix(X[1:3])
    assert colour_range([low, high]) == pytest.approx((0, 0.8))
    assert colour_range([similarity_matrix(X)])[0] == pytest.approx(-0.6)
    assert colour_range([np.eye(3)]) == (0, 1)
    figure = matrix_figure({"one": low, "two": high}, "Similarity")
    images = [image for ax in figure.axes for image in ax.images]
    assert [image.get_clim() for image in images] == [pytest.approx((0, 0.8))] * 2
    assert "average 0.600, 2 prompts" in figure.axes[0].get_title(loc="left")


def test_figures_are_written_the_same_each_time(tmp_path: Path) -> None:
    x = normalised(np.random.default_rng(0).standard_normal((12, 4)))
    files = [write_figure(matrix_figure({"all": similarity_matrix(x)}, "Similarity"), tmp_path / run, "matrix") for run in "ab"]
    assert [path.name for path in files[0]] == ["matrix.png", "matrix.svg"]
    for first, second in zip(*files, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_category_figure_has_a_mark_for_each_value_and_a_gap_for_none() -> None:
    figure = category_figure({"uniform": {"math": Bar(0.2, 0.1, 0.3), "rag": Bar(0.1)}, "chosen": {"rag": Bar(0.05)}}, "Average")
    (ax,) = figure.axes
    marks = {line.get_label(): list(line.get_ydata()) for line in ax.lines if line.get_marker() != "None"}
    assert marks == {"uniform": [0.2, 0.1], "chosen": [0.05]}
    assert [t.get_text() for t in ax.get_xticklabels()] == ["math", "rag"]
    with pytest.raises(ValueError, match="no category"):
        category_figure({}, "Average")
    with pytest.raises(ValueError, match="no similarity matrix"):
        matrix_figure({}, "Similarity")


def test_prompts_of_a_small_matrix_are_counted_whole() -> None:
    for prompts in (3, 20):
        drawn = matrix_figure({"a": similarity_matrix(np.eye(prompts, 4) + 1)}, "t")
        drawn.canvas.draw()  # places the ticks
        ticks = [*drawn.axes[0].get_xticks(), *drawn.axes[0].get_yticks()]
        assert ticks == [round(tick) for tick in ticks]
