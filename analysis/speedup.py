"""Speedup of a drafter over the same server without one, with an interval, or the reason why there is none.

Two ratios, each named, because they answer different questions:

* **user TPS**: mean over requests of (tokens after the first chunk / time after it), with drafter over without. Both arms
  ran the same prompts, so the ratio is paired over conversations (jackknife-t): what makes one prompt easy to generate
  fast is common to both arms and cancels. What all conversations of an arm have in common (its engine steps) is added as the arm's own
  measurement gives it.
* **output TPS**: tokens of all requests per second of the steady window, with over without. Requests share engine steps,
  so the interval comes from blocks of time, not from resampling requests.

A ratio is given only where the arms differ in nothing but the drafter: declared axes and what was found of the environment
must agree. With repeats, a ratio is taken per repeat (arms of the same repeat ran next to each other) and the interval is the one between
the sessions' log ratios; with one repeat the interval is *within-session* and says so.

Beside the measured ratio stands the proxy t_ar · AL / t_sd of the SPEED-Bench paper: AL with the target's own token, t the mean
of all gaps between steps, TTFT left out; ``proxy_clean`` uses the gaps that no other request's prefill stretched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from specsweep.analysis import stats
from specsweep.analysis.attempts import (
    Attempt,
    Cell,
    Estimate,
    axes_of,
    estimate,
    is_measured,
    is_valid,
    over_sessions,
    why_invalid,
)
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.environment import environment_differences
from specsweep.analysis.proxy import proxy_speedup
from specsweep.analysis.reasons import in_one_sentence

Verdict = Literal["faster", "slower", "not shown"]
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]  # one conversation with the drafter and without
Floats = NDArray[np.float64]

ASPECTS = {"tps": "rates", "steps": "step times"}
CUT_SHARE_MAY_DIFFER = 0.05  # absolute difference of the share of answers that the cap cut
LOOPING_MAY_DIFFER = 0.05  # absolute difference of the share of answers that end in a loop
LENGTH_MAY_DIFFER = 0.05  # relative difference of mean answer length, over all categories
CATEGORY_LENGTH_MAY_DIFFER = 0.10  # the same in one category, which has fewer answers
CATEGORY_MIN_CONVERSATIONS = 4


@dataclass(frozen=True, slots=True)
class Speedup:
    """One cell against its baseline. Ratios are dimensionless, above 1 is faster than the baseline."""

    cell: Cell
    user_tps: Estimate | None = None
    output_tps: Estimate | None = None
    user_tps_pooled: Estimate | None = None  # Σ tokens / Σ time instead of the mean over requests: what a pooled AL goes with
    proxy: float | None = None
    proxy_clean: float | None = None
    conversations: int = 0  # common to both arms: the clusters of the user TPS interval
    reason: str = ""  # why there is no speedup
    warnings: tuple[str, ...] = ()  # what a reader must know before believing it
    idle: bool = False  # not one draft was accepted in any attempt

    @property
    def verdict(self) -> Verdict:
        """Of the user TPS ratio. A drafter that gave nothing cannot have made anything faster: what is left is the sessions' own spread."""
        word = verdict(self.user_tps)
        return "not shown" if self.idle and word == "faster" else word


