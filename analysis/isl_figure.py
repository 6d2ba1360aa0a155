"""Input lengths of data sets by category: for each the middle half, the whole range, median and mean.

The scale is logarithmic where lengths differ much: a category of questions of ten tokens stands beside one of whole documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specsweep.analysis.figures import INK, MARKERS, PALETTE, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDE = 20  # longest over shortest, beyond which the scale is logarithmic


def isl_figure(lengths: Mapping[str, Mapping[str, Sequence[int]]], title: str = "Input sequence length by category") -> Figure:
    """``lengths``: data set → category → tokens of its prompts. Raises ``ValueError`` if there is not one length."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    categories = list(dict.fromkeys(c for by_name in lengths.values() for c, isl in by_name.items() if isl))
    if not categories:
        raise ValueError("no input length to draw")
    with house_style():
        figure = Figure(figsize=(max(5.0, 1.6 + 0.8 * len(categories)), 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.subplots()
        for n, (name, by_category) in enumerate(lengths.items()):
            shift = (n - (len(lengths) - 1) / 2) * 0.22
            _spans(ax, {i + shift: by_category.get(c, ()) for i, c in enumerate(categories)}, name, n)
        everything = [tokens for by_name in lengths.values() for isl in by_name.values() for tokens in isl]
        if max(everything) > _WIDE * max(min(everything), 1):
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter(lambda tokens, _: f"{tokens:,.0f}")
        else:
            ax.set_ylim(0, 1.06 * max(everything))
        ax.set_xticks(range(len(categories)), categories, rotation=30, ha="right")
        ax.set_xlim(-0.6, len(categories) - 0.4)
        ax.grid(False, axis="x")
        ax.set_ylabel("tokens (o200k_base)")
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
        handles, labels = ax.get_legend_handles_labels()
        handles += [ax.plot([], [], color=INK, linestyle="", marker="_", markersize=9, markeredgewidth=1.6)[0]]
        figure.legend(
            handles, [*labels, "mean"], loc="outside lower left", ncols=len(labels) + 1, fontsize=8.5, frameon=False, labelcolor=INK
        )
    return figure


def _spans(ax: Axes, lengths: Mapping[float, Sequence[int]], name: str, n: int) -> None:
    colour = PALETTE[n % len(PALETTE)]
    known = {at: np.asarray(isl, dtype=np.float64) for at, isl in lengths.items() if isl}
    for at, isl in known.items():
        low, high = np.quantile(isl, [0.25, 0.75])
        ax.plot([at, at], [isl.min(), isl.max()], color=colour, linewidth=1.0, alpha=0.55, zorder=2)
        ax.plot([at, at], [low, high], color=colour, linewidth=6, alpha=0.45, solid_capstyle="butt", zorder=2)
    medians = [float(np.median(isl)) for isl in known.values()]
    label = f"{name}: median, middle half, range"
    ax.plot(list(known), medians, linestyle="", marker=MARKERS[n % len(MARKERS)], markersize=6, color=colour, label=label, zorder=4)
    means = [float(isl.mean()) for isl in known.values()]
    ax.plot(list(known), means, linestyle="", marker="_", markersize=9, markeredgewidth=1.6, color=INK, zorder=3)
