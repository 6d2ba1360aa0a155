"""The parts of a measurement, each written onto the sheet: acceptance, answers, speed, step times, the client.

Which requests a number may be taken from is decided by :class:`Selection`: speed comes from the steady window, acceptance from the
first pass over the prompts. Each part asks the module that knows the formula and says why there is nothing where there is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsweep.analysis import acceptance, checks, timing
from specsweep.analysis.clock_checks import step_share
from specsweep.analysis.columns import Requests, columns, sums_by
from specsweep.analysis.loops import loops
from specsweep.analysis.metrics import QUANTILES, quantile_name
from specsweep.analysis.sheet import PointFacts, Sheet
from specsweep.analysis.stats import Interval, may_give_quantile, mean_interval, quantile_interval, ratio_interval
from specsweep.analysis.window import Window
from specsweep.client.trace import ActorReport, EngineCounters, PointTrace, RequestTrace, ok

BY_CONSTRUCTION = "by construction: without a drafter a step brings one token"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests a number may be taken from. All succeeded."""

    everything: list[RequestTrace]
    main: list[RequestTrace]
    scored: list[RequestTrace]  # main, first time that their prompt was sent
    timed: list[RequestTrace]  # main, started in the steady window; all of main where there is none. Without what was sent again


def select(trace: PointTrace, window: Window) -> Selection:
    everything = ok(trace.requests)
    main = [r for r in everything if r.phase == "main"]
    timed = [r for r in main if not r.retried and (not window.ok or window.open_ns <= r.t_send_ns <= window.close_ns)]
    return Selection(everything, main, [r for r in main if r.pass_index == 0], timed)


# --- acceptance ----------------------------------------------------------------------------------------------------------------


def known_steps(main: Sequence[RequestTrace], scored: Sequence[RequestTrace], facts: PointFacts) -> tuple[acceptance.Steps | None, str]:
    """The decode steps of the scored requests, or why the per-step series of this point does not exist."""
    reason = acceptance.why_no_steps(main, split_is_fatal=not facts.baseline)
    return (None, reason) if reason or not scored else (acceptance.decode_steps(scored), "")


def write_acceptance(
    sheet: Sheet,
    scored: Sequence[RequestTrace],
    steps: acceptance.Steps | None,
    no_steps: str,
    counters: EngineCounters | None,
    facts: PointFacts,
) -> None:
    nothing = "" if scored else "no request of the first pass over the prompts succeeded"
    if facts.baseline:
        one = None if nothing else Interval(1.0, 1.0, 1.0, BY_CONSTRUCTION, len({r.prompt_id for r in scored}))
        sheet.put("al_decode", one, reason=nothing)
        sheet.put("al_decode_request_mean", one, reason=nothing)
        for name in ("al_verify", "acceptance_rate"):
            sheet.put(name, None, reason="there is no drafter")
        return
    if nothing:
        for name in ("al_decode", "al_decode_request_mean", "al_verify", "acceptance_rate"):
            sheet.put(name, None, reason=nothing)
        return
    if steps is None:
        for name in ("al_decode", "al_decode_request_mean"):
            sheet.put(name, None, reason=f"{no_steps}; al_verify is from the server's counts where it has them")
    else:
        for name, found in (
            ("al_decode", acceptance.al_decode(steps)),
            ("al_decode_request_mean", acceptance.al_decode_request_mean(steps)),
        ):
            sheet.put(name, found.interval, reason=found.reason, source=found.source)
    for name, found in (
        ("al_verify", acceptance.al_verify(scored, steps, counters)),
        ("acceptance_rate", acceptance.acceptance_rate(scored, steps, counters)),
    ):
        sheet.put(name, found.interval, reason=found.reason, source=found.source)


