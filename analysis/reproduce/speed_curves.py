"""Figures 6, 7 and 15 of the paper: throughput against speed per user, with random and real prompts, two draft lengths, two engines.

The settings of one figure may have been measured for several targets, input lengths or tiers; each is a panel, and every claim is checked in
each. Marks whose rates the client could not certify are drawn hollow and decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.noise import modes_table
from specsweep.analysis.reproduce.arms import Arm, arms_of
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, NumberCheck, Outcome
from specsweep.analysis.reproduce.contrasts import above, at_most, combination
from specsweep.analysis.reproduce.curves import (
    Crossing,
    Mark,
    crosses,
    crossing,
    gap_at_equal_batch_size,
    gap_at_equal_user_tps,
    marks,
    ratios,
)
from specsweep.analysis.reproduce.drawing import Axis, Line, line_figure
from specsweep.analysis.reproduce.judging import Part, against, judged, left_out, percent, points_check
from specsweep.analysis.speedup import ratio_text
from specsweep.analysis.tabular import Column, Row, Table, put, with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP_OF_PAPER = 23.0  # percent, Figure 6, with speculative decoding
CROSSING_OF_PAPER = 64  # batch size, Figure 7, from a third party's summary
CROSSING_REACH = 2.0  # a factor to both sides: the marks of the figure stand a factor of two apart
GPT_OSS = "GPT-OSS 120B"
_NO_SERIES = ("batch_size", "repeat")


@dataclass(frozen=True, slots=True)
class Curve:
    """One series of a panel."""

    name: str
    arms: tuple[Arm, ...]  # by rising batch size
    baseline: bool = False

    @property
    def marks(self) -> list[Mark]:
        return marks(self.arms)


@dataclass(frozen=True, slots=True)
class Panel:
    """What shares a pair of axes, and what is asked of it: curves by the role that they have in the figure's claims."""

    name: str
    curves: tuple[Curve, ...]
    roles: dict[str, Curve] = field(default_factory=dict)

    def get(self, role: str) -> list[Mark]:
        return self.roles[role].marks if role in self.roles else []


def panels(arms: Sequence[Arm], panel: Callable[[Arm], str], role: Callable[[Arm], str], name: Callable[[Arm], str]) -> list[Panel]:
    """Arms of one panel and one role are one curve; the first of several that differ in anything else keeps the role."""
    made = []
    for title in dict.fromkeys(panel(a) for a in arms):
        members = [a for a in arms if panel(a) == title]
        series: dict[tuple[Any, ...], list[Arm]] = {}
        for arm in members:
            key = tuple((k, repr(v)) for k, v in sorted(arm.cell.axes.items()) if k not in _NO_SERIES)
            series.setdefault(key, []).append(arm)
        curves: list[Curve] = []
        roles: dict[str, Curve] = {}
        for found in series.values():
            curve = Curve(name(found[0]), tuple(sorted(found, key=lambda a: a.batch_size)), found[0].baseline)
            curves.append(curve)
            roles.setdefault(role(found[0]), curve)
        made.append(Panel(title, tuple(curves), roles))
    return made


# -- Figure 6


