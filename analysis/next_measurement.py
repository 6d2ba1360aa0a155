"""What measuring next would decide about a piece of advice, most important first, each as one sentence with the amount of work.

An interval shrinks with the square root of what is measured, so the work to bring its end to a limit is the squared ratio of half width and
distance. That is an order of magnitude: the value itself moves too.
"""

from __future__ import annotations

import math

from specsweep.analysis.advise import Advice, Ranked
from specsweep.analysis.attempts import Estimate
from specsweep.analysis.log_scale import together
from specsweep.analysis.reasons import in_one_sentence

HOPELESS = 100  # times as many prompts: nobody will measure that


def next_measurements(advice: Advice) -> list[str]:
    """Empty only where everything is decided within what was measured."""
    first = advice.first
    found = []
    if first is None:
        found.append(_nothing_left(advice))
    else:
        found += [_would_be_first(advice, first, row) for row in _ahead(advice, first)[:2]]
        found += _batch_sizes(advice, first)
        found += _ties(advice, first)
    if advice.invalid:
        reasons = in_one_sentence((a.invalid for a in advice.invalid), "arm")
        found.append(
            f"{len(advice.invalid)} arms have no valid rates and stand in no ranking: {reasons}; measured again (rerun=invalid) they may be ahead"
        )
    if advice.unpriced:
        found.append(
            f"{advice.unpriced} arms have no {advice.goal.order} to be ranked by" + (": give --gpus" if advice.goal.order == "cost" else "")
        )
    return found


def _nothing_left(advice: Advice) -> str:
    nearest = max(advice.out, key=lambda r: _closeness(advice, r), default=None)
    if nearest is None:
        return "no arm has valid rates yet"
    return f"no arm meets the goal; the nearest is {nearest.arm.label} ({nearest.reason}): a smaller batch, or another drafter, is what to measure"


def _closeness(advice: Advice, row: Ranked) -> float:
    """The least favourable of value over limit, or limit over value; 1 is on the limit."""
    shares = []
    for bound in advice.goal.bounds:
        value = row.arm.values.get(bound.metric)
        if value is not None:
            shares.append(value.value / bound.limit if bound.at_least else bound.limit / value.value)
    return min(shares, default=0.0)


def _ahead(advice: Advice, first: Ranked) -> list[Ranked]:
    """Arms that would be first if they met the goal; all, where none is shown to meet it."""
    rows = list(advice.ranked)
    return rows[: rows.index(first)] if first.standing == "meets" else [first]


def _would_be_first(advice: Advice, first: Ranked, row: Ranked) -> str:
    bounds = [b for b in advice.goal.bounds if b.standing(row.arm.values.get(b.metric), _comparisons(advice)) == "may miss"]
    works = [_work(row.arm.values.get(b.metric), b.limit, _comparisons(advice)) for b in bounds]
    need = max((w for w in works if w is not None), default=None)
    start = f"{row.arm.label} is first if it meets the goal ({row.reason})"
    if row is first:
        start = f"no arm is shown to meet the goal; {start}"
    if need is None:
        return f"{start}: nothing bounds it there, measure more prompts"
    return f"{start}: {_times(need)}"


def _comparisons(advice: Advice) -> int:
    return max((len(advice.ranked) + len(advice.out) + advice.unpriced) * len(advice.goal.bounds), 1)


def _work(value: Estimate | None, limit: float, comparisons: int) -> float | None:
    if value is None or not value.has_interval:
        return None
    held = together(value, comparisons)
    if held.low is None or held.high is None or held.low <= 0:
        return None  # between few sessions an interval may reach below 0
    distance = abs(math.log(value.value / limit))
    return (math.log(held.high / held.low) / 2 / distance) ** 2 if distance > 0 else math.inf


def _times(need: float) -> str:
    if need > HOPELESS:
        return "it is too near to the limit for more prompts to decide"
    return f"about {max(math.ceil(need), 2)} times as many prompts would decide"


def _batch_sizes(advice: Advice, first: Ranked) -> list[str]:
    """Whether a batch size that was not measured may do better: output grows with the batch until a bound ends it."""
    if advice.goal.order == "user_tps":
        return []
    everybody = [*advice.ranked, *advice.out]
    own = {r.arm.batch_size: r for r in everybody if (r.arm.engine, r.arm.name) == (first.arm.engine, first.arm.name)}
    larger = sorted(bs for bs in own if bs > first.arm.batch_size)
    series = f"{first.arm.engine}, {first.arm.name}"
    if not larger:
        return [f"{series} was not measured above BS {first.arm.batch_size}, its best: larger batches may give more"]
    following = own[larger[0]]
    if following.standing == "meets" or larger[0] <= first.arm.batch_size + 1:
        return []
    middle = round(math.sqrt(first.arm.batch_size * larger[0]))
    word = "misses" if following.standing == "misses" else "may miss"
    return [
        f"{series} {'meets' if first.standing == 'meets' else 'may meet'} the goal at BS {first.arm.batch_size} and {word} it at BS {larger[0]}: "
        f"between them lies the largest batch that meets it; measure BS {middle}"
    ]


def _ties(advice: Advice, first: Ranked) -> list[str]:
    tied = [r for r in advice.ranked if r.tied and r is not first and r.standing == first.standing]
    if not tied:
        return []
    needs = [_work(r.to_first, 1.0, 1) for r in tied if r.to_first is not None]
    known = [n for n in needs if n is not None and n <= HOPELESS]
    names = "; ".join(r.arm.label for r in tied[:3]) + (f" and {len(tied) - 3} more" if len(tied) > 3 else "")
    how = (
        f"about {max(math.ceil(max(known)), 2)} times as many prompts, or repeats, would tell them apart"
        if known
        else "they may well be equal"
    )
    return [f"tied with the first: {names}; {how}, and until then any of them may be taken"]
