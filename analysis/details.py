"""The tables behind the two main ones: acceptance, what is not valid, what the grid lost, and what was found of the environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specsweep.analysis.attempts import (
    AXIS_LABELS,
    Attempt,
    Cell,
    Estimate,
    axes_of,
    env_of,
    failed_checks,
    is_measured,
    over_sessions,
    panel_axes,
    panel_label,
    series_axes,
    why_invalid,
)
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.check_units import short_number, with_unit
from specsweep.analysis.environment import flatten
from specsweep.analysis.tables import FOLDABLE, axis_columns
from specsweep.analysis.tabular import Column, Row, Table, fold_shared, put, with_interval

POSITION_NOTE = (
    "Rate at which the draft token of a position is accepted, given that all before it were. Arms with other draft lengths start "
    "their steps at other places of the text, so their rates at the same position need not agree; they are not averaged."
)
SMALLEST = "One row a series: its smallest batch size with valid acceptance, since every batch size runs the same prompts."


def acceptance_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Of each series in each panel the cell that stands for its acceptance: the smallest batch size, a valid one if there is any."""
    chosen: dict[str, Cell] = {}
    for cell in cells:
        if cell.baseline or not any(a["measurement"].get("ar_cond") for a in cell.counted("acceptance")):
            continue
        key = repr([(n, cell.axes.get(n)) for n in [*panel_axes(cell.axes), *series_axes(cell.axes)]])
        best = chosen.get(key)
        if best is None or (not cell.valid("acceptance"), cell.batch_size) < (not best.valid("acceptance"), best.batch_size):
            chosen[key] = cell
    return list(chosen.values())


def position_table(cells: Sequence[Cell]) -> Table:
    """Conditional acceptance rate by position, for ``cells`` of :func:`acceptance_cells`. A position never reached is said to be so."""
    axes = axis_columns(cells)
    longest = max((len(_positions(c)) for c in cells), default=0)
    columns = [*axes, *(Column(f"ar_cond_{k}", f"position {k}", True) for k in range(1, longest + 1))]
    rows = []
    for cell in cells:
        record: dict[str, Any] = {c.key: cell.axes.get(c.key) for c in axes}
        shown = [format_axis(cell.axes.get(c.key), c.key) for c in axes]
        positions = _positions(cell)
        for k in range(1, longest + 1):
            value, reached = positions.get(k, (None, None))
            put(record, f"ar_cond_{k}", value)
            record[f"reached_{k}"] = reached
            mark = "" if cell.valid("acceptance") else "†"
            shown.append("" if reached is None else "not reached" if value is None else with_interval(value, mark))
        rows.append(Row(tuple(shown), record, not cell.valid("acceptance"), panel_label(cell.axes)))
    kept, folded, shared = fold_shared(columns, rows, FOLDABLE)
    return Table("acceptance_by_position", "Acceptance rate by draft position", kept, folded, (POSITION_NOTE, SMALLEST), shared)


def _positions(cell: Cell) -> dict[int, tuple[Estimate | None, int]]:
    """Position → (rate, how often it was reached), over the sessions of the cell."""
    values: dict[int, list[Estimate]] = {}
    reached: dict[int, int] = {}
    for attempt in cell.counted("acceptance"):
        for row in attempt["measurement"].get("ar_cond") or ():
            k = int(row["position"])
            reached[k] = reached.get(k, 0) + int(row.get("reached") or 0)
            if row.get("value") is not None:
                values.setdefault(k, []).append(Estimate(row["value"], row.get("ci_low"), row.get("ci_high")))
    return {k: (over_sessions(values[k]) if k in values else None, n) for k, n in sorted(reached.items())}


def category_table(cells: Sequence[Cell]) -> Table:
    """AL by category, for ``cells`` of :func:`acceptance_cells`."""
    axes = axis_columns(cells)
    found = {c.key: [a["measurement"].get("by_category") or {} for a in c.counted("acceptance")] for c in cells}
    names = list(dict.fromkeys(name for parts in found.values() for part in parts for name in part))
    columns = [*axes, *(Column(f"al_decode[{n}]", n, True) for n in names)]
    rows = []
    for cell in cells:
        record: dict[str, Any] = {c.key: cell.axes.get(c.key) for c in axes}
        shown = [format_axis(cell.axes.get(c.key), c.key) for c in axes]
        for name in names:
            parts = [p[name] for p in found[cell.key] if p.get(name, {}).get("al_decode") is not None]
            values = [Estimate(p["al_decode"], p.get("al_decode_ci_low"), p.get("al_decode_ci_high")) for p in parts]
            value = over_sessions(values) if values else None
            put(record, f"al_decode[{name}]", value)
            shown.append(with_interval(value, "" if cell.valid("acceptance") else "†"))
        rows.append(Row(tuple(shown), record, not cell.valid("acceptance"), panel_label(cell.axes)))
    kept, folded, shared = fold_shared(columns, rows, FOLDABLE)
    return Table("acceptance_by_category", "Acceptance length (decode) by category", kept, folded, (SMALLEST,), shared)


LABELS = {
    "sub_category": "sub-category",
    "difficulty": "difficulty",
    "source": "source",
    "turns": "turns",
    "padding": "padding",
    "repetition": "repetition",
}


def label_tables(cells: Sequence[Cell]) -> list[Table]:
    """AL and speed by each label, finer than a category, that tells the prompts of any of ``cells`` apart; a row each value."""
    told = {label for c in cells for a in c.counted("acceptance") for label in a["measurement"].get("by_label") or ()}
    return [_label_table(cells, label, words) for label, words in LABELS.items() if label in told]


