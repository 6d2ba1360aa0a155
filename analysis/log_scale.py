"""Products and quotients of independent estimates, with an interval: the delta method on the log scale.

Speeds, times and acceptance lengths are positive and their errors are relative, so their logarithms are what adds up. An estimate's own
interval gives back its standard error on that scale (half its width over Student's t at its own degrees of freedom), variances add, and
the interval of the product takes Student's t at Welch's degrees of freedom. Nothing is resampled, so the same numbers give the same bounds.

What it needs is that the factors err independently: step times of two engine starts do, and so does the acceptance of another set of prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from specsweep.analysis.attempts import Estimate, student_t

NORMAL = 1000  # degrees of freedom of an estimate that does not say how many units it was made from
LARGEST_REACH = 300.0  # keeps bounds finite where hardly anything is known
METHOD = "independent estimates, delta method on the log scale"


def product(factors: Sequence[tuple[Estimate, int]], *, comparisons: int = 1, method: str = METHOD) -> Estimate:
    """Π value ** exponent of ``factors`` with a 95 % interval.

    ``comparisons``: how many such intervals are looked at together; all of them hold at once in 95 % of cases (Bonferroni). No interval if a
    factor has none. A factor that is exact (the AL of a baseline) adds nothing. Raises ``ValueError`` for a factor that is not above 0.
    """
    for estimate, _ in factors:
        if not estimate.value > 0:
            raise ValueError(f"only positive numbers have a logarithm, not {estimate.value}")
    value = math.exp(math.fsum(exponent * math.log(e.value) for e, exponent in factors))
    scopes = {e.scope for e, _ in factors}
    scope = scopes.pop() if len(scopes) == 1 else "mixed"
    sessions = min(e.sessions for e, _ in factors)
    errors = [_variance(e, exponent) for e, exponent in factors]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return Estimate(value, scope=scope, sessions=sessions, method="none: a factor has no interval")
    total = math.fsum(variance for variance, _ in known)
    spread = math.fsum(variance**2 / freedom for variance, freedom in known)
    freedom = total**2 / spread if spread > 0 else NORMAL
    reach = min(student_t(freedom, 1 - 0.05 / comparisons) * math.sqrt(total), LARGEST_REACH)
    return Estimate(value, value * math.exp(-reach), value * math.exp(reach), scope, sessions, method, int(freedom) + 1)


def together(ratio: Estimate, comparisons: int) -> Estimate:
    """The ratio with the interval that it gets as one of ``comparisons``: all of them hold at once in 95 % of cases (Bonferroni, on Student's t)."""
    if ratio.low is None or ratio.high is None or ratio.low <= 0 or comparisons <= 1:
        return ratio
    freedom = _freedom(ratio)
    wider = student_t(freedom, 1 - 0.05 / comparisons) / student_t(freedom)
    reach = min(wider * math.log(ratio.high / ratio.low) / 2, LARGEST_REACH)
    middle = math.sqrt(ratio.high * ratio.low)
    return replace(
        ratio,
        low=middle * math.exp(-reach),
        high=middle * math.exp(reach),
        method=f"{ratio.method}, together with {comparisons - 1} others",
    )


def _freedom(e: Estimate) -> float:
    return float(e.clusters - 1 if e.clusters > 1 else NORMAL)


def _variance(e: Estimate, exponent: int) -> tuple[float, float] | None:
    """(variance of the factor's logarithm, its degrees of freedom)."""
    if e.low is None or e.high is None:
        return None
    freedom = _freedom(e)
    # An interval between few sessions is made on the plain scale and may reach below 0; its half width then counts relative to the value.
    half = math.log(e.high / e.low) / 2 if e.low > 0 else (e.high - e.low) / 2 / e.value
    return (exponent * half / student_t(freedom)) ** 2, freedom
