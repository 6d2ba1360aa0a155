"""The checks that decide whether a point's numbers may be believed, each with its name, value and limit.

A check that fails says what it spoils: ``tps`` (rates and latencies), ``steps`` (step times), ``acceptance``, or ``all``. The limits
are constants here, not settings: a limit that a run may loosen is no limit.

A check whose facts do not exist (an engine that does not count preemptions) passes with value None and says that it was not decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specsweep.analysis.check import Affects, Check
from specsweep.analysis.window import InFlight, Window
from specsweep.client.trace import ActorReport, EngineCounters, RequestTrace

MAX_FAILED_SHARE = 0.01
MAX_LAG_P99_OF_REQUEST = 0.01  # a stamp may be late by 1 % of what it measures
MAX_LAG_P50_OF_STEP = 0.05
MAX_LAG_P99_OF_STEP = 0.20
MAX_OTHER_CPU = 0.15  # of all cores of the engine's host
MAX_CLIENT_CORE = 0.70  # above it a client's own queueing shows in the stamps
MAX_COALESCED = 0.01
MAX_COALESCED_READS = 0.20  # where only the rates depend on reads
MAX_BASELINE_MERGES = 0.01
MAX_TPOT_DISAGREEMENT = 0.01
REQUESTS_PER_SLOT = 4
CONTRIBUTED_NOTHING_STEPS = 200
LOOKUP_DRAFTERS = ("ngram", "suffix", "lookahead")  # may rightly find nothing to propose


def validity(checks: Sequence[Check], *, has_steps: bool, has_acceptance: bool) -> dict[str, bool]:
    """``valid``: nothing speaks against the rates or the acceptance of the point.

    Step times are an extra: a point whose chunks are no steps still has true rates and, from counters, a true acceptance, so ``steps`` does
    not decide ``valid``. A series that does not exist is not valid either, but a point is not invalid for lacking it.
    """
    bad = {a for c in checks if not c.ok for a in c.affects}
    everything = "all" not in bad
    tps, acceptance = everything and "tps" not in bad, everything and "acceptance" not in bad
    return {
        "tps": tps,
        "steps": has_steps and everything and "steps" not in bad,
        "acceptance": has_acceptance and acceptance,
        "valid": tps and acceptance,
    }


# --- was it the load that we wanted? --------------------------------------------------------------------------------------------


def _filled(flight: InFlight) -> str:
    text = f"between {flight.floor} and {flight.ceiling} requests were in flight, longest gap in a slot {flight.longest_gap_ms:.1f} ms"
    if not flight.between_turns:
        return text
    return (
        f"{text}; beside that slots were between two turns of a conversation for {100 * flight.turn_gap_share:.1f} % of their time, up to "
        f"{flight.turn_gap_longest_ms:.1f} ms, {flight.between_turns} of them at once"
    )


def load_checks(
    *,
    batch_size: int,
    window: Window,
    flight: InFlight,
    measured: int,
    failed: int,
    failure: str,
    max_batch: int | None,
) -> list[Check]:
    share = failed / measured if measured else 1.0
    needed = REQUESTS_PER_SLOT * batch_size
    return [
        Check("steady_window", window.seconds, 0.0, window.ok, ("tps",), window.reason or "the batch was full for this many seconds"),
        Check(
            "in_flight",
            flight.floor,
            batch_size,
            flight.floor == batch_size and flight.ceiling <= batch_size if window.ok else False,
            ("tps", "steps"),
            _filled(flight) if window.ok else "there is no steady window to look at",
        ),
        Check("requests", measured, needed, measured >= needed, ("tps",), f"{measured} requests for batch size {batch_size}"),
        Check(
            "failed_share", share, MAX_FAILED_SHARE, share <= MAX_FAILED_SHARE, ("all",), f"{failed} of {measured} requests failed{failure}"
        ),
        Check(
            "engine_batch_limit",
            max_batch,
            batch_size,
            max_batch is None or max_batch >= batch_size,
            ("all",),
            "the engine's batch limit is not known" if max_batch is None else f"the engine takes {max_batch} requests at once",
        ),
    ]


def sent_again_check(requests: Sequence[RequestTrace]) -> Check | None:
    """Requests that failed before their first token and were sent again. None where there were none.

    They are in no latency and no rate of users; but while a slot waits for its next try, the batch is smaller than it should be.
    """
    again = [r for r in requests if r.retried]
    if not again:
        return None
    share, tries = len(again) / len(requests), sum(len(r.retried) for r in again)
    text = f"{len(again)} of {len(requests)} requests were sent again, {tries} times in all, first after: {again[0].retried[0]}"
    return Check("sent_again", share, MAX_FAILED_SHARE, share <= MAX_FAILED_SHARE, ("tps", "steps"), text)


# --- could the client have been the bottleneck? ---------------------------------------------------------------------------------


def client_checks(actors: Sequence[ActorReport], *, request_ms: float | None, step_ms: float | None, server_clock: bool) -> list[Check]:
    """``request_ms`` and ``step_ms`` are medians. Lag does not touch step times that come from the engine's own clock."""
    if not actors or not any(a.lag_samples for a in actors):
        reason = "no client process reported how late its event loop was, so nothing certifies the stamps"
        return [Check("client_lag_request", None, MAX_LAG_P99_OF_REQUEST, False, ("tps", "steps"), reason)]
    p50, p99 = max(a.lag_ms_p50 for a in actors), max(a.lag_ms_p99 for a in actors)
    core = max(cpu_share(a) for a in actors)
    checks = [_lag("client_lag_request", p99, "p99", request_ms, "request", MAX_LAG_P99_OF_REQUEST, "tps")]
    if not server_clock:
        checks.append(_lag("client_lag_step_p50", p50, "p50", step_ms, "step", MAX_LAG_P50_OF_STEP, "steps"))
        checks.append(_lag("client_lag_step_p99", p99, "p99", step_ms, "step", MAX_LAG_P99_OF_STEP, "steps"))
    busiest = f"the busiest client process used {core:.0%} of a core"
    return [*checks, Check("client_core", core, MAX_CLIENT_CORE, core < MAX_CLIENT_CORE, ("tps", "steps"), busiest)]


