"""A continuous ordering of prompts by how predictable their answers turned out to be, beside the three tiers of a data set.

A tier is a guess about a text from its kind; a measurement knows, in either of two ways. The acceptance length of a prompt says how much of its
answer a drafter could guess. That depends on the drafter and the draft length too, so prompts are compared within one series and
the places are averaged. The surprisal of an answer (:mod:`specsweep.analysis.surprisal`) is the target's own: it needs no drafter. In both 0 is
the least predictable prompt of the set, 1 the most. A prompt with few steps or tokens has a mean of chance, so it is drawn
towards the mean of its series by as much as chance can explain (the estimate of James and Stein, with the variance
within prompts against that between them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specsweep.analysis.attempts import AXIS_LABELS, Attempt, Cell, axes_of, is_measured, series_label
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.figures import INK, PALETTE, house_style
from specsweep.analysis.stats import Floats
from specsweep.analysis.surprisal import read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


AL, NATS = "acceptance length", "surprisal"
_Rows = dict[str, tuple[str, float, float, float]]  # by prompt: category, steps or tokens, their sum, the sum of squares (surprisal alone)


@dataclass(frozen=True, slots=True)
class Place:
    """``place``: mean over the series that saw the prompt, 0 to 1. ``values``: its shrunk mean in each, tokens a step or nats a token."""

    prompt_id: str
    category: str
    place: float
    spread: float | None  # standard deviation of its places over the series; None with one
    values: Mapping[str, float]
    count: int  # steps or tokens behind the values


def spectrum(cells: Sequence[Cell]) -> list[Place]:
    """The prompts of all ``cells`` with a drafter and valid acceptance, the least predictable first, by acceptance length.

    A series runs over batch sizes, which send the same prompts (the first that has acceptance stands for all), and over workloads, so that
    the prompts of all tiers stand in one ordering.
    """
    series: dict[str, _Rows] = {}
    for cell in cells:
        if cell.baseline or not cell.valid("acceptance"):
            continue
        for attempt in cell.counted("acceptance")[:1]:
            _first(series, _series_name(cell.axes), _rows(attempt))
    return _places(series, lambda rows: shrunk([r[1] for r in rows], [r[2] for r in rows]))


def surprisal_spectrum(attempts: Iterable[Attempt]) -> list[Place]:
    """The same by the surprisal of answers, of all points that captured log-probabilities. The drafter names a series, though it decides nothing."""
    series: dict[str, _Rows] = {}
    for attempt in attempts:
        if is_measured(attempt) and (rows := read_rows(attempt["measurement"])):
            _first(
                series,
                _series_name(axes_of(attempt)),
                {r.prompt_id: (r.category, float(r.tokens), r.nats, r.squares) for r in rows},
            )
    return _places(series, lambda rows: -shrunk_nats([r[1] for r in rows], [r[2] for r in rows], [r[3] for r in rows]), sign=-1.0)


def _series_name(axes: Mapping[str, Any]) -> str:
    named = {name: value for name, value in axes.items() if name != "capture"}
    return " · ".join((series_label(named), *(f"{AXIS_LABELS[a]} {format_axis(axes.get(a), a)}" for a in ("isl", "temperature"))))


def _first(series: dict[str, _Rows], name: str, rows: _Rows) -> None:
    for prompt_id, row in rows.items():
        series.setdefault(name, {}).setdefault(prompt_id, row)


def _places(
    series: Mapping[str, _Rows], predictability: Callable[[Sequence[tuple[str, float, float, float]]], Floats], sign: float = 1.0
) -> list[Place]:
    """``predictability``: a number for each row, larger for what is easier to guess; times ``sign`` it is the value that is shown."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    labels: dict[str, tuple[str, int]] = {}
    for name, rows in series.items():
        values = predictability(list(rows.values()))
        places = (np.searchsorted(ordered := np.sort(values), values, "left") + np.searchsorted(ordered, values, "right")) / (2 * len(rows))
        for prompt_id, value, place in zip(rows, values, places, strict=True):
            found.setdefault(prompt_id, []).append((name, sign * float(value), float(place)))
            category, count = labels.get(prompt_id, (rows[prompt_id][0], 0))
            labels[prompt_id] = category, count + int(rows[prompt_id][1])
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


def _rows(attempt: Attempt) -> _Rows:
    """Category, steps and tokens of the steps of each prompt."""
    rows: Iterable[Mapping[str, Any]] = attempt["measurement"].get("per_conversation") or ()
    return {
        str(row["conversation_id"]): (str(row.get("category") or ""), float(row["steps"]), float(row["step_tokens"]), 0.0)
        for row in rows
        if row.get("steps")
    }


def shrunk(steps: Sequence[float], tokens: Sequence[float]) -> Floats:
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
    return _drawn(n, means, common, of_step)


def shrunk_nats(tokens: Sequence[float], nats: Sequence[float], squares: Sequence[float]) -> Floats:
    """Nats per token, drawn in the same way. Shape (n,). The variance of one token is that within prompts, pooled over them all."""
    n, sums = np.asarray(tokens, dtype=np.float64), np.asarray(nats, dtype=np.float64)
    means, common = sums / n, float(sums.sum() / n.sum())
    freedom = float((n - 1).sum())
    if len(n) < 3 or freedom <= 0:
        return np.asarray(means)
    within = max(0.0, float((np.asarray(squares, dtype=np.float64) - sums * means).sum())) / freedom
    return _drawn(n, means, common, within)


def _drawn(n: Floats, means: Floats, common: float, of_one: float) -> Floats:
    """``means`` of ``n`` observations with variance ``of_one`` each, towards ``common``."""
    noise = of_one / n
    between = max(0.0, float(np.average((means - common) ** 2, weights=n)) - float(np.average(noise, weights=n)))
    if between == 0.0:
        return np.asarray(means if of_one == 0.0 else np.full_like(means, common))
    return np.asarray(common + (means - common) * between / (between + noise))


def spectrum_figure(places: Sequence[Place], title: str, *, by: str = AL, simulated: bool = False) -> Figure:
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
        ax.set_xlabel(f"place among all prompts by {by} (0: least predictable, 1: most; dot: median)")
        ax.set_title(f"{'SIMULATED – ' if simulated else ''}{title}", color=INK)
    return figure
