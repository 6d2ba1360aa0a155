"""The metrics of a point by what its prompts are: category, and the finer labels that a data set gives them.

Acceptance is a property of the text before all else, so a mean over a whole split hides what a drafter is good at. Every number here is
of prompts of one value alone, with an interval over those conversations; counters are of the whole point and say nothing of a part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from specsweep.analysis import acceptance, timing
from specsweep.analysis.attempts import Attempt, axes_of, panel_label
from specsweep.analysis.columns import columns
from specsweep.analysis.sections import Selection, write_acceptance, write_answers
from specsweep.analysis.sheet import PointFacts, Sheet
from specsweep.client.trace import RequestTrace

METRICS = (
    "al_decode",
    "al_decode_request_mean",
    "al_verify",
    "acceptance_rate",
    "output_tokens_mean",
    "share_cut",
    "user_tps_mean",
)
BANDS = (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)  # of a share
Parts = dict[str, dict[str, float]]


def by_category(chosen: Selection, has_steps: bool, facts: PointFacts) -> Parts:
    return _parts(chosen, lambda r: r.category, has_steps, facts)


def by_label(chosen: Selection, has_steps: bool, facts: PointFacts) -> dict[str, Parts]:
    """By each label that tells prompts apart: one that all of them share, or that none has, says nothing and is left out.

    ``turns``: conversations of one turn against those of several. ``padding`` and ``repetition``: by the share of the prompt's text.
    """
    several = {r.prompt_id for r in chosen.main if r.turn > 0}
    labels: dict[str, Callable[[RequestTrace], str]] = {
        "sub_category": lambda r: r.sub_category,
        "difficulty": lambda r: r.difficulty,
        "source": lambda r: r.source,
        "turns": lambda r: "several" if r.prompt_id in several else "one",
        "padding": lambda r: band(r.padding_share),
        "repetition": lambda r: band(r.repeated_share),
    }
    return {name: _parts(chosen, label, has_steps, facts) for name, label in labels.items() if _tells({label(r) for r in chosen.main})}


def band(share: float) -> str:
    return next((f"{low:.0%} to {high:.0%}" for low, high in pairwise(BANDS) if share < high), f"{BANDS[-2]:.0%} to 100%")


def prompt_facts(requests: Sequence[RequestTrace]) -> dict[str, float]:
    """Lengths of the prompts' bare texts, and what of them is padding and repetition: means over the prompts, of first turns."""
    first = {r.prompt_id: r for r in requests if r.turn == 0}.values()
    found = {}
    for name in ("isl_o200k", "isl_target", "padding_share", "repeated_share"):
        values = [getattr(r, name) for r in first if getattr(r, name) >= 0]
        if values:
            found[f"{name}_mean"] = sum(values) / len(values)
            found[f"{name}_max"] = float(max(values))
    return found


PADDED, REPEATED = 0.25, 0.75  # mean shares of prompts above which their acceptance is that of something else


def cautions(attempts: Iterable[Attempt]) -> list[str]:
    """A sentence for each workload and ISL whose prompts are padding or repetition to a large part."""
    found: dict[str, None] = {}
    for attempt in attempts:
        facts = (attempt.get("measurement") or {}).get("prompts") or {}
        padded, repeated = facts.get("padding_share_mean", 0.0), facts.get("repeated_share_mean", 0.0)
        where = panel_label(axes_of(attempt))
        if padded > PADDED:
            found[
                f"Take with care: prompts of {where} are {padded:.0%} padding on average, and acceptance after one repeated sentence is not that of texts."
            ] = None
        elif repeated > REPEATED:
            found[
                f"Take with care: {repeated:.0%} of the prompts of {where} repeats what stood in them before, so their acceptance is a ceiling."
            ] = None
    return list(found)


def _tells(values: Collection[str]) -> bool:
    return len(values) > 1


def _parts(chosen: Selection, label: Callable[[RequestTrace], str], has_steps: bool, facts: PointFacts) -> Parts:
    found = {}
    for value in dict.fromkeys(label(r) for r in chosen.main):
        scored = [r for r in chosen.scored if label(r) == value]
        timed = [r for r in chosen.timed if label(r) == value]
        sheet = Sheet()
        steps = acceptance.decode_steps(scored) if has_steps and scored else None
        write_acceptance(sheet, scored, steps, "", None, facts)
        write_answers(sheet, scored)
        user = timing.user_tps(columns(timed)) if timed else None
        sheet.put("user_tps_mean", user.mean if user else None)
        found[value] = {name: number for name, number in sheet.metrics.items() if name.startswith(METRICS)}
    return found