def other_work_check(share: float | None) -> Check | None:
    """Whether something else kept the engine's host busy: it would be measured as a slower engine."""
    if share is None:
        return None
    text = f"other processes used {share:.0%} of the engine host's CPU time"
    return Check("other_work", share, MAX_OTHER_CPU, share <= MAX_OTHER_CPU, ("tps", "steps"), text)


def cpu_share(actor: ActorReport) -> float:
    return actor.cpu_s / actor.wall_s if actor.wall_s > 0 else 0.0


def _lag(name: str, lag_ms: float, which: str, median_ms: float | None, of: str, limit: float, affects: Affects) -> Check:
    if median_ms is None or median_ms <= 0:
        return Check(name, None, limit, True, (affects,), f"not decided: there is no {of} time to compare with")
    share = lag_ms / median_ms
    text = f"client lag {which} {lag_ms:.3f} ms against a median {of} time of {median_ms:.2f} ms"
    return Check(name, share, limit, share < limit, (affects,), text)


# --- did the engine do what we asked? -------------------------------------------------------------------------------------------


def prompt_check(requests: Sequence[RequestTrace], *, ids_sent: bool) -> Check:
    """The server's prompt length against the ids that were sent: a difference means that it added a BOS or a template.

    ``ids_sent`` False: the prompt went as text and the server renders it, so that there is nothing to compare with.
    """
    if not ids_sent:
        return Check("prompt_tokens", None, 0, True, ("all",), "not decided: the prompt was sent as text and the server renders it")
    known = [r for r in requests if r.read.n_prompt_server is not None and r.n_prompt > 0]
    wrong = [r for r in known if r.read.n_prompt_server != r.n_prompt]
    text = f"compared on {len(known)} of {len(requests)} requests"
    if wrong:
        first = wrong[0]
        text = f"{len(wrong)} of {len(known)} differ, the first: {first.n_prompt} sent, {first.read.n_prompt_server} counted by the server"
    return Check("prompt_tokens", len(wrong) if known else None, 0, not wrong, ("all",), text)


def cache_check(counters: EngineCounters | None) -> Check:
    """Prompt tokens from a cache must be zero where the engine counts them."""
    cached = None if counters is None else counters.cached_prompt_tokens
    text = "not decided: the engine does not count it" if cached is None else "cached prompts make TTFT a cache's, not a prefill's"
    return Check("cached_prompt_tokens", cached, 0, not cached, ("all",), text)


