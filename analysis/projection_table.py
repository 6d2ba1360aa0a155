"""Projections as a table in the layout of the paper's Table 10, and one sentence that says how well they held.

AL, both step times, the speedup that was measured and the one projected stand in one row, so that a reader can do the sum again. A row
without a projection keeps its place and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsweep.analysis.attempts import AXIS_LABELS, Cell, Estimate, is_simulated, panel_label, series_axes
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.projection import PROMPT_AXES, Projection
from specsweep.analysis.proxy import STEP_METRICS
from specsweep.analysis.speedup import ratio_text
from specsweep.analysis.tabular import Column, Row, Table, fold_shared, put, with_interval

FIRST = ("engine", "target", "drafter", "workload")
LAST = ("isl", "batch_size", "draft_length")
FOLDABLE = ("engine", "target", "temperature", "domain", "steps", "remark")
YES_NO = {True: "yes", False: "no", None: "–"}


def projection_table(rows: Sequence[Projection]) -> Table:
    """One row a projection. Times in ms; actual and projected speedups dimensionless, above 1 the drafter pays."""
    axes = _axis_columns(rows)
    columns = (
        *axes,
        Column("domain", "category"),
        Column("al", "AL", True),
        Column("t_ar", "t_ar ms", True),
        Column("t_sd", "t_sd ms", True),
        Column("actual", "actual ×", True),
        Column("projected", "projected ×", True),
        Column("difference", "difference", True),
        Column("agrees", "agree"),
        Column("projected_clean", "projected (clean) ×", True),
        Column("steps", "step times of", wraps=16),
        Column("remark", "remark", wraps=32),
    )
    made = [_row(p, axes) for p in rows]
    kept, folded, shared = fold_shared(columns, made, FOLDABLE)
    notes = _notes(rows)
    table = Table("proxy", "Proxy speedup t_ar · AL / t_sd", kept, folded, notes, shared, brief=(notes[0], notes[1], *notes[-1:]))
    return table.simulated() if any(is_simulated(a) for p in rows for c in _cells(p) for a in c.attempts) else table


def _cells(p: Projection) -> list[Cell]:
    return [p.cell, *([p.steps] if p.steps else [])]


def _axis_columns(rows: Sequence[Projection]) -> list[Column]:
    names = dict.fromkeys(n for p in rows for n in [*series_axes(p.cell.axes), "workload", "isl", "temperature", "batch_size"])
    extra = [n for n in names if n not in FIRST and n not in LAST]
    numeric = (*LAST, "temperature")
    return [Column(n, AXIS_LABELS.get(n, n), n in numeric) for n in (*FIRST, *extra, *LAST) if n in names]


def _row(p: Projection, axes: Sequence[Column]) -> Row:
    record: dict[str, Any] = {c.key: p.cell.axes.get(c.key) for c in axes}
    record |= {"category": p.domain or None, "average": p.average}
    put(record, "al", p.al)
    for gaps, metric in STEP_METRICS.items():
        put(record, f"t_ar_{metric}", (p.t_ar or {}).get(gaps))
        put(record, f"t_sd_{metric}", (p.t_sd or {}).get(gaps))
        put(record, _key(gaps), p.value(gaps))
        record |= {f"difference_{gaps}": p.difference(gaps), f"intervals_agree_{gaps}": p.agrees(gaps)}
    put(record, "speedup_actual", p.measured)
    put(record, "speedup_output_tps", p.actual.output_tps if p.actual else None)
    value = p.value()
    record |= {
        "own_steps": p.own_steps,
        "steps_of": None if p.steps is None else {n: p.steps.axes.get(n) for n in PROMPT_AXES},
        "interval_method": value.method if value else None,
        "reason": p.reason or None,
        "warnings": list(p.warnings),
        "point_ids": [a["point"]["point_id"] for a in p.cell.attempts],
        "step_point_ids": [a["point"]["point_id"] for a in p.steps.attempts] if p.steps else [],
    }
    shown = (
        *(format_axis(p.cell.axes.get(c.key), c.key) for c in axes),
        p.domain or "all",
        with_interval(p.al),
        with_interval((p.t_ar or {}).get("all")),
        with_interval((p.t_sd or {}).get("all")),
        ratio_text(p.measured),
        _text(value),
        _signed(p.difference()),
        YES_NO[p.agrees()],
        _text(p.value("clean")),
        "the same points" if p.own_steps else panel_label(p.steps.axes) if p.steps else "",
        p.reason or "; ".join(p.warnings),
    )
    return Row(shown, record, muted=bool(p.reason), group=panel_label(p.cell.axes))


def _key(gaps: str) -> str:
    return "speedup_projected" if gaps == "all" else f"speedup_projected_{gaps}"


def _text(value: Estimate | None) -> str:
    return ratio_text(value) if value is not None else "–"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _notes(rows: Sequence[Projection]) -> tuple[str, ...]:
    pooled = all(p.average == "pooled" for p in rows)
    average = (
        "AL pooled over all steps, against the ratio of all tokens over all time; --average request takes both as means over requests."
        if pooled
        else "AL as the mean of the requests' own, against the ratio of the requests' mean rates."
    )
    return (
        "Projected: t_ar · AL / t_sd with the mean of all gaps between steps, TTFT left out; (clean): only gaps that no other request's prefill overlaps.",
        "Actual: measured speedup of the same prompts, tokens after the first chunk / time after it, with the drafter over without.",
        average,
        "Intervals: 95 %, the three inputs taken as independent (delta method on the log scale, Welch's t); agree: those of actual and projected overlap.",
        verdict(rows),
    )


def verdict(rows: Sequence[Projection]) -> str:
    """How the projections held where they can be held against a measurement."""
    judged = [p for p in rows if p.difference() is not None]
    if not judged:
        return "No projection can be held against a measured speedup here."
    with_intervals = [p for p in judged if p.agrees() is not None]
    sizes = {gaps: [abs(d) for p in judged if (d := p.difference(gaps)) is not None] for gaps in STEP_METRICS}
    largest = " and ".join(f"{max(values):.2f} from {gaps} gaps" for gaps, values in sizes.items() if values)
    agree = {gaps: sum(p.agrees(gaps) is True for p in with_intervals) for gaps in STEP_METRICS}
    held = f"intervals agree in {agree['all']} (all gaps) and {agree['clean']} (clean gaps) of {len(with_intervals)}"
    return f"{len(judged)} projections beside a measured speedup: {held}; largest difference {largest}."
