"""The draft-length map as a heat map: batch size to the right, ISL upwards, colour and number the best draft length, ties hatched.

Draft lengths are an order, so their colours are the steps of one sequential scale and *none* is grey; the number says the same once more. A
hatched cell is a tie, with all its members written below the best. A place without a valid point is left white and crossed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.draft_length_map import GOALS, Choice, DraftLengthMap, length_text
from specsweep.analysis.figures import FAINT, INK, heading, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NONE_COLOUR = "#D9D9D9"
SCALE = ("#DCE9F5", "#A9CCE8", "#6BAAD6", "#2F82BE", "#0B559F", "#08306B")  # light to dark
_HATCH = "#5C6B7A"
MOST_COLUMNS = 2


def map_figure(maps: Sequence[DraftLengthMap]) -> Figure:
    """One panel a map. Raises ``ValueError`` for none, or for maps of different goals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if len({m.goal for m in maps}) != 1:
        raise ValueError("draft-length maps of one goal are needed, at least one")
    lengths = sorted({c.draft_length for m in maps for c in m.choices})
    colours = _colours(lengths)
    columns = min(MOST_COLUMNS, len(maps))
    lines = math.ceil(len(maps) / columns)
    cells = max(len(m.batch_sizes) for m in maps)
    rows = max(len(m.isls) for m in maps)
    with house_style():
        figure = Figure(figsize=(columns * max(4.6, 1.3 + 0.85 * cells), lines * (1.25 + 0.72 * rows) + 0.8), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(lines, columns, squeeze=False)
        for ax, m in zip(axes.flat, maps, strict=False):
            _panel(ax, m, colours)
        for ax in axes.flat[len(maps) :]:
            ax.set_axis_off()
        title = f"Best draft length by batch size and ISL ({GOALS[maps[0].goal][1]})"
        simulated = any(m.simulated for m in maps)
        heading(figure, title, simulated)
        _legend(figure, lengths, colours, tied=any(c.tied for m in maps for c in m.choices))
    return figure


def _colours(lengths: Sequence[int]) -> dict[int, str]:
    drafted = [n for n in lengths if n]
    step = (len(SCALE) - 1) / max(len(drafted) - 1, 1)
    return {0: NONE_COLOUR} | {n: SCALE[round(i * step) if len(drafted) > 1 else 2] for i, n in enumerate(drafted)}


def _panel(ax: Axes, m: DraftLengthMap, colours: dict[int, str]) -> None:
    from matplotlib.patches import Rectangle

    sizes, isls = m.batch_sizes, m.isls
    for y, isl in enumerate(isls):
        for x, batch_size in enumerate(sizes):
            choice = m.at.get((batch_size, isl))
            corner = (x - 0.5, y - 0.5)
            if choice is None:
                ax.add_patch(Rectangle(corner, 1, 1, facecolor="white", edgecolor="white", linewidth=2))
                ax.text(x, y, "×", ha="center", va="center", color=FAINT, fontsize=11)
                continue
            colour = colours[choice.draft_length]
            ax.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", linewidth=2))
            if choice.tied:
                lines = "white" if _dark(colour) else _HATCH
                ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=lines, linewidth=0, hatch="////", alpha=0.6))
            _write(ax, x, y, choice, colour)
    ax.set_xlim(-0.5, len(sizes) - 0.5)
    ax.set_ylim(-0.5, len(isls) - 0.5)
    ax.set_xticks(range(len(sizes)), [str(b) for b in sizes])
    ax.set_yticks(range(len(isls)), [format_axis(isl, "isl") for isl in isls])
    ax.tick_params(length=0)
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_xlabel("batch size")
    ax.set_ylabel("ISL")
    ax.set_title(m.label, fontsize=9, loc="left")


def _write(ax: Axes, x: int, y: int, choice: Choice, colour: str) -> None:
    ink = "white" if _dark(colour) else INK
    box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
    gain = "" if choice.over_none is None or not choice.draft_length else f"×{choice.over_none.value:.2f}"
    below = f"tie: {_short(choice)}" if choice.tied else "only one" if choice.alone else gain
    ax.text(x, y + 0.1, length_text(choice.draft_length), ha="center", va="center", color=ink, fontsize=11, fontweight="bold", bbox=box)
    if below:
        ax.text(x, y - 0.26, below, ha="center", va="center", color=ink, fontsize=7.5, bbox=box)


def _short(choice: Choice) -> str:
    names = [length_text(n) for n in choice.ties]
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} … {names[-1]}"


def _dark(colour: str) -> bool:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 130


def _legend(figure: Figure, lengths: Sequence[int], colours: dict[int, str], *, tied: bool) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colours[n], label=f"DL {n}" if n else "none") for n in lengths]
    if tied:
        handles.append(Patch(facecolor="white", edgecolor=_HATCH, linewidth=0, hatch="////", label="tie: others are not shown to be worse"))
    handles.append(Patch(alpha=0, label="×: over none"))
    figure.legend(handles=handles, loc="outside lower left", ncols=min(len(handles), 8), fontsize=8.5, frameon=False, labelcolor=INK)