def counter_checks(totals: Mapping[str, int | None], counters: EngineCounters | None, *, failed: int, drafter: str) -> list[Check]:
    """Sums over every request of the trace, ramp-up and repeated prompts included, against what the engine counted meanwhile."""
    if counters is None:
        return []
    pairs: list[tuple[str, str, tuple[Affects, ...]]] = [("generation_tokens", "generated tokens", ("tps", "acceptance"))]
    if drafter != "none":
        pairs += [
            ("drafts", "verify steps", ("acceptance", "steps")),
            ("draft_tokens", "verified draft tokens", ("acceptance",)),
            ("accepted_tokens", "accepted draft tokens", ("acceptance",)),
        ]
    return [_against_counter(name, what, totals, getattr(counters, name), failed, affects) for name, what, affects in pairs]


def _against_counter(
    name: str, what: str, totals: Mapping[str, int | None], counted: float | None, failed: int, affects: tuple[Affects, ...]
) -> Check:
    label, ours = f"counter_{name}", totals[name]
    if counted is None:
        return Check(label, None, 0, True, affects, f"not decided: the engine does not count {what}")
    if failed:
        text = f"not decided: {failed} failed requests are in the engine's count of {what} and not in ours"
        return Check(label, None, 0, True, affects, text)
    if ours is None and name == "drafts" and totals["decode_steps"] is not None:
        # Undrafted steps cannot be told apart here, so steps may outnumber drafts, but never the other way round.
        missing = max(counted - (totals["decode_steps"] or 0), 0.0)
        text = f"{totals['decode_steps']} decode steps in the streams, {counted:.0f} {what} by the engine: fewer means merged chunks"
        return Check(label, missing, 0, missing == 0, affects, text)
    if ours is None:
        return Check(label, None, 0, True, affects, f"not decided: the streams do not say how many {what} there were")
    difference = ours - counted
    return Check(label, difference, 0, difference == 0, affects, f"{ours} {what} in the streams, {counted:.0f} by the engine's counter")


# --- are chunks steps, and do the numbers agree with each other? ----------------------------------------------------------------


def merge_check(states: Sequence[str]) -> Check:
    merged = sum(s == "merged" for s in states)
    text = f"chunks of {merged} of {len(states)} requests hold several steps and cannot be split exactly"
    return Check("merged_requests", merged, 0, merged == 0, ("steps",), text)


def proof_check(
    states: Sequence[str],
    totals: Mapping[str, int | None],
    apparent: int,
    counters: EngineCounters | None,
    *,
    failed: int,
    drafter: str,
) -> Check | None:
    """Chunks that were only assumed to be steps must be proved by the engine's counters over the whole point.

    ``apparent``: Σ over those steps of tokens − 1, what was accepted if each is a step. A drafter that always drafts makes one draft a
    step, so as many drafts as chunks is a proof. One that looks up may have undrafted steps; there the chunks may not be fewer than the
    drafts, and may not look like more accepted tokens than the engine counted: each merge of two steps adds one.
    """
    assumed = sum(s == "assumed" for s in states)
    if drafter == "none" or not assumed:
        return None
    affects: tuple[Affects, ...] = ("steps", "acceptance")
    head = f"chunks of {assumed} of {len(states)} requests are only assumed to be one step each"
    steps = totals["decode_steps"]
    if counters is None or counters.drafts is None or counters.accepted_tokens is None or steps is None:
        return Check("steps_proved", None, 0, False, affects, f"{head}, and neither the stream nor a counter of the engine proves it")
    if failed:
        return Check(
            "steps_proved", None, 0, False, affects, f"{head}; {failed} failed requests are in the engine's counters, so they prove nothing"
        )
    text = (
        f"{head}: {steps} chunks with {apparent} tokens beside their first; "
        f"the engine counted {counters.drafts:.0f} drafts and {counters.accepted_tokens:.0f} accepted tokens"
    )
    fewer = max(counters.drafts - steps, 0.0)
    if not drafter.startswith(LOOKUP_DRAFTERS):
        fewer = abs(counters.drafts - steps)
    wrong = fewer + max(apparent - counters.accepted_tokens, 0.0)
    return Check("steps_proved", wrong, 0, wrong == 0, affects, text)