def positions(scored: Sequence[RequestTrace], no_steps: str, facts: PointFacts) -> tuple[list[dict[str, Any]], str]:
    """The rows of ``ar_cond`` and their base; every position 1…DL is listed, also where nothing is known."""
    if facts.baseline:
        return [], ""
    if not scored or (no_steps and not all(acceptance.has_server_lists(r.read) for r in scored)):
        empty = {"value": None, "ci_low": None, "ci_high": None, "reached": 0, "accepted": 0}
        return [{"position": i, **empty} for i in range(1, (facts.draft_length or 0) + 1)], f"none: {no_steps or 'no request succeeded'}"
    return acceptance.conditional(acceptance.verified_steps(scored), facts.draft_length)


def write_answers(sheet: Sheet, scored: Sequence[RequestTrace]) -> None:
    """Lengths are the real ones, whatever was asked for: answers stop at EOS."""
    if not scored:
        for name in ("output_tokens_mean", "share_cut", "share_looping"):
            sheet.put(name, None, reason="no request of the first pass over the prompts succeeded")
        return
    table = columns(scored)
    count = sums_by(table.cluster)
    cut = np.array([r.read.finish_reason == "length" for r in scored], dtype=np.float64)
    sheet.put("output_tokens_mean", mean_interval(sums_by(table.cluster, table.tokens), count))
    sheet.put("share_cut", ratio_interval(sums_by(table.cluster, cut), count, scale="logit"))
    if not any(r.read.output_ids for r in scored):
        sheet.put("share_looping", None, reason="the stream holds no token ids")
        return
    looping = np.array([loops(r.read.output_ids) for r in scored], dtype=np.float64)
    sheet.put("share_looping", ratio_interval(sums_by(table.cluster, looping), count, scale="logit"))


# --- speed ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speed:
    timed: Requests
    user: timing.UserTps | None
    blocks: dict[str, Any]  # tps_blocks of the measurement; {} without tokens in the window


def write_speed(sheet: Sheet, chosen: Selection, window: Window, facts: PointFacts) -> Speed:
    everything, timed = columns(chosen.everything), columns(chosen.timed)
    whole = timing.whole_span_tps(everything) if chosen.everything else None
    nothing = "no request succeeded" if not chosen.everything else "the streams carry no token times"
    sheet.put("output_tps", whole, reason=nothing)
    per_gpu = None if whole is None or not facts.gpus else _scaled(whole, 1 / facts.gpus)
    sheet.put("output_tps_per_gpu", per_gpu, reason="the number of GPUs is not known or none" if whole else nothing)
    steady = timing.steady_tps(everything, window) if window.ok and chosen.everything else None
    sheet.put("output_tps_steady", steady.interval if steady else None, reason=window.reason or nothing)
    user = timing.user_tps(timed) if chosen.timed else None
    no_rate = "no request started in the window succeeded" if not chosen.timed else "no answer has a token after its first chunk"
    sheet.put("user_tps_mean", user.mean if user else None, reason=no_rate)
    sheet.put("user_tps_pooled", user.pooled if user else None, reason=no_rate)
    sheet.put("tpot_ms_mean", _inverse(user.pooled, 1000.0) if user else None, reason=no_rate)
    if user:
        sheet.ci["user_tps_mean"]["shared_rel_var"] = user.shared_rel_var
        _quantile(sheet, "user_tps_p50", timing.user_tps_sample(user.per_request), 0.50)
    else:
        sheet.put("user_tps_p50", None, reason=no_rate)
    for stem, sample in (("ttft_ms", timing.ttft_ms(timed)), ("request_latency_ms", timing.request_latency_ms(timed))):
        sheet.put(f"{stem}_mean", sample.mean(), reason=no_rate if not chosen.timed else nothing)
        for q in QUANTILES:
            _quantile(sheet, quantile_name(stem, q), sample, q)
    if steady is None:
        return Speed(timed, user, {})
    blocks = {"block_s": steady.block_s, "tokens": steady.tokens.tolist(), "between_rel_var": steady.between_rel_var}
    return Speed(timed, user, blocks)


