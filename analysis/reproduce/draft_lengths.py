"""Figure 3 and Table 9 of the paper: AL against draft length, of chains by drafter and of trees by width.

Arms of one figure saw the same prompts, so every step from one draft length to the next is a paired difference. With falling returns each
further draft token adds less than the one before: the slopes between draft lengths fall.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from specsweep.analysis.attempts import Cell, Estimate
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.arms import Arm, arms_of, groups
from specsweep.analysis.reproduce.claims import Evidence, Experiment, NumberCheck, Outcome
from specsweep.analysis.reproduce.contrasts import above, category_al, macro_al, macro_contrast
from specsweep.analysis.reproduce.drawing import Axis, Line, line_figure
from specsweep.analysis.reproduce.judging import Part, against, al_check, difference, judged, left_out
from specsweep.analysis.reproduce.table1 import paper_al
from specsweep.analysis.tabular import Column, Row, Table, put, with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTERNAL, HEAD, NATIVE = "Vanilla", "EAGLE3", "MTP"


def mean_al(cell: Cell) -> Estimate | None:
    """The mean over categories where they are told apart, else AL over everything; None where acceptance is not valid."""
    return (macro_al(cell) if cell.valid("acceptance") else None) or category_al(cell)


# -- Figure 3


def by_draft_length(evidence: Evidence) -> Outcome:
    """Figure 3."""
    arms = [a for a in arms_of(evidence.attempts) if not a.baseline and a.draft_length]
    series = groups(arms, "draft_length")
    grows, returns = [], []
    for name, members in series.items():
        known = [a for a in members if a.cell.valid("acceptance")]
        for a, b in pairwise(known):
            step = macro_contrast([(b.cell, 1), (a.cell, -1)])
            grows.append(Part(f"{name}, DL {a.draft_length} to {b.draft_length}", above(step), difference(step)))
        for a, b, c in zip(known, known[1:], known[2:], strict=False):
            first, second = 1 / (b.draft_length - a.draft_length), 1 / (c.draft_length - b.draft_length)
            bend = macro_contrast([(a.cell, -first), (b.cell, first + second), (c.cell, -second)])
            returns.append(
                Part(f"{name}, DL {a.draft_length}, {b.draft_length}, {c.draft_length}", above(bend), f"slope falls by {difference(bend)}")
            )
    lacking = "acceptance of one drafter at several draft lengths"
    claims = (
        judged("al-grows", "AL grows with DL", "Figure 3", grows, lacking),
        judged(
            "falling-returns",
            "Each further draft token adds less than the one before",
            "Figure 3",
            returns,
            "three draft lengths of one drafter",
        ),
        judged(
            "native-above", "Native MTP stays above the EAGLE3 heads", "Figure 3", _native(arms), "MTP and EAGLE3 at the same draft length"
        ),
        judged(
            "external-keeps-growing",
            "External draft models keep growing at long DL where EAGLE3 flattens",
            "Figure 3",
            _late_growth(arms),
            "Vanilla and EAGLE3 of one target at the two longest of three or more draft lengths",
        ),
    )
    draw = {"fig3": partial(_lines, series, "AL by draft length (Figure 3)", evidence.simulated)} if series else {}
    return Outcome((_length_table(series),), (), claims, draw, left_out(arms, "acceptance"))


def _native(arms: Sequence[Arm]) -> Iterator[Part]:
    """MTP against every EAGLE3 head, its own target's in pairs over prompts and others as they stand."""
    for mtp in arms:
        for head in arms:
            same = (mtp.draft_length, mtp.batch_size, mtp.isl, mtp.temperature, mtp.cell.axes.get("workload")) == (
                head.draft_length, head.batch_size, head.isl, head.temperature, head.cell.axes.get("workload")
            )  # fmt: skip
            if mtp.drafter == NATIVE and head.drafter == HEAD and same and _qwen_next_or_own(mtp, arms):
                gap = macro_contrast([(mtp.cell, 1), (head.cell, -1)])
                yield Part(
                    f"{mtp.pair} over {head.pair}, DL {mtp.draft_length}", above(gap), against(mean_al(mtp.cell), mean_al(head.cell))
                )


def _qwen_next_or_own(mtp: Arm, arms: Sequence[Arm]) -> bool:
    """The paper says it of Qwen3-Next; where that was not measured, of any MTP whose target has an EAGLE3 head too."""
    named = "Qwen3-Next"
    if any(a.target == named and a.drafter == NATIVE for a in arms):
        return mtp.target == named
    return any(a.target == mtp.target and a.drafter == HEAD for a in arms)


def _late_growth(arms: Sequence[Arm]) -> Iterator[Part]:
    places: dict[tuple[Any, ...], dict[str, dict[int, Arm]]] = {}
    for arm in arms:
        key = (arm.target, arm.engine, arm.batch_size, arm.isl, arm.temperature, arm.cell.axes.get("workload"))
        places.setdefault(key, {}).setdefault(arm.drafter, {}).setdefault(arm.draft_length, arm)
    for key, kinds in places.items():
        common = sorted(set(kinds.get(EXTERNAL, {})) & set(kinds.get(HEAD, {})))
        if len(common) < 3:
            continue
        a, b = common[-2:]
        external, head = (kinds[k] for k in (EXTERNAL, HEAD))
        gap = macro_contrast([(external[b].cell, 1), (external[a].cell, -1), (head[b].cell, -1), (head[a].cell, 1)])
        grown = [macro_contrast([(k[b].cell, 1), (k[a].cell, -1)]) for k in (external, head)]
        yield Part(f"{key[0]}, DL {a} to {b}", above(gap), f"{difference(grown[0])} against {difference(grown[1])}")


