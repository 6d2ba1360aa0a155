"""Differences between arms with an interval: of acceptance, paired over the prompts that all arms have seen, and of anything else.

Most claims of the paper are about small differences on the same prompts. What makes one prompt easy is common to the arms and cancels, so the
interval of the difference is a jackknife over the common conversations; comparing the arms' own intervals would throw that away. Where arms
have no prompts in common (another input length, another benchmark) they are independent and their errors add.

A general function of independent estimates (the mean gap between two curves) gets its interval from :func:`propagated`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsweep.analysis.attempts import Attempt, Cell, Estimate, over_sessions, student_t
from specsweep.analysis.reproduce.claims import Verdict

MIN_CONVERSATIONS = 3
NORMAL = 1000  # degrees of freedom of an estimate that does not say how many units stand behind it
Weighted = Sequence[tuple[Cell, float]]


def category_al(cell: Cell, category: str = "") -> Estimate | None:
    """AL pooled over the steps of one category (all of them if empty), over the valid repeats; None where it is not known or not valid."""
    if not cell.valid("acceptance"):
        return None
    if not category:
        return cell.estimate("al_decode", "acceptance")
    found = []
    for attempt in cell.counted("acceptance"):
        numbers = (attempt["measurement"].get("by_category") or {}).get(category) or {}
        if numbers.get("al_decode"):
            clusters = sum(1 for c in _conversations(attempt).values() if c.get("category") == category)
            found.append(
                Estimate(numbers["al_decode"], numbers.get("al_decode_ci_low"), numbers.get("al_decode_ci_high"), clusters=clusters)
            )
    return over_sessions(found) if found else None


def categories(cell: Cell) -> list[str]:
    """The categories whose AL is known, sorted."""
    return sorted(
        {c for a in cell.counted("acceptance") for c, v in (a["measurement"].get("by_category") or {}).items() if v.get("al_decode")}
    )


def macro_al(cell: Cell) -> Estimate | None:
    """The mean of the categories' AL: what the paper calls mean AL. None unless there are at least two categories."""
    found = [e for c in categories(cell) if (e := category_al(cell, c)) is not None]
    return mean(found) if len(found) > 1 else None


def al_contrast(parts: Weighted, category: str = "") -> Estimate | None:
    """Σ weight · AL of cells, of one category's prompts alone if one is named. With repeats the interval is the one between them."""
    if not parts or not all(cell.valid("acceptance") for cell, _ in parts):
        return None
    members = [cell.counted("acceptance") for cell, _ in parts]
    weights = [w for _, w in parts]
    sessions = [c for arms in zip(*members, strict=False) if (c := _jackknife(arms, weights, category)) is not None]
    if sessions:
        return over_sessions(sessions)
    alone = [category_al(cell, category) for cell, _ in parts]
    known = [e for e in alone if e is not None]
    return combination(known, weights) if len(known) == len(alone) else None


def macro_contrast(parts: Weighted) -> Estimate | None:
    """Σ weight · mean AL over the categories that all cells have; over everything where categories are not told apart."""
    common = set.intersection(*(set(categories(cell)) for cell, _ in parts)) if parts else set()
    if len(common) < 2:
        return al_contrast(parts)
    found = [al_contrast(parts, c) for c in sorted(common)]
    known = [e for e in found if e is not None]
    return mean(known) if len(known) == len(found) else None


def _conversations(attempt: Attempt) -> Mapping[str, Mapping[str, Any]]:
    return {str(c["conversation_id"]): c for c in attempt["measurement"].get("per_conversation") or () if c.get("steps")}


def _jackknife(arms: Sequence[Attempt], weights: Sequence[float], category: str) -> Estimate | None:
    """Of one session: leave one common conversation out at a time, of all arms together. None with fewer than three in common."""
    each = [_conversations(a) for a in arms]
    common = sorted(set.intersection(*(set(e) for e in each)))
    common = [c for c in common if not category or each[0][c].get("category") == category]
    n = len(common)
    if n < MIN_CONVERSATIONS or n < max(_of(e, category) for e in each) / 2:
        return None
    value, left = 0.0, np.zeros(n)
    for conversations, weight in zip(each, weights, strict=True):
        tokens, steps = (np.array([conversations[c][name] for c in common], float) for name in ("step_tokens", "steps"))
        value += weight * float(tokens.sum() / steps.sum())
        left += weight * (tokens.sum() - tokens) / (steps.sum() - steps)
    reach = student_t(n - 1) * math.sqrt((n - 1) / n * float(((left - left.mean()) ** 2).sum()))
    return Estimate(value, value - reach, value + reach, method="jackknife over common conversations", clusters=n)