def random_against_real(evidence: Evidence) -> Outcome:
    """Figure 6."""
    arms = [a for a in arms_of(evidence.attempts) if a.material in ("random", "throughput")]

    def role(arm: Arm) -> str:
        return f"{'random' if arm.material == 'random' else 'real'} {'none' if arm.baseline else 'sd'}"

    def name(arm: Arm) -> str:
        material = "random tokens" if arm.material == "random" else f"real prompts ({arm.cell.axes.get('workload')})"
        return f"{material}, " + ("no drafter" if arm.baseline else f"{arm.drafter} DL {arm.draft_length}")

    found = panels(arms, _place, role, name)
    gaps = [(p, *gap_at_equal_batch_size(p.get("random sd"), p.get("real sd"))) for p in found]
    plain = [gap_at_equal_batch_size(p.get("random none"), p.get("real none"))[0] for p in found]
    users = [gap_at_equal_user_tps(p.get("random sd"), p.get("real sd"))[0] for p in found]
    above_real = [
        Part(p.name, above(gap), f"{percent(gap)} at equal BS {_sizes(sizes)}; {percent(user)} at equal user TPS")
        for (p, gap, sizes), user in zip(gaps, users, strict=True)
        if gap
    ]
    without = [Part(p.name, above(gap), percent(gap)) for p, gap in zip(found, plain, strict=True) if gap]
    smaller = [
        Part(p.name, above(combination([gap, other], [1, -1])), f"{percent(other)} without, {percent(gap)} with")
        for (p, gap, _), other in zip(gaps, plain, strict=True)
        if gap and other
    ]
    lacking = "random tokens and throughput prompts with a drafter at the same batch sizes"
    claims = (
        judged(
            "random-above", "With speculative decoding the curve of random tokens lies above the real one", "Figure 6", above_real, lacking
        ),
        judged(
            "random-above-without",
            "Without speculative decoding there is a gap too",
            "Figure 6",
            without,
            lacking.replace("with a", "without a"),
        ),
        judged("gap-smaller-without", "That gap is smaller than the one with speculative decoding", "Figure 6", smaller, "both gaps"),
    )
    ours = next((gap for p, gap, _ in gaps if gap and _of_paper(p, "random sd", 3, "TensorRT-LLM")), None)
    number = points_check("output TPS of random tokens above real prompts, mean over batch sizes, %", GAP_OF_PAPER, _times(ours, 100))
    ratio_of = (("with SD", "random sd", "real sd"), ("without SD", "random none", "real none"))
    ratio_table = _ratio_table("fig6", "Figure 6: output TPS of random tokens over real prompts, at equal batch size", found, ratio_of)
    tables = (ratio_table, replace(modes_table(evidence.attempts), name="fig6_answers"))
    return _outcome(evidence, "fig6", "Random tokens against real prompts", found, arms, tables, claims, (number,))


def _times(value: Estimate | None, factor: float) -> Estimate | None:
    return combination([value], [factor]) if value else None


# -- Figure 7


def draft_length_by_batch_size(evidence: Evidence) -> Outcome:
    """Figure 7, with the shortest and the longest draft length that a panel has in place of 1 and 3."""
    arms = [a for a in arms_of(evidence.attempts) if a.material in ("throughput", "other")]
    lengths: dict[str, list[int]] = {}
    for arm in arms:
        if not arm.baseline:
            lengths.setdefault(_panel_of_tier(arm), []).append(arm.draft_length)

    def role(arm: Arm) -> str:
        here = lengths.get(_panel_of_tier(arm), [0])
        if arm.baseline:
            return "none"
        return "long" if arm.draft_length == max(here) > min(here) else "short" if arm.draft_length == min(here) < max(here) else "other"

    found = panels(arms, _panel_of_tier, role, lambda a: "no drafter" if a.baseline else f"{a.drafter} DL {a.draft_length}")
    found = [p for p in found if {"long", "short"} <= p.roles.keys()] or found
    compared = [(p, r, crossing(r)) for p in found if len(r := ratios(p.get("long"), p.get("short"))) > 1]
    small = [Part(_at(p, min(r)), above(r[min(r)], 1), ratio_text(r[min(r)])) for p, r, _ in compared]
    large = [Part(_at(p, max(r)), at_most(r[max(r)], 1), ratio_text(r[max(r)])) for p, r, _ in compared]
    cross = [Part(p.name, crosses(r), crossing_words(c)) for p, r, c in compared]
    near = [
        Part(p.name, _near(c, CROSSING_OF_PAPER), crossing_words(c))
        for p, r, c in compared
        if _of_paper(p, "long", 3, "vLLM") and crosses(r) == "holds"
    ]
    lacking = "two draft lengths at the same batch sizes, two of them at least"
    claims = (
        judged(
            "long-better-at-small", "The longer draft (DL 3) gives more output TPS at the smallest batch size", "Figure 7", small, lacking
        ),
        judged(
            "short-better-at-large", "The shorter draft (DL 1) gives more output TPS at the largest batch size", "Figure 7", large, lacking
        ),
        judged(
            "curves-cross",
            "The curves cross: the longer draft is ahead first, and the shorter one from some batch size on",
            "Figure 7",
            cross,
            lacking,
        ),
        judged(
            "crossing-near-64",
            f"They cross near BS {CROSSING_OF_PAPER}, within a factor of {CROSSING_REACH:.0f} (a third party's summary says so)",
            "Figure 7",
            near,
            f"a crossing shown with {GPT_OSS} + EAGLE3 on vLLM at DL 1 and 3",
        ),
    )
    pairs = (
        ("longer over shorter DL", "long", "short"),
        ("longer DL over no drafter", "long", "none"),
        ("shorter DL over no drafter", "short", "none"),
    )
    tables = (_ratio_table("fig7", "Figure 7: output TPS of two draft lengths, at equal batch size", found, pairs),)
    return _outcome(evidence, "fig7", "The best draft length by batch size", found, arms, tables, claims)


