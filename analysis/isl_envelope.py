"""The Pareto front at an input length that was not measured, between two that were: interpolated, marked so, and checked where it can be.

Rates fall smoothly with the input length (attention reads a longer context every step), so the rates of one arm at one batch size are taken to run
straight between two neighbouring ISLs, log rate over log ISL. The interval is interpolated with the value: never narrower than what two
independent ends allow. What the straight line misses is not in it; that is measured instead, by predicting every inner ISL from its
neighbours (:func:`leave_one_out`). Nothing is given beyond the shortest and the longest ISL of an arm.

The front is drawn over interpolated arms by the same rules as over measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from specsweep.analysis.advise import service_of
from specsweep.analysis.attempts import Attempt, Cell, Estimate, cells, is_simulated, latest
from specsweep.analysis.draft_length_map import arm_label
from specsweep.analysis.pareto import X_METRIC, Y_METRIC, clearly_dominates, dominators

State = Literal["frontier", "close", "dominated"]
METRICS = (X_METRIC, Y_METRIC)


@dataclass(frozen=True, slots=True)
class EnvelopePoint:
    """One arm at one batch size and ISL. ``between``: the measured ISLs that it lies between, twice the same where it was measured."""

    engine: str
    arm: str
    batch_size: int
    isl: float
    x: Estimate  # tokens/s of one user
    y: Estimate  # tokens/s of all users together
    between: tuple[int, int]
    state: State = "frontier"
    simulated: bool = False

    @property
    def interpolated(self) -> bool:
        return self.between[0] != self.between[1]


@dataclass(frozen=True, slots=True)
class Envelope:
    """All arms of one service at one ISL. ``left_out``: (arm, why): those that this ISL lies outside of."""

    service: Mapping[str, Any]  # without ISL
    isl: float
    points: tuple[EnvelopePoint, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def front(self) -> list[EnvelopePoint]:
        return sorted((p for p in self.points if p.state == "frontier"), key=lambda p: p.x.value)

    @property
    def interpolated(self) -> bool:
        return any(p.interpolated for p in self.points)


@dataclass(frozen=True, slots=True)
class Check:
    """A measured rate beside what its neighbours in ISL predict."""

    service: Mapping[str, Any]
    label: str
    isl: int
    metric: str
    predicted: Estimate
    measured: Estimate

    @property
    def error(self) -> float:
        """Relative: predicted / measured - 1."""
        return self.predicted.value / self.measured.value - 1

    @property
    def agrees(self) -> bool:
        return self.predicted.overlaps(self.measured)


Line = dict[int, Cell]  # the valid cells of one arm at one batch size, by ISL


def _lines(attempts: Iterable[Attempt]) -> dict[str, tuple[Mapping[str, Any], list[Line]]]:
    """By service: its axes, and a line for each arm and batch size. Natural lengths (ISL 0) are no place on a scale."""
    found: dict[str, tuple[Mapping[str, Any], dict[str, Line]]] = {}
    for cell in cells(latest(attempts)):
        isl = int(cell.axes.get("isl") or 0)
        if not isl or not cell.valid("tps") or any(cell.estimate(m) is None for m in METRICS):
            continue
        service = {n: v for n, v in service_of(cell.axes).items() if n != "isl"}
        _, lines = found.setdefault(repr(sorted(service.items(), key=lambda kv: kv[0])), (service, {}))
        lines.setdefault(f"{cell.axes.get('engine')}, {arm_label(cell)}, BS {cell.batch_size}", {})[isl] = cell
    return {key: (service, list(lines.values())) for key, (service, lines) in found.items()}


def envelopes(attempts: Iterable[Attempt], isl: float) -> list[Envelope]:
    """One a service that any arm of was measured around ``isl``. Raises ``ValueError`` for an ISL that is not above 0, or that lies within no arm's."""
    if not isl > 0:
        raise ValueError(f"ISL {isl} is not above 0")
    lines = _lines(attempts)
    made = [_envelope(service, own, isl) for service, own in lines.values()]
    if not any(e.points for e in made):
        measured = sorted({n for _, own in lines.values() for line in own for n in line})
        raise ValueError(
            f"ISL {isl:g} lies within what no arm was measured at; valid points are at {', '.join(map(str, measured)) or 'none'}"
        )
    return [e for e in made if e.points]