def _of(conversations: Mapping[str, Mapping[str, Any]], category: str) -> int:
    return sum(1 for c in conversations.values() if not category or c.get("category") == category)


# -- independent estimates


def mean(values: Sequence[Estimate]) -> Estimate:
    """The plain mean of independent estimates."""
    return combination(values, [1 / len(values)] * len(values))


def combination(values: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """Σ weight · value of independent estimates; no interval if one that counts has none."""
    value = math.fsum(w * v.value for v, w in zip(values, weights, strict=True))
    errors = [(w * e[0], e[1]) if (e := _error(v)) else None for v, w in zip(values, weights, strict=True)]
    return _with_errors(value, values, errors)


def propagated(function: Callable[[NDArray[np.float64]], float], inputs: Sequence[Estimate]) -> Estimate:
    """``function`` of the logarithms of independent positive estimates, by the delta method.

    The slope in each input is taken over one standard error to both sides, so that a bend within the error is seen. No interval if an input
    has none.
    """
    logs = np.array([math.log(e.value) for e in inputs])
    value = function(logs)
    errors: list[tuple[float, float] | None] = []
    for i, estimate in enumerate(inputs):
        error = _error(estimate)
        if error is None:
            errors.append(None)
            continue
        step = max(error[0] / estimate.value, 1e-9)
        up, down = logs.copy(), logs.copy()
        up[i] += step
        down[i] -= step
        errors.append(((function(up) - function(down)) / 2, error[1]))
    return _with_errors(value, inputs, errors)


def _error(estimate: Estimate) -> tuple[float, float] | None:
    """(standard error, degrees of freedom)."""
    if estimate.low is None or estimate.high is None:
        return None
    freedom = float(estimate.clusters - 1 if estimate.clusters > 1 else NORMAL)
    return (estimate.high - estimate.low) / 2 / student_t(freedom), freedom


def _with_errors(value: float, inputs: Sequence[Estimate], errors: Sequence[tuple[float, float] | None]) -> Estimate:
    known = [e for e in errors if e is not None]
    sessions = min(v.sessions for v in inputs)
    scopes = {v.scope for v in inputs}
    scope = scopes.pop() if len(scopes) == 1 else "mixed"
    if len(known) < len(errors):
        return Estimate(value, scope=scope, sessions=sessions, method="none: a part has no interval")
    variance = math.fsum(e**2 for e, _ in known)
    spread = math.fsum(e**4 / f for e, f in known)
    freedom = variance**2 / spread if spread > 0 else NORMAL
    reach = student_t(max(freedom, 1.0)) * math.sqrt(variance)
    return Estimate(value, value - reach, value + reach, scope, sessions, "delta method, Welch's t", int(freedom) + 1)


# -- verdicts on an estimate


def above(estimate: Estimate | None, limit: float = 0.0) -> Verdict:
    """Holds if the whole interval lies above the limit, failed if all of it lies below. Without an interval nothing is decided."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "not decidable"
    return "holds" if estimate.low > limit else "failed" if estimate.high < limit else "not decidable"


def at_most(estimate: Estimate | None, limit: float) -> Verdict:
    """The opposite of :func:`above`."""
    return {"holds": "failed", "failed": "holds", "not decidable": "not decidable"}[above(estimate, limit)]  # type: ignore[return-value]


def within(estimate: Estimate | None, reach: float) -> Verdict:
    """Holds if the whole interval lies in [-reach, reach], failed if all of it lies outside."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "not decidable"
    if -reach <= estimate.low and estimate.high <= reach:
        return "holds"
    return "failed" if estimate.low > reach or estimate.high < -reach else "not decidable"
