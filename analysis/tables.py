"""The two tables that a sweep is read by: what every point did (Pareto), and what every drafter gained (speedup).

Columns that hold one value in all rows move into the caption. ``†`` marks a number whose own validity check failed; the
record says which. All rates are tokens per second, all times milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specsweep.analysis.attempts import (
    AXIS_LABELS,
    Attempt,
    Cell,
    cells,
    failed_checks,
    is_measured,
    is_simulated,
    latest,
    panel_axes,
    panel_label,
    series_axes,
)
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.error_words import what_failed
from specsweep.analysis.pareto import ParetoPoint, pareto
from specsweep.analysis.speedup import Speedup, ratio_text, speedups, verdict
from specsweep.analysis.tabular import Column, Row, Table, fold_shared, put, with_interval

# key in the registry, header, whose validity it depends on
METRIC_COLUMNS = (
    ("user_tps_mean", "TPS/user", "tps"),
    ("output_tps", "output TPS", "tps"),
    ("al_decode", "AL (decode)", "acceptance"),
    ("al_verify", "AL (verify)", "acceptance"),
    ("ttft_ms_p50", "TTFT p50 ms", "tps"),
    ("step_ms_mean", "step ms", "steps"),
)
STATE_WORDS = {"frontier": "frontier", "close": "within noise", "dominated": "", "invalid": ""}
WITHIN_SESSION = (
    "95 % confidence intervals in brackets, within-session: the spread from one engine start to the next is not in them (repeat=1,2,3 "
    "brings it in)."
)
BRIEF_WITHIN = "[95 % interval] within one engine start; repeat=1,2,3 adds their spread."
DAGGER = "†: a check of this number failed; see the validity section."
BRIEF_DAGGER = "† a check of this number failed: specsweep status, or report.html, says which."
SIMULATED = "SIMULATED: these numbers come from the simulator, not from an engine."
SIMULATED_RATIO = "SIMULATED: these ratios hold by construction of the simulator."
USER_TPS_RATIO = (
    "User TPS ratio: mean over requests of (tokens after the first chunk / time after it), with the drafter over without it, paired "
    "over the conversations that both arms ran (jackknife-t, plus what the arms' engine steps have in common)."
)
OUTPUT_TPS_RATIO = (
    "Output TPS ratio: tokens per second of all requests in the steady window, with over without (blocks of time, Welch's t)."
)
PROXY = (
    "Proxy: t_ar · AL / t_sd with the mean of all gaps between steps, TTFT left out; proxy (clean): only gaps that no other request's "
    "prefill overlaps. Both are predictions; the measured ratio decides."
)
BRIEF_VERDICT = "faster, slower: the whole interval of user TPS × lies above, below 1."
VERDICTS = "Verdict: faster or slower only if the whole interval of the user TPS ratio lies on that side of 1, otherwise not shown."


def axis_columns(cells: Sequence[Cell]) -> list[Column]:
    """engine, target, then the panel's axes, drafter, DL, extra axes and BS, as far as any cell has them."""
    names: list[str] = list(dict.fromkeys(n for c in cells for n in [*series_axes(c.axes), *panel_axes(c.axes)]))
    first = [n for n in ("engine", "target", "workload", "isl", "temperature") if n in names]
    last = [n for n in ("drafter", "draft_length") if n in names]
    extra = [n for n in names if n not in first and n not in last]
    numeric = ("isl", "temperature", "draft_length", "batch_size")
    return [Column(n, AXIS_LABELS.get(n, n), n in numeric) for n in [*first, *last, *extra, "batch_size"]]


FOLDABLE = ("engine", "target", "workload", "isl", "temperature")


