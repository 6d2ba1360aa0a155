"""Table 10 of the paper: speedup projected from t_ar, t_sd and AL beside the measured one, and what a head out of its length does.

The arithmetic of the print is checked too, without any measurement: t_ar · AL / t_sd of the printed inputs must give the printed projection,
within what the rounding of the inputs can move it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from specsweep.analysis.attempts import Attempt, Estimate, is_measured
from specsweep.analysis.projection import Projection, projections
from specsweep.analysis.proxy import rounding_reach
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.arms import TIERS, Arm, arms_of
from specsweep.analysis.reproduce.claims import Evidence, Experiment, NumberCheck, Outcome
from specsweep.analysis.reproduce.contrasts import at_most, combination, within
from specsweep.analysis.reproduce.judging import Part, al_check, difference, judged, left_out, speedup_check, time_check
from specsweep.analysis.speedup import ratio_text
from specsweep.analysis.tabular import Column, Row, Table, put, with_interval

AGREES = 0.05  # between projection and measurement; the paper's largest is 0.02, of numbers without intervals
LONG_ISL = 8000
STEPS_OF = "mixed"  # the tier whose step times the paper projects from


def projected_and_measured(evidence: Evidence) -> Outcome:
    """Table 10."""
    arms = {a.cell.key: a for a in arms_of(evidence.attempts) if a.material in ("throughput", "other")}
    found = [(arms[p.cell.key], p) for p in _projections(evidence.attempts, arms) if p.cell.key in arms]
    compared = []
    for arm, p in found:
        ours, measured = p.value(), p.measured
        if ours and measured:
            gap = combination([ours, measured], [1, -1])
            words = f"{ratio_text(ours)} projected, {ratio_text(measured)} measured, {difference(gap)}"
            compared.append(Part(_name(arm), within(gap, AGREES), words))
    long = [
        Part(_name(arm), at_most(p.measured, 1), f"AL {with_interval(p.al)}, speedup {ratio_text(p.measured)}")
        for arm, p in found
        if arm.drafter == "EAGLE3" and arm.isl >= LONG_ISL and p.measured
    ]
    claims = (
        judged(
            "proxy-agrees",
            f"The projection t_ar · AL / t_sd agrees with the measured speedup within {AGREES}",
            "Table 10",
            compared,
            "step times of a drafter and its baseline, and a measured speedup",
        ),
        judged(
            "out-of-length-slows",
            "At 8k, beyond what it was trained on, the EAGLE3 head makes decoding slower, whatever the entropy",
            "Table 10",
            long,
            f"EAGLE3 and its baseline at ISL {LONG_ISL} or more",
        ),
    )
    notes = [*left_out([a for a in arms.values() if not a.baseline], "tps")]
    refused = [p.reason for _, p in found if p.reason]
    notes += [f"{len(refused)} projections cannot be made: {refused[0]}."] if refused else []
    return Outcome((_table(found),), (*_arithmetic(), *_numbers(found)), claims, notes=tuple(notes))


def _projections(attempts: Iterable[Attempt], arms: dict[str, Arm]) -> list[Projection]:
    """From the step times of the mixed tier where the sweep has it, as the paper does; else from each workload's own."""
    timed = [a for a in attempts if is_measured(a)]
    mixed = {a["point"]["point_id"] for arm in arms.values() if arm.tier == STEPS_OF for a in arm.cell.attempts}
    steps = [a for a in timed if a["point"]["point_id"] in mixed]
    wanted = [a for a in timed if a["point"]["point_id"] not in mixed] if steps else timed
    return projections(steps or timed, wanted or timed, average="request")


def _name(arm: Arm) -> str:
    return f"{arm.pair}, {arm.cell.axes.get('workload')}, ISL {arm.isl}, BS {arm.batch_size}, DL {arm.draft_length}"


def _arithmetic() -> Iterator[NumberCheck]:
    for row in printed.table10():
        low, high = rounding_reach((row.t_ar_ms, 1), (row.t_sd_ms, 1), (row.al, 2))
        value = row.t_ar_ms * row.al / row.t_sd_ms
        tolerance = row.speedup_projected.rounding + (high - low) / 2
        name = f"printed inputs: {row.drafter} {row.target_category}, {row.isl_tokens}"
        yield NumberCheck(
            name, float(row.speedup_projected), Estimate(value, low, high), tolerance, "rounding of the printed inputs and result"
        )


