"""What a mark of the Pareto figure says when it is pointed at: the numbers of its point, where the figure has room for none.

Transparent circles are laid over the finished drawing, at the places that the figure's own transforms give, and not woven into
matplotlib's SVG: its markup is no interface, and one marker there stands for many points. Each carries a ``<title>``, which browsers show and screen
readers read without any script; the page's script only shows the same text at once, and on keyboard focus. On paper nothing is left of them.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsweep.analysis.pareto import ParetoPoint
from specsweep.analysis.tabular import with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RADIUS = 7  # pt, a little more than a mark: something to aim at
_POINTS_PER_INCH = 72  # of matplotlib's SVG, whose y axis runs downward
_LINES = (("AL (decode)", "al_decode", ""), ("TTFT p50", "ttft_ms_p50", " ms"), ("step, mean", "step_ms_mean", " ms"))
_STATES = {
    "frontier": "on the frontier",
    "close": "behind the frontier, within the intervals",
    "dominated": "dominated",
    "invalid": "not valid, not ranked",
}


def with_targets(svg: str, figure: Figure, points: Sequence[ParetoPoint]) -> str:
    """``svg`` (of ``figure``, laid out) with one hover target for every point that lies inside of its panel."""
    panels = {panel: figure.axes[i] for i, panel in enumerate(dict.fromkeys(p.panel for p in points))}
    scale = _POINTS_PER_INCH / figure.dpi
    height = figure.get_figheight() * _POINTS_PER_INCH
    by_cell = {p.cell.key: p for p in points}
    targets: list[str] = []
    for point in points:
        ax = panels[point.panel]
        x, y = ax.transData.transform((point.x.value, point.y.value))
        if ax.bbox.contains(x, y):
            winner = by_cell.get(point.dominated_by.key) if point.dominated_by else None
            text = html.escape("\n".join(lines(point, winner)))
            targets.append(
                f'<circle cx="{x * scale:.1f}" cy="{height - y * scale:.1f}" r="{RADIUS}" tabindex="0" role="img">'
                f"<title>{text}</title></circle>"
            )
    end = svg.rindex("</svg>")
    return f'{svg[:end]}<g class="targets" fill="transparent">{"".join(targets)}</g>\n{svg[end:]}'


def lines(point: ParetoPoint, winner: ParetoPoint | None = None) -> list[str]:
    """What is said of a point: who it is, its two rates and what explains them, and how it stands. ``winner``: what dominates it."""
    cell = point.cell
    said = [
        f"{point.series}, BS {cell.batch_size}",
        f"per user: {with_interval(point.x)} tokens/s",
        f"all users: {with_interval(point.y)} tokens/s",
    ]
    for label, metric, unit in _LINES:
        value = cell.estimate(metric)
        if value is not None and not (metric == "al_decode" and cell.baseline):
            said.append(f"{label}: {with_interval(value)}{unit}")
    behind = f": {winner.series}, BS {winner.cell.batch_size} is better in both" if winner and point.state == "dominated" else ""
    said.append(_STATES[point.state] + behind)
    if point.reason:
        said.append(point.reason)
    return said
