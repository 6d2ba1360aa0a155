"""From a trace to a measurement: every number of a point, its interval, and the checks that say whether to believe it.

A pure function of the trace and a few facts, so that a stored trace can be measured again when a definition changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from specsweep.analysis import acceptance, breakdown, checks, official, timing
from specsweep.analysis.check import Check
from specsweep.analysis.clock_checks import clock_checks
from specsweep.analysis.columns import columns, output_tokens
from specsweep.analysis.residency import residency_checks
from specsweep.analysis.sections import (
    Selection,
    Speed,
    StepTimes,
    known_steps,
    positions,
    select,
    write_acceptance,
    write_answers,
    write_client,
    write_speed,
    write_step_times,
)
from specsweep.analysis.sheet import SCOPE, PointFacts, Sheet
from specsweep.analysis.stats import LEVEL
from specsweep.analysis.window import InFlight, Window, describe, in_flight, steady_window
from specsweep.client.trace import PointTrace, RequestTrace

__all__ = ["MEASUREMENT_SCHEMA_VERSION", "PointFacts", "measure"]

MEASUREMENT_SCHEMA_VERSION = 1


def measure(trace: PointTrace, facts: PointFacts) -> dict[str, Any]:
    """The content of ``measurement.json``. Raises ``ValueError`` for a trace without requests or of another batch size."""
    if trace.batch_size != facts.batch_size:
        raise ValueError(f"batch_size: the trace was recorded at {trace.batch_size}, the point says {facts.batch_size}")
    window = steady_window(trace)
    flight = in_flight(trace, window)
    chosen = select(trace, window)
    sheet = Sheet()
    steps, no_steps = known_steps(chosen.main, chosen.scored, facts)
    write_acceptance(sheet, chosen.scored, steps, no_steps, trace.counters, facts)
    write_answers(sheet, chosen.scored)
    speed = write_speed(sheet, chosen, window, facts)
    step_times = write_step_times(sheet, chosen, trace, window, facts, no_steps)
    write_client(sheet, trace.actors)
    found = _checks(sheet, trace, facts, window, flight, chosen, steps, speed, step_times)
    by_position, base = positions(chosen.scored, no_steps, facts)
    if by_position:
        sheet.ci["ar_cond"] = {"method": "jackknife-t over conversations", "level": LEVEL, "scope": SCOPE, "source": base}
    return {
        "schema_version": MEASUREMENT_SCHEMA_VERSION,
        "simulated": trace.simulated,
        "metrics": sheet.metrics,
        "absent": sheet.absent,
        "ci": sheet.ci,
        "ar_cond": by_position,
        "accept_hist": {str(size): n for size, n in acceptance.histogram(steps).items()} if steps is not None else {},
        "by_category": breakdown.by_category(chosen, steps is not None, facts),
        "prompts": breakdown.prompt_facts(chosen.main),
        "by_label": breakdown.by_label(chosen, steps is not None, facts),
        "checks": [c.as_dict() for c in found],
        "validity": checks.validity(found, has_steps="step_ms_mean" in sheet.metrics, has_acceptance=bool(chosen.scored)),
        "window": describe(window, flight),
        "counts": _counts(trace, chosen),
        "per_conversation": _per_conversation(chosen, steps),
        "tps_blocks": speed.blocks,
        "official": _official(chosen, no_steps, trace, facts),
    }


def _checks(
    sheet: Sheet,
    trace: PointTrace,
    facts: PointFacts,
    window: Window,
    flight: InFlight,
    chosen: Selection,
    steps: acceptance.Steps | None,
    speed: Speed,
    step_times: StepTimes,
) -> list[Check]:
    main = [r for r in trace.requests if r.phase == "main"]
    failed = len(trace.requests) - len(chosen.everything) + sum(len(r.retried) for r in trace.requests)  # exchanges, each try by itself
    server = facts.step_clock == "server"
    latency = timing.request_latency_ms(speed.timed).values
    per_token_ms = sheet.metrics.get("tpot_ms_mean")
    totals = acceptance.stream_totals(chosen.everything)
    found: list[Check | None] = [
        *checks.load_checks(
            batch_size=facts.batch_size,
            window=window,
            flight=flight,
            measured=len(main),
            failed=len(main) - len(chosen.main),
            failure=_commonest_failure(main),
            max_batch=facts.max_batch,
        ),
        checks.sent_again_check(main),
        *residency_checks(
            facts.batch_size, trace.gauges, trace.running_max, window.seconds, trace.counters, between_turns=flight.between_turns
        ),
        *checks.client_checks(
            trace.actors,
            request_ms=float(np.median(latency)) if latency.size else None,
            # Without a step series the time per token stands in: it is shorter, so that the limit is not softer.
            step_ms=step_times.median_ms or per_token_ms,
            server_clock=server,
        ),
        *clock_checks(trace.actors, window.seconds, step_times.clock_share),
        checks.other_work_check(facts.other_cpu_share),
        checks.prompt_check(trace.requests, ids_sent=trace.meta.get("dialect") != "openai_chat"),
        checks.cache_check(trace.counters),
        *checks.counter_checks(totals, trace.counters, failed=failed, drafter=facts.drafter),
        checks.proof_check(
            [r.read.step_state for r in chosen.main],
            totals,
            acceptance.apparent_accepted(chosen.everything),
            trace.counters,
            failed=failed,
            drafter=facts.drafter,
        ),
        *_counts_checks(chosen.everything, trace),
        None if facts.baseline else checks.merge_check([r.read.step_state for r in chosen.main]),
        _step_sizes(chosen.main, facts),
        None if step_times.coalesced_share is None else checks.coalesced_check(step_times.coalesced_share, server_clock=server),
        None if per_token_ms is None else checks.tpot_check(step_times.tpot_ms, per_token_ms),
        _contribution(sheet, trace, steps, facts),
        checks.cut_check(sheet.metrics["share_cut"]) if "share_cut" in sheet.metrics else None,
    ]
    return [c for c in found if c is not None]


def _counts_checks(requests: Sequence[RequestTrace], trace: PointTrace) -> list[Check]:
    tokens = [output_tokens(r) for r in requests]
    unstreamed = sum(max(n - len(r.read.output_ids), 0) for n, r in zip(tokens, requests, strict=True) if r.read.output_ids)
    beyond = sum(n > r.max_tokens for n, r in zip(tokens, requests, strict=True))
    short = sum(r.read.finish_reason == "length" and n < r.max_tokens for n, r in zip(tokens, requests, strict=True))
    counted = None if trace.counters is None else trace.counters.generation_tokens
    return [checks.count_check(unstreamed, sum(tokens), counted), checks.cap_check(beyond, short, len(requests))]


def _step_sizes(main: Sequence[RequestTrace], facts: PointFacts) -> Check | None:
    # A baseline's chunks are looked at as they came: its dialect may have split them into steps of one token already.
    if facts.baseline:
        sizes = [n for r in main for n in r.read.chunk_tokens[1:]]
    else:
        sizes = [n for r in main if acceptance.has_steps(r.read) for n in r.read.step_tokens[1:]]
    if not sizes:
        return None
    limit = 1 if facts.baseline else (facts.draft_length or 0) + 1
    oversized = sum(n > limit for n in sizes)
    return checks.step_size_check(max(sizes), oversized, len(sizes), draft_length=facts.draft_length, drafter=facts.drafter)


def _contribution(sheet: Sheet, trace: PointTrace, steps: acceptance.Steps | None, facts: PointFacts) -> Check | None:
    if steps is not None:
        known = steps.accepted[steps.accepted != acceptance.UNKNOWN]
        silent = bool((steps.drafted == acceptance.UNKNOWN).any())
        drafts = None if silent else float(steps.verified.sum())
        return checks.contribution_check(float(known.sum()), drafts, int(steps.tokens.size), facts.drafter)
    counters = trace.counters
    if counters is None or counters.drafts is None:
        return None
    return checks.contribution_check(counters.accepted_tokens, counters.drafts, int(counters.drafts), facts.drafter)


def _commonest_failure(requests: Sequence[RequestTrace]) -> str:
    """What went wrong most often, with one error of that kind. Turns that were not sent because another failed say nothing new."""
    failed = [r.read for r in requests if r.read.outcome != "ok"]
    kinds = Counter(read.error_kind for read in failed if read.error_kind not in ("", "not_sent")) or Counter(r.error_kind for r in failed)
    if not kinds:
        return ""
    ((kind, _),) = kinds.most_common(1)
    error = next((read.error for read in failed if read.error_kind == kind and read.error), "")
    return f", most often {kind}" + (f": {error}" if error else "")


def _counts(trace: PointTrace, chosen: Selection) -> dict[str, Any]:
    failed = [r for r in trace.requests if r.read.outcome != "ok"]
    return {
        "requests": len(trace.requests),
        "ramp": sum(r.phase == "ramp" for r in trace.requests),
        "main": sum(r.phase == "main" for r in trace.requests),
        "ok": len(chosen.everything),
        "failed": len(failed),
        "failed_by_kind": dict(Counter(r.read.error_kind or "protocol" for r in failed)),
        "retried": sum(r.attempts > 1 for r in trace.requests),
        "sent_again": sum(bool(r.retried) for r in trace.requests),  # after a failure, where the sweep asked for it
        "retries": sum(len(r.retried) for r in trace.requests),
        "cut": sum(r.read.finish_reason == "length" for r in chosen.main),
        "scored": len(chosen.scored),
        "timed": len(chosen.timed),
        "conversations": len({r.prompt_id for r in chosen.main}),
        "step_states": dict(Counter(r.read.step_state for r in chosen.main)),
        "output_tokens": sum(output_tokens(r) for r in chosen.everything),
    }


def _per_conversation(chosen: Selection, steps: acceptance.Steps | None) -> list[dict[str, Any]]:
    """Sums that pairing and re-analysis need, one entry a prompt: acceptance of its first pass, speed of its requests in the window."""
    rows: dict[str, dict[str, Any]] = {}
    for r in chosen.main:
        rows.setdefault(
            r.prompt_id,
            {
                "conversation_id": r.prompt_id,
                "category": r.category,
                "requests": 0,
                **dict.fromkeys(("steps", "step_tokens", "verify_steps", "accepted"), 0 if steps is not None else None),
                "decode_tokens": 0,
                "decode_s": 0.0,
                "rate_requests": 0,
                "rate_sum": 0.0,
                "output_tokens": 0,
                "latency_s": 0.0,
            },
        )
    if steps is not None:
        names = columns(chosen.scored).clusters
        whole, verified = ~steps.cut, steps.verified & (steps.accepted != acceptance.UNKNOWN)
        for name, mask, values in (
            ("steps", whole, np.ones_like(steps.tokens)),
            ("step_tokens", whole, steps.tokens),
            ("verify_steps", verified, np.ones_like(steps.tokens)),
            ("accepted", verified, steps.accepted),
        ):
            sums = np.bincount(steps.cluster[mask], weights=values[mask], minlength=len(names))
            for prompt, total in zip(names, sums, strict=True):
                rows[prompt][name] = int(total)
    timed = columns(chosen.timed)
    found = timing.rates(timed)
    for i, tokens, seconds in zip(found.index, found.tokens, found.seconds, strict=True):
        row = rows[timed.rows[i].prompt_id]
        row["decode_tokens"] += int(tokens)
        row["decode_s"] += float(seconds)
        row["rate_requests"] += 1
        row["rate_sum"] += float(tokens / seconds)
    for r in chosen.timed:
        row = rows[r.prompt_id]
        end = r.read.chunk_t_ns[-1] if r.read.chunk_t_ns else r.t_end_ns
        row["requests"] += 1
        row["output_tokens"] += output_tokens(r)
        row["latency_s"] += (end - r.t_send_ns) / 1e9
    return list(rows.values())


def _official(chosen: Selection, no_steps: str, trace: PointTrace, facts: PointFacts) -> dict[str, Any]:
    """The official framework's keys. Its unit is the update of an engine, which is our step; where steps are not known, only its timing."""
    drops_eos = trace.meta.get("dialect") == "vllm"
    turns = []
    for r in chosen.scored:
        read = r.read
        sizes, stamps = (read.chunk_tokens, read.chunk_t_ns) if no_steps else (read.step_tokens, read.step_t_ns)
        turn = official.OfficialTurn(r.prompt_id, r.category, tuple(sizes), tuple(t / 1e9 for t in (r.t_send_ns, *stamps)))
        turns.append(official.without_final_eos(turn) if drops_eos and read.finish_reason == "stop" else turn)
    known = {d: official.acceptance(turns, d) if not no_steps else {"absent": no_steps} for d in official.DEFINITIONS}
    return {
        "definition": official.MAIN,
        "acceptance": known[official.MAIN],
        "timing": official.timing(turns, facts.gpus),
        "announced": {"definition": official.NEXT, "acceptance": known[official.NEXT]},
    }
