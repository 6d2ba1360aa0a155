"""The figures of a sweep, drawn on figure objects of their own: nothing touches pyplot or its global state.

Every figure is a pure function from rows to a :class:`matplotlib.figure.Figure`; :func:`svg` and :func:`write_png` are the only
ways out. matplotlib is imported when the first figure is made, because importing it costs more than a small report. A colour and
a marker belong to a series in all figures of a report; the palette is Okabe and Ito's, which colour-blind readers can tell
apart, and the marker says the same once more. Hollow marks are points whose numbers are not valid. A sweep with simulated
numbers says SIMULATED in every title.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.analysis.attempts import Cell, Estimate
from specsweep.analysis.pareto import ParetoPoint
from specsweep.analysis.speedup import Speedup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#8C564B")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
BASELINE = ("#4D4D4D", "o")
INK, FAINT, BAND = "#222222", "#8A8A8A", "#F2D16B"
_AXIS, _GRID, _TICK, _WARN = "#9A9A9A", "#E6E6E6", "#555555", "#B00020"
PNG_DPI = 200
CROWDED = 24  # marks in one panel
_RC: Any = {  # Any: matplotlib's stubs want a Literal of every key
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _AXIS,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "xtick.color": _TICK,
    "ytick.color": _TICK,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "specsweep",  # the same figure is the same file
}

# How the colours of a figure are called in the page that shows it.
_CSS = {
    **{colour: f"--c{i}" for i, colour in enumerate(PALETTE)},
    BASELINE[0]: "--baseline",
    INK: "--ink",
    FAINT: "--faint",
    BAND: "--band",
    _AXIS: "--axis",
    _GRID: "--grid",
    _TICK: "--tick",
    _WARN: "--warn",
    "#ffffff": "--page",
}

Style = tuple[str, str]  # colour, marker


def house_style() -> AbstractContextManager[None]:
    """matplotlib's settings under which every figure is made and written."""
    import matplotlib

    return matplotlib.rc_context(_RC)