def count_check(missing: int, total: int, counted: float | None) -> Check:
    """Tokens that the server counted and never streamed: a UTF-8 tail, or a wrong count. The engine's own counter decides."""
    text = f"{missing} of {total} tokens were counted by the server and never streamed"
    if missing and counted is None:
        return Check("unstreamed_tokens", missing, 0, False, ("tps", "acceptance"), f"{text}, and no counter of the engine confirms them")
    return Check("unstreamed_tokens", missing, 0, True, ("tps", "acceptance"), text)


def cap_check(beyond: int, short: int, total: int) -> Check:
    """An answer beyond its cap, or one that ended "by length" before it: the server did not do what was asked (a context limit, a clamp)."""
    text = f"of {total} answers {beyond} are longer than their cap and {short} ended by length before it"
    return Check("output_cap", beyond + short, 0, beyond + short == 0, ("all",), text)


def step_size_check(largest: int, oversized: int, steps: int, *, draft_length: int | None, drafter: str) -> Check | None:
    """A step of more than DL + 1 tokens is two steps. Without a drafter every step of more than one is: the plainest probe for merging."""
    if drafter == "none":
        share = oversized / steps if steps else 0.0
        text = f"{oversized} of {steps} baseline chunks held several tokens: that is the rate at which chunks were merged"
        return Check("merge_probe", share, MAX_BASELINE_MERGES, share <= MAX_BASELINE_MERGES, ("steps",), text)
    if draft_length is None:
        return None
    text = f"{oversized} of {steps} steps hold more than DL + 1 = {draft_length + 1} tokens, the largest {largest}"
    return Check("step_size", oversized, 0, oversized == 0, ("steps", "acceptance"), text)


def coalesced_check(share: float, *, server_clock: bool) -> Check:
    text = f"{share:.2%} of the steps were completed by the same read as the step before"
    if not server_clock:
        return Check("coalesced_steps", share, MAX_COALESCED, share <= MAX_COALESCED, ("steps",), text)
    # Step times are the engine's own then; but TTFT and the rate of a request are between reads, and those came late.
    return Check(
        "coalesced_steps", share, MAX_COALESCED_READS, share <= MAX_COALESCED_READS, ("tps",), f"{text}; step times are the engine's own"
    )


def tpot_check(from_steps_ms: float | None, from_requests_ms: float) -> Check:
    """Time per token from the steps' clock and sizes against the requests' stamps and counted tokens: two ways to one number."""
    if from_steps_ms is None:
        return Check("tpot_agrees", None, MAX_TPOT_DISAGREEMENT, True, ("tps",), "not decided: there is no step series to compare with")
    if from_steps_ms <= 0 or from_requests_ms <= 0:
        text = f"{from_steps_ms:g} ms a token by the steps, {from_requests_ms:g} ms by the requests: a clock that does not run"
        return Check("tpot_agrees", None, MAX_TPOT_DISAGREEMENT, False, ("tps", "steps"), text)
    difference = from_steps_ms / from_requests_ms - 1
    text = f"1000 / time per token: {1000 / from_steps_ms:.2f} tokens/s by the steps, {1000 / from_requests_ms:.2f} by the requests"
    return Check("tpot_agrees", difference, MAX_TPOT_DISAGREEMENT, abs(difference) <= MAX_TPOT_DISAGREEMENT, ("tps", "steps"), text)


def contribution_check(accepted: float | None, drafts: float | None, steps: int, drafter: str) -> Check | None:
    """A drafter that runs and is never right costs time and looks healthy (a head loaded under the wrong algorithm, say)."""
    if drafter == "none" or steps < CONTRIBUTED_NOTHING_STEPS or accepted is None:
        return None
    if drafts == 0:
        lookup = drafter.startswith(LOOKUP_DRAFTERS)
        text = f"the drafter proposed nothing in {steps} steps" + (": it found nothing to look up" if lookup else "")
        return Check("drafter_contributed", 0, 1, lookup, ("all",), text)
    if drafts is not None and drafts < CONTRIBUTED_NOTHING_STEPS:
        return Check("drafter_contributed", accepted, 1, True, ("all",), f"only {drafts:.0f} steps had a draft: too few to judge")
    text = (
        "the drafter contributed nothing: not one draft token was accepted"
        if accepted == 0
        else f"{accepted:.0f} draft tokens were accepted"
    )
    return Check("drafter_contributed", accepted, 1, accepted > 0, ("all",), f"{text} in {steps} decode steps")


def cut_check(share: float) -> Check:
    return Check("share_cut", share, None, True, (), f"{share:.1%} of the answers ended at the output cap; it must match between arms")