def _length_table(series: dict[str, list[Arm]]) -> Table:
    lengths = sorted({a.draft_length for members in series.values() for a in members})
    columns = (Column("series", "series"), *(Column(f"DL {n}", f"DL {n}", True) for n in lengths))
    rows = []
    for name, members in series.items():
        record: dict[str, Any] = {"series": name}
        by_length = {a.draft_length: mean_al(a.cell) for a in members}
        for n in lengths:
            put(record, f"mean_al_dl_{n}", by_length.get(n))
        rows.append(Row((name, *(with_interval(by_length.get(n)) for n in lengths)), record))
    return Table("fig3", "Figure 3: mean AL by draft length", columns, tuple(rows), ("The paper prints no numbers of this figure.",))


def _lines(series: dict[str, list[Arm]], title: str, simulated: bool) -> Figure:
    lines = []
    for name, members in series.items():
        known = [(a, e) for a in members if (e := a.cell.estimate("al_decode", "acceptance"))]
        values = [mean_al(a.cell) or e for a, e in known]
        lines.append(
            Line(name, [float(a.draft_length) for a, _ in known], values, hollow=[not a.cell.valid("acceptance") for a, _ in known])
        )
    ticks = {float(n): str(n) for members in series.values() for n in sorted(a.draft_length for a in members)}
    return line_figure({"": lines}, title, Axis("draft length", dict(sorted(ticks.items()))), Axis("mean AL"), simulated=simulated)


# -- Table 9


def by_tree_width(evidence: Evidence) -> Outcome:
    """Table 9."""
    arms = [a for a in arms_of(evidence.attempts) if not a.baseline and a.setting("drafter.topk")]
    along_k, along_dl = groups(arms, "drafter.topk"), groups(arms, "draft_length")
    wider = [part for name, members in along_k.items() for part in _steps(name, members, "drafter.topk", "top-k")]
    longer = [part for name, members in along_dl.items() for part in _steps(name, members, "draft_length", "DL")]
    claims = (
        judged(
            "al-grows-with-width",
            "AL grows with top-k at every draft length",
            "Table 9",
            wider,
            "one head at several values of drafter.topk",
        ),
        judged("al-grows-with-length", "AL grows with DL at every tree width", "Table 9", longer, "one tree at several draft lengths"),
    )
    return Outcome((_tree_table(arms),), tuple(_tree_numbers(arms)), claims, notes=left_out(arms, "acceptance"))


def _steps(name: str, members: Sequence[Arm], axis: str, word: str) -> Iterator[Part]:
    known = [a for a in members if a.cell.valid("acceptance")]
    for a, b in pairwise(known):
        step = macro_contrast([(b.cell, 1), (a.cell, -1)])
        yield Part(f"{name}, {word} {a.setting(axis)} to {b.setting(axis)}", above(step), difference(step))


def _tree(arms: Sequence[Arm], row: printed.TreeRow) -> Arm | None:
    wanted = (row.target_model, row.drafter, row.engine, row.top_k, row.draft_length)
    return next(
        (a for a in arms if a.paper_target and (a.target, a.drafter, a.engine, a.setting("drafter.topk"), a.draft_length) == wanted), None
    )


def _tree_numbers(arms: Sequence[Arm]) -> Iterator[NumberCheck]:
    for row in printed.table9():
        arm = _tree(arms, row)
        yield al_check(f"AL, {row.target_model} {row.drafter}, top-k {row.top_k}, DL {row.draft_length}", float(row.al), _as_printed(arm))


def _as_printed(arm: Arm | None) -> Estimate | None:
    return (paper_al(arm) or category_al(arm.cell)) if arm else None


def _tree_table(arms: Sequence[Arm]) -> Table:
    others = [a for a in arms if not a.paper_target]
    rows = []
    for row in printed.table9():
        ours = _as_printed(_tree(arms, row))
        record: dict[str, Any] = {"target": row.target_model, "top_k": row.top_k, "draft_length": row.draft_length, "paper": float(row.al)}
        put(record, "al", ours)
        cells = (row.target_model, str(row.top_k), str(row.draft_length), with_interval(ours), f"{row.al:.2f}")
        rows.append(Row(cells, record, muted=ours is None, group=row.target_model))
    for arm in others:
        ours = _as_printed(arm)
        record = {"target": arm.target, "top_k": arm.setting("drafter.topk"), "draft_length": arm.draft_length, "paper": None}
        put(record, "al", ours)
        rows.append(Row((arm.target, str(record["top_k"]), str(arm.draft_length), with_interval(ours), ""), record, group=arm.target))
    columns = (
        Column("target", "target"),
        Column("top_k", "top-k", True),
        Column("dl", "DL", True),
        Column("al", "AL, ours", True),
        Column("paper", "paper", True),
    )
    return Table("table9", "Table 9: AL of tree drafting", columns, tuple(rows))


EXPERIMENTS = (
    Experiment("fig3", "Acceptance length by draft length", "fig3", by_draft_length),
    Experiment("table9", "Acceptance length of trees by width", "table9", by_tree_width),
)