def verdict(ratio: Estimate | None) -> Verdict:
    """Above 1 or below 1 only if the whole interval is. Without an interval nothing is shown."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return "not shown"
    return "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "not shown"


def speedups(cells: Iterable[Cell], attempts: Iterable[Attempt]) -> list[Speedup]:
    """One :class:`Speedup` for every cell with a drafter, in the order of ``cells``. ``attempts``: where the baselines are looked up."""
    by_id = {a["point"]["point_id"]: a for a in attempts}
    return [_speedup(cell, by_id) for cell in cells if not cell.baseline]


def _speedup(cell: Cell, by_id: Mapping[str, Attempt]) -> Speedup:
    pairs: list[tuple[Attempt, Attempt]] = []
    refused: list[str] = []
    for attempt in cell.attempts:
        baseline = by_id.get(attempt["point"].get("baseline_id") or "")
        why = _why_not(attempt, baseline)
        if why or baseline is None:
            refused.append(why)
        else:
            pairs.append((attempt, baseline))
    if not pairs:
        return Speedup(cell, reason=refused[0])
    found = [_ratios(*pair) for pair in pairs]
    warnings = tuple(dict.fromkeys(w for pair in pairs for w in arm_warnings(*pair)))
    idle = all(accepted_nothing(attempt) for attempt, _ in pairs)
    if idle:
        warnings += ("no draft was accepted, so a gain can only be a difference between the two sessions",)
    if refused:
        warnings += (f"{len(refused)} of {len(cell.attempts)} repeats left out: {refused[0]}",)
    return Speedup(
        cell,
        user_tps=_combine([f.user_tps for f in found]),
        output_tps=_combine([f.output_tps for f in found]),
        user_tps_pooled=_combine([f.user_tps_pooled for f in found]),
        proxy=_mean([proxy(*pair, "step_ms_mean") for pair in pairs]),
        proxy_clean=_mean([proxy(*pair, "step_ms_decode_mean") for pair in pairs]),
        conversations=min(f.conversations for f in found),
        warnings=warnings,
        idle=idle,
    )


def accepted_nothing(attempt: Attempt) -> bool:
    """Not one draft token of it was accepted, as far as its conversations say: nothing that drafting did can have made it faster."""
    rows = attempt["measurement"].get("per_conversation") or ()
    return bool(rows) and all(row.get("accepted") == 0 for row in rows)


def same_work(a: Cell, b: Cell) -> bool:
    """Neither arm had one draft accepted: what differs between them is their sessions, and never the drafting."""
    return all(c.baseline or all(accepted_nothing(x) for x in c.counted()) for c in (a, b))


def _why_not(attempt: Attempt, baseline: Attempt | None) -> str:
    why = unlike_arms(attempt, baseline, "tps")
    if why or baseline is None:
        return why
    return "" if _common(attempt, baseline) else "the arms have no prompt in common"


def unlike_arms(attempt: Attempt, baseline: Attempt | None, aspect: str) -> str:
    """Why the two cannot be set against each other as the same server with and without its drafter, by numbers whose validity is
    ``aspect`` (tps, steps); empty if they can."""
    if is_measured(attempt):
        if not attempt["point"].get("baseline_id"):
            return "the sweep has no point with drafter none to compare with"
        if baseline is None:
            return "the baseline is not measured yet"
    return _unlike(attempt, baseline, aspect, "the baseline")


def _unlike(attempt: Attempt, other: Attempt | None, aspect: str, name: str) -> str:
    """The same of any two arms of one server. ``name``: what the other is called."""
    if not is_measured(attempt):
        return why_invalid(attempt)
    if other is None or not is_measured(other):
        return f"{name} {why_invalid(other) if other is not None else 'is not measured yet'}"
    for which, arm in (("", attempt), (f"{name}'s ", other)):
        if not is_valid(arm, aspect):
            return f"{which}{ASPECTS[aspect]} are not valid: {why_invalid(arm, aspect)}"
    mine, theirs = axes_of(attempt), axes_of(other)
    for axis, value in theirs.items():
        if not axis.startswith("drafter") and axis != "draft_length" and value != mine.get(axis):
            return f"the arms differ in {axis}: {format_axis(mine.get(axis), axis)} against {format_axis(value, axis)}"
    differing = environment_differences(attempt, other)
    if differing:
        return "the arms ran in different environments: " + "; ".join(differing[:3])
    return ""


def arm_ratios(cell: Cell, other: Cell) -> tuple[Mapping[str, Estimate | None], str]:
    """``cell`` over ``other``, two arms of one server that differ in the drafter or its draft length alone: the ratios by name
    (``user_tps``, ``output_tps``), made as those over the baseline are; or none, and the reason."""
    theirs = {axes_of(a).get("repeat"): a for a in other.attempts}
    pairs, refused = [], ""
    for attempt in cell.attempts:
        partner = theirs.get(axes_of(attempt).get("repeat"))
        why = _unlike(attempt, partner, "tps", "the other arm")
        if why or partner is None:
            refused = refused or why
        elif not _common(attempt, partner):
            refused = refused or "the arms have no prompt in common"
        else:
            pairs.append((attempt, partner))
    if not pairs:
        return {}, refused
    found = [_ratios(*pair) for pair in pairs]
    return {"user_tps": _combine([f.user_tps for f in found]), "output_tps": _combine([f.output_tps for f in found])}, ""


@dataclass(frozen=True, slots=True)
class _PairRatios:
    user_tps: Estimate | None
    output_tps: Estimate | None
    user_tps_pooled: Estimate | None
    conversations: int


# The columns of a conversation that make the two averages: the mean over its requests of their rates, and all tokens over all time.
REQUEST_MEAN = ("rate_sum", "rate_requests")
POOLED = ("decode_tokens", "decode_s")


def _ratios(attempt: Attempt, baseline: Attempt) -> _PairRatios:
    common = [(a, b) for a, b in _common(attempt, baseline) if a.get("rate_requests") and b.get("rate_requests")]
    mean, pooled = (_user_ratio(common, attempt, baseline, columns) for columns in (REQUEST_MEAN, POOLED))
    return _PairRatios(mean, _block_ratio(attempt, baseline), pooled, len(common))


def _user_ratio(common: Sequence[Pair], attempt: Attempt, baseline: Attempt, average: tuple[str, str]) -> Estimate | None:
    if not common:
        return None
    a, b = [x for x, _ in common], [x for _, x in common]
    shared = sum(_ci_fact(arm, "user_tps_mean", "shared_rel_var") for arm in (attempt, baseline))
    columns = (_column(arm, name) for arm in (a, b) for name in average)
    return _from_interval(stats.paired_ratio(*columns, shared=shared))


def _column(conversations: Sequence[Mapping[str, Any]], name: str) -> Floats:
    return np.array([c[name] for c in conversations], float)


def _ci_fact(attempt: Attempt, metric: str, fact: str) -> float:
    return float(((attempt["measurement"].get("ci") or {}).get(metric) or {}).get(fact) or 0.0)


def _block_ratio(attempt: Attempt, baseline: Attempt) -> Estimate | None:
    a, b = (m["measurement"].get("tps_blocks") or {} for m in (attempt, baseline))
    if not sum(a.get("tokens") or ()) or not sum(b.get("tokens") or ()):
        return None
    between = {f"between_{name}": float(arm.get("between_rel_var") or 0.0) for name, arm in (("a", a), ("b", b))}
    return _from_interval(stats.block_rate_ratio(a["tokens"], a["block_s"], b["tokens"], b["block_s"], **between))


def _from_interval(interval: stats.Interval) -> Estimate | None:
    if not math.isfinite(interval.value):
        return None
    return Estimate(interval.value, interval.low, interval.high, method=interval.method, clusters=interval.n)


def _common(attempt: Attempt, baseline: Attempt) -> list[Pair]:
    """The conversations that both arms measured, as pairs, in the order of ``attempt``."""
    theirs = {c["conversation_id"]: c for c in baseline["measurement"].get("per_conversation") or ()}
    return [
        (c, theirs[c["conversation_id"]]) for c in attempt["measurement"].get("per_conversation") or () if c["conversation_id"] in theirs
    ]


def _combine(ratios: Sequence[Estimate | None]) -> Estimate | None:
    """Over sessions on the log scale, where a ratio and its inverse are alike."""
    logs = [
        Estimate(
            math.log(r.value),
            None if r.low is None else _log(r.low),
            None if r.high is None else _log(r.high),
            method=r.method,
            clusters=r.clusters,
        )
        for r in ratios
        if r is not None and r.value > 0
    ]
    if not logs:
        return None
    both = over_sessions(logs)
    low, high = (None if v is None else math.exp(v) for v in (both.low, both.high))
    return Estimate(math.exp(both.value), low, high, both.scope, both.sessions, both.method, both.clusters)


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))


def proxy(attempt: Attempt, baseline: Attempt, step_metric: str) -> float | None:
    """t_ar · AL / t_sd with the mean step times named ``step_metric``; None where a part is not known or not valid."""
    if not (is_valid(attempt, "steps") and is_valid(baseline, "steps")):
        return None
    al, t_sd, t_ar = estimate(attempt, "al_decode"), estimate(attempt, step_metric), estimate(baseline, step_metric)
    if al is None or t_sd is None or t_ar is None or min(al.value, t_sd.value, t_ar.value) <= 0:
        return None
    return proxy_speedup(t_ar, t_sd, al).value


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def arm_warnings(attempt: Attempt, baseline: Attempt) -> list[str]:
    """What makes the two arms' work unlike: prompts, the share of answers cut by the cap, the lengths of the answers."""
    warnings = []
    common = _common(attempt, baseline)
    mine, theirs = (len(m["measurement"].get("per_conversation") or ()) for m in (attempt, baseline))
    if len(common) < max(mine, theirs):
        warnings.append(f"only {len(common)} prompts are common to both arms ({mine} with the drafter, {theirs} without)")
    cut = [estimate(m, "share_cut") for m in (attempt, baseline)]
    if cut[0] and cut[1] and abs(cut[0].value - cut[1].value) > CUT_SHARE_MAY_DIFFER:
        warnings.append(f"the cap cut {cut[0].value:.0%} of the answers with the drafter and {cut[1].value:.0%} without")
    looping = [estimate(m, "share_looping") for m in (attempt, baseline)]
    if looping[0] and looping[1] and abs(looping[0].value - looping[1].value) > LOOPING_MAY_DIFFER:
        warnings.append(
            f"{looping[0].value:.0%} of the answers with the drafter end in a loop, {looping[1].value:.0%} without: loops are easy to draft"
        )
    return warnings + _length_warnings(common)


