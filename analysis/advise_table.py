"""Advice as a table: the ranking with its marks, then what misses the goal, each with the numbers that the goal is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsweep.analysis.advise import Advice, Goal, Ranked, cost_per_million
from specsweep.analysis.tabular import Column, Row, Table, put, with_interval

SHOWN = ("user_tps_mean", "output_tps_steady")
HEADERS = {"user_tps_mean": "TPS/user", "output_tps_steady": "output TPS"}


def goal_text(goal: Goal) -> str:
    order = {
        "output_tps": "most output TPS",
        "user_tps": "most TPS per user",
        "cost": f"least cost at {goal.gpu_price:g} a GPU hour" if goal.gpu_price else "",
    }
    return "; ".join([order[goal.order], *map(str, goal.bounds)])


def advice_table(advice: Advice, *, currency: str = "") -> Table:
    """One row an arm: those that may be taken, best first, then those that miss, then those without valid rates."""
    metrics = [*SHOWN, *(b.metric for b in advice.goal.bounds if b.metric not in SHOWN)]
    priced = advice.goal.gpu_price is not None
    columns = (
        Column("rank", "", True),
        Column("engine", "engine"),
        Column("arm", "drafter"),
        Column("batch_size", "BS", True),
        *(Column(m, HEADERS.get(m, m), True) for m in metrics),
        *((Column("cost", f"{currency}cost/M tokens".strip(), True),) if priced else ()),
        Column("standing", "goal"),
        Column("remark", "remark", wraps=28),
    )
    rows = [_row(r, i + 1, advice, metrics, priced=priced) for i, r in enumerate(advice.ranked)]
    rows += [_row(r, None, advice, metrics, priced=priced) for r in advice.out]
    simulated = any(r.arm.simulated for r in (*advice.ranked, *advice.out))
    notes = _notes(advice)
    table = Table("advice", f"{advice.label}: {goal_text(advice.goal)}", columns, tuple(rows), notes, brief=notes[:1] + notes[2:])
    return table.simulated() if simulated else table


def _row(r: Ranked, rank: int | None, advice: Advice, metrics: Sequence[str], *, priced: bool) -> Row:
    arm = r.arm
    record: dict[str, Any] = {"rank": rank, **arm.service, "engine": arm.engine, "arm": arm.name, "batch_size": arm.batch_size}
    for metric in metrics:
        put(record, metric, arm.values.get(metric))
    cost = cost_per_million(arm, advice.goal)
    if priced:
        put(record, "cost_per_million_tokens", cost)
    put(record, "ratio_to_first", r.to_first)
    record |= {"goal": r.standing, "tied_with_first": r.tied, "reason": r.reason or None}
    record |= {
        "source": "projected" if arm.projected else "measured",
        "simulated": arm.simulated,
        "gpus": advice.goal.gpus or arm.gpus or None,
    }
    if arm.cell is not None:
        record["point_ids"] = [a["point"]["point_id"] for a in arm.cell.attempts]
    remark = [*(["tied with the first"] if r.tied else []), *(["projected"] if arm.projected else [])]
    which = f" {', '.join(r.metrics)}" if len(advice.goal.bounds) > 1 else ""
    mark = "▸" if r is advice.first else ""
    shown = (
        f"{mark}{rank}" if rank else "–",
        arm.engine,
        arm.name,
        str(arm.batch_size),
        *(with_interval(arm.values.get(m)) for m in metrics),
        *((with_interval(cost),) if priced else ()),
        f"{r.standing}{which}" if advice.goal.bounds else "",
        "; ".join(remark),
    )
    return Row(shown, record, muted=r.standing == "misses")


def _notes(advice: Advice) -> tuple[str, ...]:
    arms = len(advice.ranked) + len(advice.out)
    notes = [
        "▸ the best that is shown to meet the goal; may miss: the interval includes the limit; misses: all of it lies beyond.",
        f"Bounds are judged with intervals that hold together over all {arms} arms (Bonferroni, 95 %); the table shows each arm's own.",
        "Tied: not shown to differ from the first, over all pairs of arms.",
    ]
    if any(r.arm.projected for r in (*advice.ranked, *advice.out)):
        notes.append(
            "Projected: user TPS = AL / step time, output TPS = BS times that; the time of prefills is not in it, so output TPS is a ceiling."
        )
    if advice.goal.gpu_price is not None:
        notes.append("Cost: price · GPUs / output TPS of the steady window, a server that is always full.")
    return tuple(notes)
