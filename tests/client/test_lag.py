"""The lag probe: what it says of a loop that is free, and of one that is held up."""

from __future__ import annotations

import asyncio
import time

import pytest

from specsweep.client.lag import LagProbe, summarise


async def test_a_stall_of_the_loop_is_seen_in_full_and_by_every_expiry_in_it() -> None:
    probe = LagProbe(0.002)
    probe.start()
    await asyncio.sleep(0.05)
    time.sleep(0.06)
    await asyncio.sleep(0.02)
    lag = probe.stop()
    assert 50 <= lag.max_ms <= 200
    assert lag.samples >= 0.9 * 130 / 2
    assert lag.p99_ms > 40  # some thirty of about sixty-five samples are late, evenly from 0 to 60 ms


async def test_the_rate_of_samples_is_the_period() -> None:
    probe = LagProbe(0.005)
    probe.start()
    started = time.monotonic()
    await asyncio.sleep(0.25)
    lag = probe.stop()
    assert lag.samples == pytest.approx((time.monotonic() - started) / 0.005, abs=2)
    assert 0 <= lag.p50_ms <= lag.p99_ms <= lag.max_ms


async def test_lag_of_a_free_loop_is_not_the_millisecond_of_epoll() -> None:
    """A probe by ``call_later`` at this odd period would report up to a millisecond on an idle machine."""
    best = 1e9
    for _ in range(5):  # the machine may be busy with other tests: the best of five is the probe's own floor
        probe = LagProbe(0.00233)
        probe.start()
        await asyncio.sleep(0.1)
        best = min(best, probe.stop().p50_ms)
    assert best < 0.4


def test_summary_of_nothing_is_zero_samples() -> None:
    assert summarise([]).samples == 0
    assert summarise([1_000_000, 3_000_000]).p50_ms == pytest.approx(2.0)