def _length_warnings(common: Sequence[Pair]) -> list[str]:
    by_category: dict[str, list[Pair]] = {}
    for pair in common:
        by_category.setdefault(str(pair[0].get("category") or ""), []).append(pair)
    groups = [("all categories", common, LENGTH_MAY_DIFFER)]
    if len(by_category) > 1:
        groups += [(f"category {c}", pairs, CATEGORY_LENGTH_MAY_DIFFER) for c, pairs in sorted(by_category.items())]
    warnings = []
    for name, pairs, may_differ in groups:
        usable = [(a, b) for a, b in pairs if a["requests"] and b["requests"] and b["output_tokens"]]
        if len(usable) < CATEGORY_MIN_CONVERSATIONS:
            continue
        a, b = ([side[i]["output_tokens"] / side[i]["requests"] for side in usable] for i in (0, 1))
        ones = np.ones(len(usable))
        ratio = _from_interval(stats.paired_ratio(np.array(a), ones, np.array(b), ones))
        if ratio is not None and abs(ratio.value - 1) > may_differ and verdict(ratio) != "not shown":
            warnings.append(f"answers are {ratio.value:.2f}× as long with the drafter ({name}): the arms did not do the same work")
    return warnings


def crossover(rows: Sequence[Speedup]) -> str:
    """Where one series pays and where it does not, in words, from the user TPS ratios at the batch sizes that were measured."""
    known = sorted((r for r in rows if r.user_tps is not None), key=lambda r: r.cell.batch_size)
    missing = sorted(r.cell.batch_size for r in rows if r.user_tps is None)
    if not known:
        reasons = (r.reason or "no conversation decoded" for r in rows)
        return f"no speedup could be measured: {in_one_sentence(reasons)}" if rows else "nothing measured"
    words = [r.verdict for r in known]
    left_out = f"; not compared at BS {', '.join(map(str, missing))}" if missing else ""
    if set(words) == {"faster"}:
        return f"pays at every batch size compared: {_listed(known)}{left_out}"
    if set(words) == {"slower"}:
        return f"does not pay at any batch size compared: slower at {_listed(known)}{left_out}"
    if set(words) == {"not shown"}:
        return f"no difference shown at any batch size compared: {_listed(known)}{left_out}"
    tail = next(i for i in range(len(words), -1, -1) if i == 0 or words[i - 1] != words[-1])  # where the last run of one verdict begins
    before = [w for w in ("faster", "not shown", "slower") if w in words[:tail]]
    parts = [f"{_SAYS[w]} {_listed([r for r, v in zip(known[:tail], words, strict=False) if v == w])}" for w in before]
    last, end = known[tail - 1].cell.batch_size, known[tail:]
    if words[-1] == "slower":
        parts.append(f"does not pay above BS {last}: slower at {_listed(end)}")
    elif words[-1] == "faster":
        parts.append(f"pays above BS {last}: {_listed(end)}")
    else:
        parts.append(f"not shown to pay above BS {last}: no difference shown at {_listed(end)}")
    return "; ".join(parts) + left_out


_SAYS = {"faster": "pays at", "slower": "slower at", "not shown": "no difference shown at"}


def _listed(rows: Sequence[Speedup]) -> str:
    return ", ".join(f"BS {r.cell.batch_size} ({ratio_text(r.user_tps)})" for r in rows)


def ratio_text(ratio: Estimate | None) -> str:
    """``1.18 [1.12, 1.24]``; a third decimal where two would round a bound to 1.00 and hide on which side of 1 it lies."""
    if ratio is None:
        return "–"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} [no interval]"
    decimals = 2
    while (
        decimals < 4
        and verdict(ratio) != "not shown"
        and f"{1:.{decimals}f}" in (f"{ratio.low:.{decimals}f}", f"{ratio.high:.{decimals}f}")
    ):
        decimals += 1
    return f"{ratio.value:.{decimals}f} [{ratio.low:.{decimals}f}, {ratio.high:.{decimals}f}]"
