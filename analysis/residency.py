"""Did the engine run the whole batch at once? The client keeps BS requests in the engine; how many of them decode is the engine's choice.

An engine whose KV cache cannot hold BS requests of this length does not fail: it lets some wait, or preempts the youngest and computes
their tokens again. So does one with a lower batch limit. The numbers look like those of a batch of BS and are not. Three facts tell:
the highest running-requests gauge, how often fewer than BS ran while others waited, and the engine's own count of preemptions.

The gauges are read once a second at most, so a short point decides nothing. A single look with a request waiting is no fault either: it
may have come in the middle of a step, or wait for the prefills before it. Only a batch that is short most of the time is another batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from specsweep.analysis.check import Check
from specsweep.client.trace import EngineCounters, GaugeSample

GAUGE_SECONDS = 5.0  # a gauge read once a second has surely seen the full batch in a window this long
MIN_SAMPLES = 5
MAX_QUEUED = 0.5
ADVICE = "lower batch_size, isl or workload.osl, or give the engine more memory for its KV cache"


def residency_checks(
    batch_size: int,
    gauges: Sequence[GaugeSample],
    running_max: float | None,
    window_s: float,
    counters: EngineCounters | None,
    *,
    between_turns: int = 0,
) -> list[Check]:
    """``running_max``: over all looks, None where the engine has no such gauge. ``window_s``: seconds that the batch was full.
    ``between_turns``: conversations at most that were between two turns at once, so that nobody asked anything of the engine.
    """
    return [
        _running(batch_size, gauges, running_max, window_s, between_turns),
        _queued(batch_size, gauges),
        _preemptions(None if counters is None else counters.preemptions),
    ]


def _running(batch_size: int, gauges: Sequence[GaugeSample], running_max: float | None, window_s: float, between_turns: int) -> Check:
    def check(ok: bool, text: str) -> Check:
        return Check("running_requests", running_max, batch_size, ok, ("all",), text)

    if running_max is None or window_s < GAUGE_SECONDS:
        return check(True, "not decided: the engine's gauge was not read long enough")
    if not running_max and not any(g.waiting for g in gauges):
        # It answered, so it ran them: on a busy machine all looks can miss a short load.
        return check(True, "not decided: no look at the engine's gauge found it at work")
    text = f"the engine ran up to {running_max:.0f} requests at once"
    if running_max > batch_size:
        return check(False, f"{text}, more than the {batch_size} of this client: another client uses it; measure when it is alone")
    if running_max == batch_size:
        return check(True, text)
    if running_max >= batch_size - between_turns:
        return check(True, f"{text}, with up to {between_turns} conversations between two turns")
    waiting = max((g.waiting for g in gauges if g.waiting is not None), default=0.0)
    if waiting:
        why = f"while up to {waiting:.0f} waited: its KV cache or its batch limit holds no more; raise engine.max_batch, {ADVICE}"
    else:
        why = "and none was seen waiting: something before it, a proxy or a router, lets fewer through"
    return check(False, f"{text}, fewer than {batch_size}, {why}")


def _queued(batch_size: int, gauges: Sequence[GaugeSample]) -> Check:
    """Over the looks that found the whole batch in the engine: at ramp-up's first moments and in the drain fewer are there to be run."""
    whole = [g for g in gauges if g.waiting is not None and g.running + g.waiting >= batch_size]

    def check(value: float | None, ok: bool, text: str) -> Check:
        return Check("queued_in_engine", value, MAX_QUEUED, ok, ("tps", "steps"), text)

    if len(whole) < MIN_SAMPLES:
        return check(None, True, f"not decided: {len(whole)} looks at the engine's gauges found all {batch_size} requests in it")
    short = [g for g in whole if g.running < batch_size]
    share = len(short) / len(whole)
    text = f"in {len(short)} of {len(whole)} looks at its gauges the engine let some of the {batch_size} requests wait"
    if share <= MAX_QUEUED:
        return check(share, True, text)
    running, waiting = median(g.running for g in short), median(g.waiting or 0.0 for g in short)
    why = f"{running:.0f} ran and {waiting:.0f} waited (medians): its KV cache, batch limit or prefill budget holds no more"
    return check(share, False, f"{text}; {why}; raise engine.max_batch, {ADVICE}")


def _preemptions(count: float | None) -> Check:
    if count is None:
        return Check("preemptions", None, 0, True, ("all",), "not decided: the engine does not count it")
    text = "no request was preempted"
    if count:
        text = f"{count:.0f} times the KV cache was full and a request gave up its place, to compute its tokens again; {ADVICE}"
    return Check("preemptions", count, 0, not count, ("all",), text)
