"""From the parts of a claim (one a target, a category, a batch size) to its verdict and to one sentence that says what it rests on.

A claim of the paper is mostly about several arms at once: it fails with one part that is shown to be otherwise, and holds if every part is
shown. Where the paper says "almost" or "most", the rule allows for that many. Nothing measured decides nothing, and the sentence says what
is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce.arms import Arm
from specsweep.analysis.reproduce.claims import Claim, NumberCheck, Outcome, Verdict, all_of
from specsweep.analysis.tabular import decimals_for, with_interval

LEFT_OUT = "left out, not valid"
SHOWN = 4  # parts of one verdict that the sentence tells in full
_WORDS: dict[Verdict, str] = {"failed": "not so", "not decidable": "open", "holds": "so"}

AL_TOLERANCE = 0.05
AL_REASON = (
    "AL: 0.05; the paper's own two runs of one configuration, on other GPUs, differ by up to 0.04 a category, and the print is rounded"
)
SPEEDUP_TOLERANCE = 0.05
SPEEDUP_REASON = "speedup: 5 % of the printed value plus its rounding; engine builds and GPUs differ by that much"
TIME_TOLERANCE = 0.05
TIME_REASON = "step time: 5 % of the printed value plus its rounding"
POINTS_REASON = "percentage of a figure's text: 5 points"
POINTS_TOLERANCE = 5.0


@dataclass(frozen=True, slots=True)
class Part:
    """One of the statements that a claim consists of. ``words``: its numbers, e.g. ``2.72 [2.66, 2.78] against 2.14 [2.08, 2.20]``."""

    name: str
    verdict: Verdict
    words: str = ""


def judged(
    key: str, text: str, source: str, parts: Iterable[Part], lacking: str, rule: Callable[[Sequence[Verdict]], Verdict] = all_of
) -> Claim:
    """``lacking``: what must be measured for there to be any part. Parts that are shown to be otherwise are told first."""
    found = list(parts)
    verdict = rule([p.verdict for p in found])
    if not found:
        return Claim(key, text, source, "not decidable", lacking)
    sentences = []
    words: tuple[Verdict, ...] = ("failed", "not decidable", "holds")
    for word in words:
        members = [p for p in found if p.verdict == word]
        if members:
            told = [f"{p.name}: {p.words}" if p.words else p.name for p in members[:SHOWN]]
            more = [f"and {len(members) - SHOWN} more"] if len(members) > SHOWN else []
            count = f" {len(members)} of {len(found)}" if len(found) > 1 else ""
            sentences.append(f"{_WORDS[word]}{count} – " + "; ".join(told + more))
    return Claim(key, text, source, verdict, ". ".join(sentences))


def all_but(allowed: int) -> Callable[[Sequence[Verdict]], Verdict]:
    """Of a statement with exceptions: up to ``allowed`` parts need not hold; it fails if more than that are shown to be otherwise."""

    def rule(found: Sequence[Verdict]) -> Verdict:
        if sum(v == "failed" for v in found) > allowed:
            return "failed"
        return "holds" if found and sum(v != "holds" for v in found) <= allowed else "not decidable"

    return rule


def almost_all(found: Sequence[Verdict]) -> Verdict:
    """At most one part in ten is otherwise."""
    return all_but(len(found) // 10)(found)


def most(found: Sequence[Verdict]) -> Verdict:
    """More than half; of nothing, nothing can be decided."""
    return all_but(max(len(found) - 1, 0) // 2)(found)


def against(first: Estimate | None, second: Estimate | None) -> str:
    return f"{with_interval(first)} against {with_interval(second)}"


def percent(share: Estimate | None) -> str:
    """A share as percent with its interval: ``23.1 % [20.0, 26.3]``."""
    if share is None:
        return "–"
    text = f"{100 * share.value:.1f} %"
    return text + (f" [{100 * share.low:.1f}, {100 * share.high:.1f}]" if share.low is not None and share.high is not None else "")


def difference(value: Estimate | None) -> str:
    """A difference with its sign and interval."""
    if value is None:
        return "–"
    digits = max(decimals_for(value.value), 2)
    text = f"{value.value:+.{digits}f}"
    return text + (f" [{value.low:+.{digits}f}, {value.high:+.{digits}f}]" if value.low is not None and value.high is not None else "")


def left_out(arms: Iterable[Arm], aspect: str) -> tuple[str, ...]:
    """A note on the cells that were measured, or tried, and whose numbers are not used: how many, and why the first was not."""
    reasons = [(a, why) for a in arms if (why := a.lacking(aspect))]
    if not reasons:
        return ()
    first, why = reasons[0]
    where = f"{first.pair}, BS {first.batch_size}"
    return (f"{len(reasons)} cell{'s' if len(reasons) > 1 else ''} {LEFT_OUT} ({aspect}): {where}: {why}.",)


def explained(outcome: Outcome) -> Outcome:
    """With the cells that were left out named in the evidence of every claim that they may have kept from being decided."""
    reasons = " ".join(note for note in outcome.notes if LEFT_OUT in note)
    if not reasons:
        return outcome
    claims = tuple(replace(c, evidence=f"{c.evidence}. {reasons}") if c.verdict == "not decidable" else c for c in outcome.claims)
    return replace(outcome, claims=claims)


def al_check(name: str, paper: float, ours: Estimate | None) -> NumberCheck:
    return NumberCheck(name, paper, ours, AL_TOLERANCE, AL_REASON)


def speedup_check(name: str, paper: float, rounding: float, ours: Estimate | None) -> NumberCheck:
    return NumberCheck(name, paper, ours, SPEEDUP_TOLERANCE * abs(paper) + rounding, SPEEDUP_REASON)


def time_check(name: str, paper: float, rounding: float, ours: Estimate | None) -> NumberCheck:
    return NumberCheck(name, paper, ours, TIME_TOLERANCE * abs(paper) + rounding, TIME_REASON)


def points_check(name: str, paper: float, ours: Estimate | None) -> NumberCheck:
    return NumberCheck(name, paper, ours, POINTS_TOLERANCE, POINTS_REASON)