def pareto_table(cells: Sequence[Cell], points: Sequence[ParetoPoint] | None = None) -> Table:
    """One row a cell. ``points``: what :func:`specsweep.analysis.pareto.pareto` made of the same cells."""
    state = {p.cell.key: p for p in (pareto(cells) if points is None else points)}
    axes = axis_columns(cells)
    columns = [
        *axes,
        *(Column(key, header, True) for key, header, _ in METRIC_COLUMNS),
        Column("pareto", "Pareto"),
        Column("valid", "valid", wraps=24),
    ]
    rows = [_pareto_row(cell, axes, state.get(cell.key)) for cell in cells]
    kept, folded, shared = fold_shared(columns, rows, FOLDABLE)
    notes, brief = _pareto_notes(cells)
    return Table("pareto", "Throughput against speed per user", kept, folded, notes, shared, brief)


def _pareto_row(cell: Cell, axes: Sequence[Column], point: ParetoPoint | None) -> Row:
    record: dict[str, Any] = {c.key: cell.axes.get(c.key) for c in axes}
    shown = [format_axis(cell.axes.get(c.key), c.key) for c in axes]
    scope = None
    for key, _, aspect in METRIC_COLUMNS:
        value = cell.estimate(key, aspect)
        put(record, key, value)
        shown.append(with_interval(value, "" if value is None or cell.valid(aspect) else "†"))
        scope = scope or (value.scope if value else None)
    valid, reason = cell.valid(), cell.why_invalid()
    record |= {
        "pareto": point.state if point else None,
        "pareto_dominated_by": point.dominated_by.key if point and point.dominated_by else None,
        "valid": valid,
        "why_invalid": reason or None,
        "interval_scope": scope,
        "sessions": sum(is_measured(a) for a in cell.attempts),
        "simulated": any(is_simulated(a) for a in cell.attempts),
        "point_ids": [a["point"]["point_id"] for a in cell.attempts],
    }
    pending = all(a["point"].get("status") == "planned" for a in cell.attempts)
    shown += [STATE_WORDS[point.state] if point else "", "yes" if valid else "…" if pending else f"no: {_short_reason(cell)}"]
    return Row(tuple(shown), record, muted=not valid, group=panel_label(cell.axes))


def _short_reason(cell: Cell) -> str:
    """The name of the first failed check, or the kind of the failure; the whole story is in the record and in the validity table."""
    first = cell.attempts[0]
    if not is_measured(first):
        error = first["point"].get("error")
        return f"{what_failed(error.get('kind'))} failed" if error else "not measured"
    failed = failed_checks(first, "valid")
    return str(failed[0]["name"]) if failed else "see checks"


