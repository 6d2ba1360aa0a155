"""What a check's value is counted in, so that no check is ever printed as a bare number.

The files keep the plain value and limit, shares as fractions of 1; a person reads ``19.6 % of a request's time (limit 1 %)``. The names are
those of :mod:`specsweep.analysis.checks` and the modules beside it; results of another version may hold a name that is not known here, which
is then printed plainly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Check = TypeVar("Check", bound=Mapping[str, Any])  # as the files hold it


@dataclass(frozen=True, slots=True)
class CheckUnit:
    """``unit`` stands after value and limit, ``of`` once after the value: what a share is a share of."""

    unit: str
    of: str = ""


def _share(of: str) -> CheckUnit:
    return CheckUnit("%", of)


CHECK_UNITS: Mapping[str, CheckUnit] = {
    "steady_window": CheckUnit("s"),
    "in_flight": CheckUnit("requests"),
    "requests": CheckUnit("requests"),
    "failed_share": _share("of the requests"),
    "sent_again": _share("of the requests"),
    "engine_batch_limit": CheckUnit("requests"),
    "running_requests": CheckUnit("requests"),
    "queued_in_engine": _share("of the looks"),
    "client_lag_request": _share("of the median request time"),
    "client_lag_step_p50": _share("of the median step time"),
    "client_lag_step_p99": _share("of the median step time"),
    "client_core": _share("of a core"),
    "clock_bound": _share("of output TPS"),
    "clock_bound_step": _share("of step_ms_decode"),
    "other_work": _share("of the host's CPU time"),
    "prompt_tokens": CheckUnit("requests"),
    "preemptions": CheckUnit("requests"),
    "cached_prompt_tokens": CheckUnit("tokens"),
    "steps_proved": CheckUnit("steps"),
    "unstreamed_tokens": CheckUnit("tokens"),
    "output_cap": CheckUnit("answers"),
    "counter_generation_tokens": CheckUnit("tokens"),
    "counter_drafts": CheckUnit("steps"),
    "counter_draft_tokens": CheckUnit("tokens"),
    "counter_accepted_tokens": CheckUnit("tokens"),
    "merged_requests": CheckUnit("requests"),
    "merge_probe": _share("of the chunks"),
    "step_size": CheckUnit("steps"),
    "coalesced_steps": _share("of the steps"),
    "tpot_agrees": _share("of the time per token"),
    "drafter_contributed": CheckUnit("draft tokens"),
    "share_cut": _share("of the answers"),
}
_UNKNOWN = CheckUnit("")

# Where several checks fail, these are why the others do: a host that is busy with other work makes stamps late and slots empty.
CAUSES_FIRST = ("other_work", "client_core", "client_lag_request", "client_lag_step_p50", "client_lag_step_p99")


def by_cause(checks: Iterable[Check]) -> list[Check]:
    """The checks with what explains the others first; the rest keep their order."""
    return sorted(checks, key=lambda c: CAUSES_FIRST.index(c["name"]) if c.get("name") in CAUSES_FIRST else len(CAUSES_FIRST))


def short_number(value: object) -> str:
    """A number in at most four significant digits, a dash for None, anything else as text."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"


def with_unit(name: str, value: Any) -> str:
    """``19.6 %``, ``8 requests``, ``–`` for None: value or limit of the check ``name``. A check that is not known is printed plainly."""
    unit = CHECK_UNITS.get(name, _UNKNOWN).unit
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not unit:
        return short_number(value)
    return f"{short_number(100 * value)} %" if unit == "%" else f"{short_number(value)} {unit}"


def check_line(check: Mapping[str, Any]) -> str:
    """``client_lag_request = 19.6 % of the median request time (limit 1 %)``."""
    name = str(check["name"])
    value, limit = check.get("value"), check.get("limit")
    of = CHECK_UNITS.get(name, _UNKNOWN).of if value is not None else ""
    text = f"{name} = {with_unit(name, value)}" + (f" {of}" if of else "")
    return text if limit is None else f"{text} (limit {with_unit(name, limit)})"
