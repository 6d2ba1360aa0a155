"""Two sweeps, point by point: what differs beyond the intervals, and whether anything got worse.

Points are matched by ``point_id`` where both sweeps have it and by declared axes otherwise (another engine version gives another id but the
same axes). For each metric of a matched pair the ratio b / a stands with an interval on the log scale, made from the two
attempts' own intervals: they are different sessions, so their errors add. A difference is *shown* only if the interval excludes 1.

A comparison looks at hundreds of numbers at once. With 95 % for each, one in twenty would differ by chance, and a gate on it
would fire whenever a sweep is compared with its own repetition. The intervals are therefore simultaneous: 95 % for all
comparisons together (Bonferroni, on Student's t). Fewer metrics make them narrower.

A number may differ because the question differed. If a sampling field or the content of the workload is not the same in both
points, or a sampling field is not recorded in one of them, the pair is refused and the field is named: a default temperature
that changed is not a regression of the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from specsweep.analysis.attempts import Attempt, Cell, Estimate, cells, is_measured, is_simulated, latest, varying
from specsweep.analysis.details import describe
from specsweep.analysis.environment import environment_differences
from specsweep.analysis.log_scale import product
from specsweep.analysis.metrics import BY_NAME, METRICS
from specsweep.analysis.speedup import ratio_text
from specsweep.analysis.tabular import Column, Row, Table, put, with_interval

DEFAULT_METRICS = (
    "user_tps_mean",
    "output_tps",
    "output_tps_steady",
    "al_decode",
    "al_verify",
    "ttft_ms_p50",
    "step_ms_mean",
    "request_latency_ms_p50",
)
COMPARABLE = tuple(m.name for m in METRICS if m.better is not None and not m.name.startswith("client_") and m.name != "ar_cond")
SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "seed", "ignore_eos", "max_tokens")
MISSING = "not recorded"

Word = Literal["better", "worse", "no difference shown"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of one matched pair. ``ratio`` is b / a."""

    axes: Mapping[str, Any]
    metric: str
    a: Estimate
    b: Estimate
    ratio: Estimate
    word: Word
    regression: bool


@dataclass(frozen=True)
class Comparison:
    differences: list[Difference]  # all metrics of all matched pairs, shown or not
    refused: list[tuple[str, str]]  # (point, why): pairs that cannot be compared
    only_a: list[str]
    only_b: list[str]
    environment: list[str]  # fields that differ, one line each
    simulated: bool = False
    threshold: float = 0.0
    lost: tuple[tuple[str, str], ...] = ()  # (point, why): valid in A, and in B missing, failed or not valid
    left_out: tuple[tuple[str, str], ...] = ()  # (point, why): rates that a failed check keeps out of the comparison
    rates_asked: bool = False

    @property
    def shown(self) -> list[Difference]:
        return [d for d in self.differences if d.word != "no difference shown"]

    @property
    def regressions(self) -> list[Difference]:
        return [d for d in self.differences if d.regression]

    @property
    def no_rate_of_any(self) -> bool:
        """Rates were asked for, and a failed check kept every one of them out: nothing is known of what the comparison is for."""
        return self.rates_asked and bool(self.left_out) and not any(aspect_of(d.metric) == "tps" for d in self.differences)

    @property
    def pairs(self) -> int:
        return len({describe(d.axes) for d in self.differences})