def _pareto_notes(cells: Sequence[Cell]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All notes, and the two short ones of a terminal."""
    scope, brief_scope = interval_scope(max((len(c.counted()) for c in cells), default=0))
    doubted = any(is_measured(a) and not c.valid(aspect) for c in cells for a in c.attempts for aspect in ("tps", "steps", "acceptance"))
    simulated = any(is_simulated(a) for c in cells for a in c.attempts if is_measured(a))
    states = "Pareto: “frontier” if no point of the same workload is better in both rates; “within noise” if none is beyond the intervals."
    notes = [*([SIMULATED] if simulated else []), scope, *([DAGGER] if doubted else [])]
    notes += [states] if any(c.counted() for c in cells) else []
    lacking = _lacking(cells)
    notes += lacking
    brief = [brief_scope, *([BRIEF_DAGGER] if doubted else []), *lacking]
    return tuple(notes), (f"SIMULATED. {brief[0]}", *brief[1:]) if simulated else tuple(brief)


def _lacking(cells: Sequence[Cell]) -> list[str]:
    """Why a dash stands where other measured points have a number: one line a column, with the first reason."""
    lines = []
    for key, header, _ in METRIC_COLUMNS:
        reasons = [
            reason
            for cell in cells
            for a in cell.attempts
            if (reason := ((a.get("measurement") or {}).get("absent") or {}).get(key)) and not _needs_none(key, cell)
        ]
        if reasons:
            where = f"{len(reasons)} points" if len(reasons) > 1 else "one point"
            lines.append(f"{header} –: not given at {where}: {reasons[0]}.")
    return lines


def _needs_none(key: str, cell: Cell) -> bool:
    """A baseline verifies nothing, as everybody knows."""
    return key == "al_verify" and cell.baseline


def interval_scope(sessions: int) -> tuple[str, str]:
    """What the intervals hold, in full and briefly. ``sessions``: the most that stand behind one number."""
    if sessions > 1:
        return (
            f"95 % confidence intervals in brackets, between sessions (up to {sessions} repeats).",
            f"[95 % interval] between engine starts (up to {sessions} repeats).",
        )
    return WITHIN_SESSION, BRIEF_WITHIN


def speedup_table(rows: Sequence[Speedup]) -> Table:
    """One row a cell with a drafter: both ratios, the proxies, the verdict, and what speaks against believing it."""
    axes = axis_columns([r.cell for r in rows])
    columns = [
        *axes,
        Column("speedup_user_tps", "user TPS ×", True),
        Column("speedup_output_tps", "output TPS ×", True),
        Column("proxy_speedup", "proxy ×", True),
        Column("proxy_speedup_clean", "proxy (clean) ×", True),
        Column("verdict", "verdict"),
        Column("remark", "remark", wraps=32),
    ]
    made = [_speedup_row(r, axes) for r in rows]
    silent = not any(r.reason or r.warnings for r in rows)
    kept, folded, shared = fold_shared(columns, made, [*FOLDABLE, "remark"] if silent else FOLDABLE)
    scope, brief_scope = interval_scope(max((r.user_tps.sessions for r in rows if r.user_tps), default=1))
    simulated = any(is_simulated(a) for r in rows for a in r.cell.attempts)
    notes = (*((SIMULATED_RATIO,) if simulated else ()), USER_TPS_RATIO, OUTPUT_TPS_RATIO, VERDICTS, PROXY, scope)
    brief = (f"SIMULATED. {brief_scope}" if simulated else brief_scope, BRIEF_VERDICT)
    return Table("speedup", "Speedup over the same server without a drafter", kept, folded, notes, shared, brief)


def _speedup_row(row: Speedup, axes: Sequence[Column]) -> Row:
    record: dict[str, Any] = {c.key: row.cell.axes.get(c.key) for c in axes}
    put(record, "speedup_user_tps", row.user_tps)
    put(record, "speedup_output_tps", row.output_tps)
    word = row.verdict if row.user_tps else ""
    remark = row.reason or "; ".join(row.warnings)
    record |= {
        "proxy_speedup": row.proxy,
        "proxy_speedup_clean": row.proxy_clean,
        "verdict": word or None,
        "verdict_output_tps": verdict(row.output_tps) if row.output_tps else None,
        "reason": row.reason or None,
        "warnings": list(row.warnings),
        "conversations": row.conversations,
        "interval_scope": row.user_tps.scope if row.user_tps else None,
        "interval_method_user_tps": row.user_tps.method if row.user_tps else None,
        "interval_method_output_tps": row.output_tps.method if row.output_tps else None,
        "sessions": row.user_tps.sessions if row.user_tps else 0,
        "point_ids": [a["point"]["point_id"] for a in row.cell.attempts],
        "baseline_ids": [a["point"].get("baseline_id") for a in row.cell.attempts],
    }
    shown = (
        *(format_axis(row.cell.axes.get(c.key), c.key) for c in axes),
        ratio_text(row.user_tps),
        ratio_text(row.output_tps),
        _two(row.proxy),
        _two(row.proxy_clean),
        word,
        remark,
    )
    return Row(shown, record, muted=bool(row.reason), group=panel_label(row.cell.axes))


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def tables(attempts: Iterable[Attempt]) -> list[Table]:
    """Pareto and speedup table of one attempt a point."""
    chosen = latest(attempts)
    grouped = cells(chosen)
    return [pareto_table(grouped), speedup_table(speedups(grouped, chosen))]