def crossing_words(at: Crossing) -> str:
    if at.batch_size is None or at.low is None or at.high is None:
        return "no crossing within what was measured"
    return f"crossing at BS {at.batch_size:.0f} [{at.low:.0f}, {at.high:.0f}]"


def _near(at: Crossing, expected: float) -> Any:
    if at.batch_size is None or at.low is None or at.high is None:
        return "not decidable"
    low, high = expected / CROSSING_REACH, expected * CROSSING_REACH
    if low <= at.low and at.high <= high:
        return "holds"
    return "failed" if at.high < low or at.low > high else "not decidable"


# -- Figure 15


def engines(evidence: Evidence) -> Outcome:
    """Figure 15."""
    arms = [a for a in arms_of(evidence.attempts) if a.material in ("throughput", "other")]

    def panel(arm: Arm) -> str:
        return f"{_panel_of_tier(arm, engine=False)}, " + ("no drafter" if arm.baseline else f"{arm.drafter} DL {arm.draft_length}")

    found = panels(arms, panel, lambda a: a.engine, lambda a: a.engine)
    parts = []
    for p in found:
        peaks = {role: peak for role in p.roles if (peak := _peak(p.get(role)))}
        if "TensorRT-LLM" in peaks and "vLLM" in peaks:
            a, b = peaks["TensorRT-LLM"], peaks["vLLM"]
            words = f"{against(a.output_tps, b.output_tps)} tokens/s, at BS {a.batch_size} and {b.batch_size}"
            parts.append(Part(p.name, above(combination([a.output_tps, b.output_tps], [1, -1])), words))
    lacking = "the same points on TensorRT-LLM and on vLLM"
    claim = judged("trtllm-above-vllm", "TensorRT-LLM lies above vLLM in peak output TPS", "Figure 15", parts, lacking)
    return _outcome(evidence, "fig15", "Engines side by side", found, arms, (_peak_table(found),), (claim,))


def _peak(curve: Sequence[Mark]) -> Mark | None:
    return max(curve, key=lambda m: m.output_tps.value, default=None)


def _peak_table(found: Sequence[Panel]) -> Table:
    columns = (
        Column("panel", "setting"),
        Column("engine", "engine"),
        Column("batch_size", "BS of the peak", True),
        Column("output_tps", "peak output TPS", True),
    )
    rows = []
    for p in found:
        for curve in p.curves:
            peak = _peak(curve.marks)
            record: dict[str, Any] = {"setting": p.name, "engine": curve.name, "batch_size": peak.batch_size if peak else None}
            put(record, "output_tps", peak.output_tps if peak else None)
            rows.append(
                Row((p.name, curve.name, str(peak.batch_size) if peak else "–", with_interval(peak.output_tps if peak else None)), record)
            )
    return Table("fig15", "Figure 15: peak output TPS by engine", columns, tuple(rows), ("The paper prints no numbers of this figure.",))


