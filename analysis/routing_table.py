"""The captures of a sweep as a table: how many experts a pass loaded, and how many no token of the capture went to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specsweep.analysis.attempts import Attempt, axes_of, is_capture, is_measured, is_simulated, is_valid
from specsweep.analysis.details import describe
from specsweep.analysis.tabular import Column, Row, Table

UNTIMED = "Untimed: a recorder slows every pass. A capture is no Pareto point, has no speedup and is no arm of one."
PER_PASS = "Per pass: mean over passes and layers. Whole capture: all passes added up, as if one pass had held every token."
SIMULATED = "SIMULATED routing is drawn uniformly and independently, whatever the prompt; it shows nothing about a model."

_COLUMNS = (
    Column("point", "capture", wraps=24),
    Column("passes", "passes", True),
    Column("tokens", "tokens", True),
    Column("layers", "layers", True),
    Column("experts", "experts", True),
    Column("unique_mean", "unique per pass", True),
    Column("unused_share_mean", "unused per pass", True),
    Column("whole_unused_share_mean", "unused, whole capture", True),
    Column("whole_unused_share_max", "worst layer", True),
    Column("imbalance_mean", "max / mean load", True),
)


def routing_table(attempts: Iterable[Attempt]) -> Table:
    """One row a measured capture. Records hold every number but those by layer, which the measurement has."""
    captures = [a for a in attempts if is_capture(a) and is_measured(a)]
    if not captures:
        return Table("routing", "Routing captures", _COLUMNS, ())
    notes = (*([SIMULATED] if any(is_simulated(a) for a in captures) else []), UNTIMED, PER_PASS)
    return Table("routing", "Routing captures", _COLUMNS, tuple(_row(a) for a in captures), notes, brief=(UNTIMED, PER_PASS))


def _row(attempt: Attempt) -> Row:
    found: dict[str, Any] = {k: v for k, v in attempt["measurement"]["routing"].items() if not isinstance(v, dict | list)}
    axes = {k: v for k, v in axes_of(attempt).items() if k != "capture"}
    cells = (
        describe(axes),
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
    """One line for a person: what a capture found."""
    tokens = "" if routing["tokens"] is None else f" of {routing['tokens']:,} tokens"
    return (
        f"routing capture: {routing['passes']} passes{tokens}, {routing['unique_mean']:.1f} of {routing['experts']} experts a pass and layer, "
        f"{100 * routing['whole_unused_share_mean']:.1f} % unused over all"
    )