def compare(a: Iterable[Attempt], b: Iterable[Attempt], *, metrics: Sequence[str] = (), threshold: float = 0.0) -> Comparison:
    """``metrics``: names of the registry, default :data:`DEFAULT_METRICS`. ``threshold``: a regression is worse by more than
    this share (0.02 = 2 %).

    Raises ``ValueError`` for an unknown metric or a threshold outside 0 … 1.
    """
    unknown = [m for m in metrics if m not in COMPARABLE]
    if unknown:
        raise ValueError(f"metric {unknown[0]!r} cannot be compared; known: {', '.join(COMPARABLE)}")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold {threshold} must be a share from 0 to below 1 (0.02 is 2 %)")
    first, second = latest(a), latest(b)
    pairs, only_a, only_b = match(cells(first), cells(second))
    matched: list[Matched] = []
    refused: list[tuple[str, str]] = []
    left_out: list[tuple[str, str]] = []
    lost = [(describe(c.axes), "not in B") for c in only_a if c.valid("tps")]
    environment: dict[str, None] = {}
    for cell_a, cell_b in pairs:
        if cell_a.valid("tps") and not cell_b.valid("tps"):
            lost.append((describe(cell_a.axes), cell_b.why_invalid("tps")))
        why = _refusal(cell_a, cell_b)
        if why:
            refused.append((describe(cell_a.axes), why))
            continue
        environment |= dict.fromkeys(environment_differences(cell_a.counted()[0], cell_b.counted()[0], drafter_too=True))
        left_out += [
            (describe(cell_a.axes), f"{name}'s rates are not valid: {cell.why_invalid('tps')}")
            for name, cell in (("A", cell_a), ("B", cell_b))
            if not cell.valid("tps")
        ]
        found = ((m, _both(cell_a, cell_b, m)) for m in metrics or DEFAULT_METRICS)
        matched += [(cell_a.axes, m, *values) for m, values in found if values is not None]
    return Comparison(
        [_difference(*m, comparisons=len(matched), threshold=threshold) for m in matched],
        refused,
        [describe(c.axes) for c in only_a],
        [describe(c.axes) for c in only_b],
        list(environment),
        any(is_simulated(x) for x in [*first, *second]),
        threshold,
        tuple(lost),
        tuple(left_out),
        any(aspect_of(m) == "tps" for m in metrics or DEFAULT_METRICS),
    )


Matched = tuple[Mapping[str, Any], str, Estimate, Estimate]


def match(a: Sequence[Cell], b: Sequence[Cell]) -> tuple[list[tuple[Cell, Cell]], list[Cell], list[Cell]]:
    """(pairs, only in a, only in b). Same point id first, then same axes.

    An axis that is constant in each sweep but has another value in the other (``target`` of a v1 and a v2, say) is what the two sweeps
    are compared over, so it does not stop a match.
    """
    by_id = {a_["point"]["point_id"]: c for c in b for a_ in c.attempts}
    constant = _constant(a) | _constant(b)
    over = {n for n in constant if n not in varying(a) and n not in varying(b)}
    by_axes = {_axes_key(c, over): c for c in b}
    pairs, only_a, used = [], [], set()
    for cell in a:
        found = next((by_id[x["point"]["point_id"]] for x in cell.attempts if x["point"]["point_id"] in by_id), None)
        found = found or by_axes.get(_axes_key(cell, over))
        if found is None:
            only_a.append(cell)
        else:
            pairs.append((cell, found))
            used.add(found.key)
    return pairs, only_a, [c for c in b if c.key not in used]


def _constant(cells: Sequence[Cell]) -> set[str]:
    moving = varying(cells)
    return {name for c in cells for name in c.axes if name not in moving}


def _axes_key(cell: Cell, without: set[str]) -> str:
    return repr(sorted((n, repr(v)) for n, v in cell.axes.items() if n not in without))


def _refusal(a: Cell, b: Cell) -> str:
    for name, cell in (("A", a), ("B", b)):
        if not any(is_measured(x) for x in cell.attempts):
            return f"{name}: {cell.why_invalid()}"
    one, other = a.counted()[0], b.counted()[0]
    mine, theirs = sampling_of(one), sampling_of(other)
    differing = [
        f"{n} is {mine.get(n, MISSING)} in A and {theirs.get(n, MISSING)} in B"
        for n in SAMPLING_FIELDS
        if n not in mine or n not in theirs or mine[n] != theirs[n]
    ]
    if differing:
        return f"sampling differs or is not known: {'; '.join(differing)}"
    contents = [(x["point"].get("declared") or {}).get("workload") for x in (one, other)]
    return "the content of the workload differs: other prompts" if contents[0] != contents[1] else ""


