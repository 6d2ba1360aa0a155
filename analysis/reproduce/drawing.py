"""The figures of a reproduction, in the layout of the paper's: one drawing function for throughput curves, lines over a setting and domains.

Colours, marks and whiskers are those of the report's figures. The paper gives no data of its figures, so only ours are drawn. Hollow
marks are not valid and no claim uses them. A simulated figure says so in its title.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.figures import BASELINE, FAINT, INK, MARKERS, PALETTE, heading, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Line:
    """One series. ``x``: values of an axis, or estimates; ``tags`` stand beside the marks; ``hollow`` marks are not valid."""

    name: str
    x: Sequence[float | Estimate]
    y: Sequence[Estimate]
    tags: Sequence[str] = ()
    hollow: Sequence[bool] = ()
    dashed: bool = False
    baseline: bool = False
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Axis:
    """``ticks``: value → its word. ``log``: to the base 2."""

    label: str
    ticks: Mapping[float, str] | None = None
    log: bool = False
    from_zero: bool = False


def line_figure(
    panels: Mapping[str, Sequence[Line]], title: str, x: Axis, y: Axis, *, simulated: bool = False, limit: tuple[float, str] | None = None
) -> Figure:
    """One panel each. ``limit``: a horizontal line with its meaning (AL 1, ratio 1)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line.name for lines in panels.values() for line in lines))
    style = _styles([line for lines in panels.values() for line in lines])
    count = max(len(panels), 1)
    columns = min(count, 3)
    rows = -(-count // columns)
    with house_style():
        figure = Figure(figsize=(4.6 * columns if columns > 1 else 7.0, 3.5 * rows + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        grid = list(figure.subplots(rows, columns, squeeze=False, sharey=not x.log and count > 1 and x.ticks is not None).flat)
        for ax in grid[count:]:
            ax.remove()
        for ax, (panel, lines) in zip(grid, panels.items(), strict=False):
            ax.set_title(panel, color=INK)
            if limit is not None:
                ax.axhline(limit[0], color=INK, linewidth=1, zorder=1)
            for k, line in enumerate(lines):
                shift = (k - (len(lines) - 1) / 2) * min(0.12, 0.6 / max(len(lines), 1)) if x.ticks is not None and not x.log else 0.0
                _draw(ax, line, style[line.name], shift)
            _dress(ax, lines, x, y)
            if not lines:
                ax.text(0.5, 0.5, "nothing measured", transform=ax.transAxes, ha="center", va="center", color=FAINT)
        heading(figure, title, simulated)
        _legend(figure, names, style, panels, limit)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


def _styles(lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    made: dict[str, tuple[str, str]] = {}
    drawn = 0
    for line in lines:
        if line.name in made:
            continue
        if line.baseline:
            made[line.name] = (BASELINE[0], MARKERS[sum(v[0] == BASELINE[0] for v in made.values()) % len(MARKERS)])
        else:
            made[line.name] = (PALETTE[drawn % len(PALETTE)], MARKERS[(drawn + 1 + drawn // len(PALETTE)) % len(MARKERS)])
            drawn += 1
    return made


def _draw(ax: Axes, line: Line, style: tuple[str, str], shift: float) -> None:
    at = [(v.value if isinstance(v, Estimate) else v) + shift for v in line.x]
    hollow = list(line.hollow) or [False] * len(at)
    if line.joined:
        shown = [math.nan if h else e.value for e, h in zip(line.y, hollow, strict=True)]
        ax.plot(at, shown, color=style[0], linewidth=1.3, linestyle=":" if line.dashed else "-", zorder=3)
    for value, place in zip(line.y, at, strict=True):
        _whisker(ax, value, place, style[0], upright=True)
    for place_x, e in zip(line.x, line.y, strict=True):
        if isinstance(place_x, Estimate):
            _whisker(ax, place_x, e.value, style[0], upright=False)
    for place, e, empty in zip(at, line.y, hollow, strict=True):
        ax.plot(
            [place], [e.value], linestyle="", marker=style[1], markersize=6, markerfacecolor="white" if empty else style[0],
            markeredgecolor=style[0], markeredgewidth=1.3, zorder=4,
        )  # fmt: skip
    for tag, place, e in zip(line.tags, at, line.y, strict=False):
        ax.annotate(tag, (place, e.value), (0, 7), textcoords="offset points", ha="center", fontsize=7.5, color=style[0], zorder=5)


def _whisker(ax: Axes, value: Estimate, at: float, colour: str, *, upright: bool) -> None:
    if value.low is None or value.high is None:
        return
    ends, place = [value.low, value.high], [at, at]
    ax.plot(*((place, ends) if upright else (ends, place)), color=colour, linewidth=1.1, alpha=0.6, zorder=2, solid_capstyle="butt")


def _dress(ax: Axes, lines: Sequence[Line], x: Axis, y: Axis) -> None:
    ax.set_xlabel(x.label)
    ax.set_ylabel(y.label)
    if x.log:
        ax.set_xscale("log", base=2)
    if x.ticks is not None:
        slanted = max((len(t) for t in x.ticks.values()), default=0) > 7
        ax.set_xticks(list(x.ticks), list(x.ticks.values()), rotation=30 if slanted else 0, ha="right" if slanted else "center")
        ax.minorticks_off()
        if not x.log:
            ax.set_xlim(min(x.ticks, default=0) - 0.6, max(x.ticks, default=0) + 0.6)
    for axis, values, limits in ((y, [e for line in lines for e in line.y], ax.set_ylim), (x, _estimates(lines), ax.set_xlim)):
        if axis.from_zero and values:
            limits(0, 1.08 * max(e.high if e.high is not None else e.value for e in values))


def _estimates(lines: Sequence[Line]) -> list[Estimate]:
    return [v for line in lines for v in line.x if isinstance(v, Estimate)]


def _legend(
    figure: Figure,
    names: Sequence[str],
    style: Mapping[str, tuple[str, str]],
    panels: Mapping[str, Sequence[Line]],
    limit: tuple[float, str] | None,
) -> None:
    from matplotlib.lines import Line2D

    drawn = {line.name: line for lines in panels.values() for line in lines}
    handles = []
    for name in names:
        line = drawn[name]
        kind: Literal["", ":", "-"] = "" if not line.joined else ":" if line.dashed else "-"
        handles.append(Line2D([], [], color=style[name][0], marker=style[name][1], markersize=6, linestyle=kind, linewidth=1.3, label=name))
    if any(line.tags for line in drawn.values()):
        handles.append(Line2D([], [], color=FAINT, marker="$8$", linestyle="", markersize=6, label="number: batch size"))
    if any(any(line.hollow) for lines in panels.values() for line in lines):
        hollow = Line2D([], [], marker="o", linestyle="", markersize=6, markerfacecolor="white", markeredgecolor=FAINT)
        hollow.set_label("hollow: not valid, not used")
        handles.append(hollow)
    if limit is not None:
        handles.append(Line2D([], [], color=INK, linewidth=1, label=limit[1]))
    if handles:
        widest = 0.65 + 0.072 * max(len(str(h.get_label())) for h in handles)  # inches at this font size
        columns = max(1, min(len(handles), int((figure.get_figwidth() - 0.2) // widest)))
        figure.legend(
            handles=handles, loc="outside lower left", ncols=columns, fontsize=8.5, handlelength=1.8, columnspacing=1.6, frameon=False,
            labelcolor=INK,
        )  # fmt: skip