def _envelope(service: Mapping[str, Any], lines: Sequence[Line], isl: float) -> Envelope:
    points, left_out = [], []
    for line in lines:
        point = _at(line, isl)
        if point is None:
            cell = next(iter(line.values()))
            left_out.append((f"{arm_label(cell)}, BS {cell.batch_size}", f"measured at ISL {', '.join(map(str, sorted(line)))} only"))
        else:
            points.append(point)
    beaten = dominators([(p.x.value, p.y.value) for p in points])
    front = [p for p, by in zip(points, beaten, strict=True) if by is None]
    judged = [p if by is None else replace(p, state=_state(p, front)) for p, by in zip(points, beaten, strict=True)]
    return Envelope(service, isl, tuple(judged), tuple(left_out))


def _state(point: EnvelopePoint, front: Sequence[EnvelopePoint]) -> State:
    return "dominated" if any(clearly_dominates((f.x, f.y), (point.x, point.y)) for f in front) else "close"


def _at(line: Line, isl: float) -> EnvelopePoint | None:
    around = _around(sorted(line), isl)
    if around is None:
        return None
    low, high = around
    one, other = line[low], line[high]
    x, y = (_between(one.estimate(m), other.estimate(m), _share(low, high, isl)) for m in METRICS)
    if x is None or y is None:
        return None
    simulated = any(is_simulated(a) for c in (one, other) for a in c.attempts)
    return EnvelopePoint(str(one.axes.get("engine")), arm_label(one), one.batch_size, isl, x, y, (low, high), simulated=simulated)


def _around(isls: Sequence[int], isl: float) -> tuple[int, int] | None:
    """The neighbours that ``isl`` lies between, itself twice where it was measured; None outside."""
    if isl in isls:
        return int(isl), int(isl)
    return next(((a, b) for a, b in pairwise(isls) if a < isl < b), None)


def _share(low: int, high: int, isl: float) -> float:
    return 0.0 if low == high else math.log(isl / low) / math.log(high / low)


def _between(a: Estimate | None, b: Estimate | None, share: float) -> Estimate | None:
    """On the log scale; no interval where one end has none."""
    if a is None or b is None:
        return None
    if share == 0:
        return a
    if not (a.value > 0 and b.value > 0):
        return None
    bounds = []
    for one, other in ((a.low, b.low), (a.high, b.high)):
        bounds.append(
            None if one is None or other is None or one <= 0 or other <= 0 else math.exp(_mix(math.log(one), math.log(other), share))
        )
    value = math.exp(_mix(math.log(a.value), math.log(b.value), share))
    scope = a.scope if a.scope == b.scope else "mixed"
    method = "interpolated between two ISLs, log rate over log ISL"
    return Estimate(value, bounds[0], bounds[1], scope, min(a.sessions, b.sessions), method)


def _mix(a: float, b: float, share: float) -> float:
    return (1 - share) * a + share * b


def leave_one_out(attempts: Iterable[Attempt]) -> list[Check]:
    """Each rate at an inner ISL beside what its two neighbours predict: how far to believe the straight line."""
    found = []
    for service, lines in _lines(attempts).values():
        for line in lines:
            isls = sorted(line)
            for low, isl, high in zip(isls, isls[1:], isls[2:], strict=False):
                cell = line[isl]
                for metric in METRICS:
                    predicted = _between(line[low].estimate(metric), line[high].estimate(metric), _share(low, high, isl))
                    measured = cell.estimate(metric)
                    if predicted is not None and measured is not None and measured.value > 0:
                        label = f"{cell.axes.get('engine')}, {arm_label(cell)}, BS {cell.batch_size}"
                        found.append(Check(service, label, isl, metric, predicted, measured))
    return found
