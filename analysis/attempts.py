"""Reading attempts: the one place of the analysis that knows the layout of ``point.json`` and ``measurement.json``.

An attempt is ``{"point": <point.json>, "measurement": <measurement.json> or None}``, as the store gives it. Tables,
figures, speedups and comparisons ask this module for values, axes and verdicts, so that a change of the files' layout is
a change here and nowhere else.

Repeats: the attempts of one cell of the grid that differ only in the axis ``repeat`` were measured in different engine
sessions. They are shown as one :class:`Cell`; with two or more of them the interval of a value is the one *between*
sessions, because the spread from one engine start to the next is part of what a reader wants to know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from specsweep.analysis import stats
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.check_units import by_cause, check_line
from specsweep.analysis.error_words import what_failed

Attempt = Mapping[str, Any]

# How points are laid out: a panel is one workload at one input length and temperature; within it a series is what is
# compared, and the batch size runs along it.
RUN_AXES = ("batch_size", "repeat")
PANEL_AXES = ("workload", "isl", "temperature")
AXIS_LABELS = {
    "engine": "engine",
    "target": "target",
    "drafter": "drafter",
    "draft_length": "DL",
    "batch_size": "BS",
    "isl": "ISL",
    "workload": "workload",
    "temperature": "T",
    "repeat": "repeat",
}
WITHIN = "within-session"
BETWEEN = "between-sessions"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its confidence interval; ``low`` and ``high`` are None where no interval exists."""

    value: float
    low: float | None = None
    high: float | None = None
    scope: str = WITHIN
    sessions: int = 1
    method: str = ""
    clusters: int = 0  # independent units behind the interval; 0: not known

    @property
    def has_interval(self) -> bool:
        return self.low is not None and self.high is not None

    def overlaps(self, other: Estimate) -> bool:
        """Whether the intervals share a value. An estimate without an interval counts as the point that it is."""
        low, high = (self.value if self.low is None else self.low), (self.value if self.high is None else self.high)
        other_low = other.value if other.low is None else other.low
        other_high = other.value if other.high is None else other.high
        return low <= other_high and other_low <= high


def estimate(attempt: Attempt, name: str) -> Estimate | None:
    """The metric ``name`` of one attempt, or None if it was not measured there (absent is never 0)."""
    metrics = (attempt.get("measurement") or {}).get("metrics") or {}
    value = _finite(metrics.get(name))
    if value is None:
        return None
    ci = (attempt["measurement"].get("ci") or {}).get(name) or {}
    low, high = _finite(metrics.get(f"{name}_ci_low")), _finite(metrics.get(f"{name}_ci_high"))
    return Estimate(value, low, high, method=str(ci.get("method", "")), clusters=int(ci.get("clusters") or 0))


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def axes_of(attempt: Attempt) -> dict[str, Any]:
    return dict(attempt["point"].get("axes") or {})


def is_measured(attempt: Attempt) -> bool:
    return attempt["point"].get("status") == "measured" and bool(attempt.get("measurement"))


def is_simulated(attempt: Attempt) -> bool:
    return bool((attempt.get("measurement") or {}).get("simulated"))


def is_capture(attempt: Attempt) -> bool:
    """Whether the point is untimed: it has no speed, stands on no front, and is no arm of a comparison."""
    return str(axes_of(attempt).get("capture") or "none") != "none"


def is_baseline(axes: Mapping[str, Any]) -> bool:
    return str(axes.get("drafter")) == "none"


def is_valid(attempt: Attempt, aspect: str = "valid") -> bool:
    """``aspect``: tps | steps | acceptance | valid. A point that was not measured is not valid in any."""
    if not is_measured(attempt):
        return False
    return bool((attempt["measurement"].get("validity") or {}).get(aspect, False))


def failed_checks(attempt: Attempt, aspect: str = "") -> list[dict[str, Any]]:
    """The checks that failed, the cause of the others first; with ``aspect`` those that make it not valid."""
    checks = (attempt.get("measurement") or {}).get("checks") or []
    failed = by_cause(c for c in checks if not c.get("ok", True))
    # Step times are an extra: a point without them is still valid.
    against = {"valid": {"tps", "acceptance", "all"}}.get(aspect, {aspect, "all"})
    return [c for c in failed if not aspect or against & set(c.get("affects") or ("all",))]


def why_invalid(attempt: Attempt, aspect: str = "valid") -> str:
    """One line for a person: the first failed check, or how the attempt failed; empty for a valid one."""
    if not is_measured(attempt):
        if attempt["point"].get("status") == "planned":
            return "not measured yet"
        if attempt["point"].get("status") == "measured":
            return "its measurement cannot be read"
        error = attempt["point"].get("error") or {}
        return f"failed: {what_failed(error.get('kind'))}: {error.get('message', 'no message')}".splitlines()[0].rstrip(" :;,")
    if is_valid(attempt, aspect):
        return ""
    failed = failed_checks(attempt, aspect)
    return check_line(failed[0]) if failed else f"{aspect}: not valid"


def latest(attempts: Iterable[Attempt]) -> list[Attempt]:
    """One attempt a point: the last measured one, or the last failed one where none was measured. Order of first appearance."""
    best: dict[str, Attempt] = {}
    for attempt in attempts:
        key = attempt["point"]["point_id"]
        if key not in best or _rank(attempt) >= _rank(best[key]):
            best[key] = attempt
    return list(best.values())