def sampling_of(attempt: Attempt) -> dict[str, Any]:
    """The sampling fields that the point declared, by name. One that is not there, or None, was left to the server: not known."""
    declared = (attempt["point"].get("declared") or {}).get("sampling") or {}
    return {n: float(v) if _is_number(v) else v for n, v in declared.items() if n in SAMPLING_FIELDS and v is not None}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def aspect_of(metric: str) -> str:
    """Whose validity a metric depends on."""
    if metric.startswith(("al_", "acceptance_rate")):
        return "acceptance"
    return "steps" if metric.startswith("step_ms") else "tps"


def _both(a: Cell, b: Cell, metric: str) -> tuple[Estimate, Estimate] | None:
    aspect = aspect_of(metric)
    if not (a.valid(aspect) and b.valid(aspect)):
        return None
    mine, theirs = a.estimate(metric, aspect), b.estimate(metric, aspect)
    return None if mine is None or theirs is None or mine.value <= 0 or theirs.value <= 0 else (mine, theirs)


def _difference(axes: Mapping[str, Any], metric: str, a: Estimate, b: Estimate, *, comparisons: int, threshold: float) -> Difference:
    ratio = independent_ratio(a, b, comparisons)
    higher = BY_NAME[metric].better == "higher"
    word: Word = "no difference shown"
    if ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high:
        word = "better" if (ratio.value > 1) == higher else "worse"
    worse_by = 1 - ratio.value if higher else ratio.value - 1
    return Difference(axes, metric, a, b, ratio, word, word == "worse" and worse_by > threshold)


def independent_ratio(a: Estimate, b: Estimate, comparisons: int = 1) -> Estimate:
    """b / a of two estimates from different sessions: their relative variances add (see :func:`log_scale.product`).

    ``comparisons``: how many such ratios are looked at together; all their intervals hold at once in 95 % of cases. No interval if one side
    has none: without it nothing can be shown. A metric that is exact in both (the AL of a baseline) gets an interval of no width.
    """
    method = f"independent sessions, simultaneous over {comparisons}"
    found = product([(b, 1), (a, -1)], comparisons=comparisons, method=method)
    return found if found.has_interval else replace(found, method="none: one side has no interval")


def difference_table(comparison: Comparison, *, everything: bool = False) -> Table:
    """The differences beyond the intervals, regressions first; ``everything`` also lists what is not shown to differ."""
    columns = (
        Column("point", "point", wraps=24),
        Column("metric", "metric"),
        Column("a", "A", True),
        Column("b", "B", True),
        Column("ratio", "B / A", True),
        Column("word", "verdict"),
    )
    chosen = comparison.differences if everything else comparison.shown
    rows = []
    for d in sorted(chosen, key=lambda d: (not d.regression, d.word == "no difference shown")):
        record: dict[str, Any] = {"point": describe(d.axes), "axes": dict(d.axes), "metric": d.metric}
        put(record, "a", d.a)
        put(record, "b", d.b)
        put(record, "ratio", d.ratio)
        record |= {"verdict": d.word, "regression": d.regression}
        word = "regression" if d.regression else d.word
        rows.append(Row((str(record["point"]), d.metric, with_interval(d.a), with_interval(d.b), ratio_text(d.ratio), word), record))
    notes: tuple[str, ...] = (
        "B / A with intervals made from both sweeps' own, taken as independent sessions; "
        "they hold together, for all comparisons at once, in 95 % of cases.",
        f"Regression: worse beyond the interval and by more than {100 * comparison.threshold:.3g} %.",
    )
    if any(d.ratio.sessions == 1 for d in comparison.differences):
        notes += (
            "Some intervals are within-session: the spread from one engine start to the next is not in them (repeat=1,2,3 brings it in).",
        )
    brief = ("B / A with 95 % intervals that hold for all comparisons at once.", notes[1])
    table = Table("differences", "Differences beyond the intervals", columns, tuple(rows), notes, brief=brief)
    return table.simulated() if comparison.simulated else table
