"""Figures 8, 13 and 16 of the paper: AL over the length of the prompt, of heads by the length that they were trained on, and by entropy.

Prompts of different lengths are different prompts, so differences along the length are of independent estimates; differences at one length
are paired where the prompts are the same. How long a head was trained is not in its files: it is ``drafter.training_length`` or, where
the sweep does not say it, the ``2k`` in the drafter's name (``eagle3_train2k``). A drafter with ``drafter.rope_scaling``, or ``yarn`` in its
name, is scaled at inference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce.arms import TIERS, Arm, arms_of, groups
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, Outcome, Verdict, about_equal, all_of
from specsweep.analysis.reproduce.contrasts import above, al_contrast, at_most, category_al, combination
from specsweep.analysis.reproduce.drawing import Axis, Line, line_figure
from specsweep.analysis.reproduce.judging import Part, against, difference, judged, left_out
from specsweep.analysis.tabular import Column, Row, Table, put, with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WELL_BEYOND = 1.9  # times the training length: twice it, where 1k is 1000 tokens of a prompt and 1,024 of a head
FLAT = 0.10  # of AL between any two lengths: "flat in ISL"
HOLDS = 0.15  # of AL between the shortest and a longer length: "holds"
LMSYS_HOLDS_TO = 8000
Series = Mapping[str, list[Arm]]


def training_length(arm: Arm) -> int:
    """In tokens; 0 where nothing says it."""
    named = arm.setting("drafter.training_length")
    if isinstance(named, int) and named > 0:
        return named
    found = re.search(r"(?:(?<![a-z0-9])|train|trained)(\d+)(k?)(?![a-z0-9])", arm.option.lower())
    return int(found[1]) * (1000 if found[2] else 1) if found else 0


def scaled(arm: Arm) -> bool:
    return bool(arm.setting("drafter.rope_scaling")) or "yarn" in arm.option.lower()


def _al(arm: Arm) -> Estimate | None:
    return category_al(arm.cell)


def _difference(a: Arm, b: Arm) -> Estimate | None:
    return al_contrast([(a.cell, 1), (b.cell, -1)])


# -- Figure 8


def by_training_length(evidence: Evidence) -> Outcome:
    """Figure 8."""
    arms = [a for a in arms_of(evidence.attempts) if a.drafter == "EAGLE3" and training_length(a) and a.isl]
    series = groups(arms, "isl")
    plain = {name: [a for a in m if _al(a)] for name, m in series.items() if not scaled(m[0])}
    falls, restores = [], []
    shortest = min((training_length(a) for a in arms), default=0)
    for name, members in plain.items():
        trained = training_length(members[0]) if members else 0
        inside, beyond = [a for a in members if a.isl <= trained], [a for a in members if a.isl >= WELL_BEYOND * trained]
        if not inside or not beyond:
            continue
        reference = inside[-1]
        gap = _difference(reference, beyond[0])
        falls.append(Part(f"{name}, ISL {reference.isl} to {beyond[0].isl}", above(gap), against(_al(reference), _al(beyond[0]))))
        for long in beyond:
            twin = next((a for a in arms if scaled(a) and training_length(a) == trained and _same_place(a, long) and _al(a)), None)
            if twin and trained > shortest:
                half = al_contrast([(twin.cell, 1), (long.cell, -0.5), (reference.cell, -0.5)])
                words = f"{with_interval(_al(twin))} with, {with_interval(_al(long))} without, {with_interval(_al(reference))} within its length"
                restores.append(Part(f"{name}, ISL {long.isl}", above(half), words))
    floor = [Part(f"{name}, ISL {a.isl}", _not_below_one(_al(a)), with_interval(_al(a))) for name, m in series.items() for a in m if _al(a)]
    lacking = "a head within and at twice its training length"
    claims = (
        judged("falls-beyond-training", "AL falls once ISL exceeds the training length", "Figure 8", falls, lacking),
        judged(
            "yarn-restores",
            "YaRN at inference restores much of it (more than half), for heads that are not the shortest trained",
            "Figure 8",
            restores,
            "a head beyond its training length with and without YaRN, trained longer than the shortest",
        ),
        judged("not-below-one", "AL is never below 1", "Figure 8", floor, "AL of any head"),
    )
    return _outcome("fig8", "AL by input length and training length (Figure 8)", {"": series}, claims, arms, evidence.simulated)


def _same_place(a: Arm, b: Arm) -> bool:
    return all(
        a.cell.axes.get(k) == b.cell.axes.get(k)
        for k in ("engine", "target", "isl", "batch_size", "draft_length", "workload", "temperature")
    )


def _not_below_one(value: Estimate | None) -> Verdict:
    if value is None:
        return "not decidable"
    return "holds" if value.value >= 1 else "failed"


# -- Figure 13


def by_entropy(evidence: Evidence) -> Outcome:
    """Figure 13."""
    arms = [a for a in arms_of(evidence.attempts) if not a.baseline and a.tier and a.isl]
    panels: dict[str, dict[str, list[Arm]]] = {}
    for arm in arms:
        extra = f", DL {arm.draft_length}" if len({a.draft_length for a in arms}) > 1 else ""
        panels.setdefault(f"{arm.pair}{extra}", {}).setdefault(arm.tier.replace("_", " "), []).append(arm)
    for tiers in panels.values():
        for members in tiers.values():
            members.sort(key=lambda a: a.isl)
    order, flat, first, later = [], [], [], []
    for name, tiers in panels.items():
        at = {
            i: {a.tier: a for m in tiers.values() for a in m if a.isl == i and _al(a)}
            for i in sorted({a.isl for m in tiers.values() for a in m})
        }
        full = {i: t for i, t in at.items() if set(TIERS) <= t.keys()}
        drafter = next(iter(tiers.values()))[0].drafter
        if drafter in ("Vanilla", "MTP"):
            order += [_ordered(name, i, t) for i, t in full.items()]
            flat += [_flat(f"{name}, {tier}", members) for tier, members in tiers.items() if len([a for a in members if _al(a)]) > 1]
        elif drafter == "EAGLE3" and len(full) > 1:
            first.append(_ordered(name, min(full), full[min(full)]))
            last = full[max(full)]
            gap = _difference(last["mixed"], last["low_entropy"])
            words = f"mixed {against(_al(last['mixed']), _al(last['low_entropy']))} low entropy"
            later.append(Part(f"{name}, ISL {max(full)}", above(gap), words))
    lacking = "AL of all three tiers with {} at several input lengths"
    claims = (
        judged(
            "entropy-order",
            "Vanilla and MTP: low > mixed > high entropy at every ISL",
            "Figure 13",
            order,
            lacking.format("Vanilla or MTP"),
        ),
        judged("flat-in-isl", f"Vanilla and MTP: flat in ISL (within {FLAT:.0%})", "Figure 13", flat, lacking.format("Vanilla or MTP")),
        judged("eagle3-order-at-first", "EAGLE3: the order holds at the shortest ISL", "Figure 13", first, lacking.format("EAGLE3")),
        judged(
            "eagle3-low-falls-below", "EAGLE3: low entropy falls below mixed as ISL grows", "Figure 13", later, lacking.format("EAGLE3")
        ),
    )
    return _outcome("fig13", "AL by input length and entropy (Figure 13)", panels, claims, arms, evidence.simulated)


def _ordered(name: str, isl: int, tiers: Mapping[str, Arm]) -> Part:
    steps = [_difference(tiers[a], tiers[b]) for a, b in pairwise(TIERS)]
    words = " > ".join(with_interval(_al(tiers[t])) for t in TIERS)
    return Part(f"{name}, ISL {isl}", all_of(above(s) for s in steps), f"low, mixed, high: {words.replace(' > ', ', ')}")


def _flat(name: str, members: Sequence[Arm]) -> Part:
    known = sorted((e for a in members if (e := _al(a))), key=lambda e: e.value)
    return Part(name, about_equal(known[-1], known[0], FLAT), f"from {with_interval(known[0])} to {with_interval(known[-1])}")


# -- Figure 16


def public_heads(evidence: Evidence) -> Outcome:
    """Figure 16. Who is who stands in the drafter's name or checkpoint: lmsys, nvidia, and a head of one's own with YaRN."""
    arms = [a for a in arms_of(evidence.attempts) if a.drafter == "EAGLE3" and a.isl]
    series = groups(arms, "isl")
    parts: dict[str, list[Part]] = {"lmsys": [], "nvidia": [], "own": []}
    for name, members in series.items():
        known = [a for a in members if _al(a)]
        role = _role(members[0])
        if len(known) > 1 and role:
            parts[role] += list(_ROLES[role](name, known))
    lacking = "AL of {} at several input lengths"
    claims = (
        judged(
            "lmsys-holds-then-decays",
            "The lmsys head holds to about 8k and then decays",
            "Figure 16",
            parts["lmsys"],
            lacking.format("the lmsys head"),
        ),
        judged(
            "nvidia-decays-at-8k", "The nvidia head already decays at 8k", "Figure 16", parts["nvidia"], lacking.format("the nvidia head")
        ),
        judged("own-holds", "A head trained on 4k with YaRN at inference holds", "Figure 16", parts["own"], lacking.format("such a head")),
    )
    return _outcome("fig16", "AL of public heads by input length (Figure 16)", {"": series}, claims, arms, evidence.simulated)


def _role(arm: Arm) -> str:
    model = arm.setting("drafter.model")
    words = f"{arm.option} {model.get('repo') if isinstance(model, Mapping) else ''}".lower()
    if "lmsys" in words:
        return "lmsys"
    if scaled(arm) or "reference" in arm.option:
        return "own"
    return "nvidia" if "nvidia" in words or arm.option.rpartition("/")[2] in ("eagle3", "sim_eagle3") else ""


def _lmsys(name: str, known: Sequence[Arm]) -> Iterator[Part]:
    short = [a for a in known if a.isl <= LMSYS_HOLDS_TO]
    if len(short) > 1:
        yield Part(f"{name}, to ISL {short[-1].isl}", _keeps(short[0], short[-1]), against(_al(short[-1]), _al(short[0])))
    if short and known[-1].isl > LMSYS_HOLDS_TO:
        gap = _difference(short[-1], known[-1])
        yield Part(f"{name}, ISL {short[-1].isl} to {known[-1].isl}", above(gap), f"falls by {difference(gap)}")


def _nvidia(name: str, known: Sequence[Arm]) -> Iterator[Part]:
    at = next((a for a in known if a.isl >= LMSYS_HOLDS_TO), None)
    if at and at is not known[0]:
        yield Part(f"{name}, ISL {known[0].isl} to {at.isl}", above(_difference(known[0], at)), against(_al(known[0]), _al(at)))


def _own(name: str, known: Sequence[Arm]) -> Iterator[Part]:
    yield Part(f"{name}, ISL {known[0].isl} to {known[-1].isl}", _keeps(known[0], known[-1]), against(_al(known[0]), _al(known[-1])))


_ROLES = {"lmsys": _lmsys, "nvidia": _nvidia, "own": _own}


def _keeps(first: Arm, later: Arm) -> Verdict:
    """Whether AL at the longer input is at least (1 - HOLDS) of that at the shorter one."""
    a, b = _al(first), _al(later)
    return at_most(combination([a, b], [1 - HOLDS, -1]), 0) if a and b else "not decidable"


# -- shared


def _outcome(
    name: str, title: str, panels: Mapping[str, Series], claims: tuple[Claim, ...], arms: Sequence[Arm], simulated: bool
) -> Outcome:
    lengths = sorted({a.isl for a in arms})
    columns = (Column("series", "series"), *(Column(f"isl_{n}", f"ISL {n}", True) for n in lengths))
    rows = []
    for panel, series in panels.items():
        for label, members in series.items():
            record: dict[str, Any] = {"series": " ".join(filter(None, (panel, label)))}
            by_length = {a.isl: _al(a) for a in members}
            for n in lengths:
                put(record, f"al_isl_{n}", by_length.get(n))
            rows.append(Row((record["series"], *(with_interval(by_length.get(n)) for n in lengths)), record))
    table = Table(name, title, columns, tuple(rows), ("The paper prints no numbers of this figure.",))
    draw = {name: partial(_figure, panels, title, simulated)} if arms else {}
    return Outcome((table,), (), claims, draw, left_out(arms, "acceptance"))


def _figure(panels: Mapping[str, Series], title: str, simulated: bool) -> Figure:
    drawn = {}
    for panel, series in panels.items():
        lines = []
        for label, members in series.items():
            known = [
                (float(a.isl), e, not a.cell.valid("acceptance")) for a in members if (e := a.cell.estimate("al_decode", "acceptance"))
            ]
            lines.append(
                Line(label, [x for x, _, _ in known], [e for _, e, _ in known], hollow=[h for _, _, h in known], dashed=scaled(members[0]))
            )
        drawn[panel] = lines
    lengths = sorted({a.isl for series in panels.values() for m in series.values() for a in m})
    ticks = {float(n): f"{n / 1000:g}k" if n >= 1000 else str(n) for n in lengths}
    axes = Axis("input length (tokens)", ticks, log=True), Axis("mean AL")
    return line_figure(drawn, title, *axes, simulated=simulated, limit=(1.0, "AL 1: nothing accepted"))


EXPERIMENTS = (
    Experiment("fig8", "Acceptance by input length and training length of the head", "fig8", by_training_length),
    Experiment("fig13", "Acceptance by input length and entropy", "fig13", by_entropy),
    Experiment("fig16", "Public heads on long inputs", "fig16", public_heads),
)