def _rank(attempt: Attempt) -> tuple[bool, str]:
    return is_measured(attempt), str(attempt["point"].get("finished_utc") or "")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the grid without the axis ``repeat``: what one row of a table and one mark of a figure stand for."""

    axes: Mapping[str, Any]
    attempts: tuple[Attempt, ...]  # one a repeat, in the order of the repeats

    @property
    def key(self) -> str:
        return "+".join(str(a["point"]["point_id"])[:16] for a in self.attempts)

    @property
    def batch_size(self) -> int:
        return int(self.axes["batch_size"])

    @property
    def baseline(self) -> bool:
        return is_baseline(self.axes)

    def counted(self, aspect: str = "tps") -> list[Attempt]:
        """The repeats that the cell's values come from: the valid ones, or all measured ones where none is valid."""
        measured = [a for a in self.attempts if is_measured(a)]
        return [a for a in measured if is_valid(a, aspect)] or measured

    def valid(self, aspect: str = "valid") -> bool:
        return any(is_valid(a, aspect) for a in self.attempts)

    def why_invalid(self, aspect: str = "valid") -> str:
        return "" if self.valid(aspect) else why_invalid(self.attempts[0], aspect)

    def estimate(self, name: str, aspect: str = "tps") -> Estimate | None:
        found = [e for a in self.counted(aspect) if (e := estimate(a, name)) is not None]
        return over_sessions(found) if found else None


def over_sessions(values: Sequence[Estimate]) -> Estimate:
    """The mean over sessions with Student's t interval on the session means (k - 1 degrees of freedom).

    The variance of the mean is never taken as smaller than what the within-session intervals already say, so that two
    sessions that agree by luck do not make an interval of zero width.
    """
    if len(values) == 1:
        return values[0]
    k = len(values)
    mean = math.fsum(v.value for v in values) / k
    between = math.fsum((v.value - mean) ** 2 for v in values) / (k - 1) / k
    half = [(v.high - v.low) / 2 / 1.96 for v in values if v.low is not None and v.high is not None]
    within = math.fsum(h**2 for h in half) / len(half) / k if half else 0.0
    reach = student_t(k - 1) * math.sqrt(max(between, within))
    return Estimate(mean, mean - reach, mean + reach, BETWEEN, k, "t over sessions", k)


@lru_cache(maxsize=256)
def student_t(freedom: float, level: float = 0.95) -> float:
    """The two-sided critical value of Student's t."""
    return float(stats.t_quantile(np.asarray(freedom), level))


def cells(attempts: Iterable[Attempt]) -> list[Cell]:
    """The attempts (one a point) as cells, sorted by panel, then series with the baseline first, then batch size. Captures are none."""
    groups: dict[str, tuple[dict[str, Any], list[Attempt]]] = {}
    for attempt in attempts:
        if is_capture(attempt):
            continue
        axes = axes_of(attempt)
        repeat = {k: v for k, v in axes.items() if k != "repeat"}
        groups.setdefault(repr(sorted(repeat.items(), key=lambda kv: kv[0])), (repeat, []))[1].append(attempt)
    made = [Cell(axes, tuple(sorted(members, key=lambda a: _sortable(axes_of(a).get("repeat"))))) for axes, members in groups.values()]
    return sorted(made, key=_order)


def _order(cell: Cell) -> tuple[Any, ...]:
    panel = tuple(_sortable(cell.axes.get(name)) for name in panel_axes(cell.axes))
    names = series_axes(cell.axes)
    series = tuple(_sortable(cell.axes[name]) for name in names if name != "drafter")
    return panel, not cell.baseline, _sortable(cell.axes.get("drafter")), series, _sortable(cell.axes.get("batch_size"))


def _sortable(value: object) -> tuple[int, float, str]:
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def panel_axes(axes: Mapping[str, Any]) -> list[str]:
    return [a for a in PANEL_AXES if a in axes] + sorted(a for a in axes if a.startswith("workload."))


def series_axes(axes: Mapping[str, Any]) -> list[str]:
    panel = {*panel_axes(axes), *RUN_AXES}
    return [a for a in axes if a not in panel]


def varying(cells: Iterable[Cell]) -> set[str]:
    """The names of the axes that take more than one value; the others belong into a caption."""
    seen: dict[str, set[str]] = {}
    total = 0
    counts: dict[str, int] = {}
    for cell in cells:
        total += 1
        for name, value in cell.axes.items():
            seen.setdefault(name, set()).add(repr(value))
            counts[name] = counts.get(name, 0) + 1
    # An extra axis that only some cells have varies too, even if it has one value there.
    return {name for name, values in seen.items() if len(values) > 1 or counts[name] < total}


def panel_label(axes: Mapping[str, Any], shown: Iterable[str] | None = None) -> str:
    return _label(axes, [a for a in panel_axes(axes) if shown is None or a in shown or a == "workload"])


def series_label(axes: Mapping[str, Any], shown: Iterable[str] | None = None) -> str:
    """``shown``: the axes that vary in the sweep; drafter and draft length are always named."""
    names = [a for a in series_axes(axes) if shown is None or a in shown or a in ("drafter", "draft_length")]
    return _label(axes, names)


def _label(axes: Mapping[str, Any], names: Iterable[str]) -> str:
    parts = []
    for name in names:
        value = axes.get(name)
        if value is None:
            continue
        bare = name in ("engine", "target", "drafter", "workload")
        parts.append(format_axis(value) if bare else f"{AXIS_LABELS.get(name, name.removeprefix('drafter.'))} {format_axis(value, name)}")
    return " · ".join(parts)


def env_of(attempt: Attempt) -> dict[str, Any]:
    return dict(attempt["point"].get("env") or {})
