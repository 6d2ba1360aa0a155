"""A continuous ordering of prompts by how predictable their answers turned out to be, beside the three tiers of a data set.

A tier is a guess about a text from its kind; a measurement knows. Where a point has a drafter, the acceptance length of a prompt says how
much of its answer could be guessed. That depends on the drafter and the draft length too, so prompts are compared within one series and
the places are averaged: 0 is the least predictable prompt of the set, 1 the most. A prompt with few steps has an acceptance length of chance,
so it is drawn towards the mean of its series by as much as chance can explain (the estimate of James and Stein, with the variance of
the steps within prompts against that between them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specsweep.analysis.attempts import AXIS_LABELS, Attempt, Cell, series_label
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.figures import INK, PALETTE, house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Place:
    """``place``: mean over the series that saw the prompt, 0 to 1. ``al``: its shrunk acceptance length in each of them."""

    prompt_id: str
    category: str
    place: float
    spread: float | None  # standard deviation of its places over the series; None with one
    al: Mapping[str, float]
    steps: int


def spectrum(cells: Sequence[Cell]) -> list[Place]:
    """The prompts of all ``cells`` with a drafter and valid acceptance, the least predictable first.

    A series runs over batch sizes, which send the same prompts (the first that has acceptance stands for all), and over workloads, so that
    the prompts of all tiers stand in one ordering.
    """
    series: dict[str, dict[str, tuple[str, float, float]]] = {}
    for cell in cells:
        if cell.baseline or not cell.valid("acceptance"):
            continue
        name = " · ".join(
            (series_label(cell.axes), *(f"{AXIS_LABELS[a]} {format_axis(cell.axes.get(a), a)}" for a in ("isl", "temperature")))
        )
        for attempt in cell.counted("acceptance")[:1]:
            for prompt_id, row in _rows(attempt).items():
                series.setdefault(name, {}).setdefault(prompt_id, row)
    found: dict[str, list[tuple[str, float, float]]] = {}
    labels: dict[str, tuple[str, int]] = {}
    for name, rows in series.items():
        ids = list(rows)
        values = shrunk([rows[i][1] for i in ids], [rows[i][2] for i in ids])
        places = (np.searchsorted(ordered := np.sort(values), values, "left") + np.searchsorted(ordered, values, "right")) / (2 * len(ids))
        for prompt_id, value, place in zip(ids, values, places, strict=True):
            found.setdefault(prompt_id, []).append((name, float(value), float(place)))
            category, steps = labels.get(prompt_id, (rows[prompt_id][0], 0))
            labels[prompt_id] = category, steps + int(rows[prompt_id][1])
    made = [
        Place(
            prompt_id,
            labels[prompt_id][0],
            float(np.mean([p for _, _, p in seen])),
            float(np.std([p for _, _, p in seen], ddof=1)) if len(seen) > 1 else None,
            {name: value for name, value, _ in seen},
            labels[prompt_id][1],
        )
        for prompt_id, seen in found.items()
    ]
    return sorted(made, key=lambda p: (p.place, p.prompt_id))


def _rows(attempt: Attempt) -> dict[str, tuple[str, float, float]]:
    """Category, steps and tokens of the steps of each prompt."""
    rows: Iterable[Mapping[str, Any]] = attempt["measurement"].get("per_conversation") or ()
    return {
        str(row["conversation_id"]): (str(row.get("category") or ""), float(row["steps"]), float(row["step_tokens"]))
        for row in rows
        if row.get("steps")
    }


def shrunk(steps: Sequence[float], tokens: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Acceptance lengths, each drawn to the common mean by the part of its distance that chance explains. Shape (n,).

    ``steps`` (all above 0) and the ``tokens`` that they gave, one entry a prompt. The variance of one step is not known from sums; it is
    bounded by that of a step that gives 1 or the largest mean, which errs towards drawing too much.
    """
    n, sums = np.asarray(steps, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    means = sums / n
    common = float(sums.sum() / n.sum())
    if len(n) < 3:
        return np.asarray(means)
    of_step = max(0.0, (float(means.max()) - common) * (common - 1.0))
    noise = of_step / n
    between = max(0.0, float(np.average((means - common) ** 2, weights=n)) - float(np.average(noise, weights=n)))
    if between == 0.0:
        return np.asarray(means if of_step == 0.0 else np.full_like(means, common))
    return np.asarray(common + (means - common) * between / (between + noise))


def spectrum_figure(places: Sequence[Place], title: str, *, simulated: bool = False) -> Figure:
    """Every prompt at its place, a row of marks a category, the categories in order of their median."""
    from matplotlib.figure import Figure

    by_category: dict[str, list[float]] = {}
    for place in places:
        by_category.setdefault(place.category or "(none)", []).append(place.place)
    names = sorted(by_category, key=lambda name: float(np.median(by_category[name])))
    with house_style():
        figure = Figure(figsize=(7.2, 1.3 + 0.34 * len(names)), layout="constrained")
        ax = figure.add_subplot()
        for row, name in enumerate(names):
            colour = PALETTE[row % len(PALETTE)]
            ax.plot(by_category[name], [row] * len(by_category[name]), "|", color=colour, markersize=11, markeredgewidth=1.1, alpha=0.7)
            ax.plot([float(np.median(by_category[name]))], [row], "o", color=colour, markersize=5)
        ax.set_yticks(range(len(names)), [f"{name} ({len(by_category[name])})" for name in names])
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(-0.6, len(names) - 0.4)
        ax.set_xlabel("place among all prompts by acceptance length (0: least predictable, 1: most; dot: median)")
        ax.set_title(f"{'SIMULATED – ' if simulated else ''}{title}", color=INK)
    return figure
