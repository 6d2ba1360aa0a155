"""How alike the prompts of a data set are: similarity matrices (Figures 9 and 10 of the SPEED-Bench paper) and averages by category (Figure 2).

Matrices that are compared share one colour scale, or a pale panel could be the one with the higher values. It starts at 0 (or at the
lowest value, where some are negative), ends at the highest value off the diagonals, and says nothing about the diagonals, which
are 1 whatever the prompts are: they are drawn in grey. Prompts stay in the order of the data set, as in the paper; its dense blocks
are neighbours from one source. Large sets are drawn as they are, a pixel a pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsweep.analysis.figures import FAINT, INK, PALETTE, house_style, write_png
from specsweep.analysis.selection import Floats, average_similarity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 2_000  # rows of a matrix that is drawn: 32 MB, and more pixels than any screen has
RAMP = ("#F7F9FB", "#9CC6E3", "#0072B2", "#0B2E4F")  # light to dark in the palette's blue: order survives grey print and colour blindness


@dataclass(frozen=True, slots=True)
class Bar:
    """Average similarity of one category, with the range of several choices where it is a mean over them."""

    value: float
    low: float | None = None
    high: float | None = None


def similarity_matrix(x: ArrayLike) -> Floats:
    """(n, n) cosine similarities of unit rows. Raises ``ValueError`` beyond :data:`LARGEST` rows, which nobody could look at."""
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2 or not 2 <= len(rows) <= LARGEST:
        raise ValueError(f"a similarity matrix is made of 2 to {LARGEST} rows, not of a shape {rows.shape}; choose a subset")
    return np.asarray(rows @ rows.T)


def by_category(x: ArrayLike, categories: Sequence[str]) -> dict[str, float]:
    """Average pairwise similarity within each category, in order of first appearance; a category with one row has none and is left out."""
    rows = np.asarray(x)
    if len(rows) != len(categories):
        raise ValueError(f"{len(rows)} embeddings and {len(categories)} categories: one of each a prompt is needed")
    members: dict[str, list[int]] = {}
    for i, category in enumerate(categories):
        members.setdefault(category, []).append(i)
    return {category: average_similarity(rows, indices) for category, indices in members.items() if len(indices) > 1}


def matrix_figure(matrices: Mapping[str, Floats], title: str) -> Figure:
    """One panel a set, side by side, with one colour scale; below its name the average over its pairs."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    if not matrices:
        raise ValueError("no similarity matrix to draw")
    low, high = colour_range(list(matrices.values()))
    colours = LinearSegmentedColormap.from_list("similarity", RAMP).with_extremes(bad="#BDBDBD")
    with house_style():
        figure, axes = _panels(len(matrices), title)
        for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
            n = len(matrix)
            shown = np.ma.array(matrix, mask=np.eye(n, dtype=bool))
            image = ax.imshow(shown, cmap=colours, vmin=low, vmax=high, interpolation="nearest", aspect="equal")
            ax.set_title(f"{name}\naverage {float(shown.mean()):.3f}, {n} prompts", color=INK)
            ax.grid(False)
            ax.spines[:].set_visible(False)
            for axis in (ax.xaxis, ax.yaxis):  # a prompt has a whole number, in a small matrix too
                axis.set_major_locator(MaxNLocator(integer=True))
            ax.set_xlabel("prompt")
        axes[0].set_ylabel("prompt")
        figure.colorbar(image, ax=axes, label="cosine similarity", shrink=0.8)
    return figure


def colour_range(matrices: Sequence[Floats]) -> tuple[float, float]:
    """The scale that the matrices share: from 0, or the lowest value if that is below, to the highest off the diagonals."""
    off = [matrix[~np.eye(len(matrix), dtype=bool)] for matrix in matrices]
    low, high = min(0.0, *(float(v.min()) for v in off)), max(float(v.max()) for v in off)
    return low, high if high > low else low + 1.0


def category_figure(bars: Mapping[str, Mapping[str, Bar]], title: str) -> Figure:
    """Average similarity by category, one mark a selection (selection → category → value); whiskers where a range is given."""
    categories = list(dict.fromkeys(c for by_name in bars.values() for c in by_name))
    if not categories:
        raise ValueError("no category to draw")
    with house_style():
        figure, (ax,) = _panels(1, title, width=max(5.0, 1.6 + 0.8 * len(categories)), height=3.6)
        for n, (name, by_name) in enumerate(bars.items()):
            _marks(ax, [by_name.get(c) for c in categories], (n - (len(bars) - 1) / 2) * 0.18, name, n)
        ax.set_xticks(range(len(categories)), categories, rotation=30, ha="right")
        ax.set_xlim(-0.6, len(categories) - 0.4)
        ax.grid(False, axis="x")
        ax.axhline(0, color=FAINT, linewidth=0.8)
        ax.set_ylabel("average cosine similarity")
        figure.legend(loc="outside lower left", ncols=len(bars), frameon=False, fontsize=8.5, labelcolor=INK)
    return figure


def write_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """``name``.png and ``name``.svg in ``folder``; the same figure is the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    svg = folder / f"{name}.svg"
    with house_style():
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    return [write_png(figure, folder / f"{name}.png"), svg]


def _marks(ax: Axes, bars: Sequence[Bar | None], shift: float, name: str, n: int) -> None:
    from specsweep.analysis.figures import MARKERS

    colour = PALETTE[n % len(PALETTE)]
    known = [(i + shift, bar) for i, bar in enumerate(bars) if bar is not None]
    for at, bar in known:
        if bar.low is not None and bar.high is not None:
            ax.plot([at, at], [bar.low, bar.high], color=colour, linewidth=1.3, alpha=0.6, zorder=2)
    ax.plot(
        [at for at, _ in known],
        [b.value for _, b in known],
        linestyle="",
        marker=MARKERS[n % len(MARKERS)],
        markersize=6,
        color=colour,
        label=name,
    )


def _panels(count: int, title: str, *, width: float = 3.6, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(count, 3)
    lines = math.ceil(count / columns)
    figure = Figure(figsize=(width * columns + (1.2 if count > 1 or width < 4 else 0), height * lines + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.remove()
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    return figure, axes[:count]
