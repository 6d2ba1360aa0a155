"""The captures of a sweep as a table: how many experts a pass loaded, and how many no token of the capture went to.

A capture is named by the axes in which it differs from the others; what all have in common stands once, beside the title.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specsweep.analysis.attempts import AXIS_LABELS, Attempt, axes_of, is_capture, is_measured, is_simulated, is_valid
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.details import describe
from specsweep.analysis.tabular import Column, Row, Table, fold_shared

UNTIMED = "Untimed: a recorder slows every pass. A capture is no Pareto point, has no speedup and is no arm of one."
PER_PASS = (
    "Unique and unused experts, max / mean load: of a pass, mean over passes and layers. Whole: all passes added up, as if one pass had held "
    "every token; the worst layer is of that."
)
SIMULATED = "SIMULATED routing is drawn uniformly and independently, whatever the prompt; it shows nothing about a model."

_COLUMNS = (
    Column("point", "capture", wraps=12),
    Column("passes", "passes", True),
    Column("tokens", "tokens", True),
    Column("layers", "layers", True),
    Column("experts", "experts", True),
    Column("unique_mean", "unique", True),
    Column("unused_share_mean", "unused", True),
    Column("whole_unused_share_mean", "whole: unused", True),
    Column("whole_unused_share_max", "worst layer", True),
    Column("imbalance_mean", "max / mean load", True),
)
_FOLDABLE = ("point", "layers", "experts")  # of a title


def routing_table(attempts: Iterable[Attempt]) -> Table:
    """One row a measured capture. Records hold every number but those by layer, which the measurement has."""
    captures = [a for a in attempts if is_capture(a) and is_measured(a) and "routing" in a["measurement"]]
    if not captures:
        return Table("routing", "Routing captures", _COLUMNS, ())
    notes = (*([SIMULATED] if any(is_simulated(a) for a in captures) else []), UNTIMED, PER_PASS)
    common = _common(captures)
    columns, rows, folded = fold_shared(_COLUMNS, [_row(a, common) for a in captures], _FOLDABLE)
    named = {AXIS_LABELS.get(name, name): format_axis(value, name) for name, value in common.items() if value is not None}
    shared = {**named, **{header: value for header, value in folded.items() if header != "capture"}}
    return Table("routing", "Routing captures", columns, rows, notes, shared, brief=(UNTIMED, PER_PASS))


def _common(captures: Sequence[Attempt]) -> dict[str, Any]:
    """The axes that have one value in all captures."""
    first, *others = [_axes(a) for a in captures]
    return {name: value for name, value in first.items() if all(name in axes and axes[name] == value for axes in others)}


def _axes(attempt: Attempt) -> dict[str, Any]:
    return {name: value for name, value in axes_of(attempt).items() if name != "capture"}


def _row(attempt: Attempt, common: Mapping[str, Any]) -> Row:
    found: dict[str, Any] = {k: v for k, v in attempt["measurement"]["routing"].items() if not isinstance(v, dict | list)}
    cells = (
        describe({name: value for name, value in _axes(attempt).items() if name not in common}),
        f"{found['passes']:,}",
        "–" if found["tokens"] is None else f"{found['tokens']:,}",
        f"{found['layers']}",
        f"{found['experts']}",
        f"{found['unique_mean']:.1f}",
        *(f"{100 * found[key]:.1f} %" for key in ("unused_share_mean", "whole_unused_share_mean", "whole_unused_share_max")),
        f"{found['imbalance_mean']:.2f}",
    )
    record = {**axes_of(attempt), "point_id": attempt["point"]["point_id"], **found, "simulated": is_simulated(attempt)}
    return Row(cells, record, muted=not is_valid(attempt))


def capture_line(routing: dict[str, Any]) -> str:
    """What a capture found, for a line that names the point already."""
    tokens = "" if routing["tokens"] is None else f" of {routing['tokens']:,} tokens"
    return (
        f"{routing['passes']} passes{tokens}, {routing['unique_mean']:.1f} of {routing['experts']} experts a pass and layer, "
        f"{100 * routing['whole_unused_share_mean']:.1f} % unused over all"
    )