def _quantile(sheet: Sheet, name: str, sample: timing.Sample, q: float) -> None:
    if not may_give_quantile(q, sample.distinct):
        needed, shared = math.ceil(10 / (1 - q) - 1e-9), sample.distinct < sample.values.size
        counted = " (a step that several slots took part in is one)" if shared else ""
        sheet.put(name, None, reason=f"a {q:.0%} quantile needs {needed} values, there are {sample.distinct}{counted}")
        return
    sheet.put(name, quantile_interval(sample.values, q, sample.rows, sample.cols))


def _scaled(found: Interval, factor: float) -> Interval:
    low, high = (None if b is None else b * factor for b in (found.low, found.high))
    return Interval(found.value * factor, low, high, found.method, found.n)


def _inverse(found: Interval, over: float) -> Interval:
    low, high = (None if not b else over / b for b in (found.high, found.low))
    return Interval(over / found.value, low, high, found.method, found.n)


# --- step times ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepTimes:
    median_ms: float | None = None
    coalesced_share: float | None = None
    tpot_ms: float | None = None  # of the requests started in the window, by the steps' clock
    clock_share: float | None = None  # by which step_ms_decode could move, for what is not known of the clients' clocks


def write_step_times(sheet: Sheet, chosen: Selection, trace: PointTrace, window: Window, facts: PointFacts, no_steps: str) -> StepTimes:
    names: tuple[tuple[str, tuple[float, ...]], ...] = (("step_ms", QUANTILES), ("step_ms_decode", (0.50,)))
    server = facts.step_clock == "server"
    gaps = None if no_steps else timing.step_gaps(chosen.main, server_clock=server)
    reason = no_steps or ("the streams do not carry the engine's own step times" if gaps is None else "")
    if gaps is not None:
        gaps = gaps.where(timing.inside(gaps, window))
        reason = "" if gaps.ms.size else "no two steps of a request lie in the window"
    if gaps is None or reason:
        for stem, quantiles in names:
            for name in (f"{stem}_mean", *(quantile_name(stem, q) for q in quantiles)):
                sheet.put(name, None, reason=reason)
        return StepTimes()
    coalesced = float(gaps.coalesced.mean())
    blurred = not server and coalesced > checks.MAX_COALESCED
    clean = gaps.where(timing.undisturbed(gaps, trace.requests))
    for (stem, quantiles), part in zip(names, (gaps, clean), strict=True):
        sample = part.sample(window)
        sheet.put(f"{stem}_mean", sample.mean(), reason="every gap overlaps some request's send to first token")
        for q in quantiles:
            if blurred:
                sheet.put(quantile_name(stem, q), None, reason=f"{coalesced:.1%} of the steps arrived together with the one before")
            else:
                _quantile(sheet, quantile_name(stem, q), sample, q)
    by_clocks = step_share(gaps, trace.requests, trace.actors)
    return StepTimes(float(np.median(gaps.ms)), coalesced, _tpot_by_steps(chosen.timed, server), by_clocks)


def _tpot_by_steps(timed: Sequence[RequestTrace], server: bool) -> float | None:
    gaps = timing.step_gaps(timed, server_clock=server)
    if gaps is None or not gaps.tokens.sum() > 0:
        return None
    return float(gaps.ms.sum() / gaps.tokens.sum())


# --- the client ----------------------------------------------------------------------------------------------------------------


def write_client(sheet: Sheet, actors: Sequence[ActorReport]) -> None:
    sampled = [a for a in actors if a.lag_samples]
    for name, values in (
        ("client_lag_ms_p50", [a.lag_ms_p50 for a in sampled]),
        ("client_lag_ms_p99", [a.lag_ms_p99 for a in sampled]),
        ("client_cpu_share", [checks.cpu_share(a) for a in actors]),
    ):
        sheet.put(name, max(values, default=None), reason="no client process reported it")
