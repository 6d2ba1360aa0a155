"""The envelope over ISL for readers: the table of one ISL, a sentence about how far to believe it, and the fronts over all ISLs in one figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from specsweep.analysis.attempts import AXIS_LABELS, Attempt
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.draft_length_figure import SCALE
from specsweep.analysis.figures import INK, heading, house_style
from specsweep.analysis.isl_envelope import Check, Envelope, envelopes
from specsweep.analysis.tables import STATE_WORDS
from specsweep.analysis.tabular import Column, Row, Table, put, with_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BETWEEN = 3  # interpolated fronts between two measured ones
NOTE = (
    "Interpolated: log rate over log ISL, straight between two measured ISLs of the same arm and batch size; the interval is interpolated with it and "
    "holds what the two ends hold, not what the straight line misses."
)


def label(envelope: Envelope) -> str:
    bare = ("target", "workload")
    named = [(n, v) for n, v in envelope.service.items() if v is not None]
    return " · ".join(format_axis(v, n) if n in bare else f"{AXIS_LABELS.get(n, n)} {format_axis(v, n)}" for n, v in named)


def envelope_table(envelope: Envelope, checks: Sequence[Check]) -> Table:
    """One row an arm and batch size, the front first."""
    columns = (
        Column("engine", "engine"),
        Column("arm", "drafter"),
        Column("batch_size", "BS", True),
        Column("x", "TPS/user", True),
        Column("y", "output TPS", True),
        Column("state", "Pareto"),
        Column("source", "from"),
    )
    order = {"frontier": 0, "close": 1, "dominated": 2}
    rows = []
    for p in sorted(envelope.points, key=lambda p: (order[p.state], p.x.value)):
        record: dict[str, Any] = {**envelope.service, "isl": envelope.isl, "engine": p.engine, "arm": p.arm, "batch_size": p.batch_size}
        put(record, "user_tps_mean", p.x)
        put(record, "output_tps", p.y)
        record |= {"pareto": p.state, "interpolated": p.interpolated, "between_isl": list(p.between)}
        source = f"ISL {p.between[0]} and {p.between[1]}" if p.interpolated else "measured"
        shown = (p.engine, p.arm, str(p.batch_size), with_interval(p.x), with_interval(p.y), STATE_WORDS[p.state], source)
        rows.append(Row(shown, record, muted=p.state == "dominated"))
    left_out = [f"Left out: {arm}: {why}." for arm, why in envelope.left_out]
    notes = (*((NOTE,) if envelope.interpolated else ()), belief(checks), *left_out)
    mark = "interpolated" if envelope.interpolated else "measured"
    table = Table("envelope", f"Pareto front at ISL {envelope.isl:g}, {mark}: {label(envelope)}", columns, tuple(rows), notes)
    return table.simulated() if any(p.simulated for p in envelope.points) else table


def belief(checks: Sequence[Check]) -> str:
    """How well measured ISLs follow from their neighbours."""
    if not checks:
        return "The straight line is not checked: that takes three ISLs of one arm and batch size."
    errors = np.abs([c.error for c in checks])
    agree = sum(c.agrees for c in checks)
    where = checks[int(np.argmax(errors))]
    return (
        f"Checked: each inner ISL predicted from its neighbours, {len(checks)} rates: off by {np.median(errors):.1%} (median) and at most {errors.max():.1%} "
        f"({where.label}, ISL {where.isl}, {where.metric}); intervals overlap in {agree}."
    )


def envelope_figure(attempts: Sequence[Attempt], extra: Iterable[float] = ()) -> Figure:
    """One panel a service: the front of every measured ISL (solid, with its points) and of ISLs between them (dashed). ``extra``: ISLs to add.

    Raises ``ValueError`` if there is no valid point with an ISL.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = sorted({int(i) for a in attempts if (i := (a["point"].get("axes") or {}).get("isl"))})
    if not measured:
        raise ValueError("no point has an ISL")
    grid = {float(i) for i in measured} | {float(e) for e in extra}
    for a, b in pairwise(measured):
        grid |= {float(v) for v in np.geomspace(a, b, BETWEEN + 2)[1:-1]}
    made: list[Envelope] = []
    for isl in sorted(grid):
        try:
            made += envelopes(attempts, isl)
        except ValueError:
            continue  # no arm was valid around it
    if not made:
        raise ValueError("no point with an ISL is valid")
    panels = list(dict.fromkeys(label(e) for e in made))
    simulated = any(p.simulated for e in made for p in e.points)
    with house_style():
        figure = Figure(figsize=(max(6.4, 4.9 * len(panels)), 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        for ax, panel in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
            _panel(ax, panel, [e for e in made if label(e) == panel], measured)
        title = "Pareto fronts over ISL: solid measured, dashed interpolated"
        heading(figure, title, simulated)
    return figure


def _panel(ax: Axes, panel: str, made: Sequence[Envelope], measured: Sequence[int]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("isl", SCALE[1:])
    low, high = np.log(measured[0]), np.log(measured[-1])
    for e in made:
        place = 0.5 if high <= low else float((np.log(e.isl) - low) / (high - low))
        front = e.front
        x, y = [p.x.value for p in front], [p.y.value for p in front]
        dashed = e.interpolated
        ax.plot(
            x,
            y,
            color=colours(place),
            linewidth=1.0 if dashed else 1.8,
            linestyle="--" if dashed else "-",
            alpha=0.8 if dashed else 1,
            zorder=2,
        )
        if not dashed:
            ax.plot(x, y, color=colours(place), linestyle="", marker="o", markersize=4, zorder=3)
            if front:
                ax.annotate(
                    f"ISL {e.isl:g}", (x[0], y[0]), textcoords="offset points", xytext=(-6, -2), ha="right", fontsize=7.5, color=INK
                )
    ax.set_xlabel("tokens/s per user")
    ax.set_ylabel("output tokens/s")
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    ax.set_title(panel, fontsize=9)
