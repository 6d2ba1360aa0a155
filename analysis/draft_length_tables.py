"""The draft-length map and the crossovers as tables: one row a place of the map, one row a pair of arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.draft_length_map import GOALS, Choice, DraftLengthMap, PairCrossover, length_text
from specsweep.analysis.reasons import in_one_sentence
from specsweep.analysis.speedup import ratio_text
from specsweep.analysis.tabular import Column, Row, Table, fold_shared, put, with_interval

AXES = ("engine", "target", "drafter", "workload")
FOLDABLE = (*AXES, "isl", "left_out")
TIES = (
    "Tie: draft lengths not shown to be worse than the best, by ratios whose intervals hold together for all pairs of a cell (Bonferroni, 95 %): "
    "the truly best one is in the tie of a cell in at least 95 % of cases."
)
BRIEF_TIES = "Tie: not shown to be worse than the best; the truly best one is in it in at least 95 % of cases, cell by cell."
CROSSINGS = (
    "A crossing is shown between two measured batch sizes at which the ratio lies clearly on different sides of 1; its place is interpolated (log "
    "ratio over log batch size), its interval is where the band of intervals, which hold together over the batch sizes, contains 1."
)


def map_table(maps: Sequence[DraftLengthMap]) -> Table:
    """One row a batch size × ISL: the best draft length, its tie, its value of the goal and over ``none``. 0 in records is no drafter."""
    goal = GOALS[maps[0].goal]
    extra = sorted({n for m in maps for n in m.axes if n not in AXES and m.axes[n] is not None})
    columns = (
        *(Column(n, n.replace("temperature", "T"), n == "temperature") for n in (*AXES, *extra)),
        Column("isl", "ISL", True),
        Column("batch_size", "BS", True),
        Column("best", "best DL", True),
        Column("ties", "tie"),
        Column("value", goal[1], True),
        Column("over_none", "over none ×", True),
        Column("left_out", "left out", wraps=30),
    )
    rows = []
    for m in maps:
        made = {(c.isl, c.batch_size): _row(m, c, extra) for c in m.choices}
        made |= {(isl, batch_size): _missing(m, batch_size, isl, why, extra) for batch_size, isl, why in m.missing}
        rows += [made[place] for place in sorted(made)]
    kept, folded, shared = fold_shared(columns, rows, (*FOLDABLE, *extra))
    table = Table("draft_length_map", f"Best draft length by batch size ({goal[1]})", kept, folded, (TIES,), shared, (BRIEF_TIES,))
    return table.simulated() if any(m.simulated for m in maps) else table


def _axes(m: DraftLengthMap, extra: Sequence[str]) -> dict[str, Any]:
    return {n: m.axes.get(n) for n in (*AXES, *extra)}


def _row(m: DraftLengthMap, choice: Choice, extra: Sequence[str]) -> Row:
    axes = _axes(m, extra)
    record: dict[str, Any] = {**axes, "isl": choice.isl, "batch_size": choice.batch_size, "goal": m.goal}
    record |= {"best_draft_length": choice.draft_length, "tied_draft_lengths": list(choice.ties), "only_candidate": choice.alone}
    put(record, GOALS[m.goal][0], choice.value)
    put(record, "best_over_none", choice.over_none)
    record["ratios_to_best"] = {str(n): None if r is None else [r.value, r.low, r.high] for n, r in choice.ratios.items()}
    record["left_out"] = {str(n): why for n, why in choice.left_out}
    left_out = "; ".join(f"DL {length_text(n)}: {why}" for n, why in choice.left_out)
    shown = (
        *(format_axis(v, n) for n, v in axes.items()),
        format_axis(choice.isl, "isl"),
        str(choice.batch_size),
        length_text(choice.draft_length),
        "the only one" if choice.alone else choice.ties_text if choice.tied else "",
        with_interval(choice.value),
        "" if not choice.draft_length else ratio_text(choice.over_none),
        left_out,
    )
    return Row(shown, record, muted=choice.alone, group=m.label)


def _missing(m: DraftLengthMap, batch_size: int, isl: int, why: str, extra: Sequence[str]) -> Row:
    axes = _axes(m, extra)
    record = {**axes, "isl": isl, "batch_size": batch_size, "goal": m.goal, "best_draft_length": None, "left_out": {"all": why}}
    shown = (*(format_axis(v, n) for n, v in axes.items()), format_axis(isl, "isl"), str(batch_size), "–", "", "–", "–", f"all: {why}")
    return Row(shown, record, muted=True, group=m.label)


def crossover_table(pairs: Sequence[PairCrossover], *, simulated: bool = False) -> Table:
    """One row a pair of arms. ``ratios`` in records: batch size → [a over b, low, high]."""
    names = [n for n in dict.fromkeys(n for p in pairs for n in p.axes) if any(p.axes.get(n) is not None for p in pairs)]
    columns = (
        *(Column(n, {"isl": "ISL", "temperature": "T"}.get(n, n), n in ("isl", "temperature")) for n in names),
        Column("a", "arm"),
        Column("b", "against"),
        Column("crossover", "where they change places", wraps=50),
    )
    rows = []
    for p in pairs:
        record: dict[str, Any] = {n: p.axes.get(n) for n in names} | {"a": p.a, "b": p.b, "goal": p.goal}
        record["crossings"] = [
            {"between": [c.below, c.above], "at": c.at, "ci_low": c.low, "ci_high": c.high, "ahead_above": p.a if c.rising else p.b}
            for c in p.crossings
        ]
        record["ratios"] = {str(bs): [r.value, r.low, r.high] for bs, r in p.spots}
        record |= {"statement": p.statement, "not_compared": {str(bs): why for bs, why in p.not_compared}}
        rows.append(Row((*(format_axis(p.axes.get(n), n) for n in names), p.a, p.b, p.statement), record, muted=not p.spots))
    kept, folded, shared = fold_shared(columns, rows, names)
    goal = GOALS[pairs[0].goal][1] if pairs else ""
    table = Table("crossovers", f"Crossovers ({goal})", kept, folded, (CROSSINGS,), shared, (CROSSINGS,))
    return table.simulated() if simulated else table


def summary(maps: Sequence[DraftLengthMap]) -> list[str]:
    """One line a map: how often a draft length is best alone, and where everything is tied."""
    lines = []
    for m in maps:
        decided = [c for c in m.choices if not c.tied and not c.alone]
        parts = [f"{len(decided)} of {len(m.choices)} cells are decided, {sum(c.tied for c in m.choices)} are ties"]
        alone = sum(c.alone for c in m.choices)
        parts += [f"{alone} have one candidate only"] if alone else []
        parts += [f"{len(m.missing)} have none: {in_one_sentence(why for _, _, why in m.missing)}"] if m.missing else []
        lines.append(f"{m.label}: {', '.join(parts)}.")
    return lines