def _label_table(cells: Sequence[Cell], label: str, words: str) -> Table:
    axes = axis_columns(cells)
    measured = (("al_decode", "AL"), ("user_tps_mean", "TPS/user"))
    rows = []
    for cell in cells:
        parts = [(a["measurement"].get("by_label") or {}).get(label) or {} for a in cell.counted("acceptance")]
        for value in dict.fromkeys(value for part in parts for value in part):
            record: dict[str, Any] = {**{c.key: cell.axes.get(c.key) for c in axes}, label: value}
            shown = [*(format_axis(cell.axes.get(c.key), c.key) for c in axes), value or "(none)"]
            for name, _ in measured:
                found = [p[value] for p in parts if p.get(value, {}).get(name) is not None]
                values = [Estimate(f[name], f.get(f"{name}_ci_low"), f.get(f"{name}_ci_high")) for f in found]
                estimate = over_sessions(values) if values else None
                put(record, name, estimate)
                shown.append(with_interval(estimate, "" if cell.valid("acceptance") else "†"))
            rows.append(Row(tuple(shown), record, not cell.valid("acceptance"), cell.key))
    columns = [*axes, Column(label, words), *(Column(name, header, True) for name, header in measured)]
    kept, folded, shared = fold_shared(columns, rows, FOLDABLE)
    return Table(f"acceptance_by_{label}", f"Acceptance length (decode) by {words}", kept, folded, (SMALLEST,), shared)


def validity_table(attempts: Iterable[Attempt]) -> Table:
    """Every check that failed and every point that could not be measured. Same check, same limit: one row with the number of points."""
    columns = (
        Column("point", "point", wraps=20),
        Column("check", "check"),
        Column("value", "value", True),
        Column("limit", "limit", True),
        Column("affects", "affects"),
        Column("message", "what it means", wraps=32),
    )
    rows = []
    for attempt in attempts:
        where = describe(axes_of(attempt))
        common = {"point": where, "point_id": attempt["point"]["point_id"]}
        if not is_measured(attempt):
            kind = (attempt["point"].get("error") or {}).get("kind", "error")
            record = {
                **common,
                "check": "measured",
                "value": None,
                "limit": None,
                "affects": ["all"],
                "message": why_invalid(attempt),
                "error_kind": kind,
            }
            rows.append(Row((where, "measured", "no", "", "all", str(record["message"])), record, True))
        for check in failed_checks(attempt):
            keys = ("value", "limit", "affects", "message")
            record = {**common, "check": check["name"], **{k: check.get(k) for k in keys}}
            cells = (where, check["name"], *(with_unit(check["name"], check.get(k)) for k in ("value", "limit")))
            rows.append(Row((*cells, ", ".join(check.get("affects") or ()), str(check.get("message", ""))), record))
    return Table("validity", "Checks that failed", columns, tuple(rows))


def describe(axes: Mapping[str, Any]) -> str:
    """``ngram · DL 4 · BS 8 · low_entropy · ISL 256 …``: every axis of one point on one line."""
    bare = ("engine", "target", "drafter", "workload")
    order = sorted(axes, key=lambda n: _READING.index(n) if n in _READING else len(_READING))
    return " · ".join(
        format_axis(axes[n]) if n in bare else f"{AXIS_LABELS.get(n, n)} {format_axis(axes[n], n)}" for n in order if axes[n] is not None
    )


_READING = ("drafter", "draft_length", "batch_size", "workload", "isl", "temperature", "engine", "target", "repeat")


def dropped_table(dropped: Iterable[Mapping[str, Any]]) -> Table:
    """Cells that the grid lost, one row a rule and reason, with how many and which."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in dropped:
        groups.setdefault((str(cell["rule"]), str(cell["reason"])), []).append(cell["axes"])
    columns = (
        Column("count", "points", True),
        Column("which", "which", wraps=12),
        Column("reason", "reason", wraps=16),
        Column("rule", "rule"),
    )
    rows = []
    for (rule, reason), members in groups.items():
        values: dict[str, list[str]] = {}
        for axes in members:
            for name, value in axes.items():
                text = format_axis(value, name)
                if text not in values.setdefault(name, []):
                    values[name].append(text)
        which = " · ".join(f"{AXIS_LABELS.get(n, n)} {', '.join(v)}" for n, v in values.items() if v != ["–"])
        record = {"rule": rule, "reason": reason, "count": len(members), "axes": [dict(a) for a in members]}
        rows.append(Row((str(len(members)), which, reason, rule), record))
    return Table("dropped", "Combinations that the grid lost", columns, tuple(rows))


def _found(value: Any) -> str:
    if value is None or value == [] or value == ():
        return "–"
    return short_number(value) if isinstance(value, float) else str(value)


def environment_table(attempts: Sequence[Attempt]) -> Table:
    """What was found: one row a field; a field that differs between sessions shows each value and for which drafters it was found."""
    values: dict[str, dict[str, list[str]]] = {}
    measured = [a for a in attempts if is_measured(a)]
    for attempt in measured:
        axes = axes_of(attempt)
        who = " · ".join(format_axis(axes[n]) for n in ("engine", "drafter", "draft_length") if axes.get(n) is not None)
        for name, value in flatten(env_of(attempt)):
            found = values.setdefault(name, {}).setdefault(_found(value), [])
            if who not in found:
                found.append(who)
    rows = []
    for name, seen in sorted(values.items()):
        text = next(iter(seen)) if len(seen) == 1 else "; ".join(f"{v} ({', '.join(who)})" for v, who in seen.items())
        rows.append(Row((name, text), {"field": name, "values": seen}))
    return Table("environment", "Environment", (Column("field", "field", wraps=16), Column("value", "found", wraps=24)), tuple(rows))
