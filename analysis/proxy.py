"""The proxy speedup S = t_ar · AL / t_sd of the SPEED-Bench paper: one formula, its interval, and its reach under rounding.

A step without a drafter takes t_ar and gives one token, a step with one takes t_sd and gives AL tokens. Step times belong to the system
(engine, target, batch size, input length) and acceptance to the text, so the two may be measured apart: step times once on one workload,
acceptance on any other prompts, and S is the speedup that those prompts would see. :mod:`specsweep.analysis.projection` finds the
measurements that fit together.

Two kinds of step time: the mean of *all gaps* between the steps of a request, as the paper takes it, and the mean of the *clean gaps* that no
other request's prefill overlaps. A closed loop refills its slots all the time, so users feel the first; the second is what the decoding alone
costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.log_scale import product

STEP_METRICS: Mapping[str, str] = {"all": "step_ms_mean", "clean": "step_ms_decode_mean"}
METHOD = "delta method on the log scale over three independent estimates, Welch's t"


def proxy_speedup(t_ar: Estimate, t_sd: Estimate, al: Estimate) -> Estimate:
    """t_ar · AL / t_sd, dimensionless; above 1 the drafter pays. Step times in one unit, AL in tokens per step with the target's own.

    The interval takes the three as independent. Where AL and t_sd come from the same run that is an approximation: steps of a full batch last
    as long as they do whatever any one prompt accepts. Raises ``ValueError`` for a number that is not above 0.
    """
    lacking = [name for name, e in (("t_ar", t_ar), ("AL", al), ("t_sd", t_sd)) if not e.has_interval]
    made = product([(t_ar, 1), (al, 1), (t_sd, -1)], method=METHOD)
    return replace(made, method=f"none: {' and '.join(lacking)} without an interval") if lacking else made


def rounding_reach(t_ar: tuple[float, int], t_sd: tuple[float, int], al: tuple[float, int]) -> tuple[float, float]:
    """The least and the largest proxy that inputs may have had which were rounded to these values. Each input as (value, decimals)."""
    (ar_low, ar_high), (sd_low, sd_high), (al_low, al_high) = (
        (value - 0.5 * 10**-decimals, value + 0.5 * 10**-decimals) for value, decimals in (t_ar, t_sd, al)
    )
    return ar_low * al_low / sd_high, ar_high * al_high / sd_low