def _row_of(row: printed.ProxyRow, found: Sequence[tuple[Arm, Projection]]) -> Projection | None:
    wanted = (row.target_model, row.drafter, row.target_category, row.isl_tokens, row.batch_size, row.draft_length)
    fitting = (p for a, p in found if a.paper_target and (a.target, a.drafter, a.tier, a.isl, a.batch_size, a.draft_length) == wanted)
    return next(fitting, None)


def _numbers(found: Sequence[tuple[Arm, Projection]]) -> Iterator[NumberCheck]:
    for row in printed.table10():
        p = _row_of(row, found)
        name = f"{row.target_model} {row.drafter}, {row.target_category}, {row.isl_tokens}"
        t_ar, t_sd = ((times or {}).get("all") for times in (p.t_ar if p else None, p.t_sd if p else None))
        yield al_check(f"{name}: AL", float(row.al), p.al if p else None)
        yield time_check(f"{name}: t_ar, ms", float(row.t_ar_ms), row.t_ar_ms.rounding, t_ar)
        yield time_check(f"{name}: t_sd, ms", float(row.t_sd_ms), row.t_sd_ms.rounding, t_sd)
        yield speedup_check(f"{name}: measured speedup", float(row.speedup_actual), row.speedup_actual.rounding, p.measured if p else None)
        yield speedup_check(
            f"{name}: projected speedup", float(row.speedup_projected), row.speedup_projected.rounding, p.value() if p else None
        )


def _table(found: Sequence[tuple[Arm, Projection]]) -> Table:
    """The paper's rows, ours beside them, and then the other arms."""
    used: set[int] = set()
    rows = []
    for row in printed.table10():
        p = _row_of(row, found)
        used.add(id(p))
        record: dict[str, Any] = {
            "target": row.target_model,
            "drafter": row.drafter,
            "category": row.target_category,
            "isl": row.isl_tokens,
        }
        paper = (row.al, row.t_ar_ms, row.t_sd_ms, row.speedup_actual, row.speedup_projected)
        rows.append(_row((row.target_model, row.drafter, row.target_category, str(row.isl_tokens)), record, p, paper))
    for arm, p in found:
        if id(p) not in used:
            category = arm.tier if arm.tier in TIERS else str(arm.cell.axes.get("workload"))
            record = {"target": arm.target, "drafter": arm.drafter, "category": category, "isl": arm.isl}
            record |= {"batch_size": arm.batch_size, "draft_length": arm.draft_length}
            rows.append(
                _row((arm.target, f"{arm.drafter} DL {arm.draft_length} BS {arm.batch_size}", category, str(arm.isl)), record, p, None)
            )
    heads = ("target", "drafter", "category", "ISL", "AL", "t_ar, ms", "t_sd, ms", "measured ×", "projected ×")
    columns = tuple(Column(h, h, i > 2) for i, h in enumerate(heads))
    notes = (
        "Each cell: ours / the paper's. Step times are means of all gaps without TTFT, of the mixed tier where it was measured.",
        "AL is the mean over requests, and the measured speedup the ratio of mean user TPS.",
    )
    return Table("table10", "Table 10: projected and measured speedup", columns, tuple(rows), notes)


def _row(cells: tuple[str, ...], record: dict[str, Any], p: Projection | None, paper: tuple[float, ...] | None) -> Row:
    ours = (
        p.al if p else None,
        (p.t_ar or {}).get("all") if p else None,
        (p.t_sd or {}).get("all") if p else None,
        p.measured if p else None,
        p.value() if p else None,
    )
    names = ("al", "t_ar_ms", "t_sd_ms", "speedup_measured", "speedup_projected")
    shown = []
    for i, (name, value) in enumerate(zip(names, ours, strict=True)):
        put(record, name, value)
        record[f"{name}_paper"] = float(paper[i]) if paper else None
        digits = 1 if name.startswith("t_") else 2
        left = f"{value.value:.{digits}f}" if value else "·"
        shown.append(f"{left} / {paper[i]:.{digits}f}" if paper else left)
    return Row((*cells, *shown), record, muted=not any(ours))


EXPERIMENTS = (Experiment("table10", "Projected and measured speedup", "table10", projected_and_measured),)