def styles(series: Sequence[tuple[str, str, bool]]) -> dict[str, Style]:
    """A colour and a marker for each (series, family, is baseline), in order of appearance; baselines are grey.

    Up to eight series have a colour each. Beyond that a family (one drafter at all its draft lengths) shares a colour and the
    marker tells its members apart, as long as that is unambiguous.
    """
    made: dict[str, Style] = {}
    baselines = list(dict.fromkeys(name for name, _, baseline in series if baseline))
    for i, name in enumerate(baselines):
        made[name] = (BASELINE[0], MARKERS[i % len(MARKERS)])
    others = {name: family for name, family, baseline in series if not baseline}
    families: dict[str, list[str]] = {}
    for name, family in others.items():
        families.setdefault(family, []).append(name)
    by_family = len(others) > len(PALETTE) >= len(families) and all(len(m) <= len(MARKERS) for m in families.values())
    for i, (name, family) in enumerate(others.items()):
        if by_family:
            made[name] = (PALETTE[list(families).index(family)], MARKERS[families[family].index(name)])
        else:
            made[name] = (PALETTE[i % len(PALETTE)], MARKERS[(i + 1 + i // len(PALETTE)) % len(MARKERS)])
    return made


def pareto_figure(points: Sequence[ParetoPoint], style: Mapping[str, Style], *, simulated: bool = False) -> Figure:
    """One panel a workload: output TPS against TPS per user, a line along each series' batch sizes, the frontier over all as a band."""
    panels = list(dict.fromkeys(p.panel for p in points))
    figure, axes = _grid(panels, "Throughput against speed per user", simulated, height=3.6)
    placed: list[tuple[Axes, Sequence[ParetoPoint]]] = []
    for ax, panel in zip(axes, panels, strict=True):
        members = [p for p in points if p.panel == panel]
        _frontier_line(ax, [p for p in members if p.state == "frontier"])
        for series in dict.fromkeys(p.series for p in members):
            _pareto_series(ax, [p for p in members if p.series == series], style[series])
        placed.append((ax, members))
        ax.set_xlabel("tokens/s per user")
        ax.set_ylabel("output tokens/s")
        _from_zero(ax, [p for p in members if p.state != "invalid"])
    marks = {"frontier": any(p.state == "frontier" for p in points), "invalid": any(p.state == "invalid" for p in points)}
    _legend(figure, list(dict.fromkeys(p.series for p in points)), style, batch_size=True, **marks)
    _settle(figure)
    _label_batch_sizes(placed, style)
    return figure


def _pareto_series(ax: Axes, members: Sequence[ParetoPoint], style: Style) -> None:
    line = sorted(members, key=lambda p: p.cell.batch_size)
    valid = [p.state != "invalid" for p in line]
    x, y = [p.x.value for p in line], [p.y.value for p in line]
    ax.plot(_gaps(x, valid), _gaps(y, valid), color=style[0], linewidth=1.3, zorder=3)
    _whiskers(ax, [(p.x, p.y.value) for p in line], style[0], along="x")
    _whiskers(ax, [(p.y, p.x.value) for p in line], style[0], along="y")
    _marks(ax, x, y, [not v for v in valid], style)


def _gaps(values: Sequence[float], shown: Sequence[bool]) -> list[float]:
    """A line breaks where a value may not be shown: drawing through it would look like a measurement."""
    return [v if s else math.nan for v, s in zip(values, shown, strict=True)]


def _whiskers(
    ax: Axes, spots: Sequence[tuple[Estimate, float]], colour: str, *, along: str, width: float = 1.0, alpha: float = 0.55
) -> None:
    """All intervals of a series as one broken line: an artist for each would make a report of hundreds of points slow."""
    run: list[float] = []
    fixed: list[float] = []
    for value, at in spots:
        if value.low is not None and value.high is not None:
            run += [value.low, value.high, math.nan]
            fixed += [at, at, math.nan]
    ax.plot(*((run, fixed) if along == "x" else (fixed, run)), color=colour, linewidth=width, alpha=alpha, zorder=2, solid_capstyle="butt")


def _marks(ax: Axes, x: Sequence[float], y: Sequence[float], hollow: Sequence[bool], style: Style) -> None:
    for empty in (False, True):
        spots = [(a, b) for a, b, h in zip(x, y, hollow, strict=True) if h is empty]
        if spots:
            ax.plot(
                *zip(*spots, strict=True),
                linestyle="",
                marker=style[1],
                markersize=6,
                markerfacecolor="white" if empty else style[0],
                markeredgecolor=style[0],
                markeredgewidth=1.3,
                zorder=4,
            )


def _frontier_line(ax: Axes, front: Sequence[ParetoPoint]) -> None:
    front = sorted(front, key=lambda p: p.x.value)
    if front:
        ax.plot(
            [p.x.value for p in front], [p.y.value for p in front], color=BAND, linewidth=7, alpha=0.75, solid_capstyle="round", zorder=1
        )


def _settle(figure: Figure) -> None:
    """Lays the figure out once and keeps that: every output would do it again, and it costs as much as drawing."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _label_batch_sizes(panels: Sequence[tuple[Axes, Sequence[ParetoPoint]]], style: Mapping[str, Style]) -> None:
    """The batch size beside each mark, in the series' colour, where it hides neither a mark nor another number.

    Works in pixels, so it needs the final layout; a number that finds no free place is left out, its neighbours on the line tell it.
    Where a panel is crowded only the frontier is numbered.
    """
    for ax, members in panels:
        pixel = ax.figure.dpi / 72
        spots = [ax.transData.transform((p.x.value, p.y.value)) for p in members]
        taken = [_box(float(x), float(y), 4 * pixel, 4 * pixel) for x, y in spots]
        numbered = members if len(members) <= CROWDED else [p for p in members if p.state == "frontier"]
        for p in sorted(numbered, key=lambda p: (p.state != "frontier", -p.y.value)):
            text = str(p.cell.batch_size)
            x, y = ax.transData.transform((p.x.value, p.y.value))
            half_width = 2.6 * len(text) * pixel
            for dx, dy in ((0, 11), (9, 7), (-9, 7), (10, -6), (-10, -6), (0, -11)):
                box = _box(x + dx * pixel, y + dy * pixel, half_width, 4 * pixel)
                if not any(_overlap(box, other) for other in taken):
                    taken.append(box)
                    ax.annotate(
                        text, (p.x.value, p.y.value), (dx, dy), textcoords="offset points", ha="center", va="center",
                        fontsize=7.5, color=style[p.series][0], zorder=5,
                    )  # fmt: skip
                    break


Box = tuple[float, float, float, float]  # left, bottom, right, top


def _box(x: float, y: float, half_width: float, half_height: float) -> Box:
    return x - half_width, y - half_height, x + half_width, y + half_height


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def speedup_figure(
    rows: Sequence[Speedup],
    style: Mapping[str, Style],
    panel_of: Mapping[str, str],
    series_of: Mapping[str, str],
    *,
    simulated: bool = False,
) -> Figure:
    """User TPS ratio over batch size, one panel a workload, with a line at 1. Hollow: the interval includes 1, nothing is shown."""
    known = [r for r in rows if r.user_tps is not None]
    panels = list(dict.fromkeys(panel_of[r.cell.key] for r in known))
    figure, axes = _grid(panels, "Speedup over no drafter, tokens/s per user", simulated, height=3.2, share_y=True)
    sizes = sorted({r.cell.batch_size for r in known})
    names = list(dict.fromkeys(series_of[r.cell.key] for r in known))
    for ax, panel in zip(axes, panels, strict=True):
        ax.axhline(1, color=INK, linewidth=1, zorder=1)
        for k, series in enumerate(names):
            members = sorted(
                (r for r in known if panel_of[r.cell.key] == panel and series_of[r.cell.key] == series), key=lambda r: r.cell.batch_size
            )
            _speedup_series(ax, members, sizes, (k - (len(names) - 1) / 2) * min(0.12, 0.6 / max(len(names), 1)), style[series])
        ax.set_xticks(range(len(sizes)), [str(s) for s in sizes])
        ax.set_xlim(-0.5, len(sizes) - 0.5)
        ax.grid(False, axis="x")
        ax.set_xlabel("batch size (requests in flight)")
        ax.set_ylabel("speedup (ratio)")
        ax.label_outer()
    _legend(figure, names, style, tie=any(r.verdict == "not shown" for r in known))
    _settle(figure)
    return figure


def _speedup_series(ax: Axes, members: Sequence[Speedup], sizes: Sequence[int], shift: float, style: Style) -> None:
    by_size = {r.cell.batch_size: r for r in members if r.user_tps is not None}
    known = [(i + shift, by_size[bs].user_tps, by_size[bs].verdict) for i, bs in enumerate(sizes) if bs in by_size]
    ratios = {bs: r.user_tps.value for bs, r in by_size.items() if r.user_tps is not None}
    line = [ratios.get(bs, math.nan) for bs in sizes]
    ax.plot([i + shift for i in range(len(sizes))], line, color=style[0], linewidth=1, alpha=0.6, zorder=2)
    _whiskers(ax, [(e, x) for x, e, _ in known if e is not None], style[0], along="y", width=1.6, alpha=1)
    hollow = [word == "not shown" for _, _, word in known]
    _marks(ax, [x for x, _, _ in known], [e.value for _, e, _ in known if e is not None], hollow, style)


def acceptance_figure(
    cells: Sequence[Cell], style: Mapping[str, Style], panel_of: Mapping[str, str], series_of: Mapping[str, str], *, simulated: bool = False
) -> Figure:
    """Conditional acceptance rate by draft position, one panel a workload, one line a series (its smallest batch size)."""
    panels = list(dict.fromkeys(panel_of[c.key] for c in cells))
    figure, axes = _grid(panels, "Acceptance rate by draft position", simulated, height=3.0, share_y=True)
    names = list(dict.fromkeys(series_of[c.key] for c in cells))
    for ax, panel in zip(axes, panels, strict=True):
        members = [c for c in cells if panel_of[c.key] == panel]
        for cell in members:
            shift = (names.index(series_of[cell.key]) - (len(names) - 1) / 2) * min(0.1, 0.5 / len(names))
            _acceptance_series(ax, cell, shift, style[series_of[cell.key]])
        longest = max((int(c.axes.get("draft_length") or 1) for c in members), default=1)
        every = max(1, -(-longest // 16))
        ax.set_xticks(range(1, longest + 1, every))
        ax.set_xlim(0.5, longest + 0.5)
        ax.set_ylim(0, 1.02)
        ax.set_xlabel("draft position")
        ax.set_ylabel("accepted, if reached")
        ax.label_outer()
    _legend(figure, names, style)
    _settle(figure)
    return figure


def _acceptance_series(ax: Axes, cell: Cell, shift: float, style: Style) -> None:
    rows = [r for r in (cell.counted("acceptance")[0]["measurement"].get("ar_cond") or ()) if r.get("value") is not None]
    x, y = [r["position"] + shift for r in rows], [r["value"] for r in rows]
    ax.plot(x, y, color=style[0], linewidth=1, alpha=0.6, zorder=2)
    intervals = [Estimate(r["value"], r.get("ci_low"), r.get("ci_high")) for r in rows]
    _whiskers(ax, list(zip(intervals, x, strict=True)), style[0], along="y", width=1.5, alpha=1)
    _marks(ax, x, y, [not cell.valid("acceptance")] * len(rows), style)


def heading(figure: Figure, title: str, simulated: bool) -> None:
    """The title of a whole figure; one of simulated numbers says so, in another colour."""
    words, colour = (f"SIMULATED – {title}", _WARN) if simulated else (title, INK)
    figure.suptitle(words, x=0.01, ha="left", fontsize=12, fontweight="bold", color=colour)


def _grid(panels: Sequence[str], title: str, simulated: bool, *, height: float, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = max(len(panels), 1)
    columns = min(count, 2 if count in (1, 2, 4) else 3)
    rows = -(-count // columns)
    with house_style():
        figure = Figure(figsize=(4.6 * columns if columns > 1 else 6.4, height * rows + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
        axes = list(grid.flat)
        for ax in axes[count:]:
            ax.remove()
        for ax, panel in zip(axes, panels, strict=False):
            ax.set_title(panel, color=INK)
        heading(figure, title, simulated)
    return figure, axes[: len(panels)]


def _from_zero(ax: Axes, valid: Sequence[ParetoPoint]) -> None:
    """The scale is that of the valid points, their intervals included: one disturbed point may be off by orders of magnitude."""
    for values, limit, set_limit, room in (
        ([p.x for p in valid], ax.get_xlim()[1], ax.set_xlim, 1.02),
        ([p.y for p in valid], ax.get_ylim()[1], ax.set_ylim, 1.06),
    ):
        ends = [v.value if v.high is None else v.high for v in values]
        set_limit(0, min(limit, 1.25 * max(ends, default=limit)) * room)


def _legend(
    figure: Figure,
    series: Sequence[str],
    style: Mapping[str, Style],
    *,
    frontier: bool = False,
    invalid: bool = False,
    tie: bool = False,
    batch_size: bool = False,
) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=style[s][0], marker=style[s][1], markersize=6, linewidth=1.3, label=s) for s in series]
    hollow = {"marker": "o", "linestyle": "", "markersize": 6, "markerfacecolor": "white", "markeredgecolor": FAINT}
    if frontier:
        handles.append(Line2D([], [], color=BAND, linewidth=7, alpha=0.75, label="frontier over all"))
    if batch_size and series:
        handles.append(Line2D([], [], color=FAINT, marker="$8$", linestyle="", markersize=6, label="number: batch size"))
    if invalid:
        handles.append(Line2D([], [], **hollow, label="hollow: not valid, not ranked"))  # type: ignore[arg-type]
    if tie:
        handles.append(Line2D([], [], **hollow, label="hollow: not shown to differ from 1"))  # type: ignore[arg-type]
    if handles:
        widest = 0.65 + 0.072 * max(len(str(h.get_label())) for h in handles)  # inches at this font size
        columns = max(1, min(len(handles), int((figure.get_figwidth() - 0.2) // widest)))
        figure.legend(
            handles=handles,
            loc="outside lower left",
            ncols=columns,
            fontsize=8.5,
            handlelength=1.8,
            columnspacing=1.6,
            frameon=False,
            labelcolor=INK,
        )


def svg(figure: Figure, name: str, title: str) -> str:
    """The figure as one ``<svg>`` element to be put into HTML; the same bytes each time.

    It has the size of its container and takes its colours from the page's CSS variables (``--c0`` …, ``--ink``, ``--page``), so that
    it follows dark mode.
    Ids get ``name`` as a prefix: several figures live in one document.
    """
    out = io.StringIO()
    with house_style():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would style the whole page
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r'\b(?:width|height)="[\d.]+pt" ?', "", text, count=2)
    for colour, variable in _CSS.items():
        text = re.sub(re.escape(colour), f"var({variable}, {colour})", text, flags=re.IGNORECASE)
    width = round(108 * figure.get_figwidth())  # px at which its text has the size of the page's
    return text.replace(
        "<svg ", f'<svg style="max-width:{width}px" role="img" stroke-linejoin="round" aria-label="{html.escape(title)}" ', 1
    )


def write_png(figure: Figure, path: Path) -> Path:
    with house_style():
        figure.savefig(path, format="png", dpi=PNG_DPI, facecolor="white")
    return path