# -- shared


def _place(arm: Arm, *, engine: bool = True) -> str:
    """Target, engine and input length: what random and real prompts have in common."""
    axes = arm.cell.axes
    extra = [
        f"{k} {v}" for k, v in sorted(axes.items()) if "." in k and not k.startswith(("drafter.", "workload.", "engine.")) and v is not None
    ]
    parts = [
        arm.target,
        *([arm.engine] if engine else []),
        f"ISL {axes.get('isl')}",
        *([f"T {arm.temperature:g}"] if arm.temperature else []),
        *extra,
    ]
    return ", ".join(parts)


def _panel_of_tier(arm: Arm, *, engine: bool = True) -> str:
    return f"{_place(arm, engine=engine)}, {arm.cell.axes.get('workload')}"


def _of_paper(panel: Panel, role: str, draft_length: int, engine: str) -> bool:
    arm = panel.roles[role].arms[0]
    return (arm.target, arm.drafter, arm.draft_length, arm.engine) == (GPT_OSS, "EAGLE3", draft_length, engine) and arm.paper_target


def _sizes(sizes: Sequence[int]) -> str:
    return f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])


def _at(panel: Panel, batch_size: int) -> str:
    return f"{panel.name}, BS {batch_size}"


def _ratio_table(name: str, title: str, found: Sequence[Panel], pairs: Sequence[tuple[str, str, str]]) -> Table:
    columns = (Column("setting", "setting"), Column("batch_size", "BS", True), *(Column(text, text, True) for text, _, _ in pairs))
    rows = []
    for p in found:
        by_pair = {text: ratios(p.get(a), p.get(b)) for text, a, b in pairs}
        for size in sorted({s for r in by_pair.values() for s in r}):
            record: dict[str, Any] = {"setting": p.name, "batch_size": size}
            for text, r in by_pair.items():
                put(record, text, r.get(size))
            rows.append(Row((p.name, str(size), *(ratio_text(r.get(size)) for r in by_pair.values())), record, group=p.name))
    return Table(
        name, title, columns, tuple(rows), ("The paper prints no numbers of this figure. Intervals take the two runs as independent.",)
    )


def _outcome(
    evidence: Evidence,
    name: str,
    title: str,
    found: Sequence[Panel],
    arms: Sequence[Arm],
    tables: tuple[Table, ...],
    claims: tuple[Claim, ...],
    numbers: tuple[NumberCheck, ...] = (),
) -> Outcome:
    draw = {name: partial(_figure, found, f"{title} ({name.replace('fig', 'Figure ')})", evidence.simulated)} if found else {}
    return Outcome(tables, numbers, claims, draw, left_out(arms, "tps"))


def _figure(found: Sequence[Panel], title: str, simulated: bool) -> Figure:
    lines = {p.name: [line for curve in p.curves if (line := _line(curve)).y] for p in found}
    x, y = Axis("tokens/s per user", from_zero=True), Axis("output tokens/s", from_zero=True)
    return line_figure(lines, title, x, y, simulated=simulated)


def _line(curve: Curve) -> Line:
    """Hollow where the rates are not valid."""
    known = [(a, x, y) for a in curve.arms if (x := a.cell.estimate("user_tps_mean")) and (y := a.cell.estimate("output_tps"))]
    hollow = [not a.cell.valid("tps") for a, _, _ in known]
    tags = [str(a.batch_size) for a, _, _ in known]
    return Line(curve.name, [x for _, x, _ in known], [y for _, _, y in known], tags, hollow, baseline=curve.baseline)


EXPERIMENTS = (
    Experiment("fig6", "Random tokens against real prompts", "fig6", random_against_real),
    Experiment("fig7", "The best draft length by batch size", "fig7", draft_length_by_batch_size),
    Experiment("fig15", "Engines side by side", "fig15", engines),
)
