"""Table 14 of the paper: output tokens that a pruned vocabulary holds, and what that has to do with the acceptance of a head that is pruned so.

The paper's reference are the training tokens of its own heads, which are not published. Numbers of another reference are held against the print with a
tolerance that says so. A simulated answer is no text, so nothing about it is decidable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.arms import PRESETS
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, NumberCheck, Outcome, Verdict, about_equal, all_of
from specsweep.analysis.reproduce.collected import below, extra, worded
from specsweep.analysis.reproduce.judging import percent
from specsweep.analysis.tabular import Column, Row, Table
from specsweep.analysis.vocabulary import FULL, OVERALL, Coverage, Link, coverage_table, link

MULTILINGUAL = "multilingual"
MISSING_AT_32K = 0.22  # of multilingual tokens, as the paper's text says
POINTS = 3.0  # percentage points
_REASON = "the paper's training tokens are not published: another reference corpus"


@dataclass(frozen=True, slots=True)
class Head:
    """A drafter's head. ``kept``: what its own vocabulary holds of the target's answers, None if it has all tokens; ``al``: by category."""

    kept: Coverage | None
    al: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Arm:
    """What one target says, at one reasoning effort (empty where it has none), under several vocabularies; and the heads that were measured
    with it, by the name of their drafter."""

    target: str
    effort: str
    reference: str
    coverages: tuple[Coverage, ...]
    heads: Mapping[str, Head]


@dataclass(frozen=True, slots=True)
class Vocabularies:
    arms: tuple[Arm, ...]


def covered(evidence: Evidence) -> Outcome:
    """Table 14. Extras: ``vocabularies``."""
    found = extra(evidence, "vocabularies", Vocabularies)
    arms = found.arms if found and not evidence.simulated else ()
    links = [made for arm in arms for made in links_of(arm)]
    tables = [
        replace(
            coverage_table([*a.coverages, *_of_heads(a)], a.reference, _title(a)),
            name="_".join(filter(None, ("table14", a.target, a.effort))),
        )
        for a in arms
        if a.coverages
    ]
    notes = ("Simulated answers are no text: what they are made of says nothing about a vocabulary.",) if evidence.simulated else ()
    return Outcome((*tables, *([_link_table(links)] if links else [])), tuple(_numbers(arms)), _claims(arms, links), notes=notes)


def links_of(arm: Arm) -> list[Link]:
    """Each pruned head against each one with all tokens."""
    return [
        link(name, other, {c: e.value for c, e in head.kept.by_category.items()}, head.al, full.al)
        for name, head in arm.heads.items()
        if head.kept is not None
        for other, full in arm.heads.items()
        if full.kept is None
    ]


def _of_heads(arm: Arm) -> list[Coverage]:
    return [head.kept for head in arm.heads.values() if head.kept is not None]


def _title(arm: Arm) -> str:
    return f"Output tokens within a vocabulary, {arm.target}" + (f", {arm.effort} effort" if arm.effort else "")


def _numbers(arms: Sequence[Arm]) -> Iterable[NumberCheck]:
    for row in printed.table14():
        arm = next((a for a in arms if PRESETS.get(a.target) == row.target_model and a.effort == row.reasoning_effort), None)
        share = _share(arm, row.vocabulary_label, row.subset) if arm else None
        name = f"covered, {row.vocabulary_label}, {row.subset}, {row.reasoning_effort} effort (%)"
        yield NumberCheck(name, float(row.output_tokens_covered_percent), _scaled(share), POINTS, _REASON)


def _share(arm: Arm, label: str, subset: str) -> Estimate | None:
    one = next((c for c in arm.coverages if c.label == label), None)
    if one is None:
        return None
    return one.overall if subset == OVERALL else one.by_category.get(subset)


def _scaled(share: Estimate | None) -> Estimate | None:
    if share is None:
        return None
    low, high = (None if v is None else 100 * v for v in (share.low, share.high))
    return Estimate(100 * share.value, low, high, method=share.method, clusters=share.clusters)


def _claims(arms: Sequence[Arm], links: Sequence[Link]) -> tuple[Claim, ...]:
    less: dict[str, Verdict] = {}
    for arm in arms:
        for one in arm.coverages:
            if one.label != FULL and MULTILINGUAL in one.by_category:
                less[f"{arm.target} {arm.effort} {one.label}".replace("  ", " ")] = _less(one.by_category[MULTILINGUAL], one.overall)
    at_32k = {f"{a.target} {a.effort}".strip(): share for a in arms if (share := _share(a, "32k", MULTILINGUAL))}
    missing = {name: _complement(share) for name, share in at_32k.items()}
    follows = {f"{one.pruned} against {one.full}": _positive(one.correlation) for one in links}
    return (
        Claim(
            "multilingual-less",
            "Less of the multilingual answers lies within a pruned vocabulary than of all answers, at every size",
            "Table 14",
            all_of(less.values()),
            worded(less),
        ),
        Claim(
            "a-fifth-missing",
            "About 22 % of the multilingual tokens lie outside the 32,000 most frequent",
            "Figure 4",
            all_of(
                about_equal(share, Estimate(MISSING_AT_32K), 0.15) if share.has_interval else "not decidable" for share in missing.values()
            ),
            ", ".join(f"{name}: {percent(share)}" for name, share in missing.items()) or "no vocabulary of 32k was measured",
        ),
        Claim(
            "loss-follows-coverage",
            "Categories with less coverage lose more acceptance length by pruning",
            "Figure 4",
            all_of(follows.values()),
            "; ".join(f"{one.pruned}: correlation {_number(one.correlation)} over {len(one.loss)} categories" for one in links)
            or "needs a head with all and one with some of the target's tokens, measured by category",
        ),
    )


def _less(part: Estimate, whole: Estimate) -> Verdict:
    """A share of answers is a sample: without its interval nothing is decided."""
    return below(part, whole) if part.has_interval and whole.has_interval else "not decidable"


def _complement(share: Estimate) -> Estimate:
    low, high = (None if share.high is None else 1 - share.high), (None if share.low is None else 1 - share.low)
    return Estimate(1 - share.value, low, high, method=share.method, clusters=share.clusters)


def _positive(value: Estimate | None) -> Verdict:
    """Without an interval nothing is decided: three points lie on a line by chance."""
    if value is None or value.low is None or value.high is None or value.low <= 0 <= value.high:
        return "not decidable"
    return "holds" if value.low > 0 else "failed"


def _number(value: Estimate | None) -> str:
    if value is None:
        return "not known"
    interval = f" [{value.low:.2f}, {value.high:.2f}]" if value.low is not None and value.high is not None else ""
    return f"{value.value:.2f}{interval}"


def _link_table(links: Sequence[Link]) -> Table:
    rows = [
        Row(
            (one.pruned, one.full, category, f"{100 * one.missing[category]:.1f}", f"{100 * one.loss[category]:.1f}"),
            {"pruned": one.pruned, "full": one.full, "category": category, "missing": one.missing[category], "al_loss": one.loss[category]},
        )
        for one in links
        for category in sorted(one.missing, key=lambda c, missing=one.missing: -missing[c])  # type: ignore[misc]
    ]
    columns = (
        Column("pruned", "pruned head"),
        Column("full", "full head"),
        Column("category", "category"),
        Column("missing", "outside its vocabulary (%)", right=True),
        Column("al_loss", "loss of AL (%)", right=True),
    )
    return Table("table14_link", "Pruned vocabulary and loss of acceptance length", columns, tuple(rows))


EXPERIMENTS = (Experiment("table14", "Output tokens within a pruned vocabulary", "table14", covered, ("vocabularies",)),)
