"""Clocks of other hosts: whatever their offset, their drift and the network between, the truth lies within the bound."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.clock import MAX_DRIFT_PPM, WANDER_PPM, Line, Ping, Reading, read_clock, translate, translate_exchange
from specsweep.client.trace import ActorReport, Exchange, PointTrace, RequestTrace, Turn, read_trace, write_trace

DAY_NS = 86_400 * 10**9
T0 = 5 * DAY_NS


@dataclass(frozen=True)
class OtherClock:
    """``offset_ns`` at ``T0``; then each of ``rates_ppm`` for an equal part of ``span_ns``, and the last one for ever."""

    offset_ns: int
    rates_ppm: tuple[float, ...]
    span_ns: int

    def at(self, here_ns: int) -> int:
        part = self.span_ns / len(self.rates_ppm)
        passed = here_ns - T0
        gained = 0.0
        for i, rate in enumerate(self.rates_ppm):
            last = i == len(self.rates_ppm) - 1
            gained += rate * 1e-6 * max(0.0, (passed if last else min(passed, (i + 1) * part)) - i * part)
        return here_ns + self.offset_ns + round(gained)


def ping(clock: OtherClock, sent_ns: int, there_ns: int, back_ns: int) -> Ping:
    return Ping(sent_ns, clock.at(sent_ns + there_ns), sent_ns + there_ns + back_ns)


offsets = st.integers(-20 * DAY_NS, 400 * DAY_NS)
delays = st.tuples(st.integers(0, 40_000_000), st.integers(0, 40_000_000))  # each way on its own: up to 40 ms, and nothing symmetric
bursts = st.lists(delays, min_size=1, max_size=6)
spans = st.integers(1_000_000, 3_600 * 10**9)


@st.composite
def rates(draw: st.DrawFn) -> tuple[float, ...]:
    """Never more than WANDER_PPM apart, never beyond MAX_DRIFT_PPM."""
    base = draw(st.floats(-MAX_DRIFT_PPM, MAX_DRIFT_PPM - WANDER_PPM))
    return tuple(base + WANDER_PPM * draw(st.floats(0, 1)) for _ in range(draw(st.integers(1, 4))))


def readings(clock: OtherClock, first: list[tuple[int, int]], second: list[tuple[int, int]]) -> tuple[Line, int, int]:
    """The line from a burst that begins at T0 and one that begins after the span; and the time between the bursts."""

    def burst(begin: int, each: list[tuple[int, int]]) -> list[Ping]:
        starts = accumulate((there + back + 1000 for there, back in each), initial=begin)
        return [ping(clock, start, there, back) for start, (there, back) in zip(starts, each, strict=False)]

    before, after = burst(T0, first), burst(T0 + sum(map(sum, first)) + 10_000 + clock.span_ns, second)
    return Line(read_clock(before), read_clock(after)), before[-1].received_ns, after[0].sent_ns


@given(offset=offsets, rate=rates(), span=spans, first=bursts, second=bursts, moments=st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_translated_stamps_are_within_the_bound_of_the_truth(
    offset: int, rate: tuple[float, ...], span: int, first: list[tuple[int, int]], second: list[tuple[int, int]], moments: list[float]
) -> None:
    clock = OtherClock(offset, rate, span)
    line, opens, closes = readings(clock, first, second)
    for moment in moments:
        true = opens + round(moment * (closes - opens))
        assert abs(line.here(clock.at(true)) - true) <= line.bound_ns


@given(offset=offsets, rate=st.floats(-MAX_DRIFT_PPM, MAX_DRIFT_PPM), burst=bursts)
def test_a_reading_holds_the_true_offset(offset: int, rate: float, burst: list[tuple[int, int]]) -> None:
    clock = OtherClock(offset, (rate,), 10**9)
    reading = read_clock(ping(clock, T0 + i * 100_000_000, there, back) for i, (there, back) in enumerate(burst))
    true = clock.at(reading.at_ns) - reading.at_ns
    assert abs(reading.offset_ns - true) <= reading.half_ns
    assert reading.half_ns <= min(sum(each) for each in burst) / 2 * 1.001 + 2
    assert abs(reading.there(T0) - clock.at(T0)) <= reading.half_ns + MAX_DRIFT_PPM * 1e-6 * (reading.at_ns - T0) + 1


@given(
    offset=offsets, rate=rates(), span=spans, first=bursts, second=bursts, stamps=st.lists(st.integers(0, 10**12), min_size=2, max_size=20)
)
def test_translation_keeps_the_order(
    offset: int, rate: tuple[float, ...], span: int, first: list[tuple[int, int]], second: list[tuple[int, int]], stamps: list[int]
) -> None:
    line, _, _ = readings(OtherClock(offset, rate, span), first, second)
    translated = [line.here(T0 + offset + stamp) for stamp in sorted(stamps)]
    assert all(a <= b for a, b in pairwise(translated))


def test_a_perfect_network_leaves_nothing_but_rounding_and_wander() -> None:
    clock = OtherClock(-3 * DAY_NS + 7, (40.0,), 10**9)
    line = Line(read_clock([ping(clock, T0, 0, 0)]), read_clock([ping(clock, T0 + 10**9, 0, 0)]))
    assert (line.offset_ns, round(line.drift_ppm, 6)) == (-3 * DAY_NS + 7, 40.0)
    assert line.bound_ns == 1 + 1250 + 2  # 5 ppm of a second, a quarter of it
    assert line.here(clock.at(T0 + 123_456_789)) == T0 + 123_456_789


def test_a_clock_that_jumped_is_covered_wherever_it_did() -> None:
    jump, line = 30_000_000, None
    before, after = Reading(T0, 1000, 50_000), Reading(T0 + 10**10, 1000 + jump, 50_000)
    line = Line(before, after)
    for at in range(0, 10**10, 10**9):
        for true in range(T0, T0 + 10**10, 10**9 // 2):
            stamp = true + 1000 + (jump if true >= T0 + at else 0)
            assert abs(line.here(stamp) - true) <= line.bound_ns
    steady = Line(before, Reading(T0 + 10**10, 1000 + 2_000_000 + 50_000, 50_000))  # 200 ppm of ten seconds: that is drift
    assert steady.bound_ns < 100_000


def test_a_clock_that_went_back_is_not_divided_by() -> None:
    line = Line(Reading(T0, DAY_NS, 10), Reading(T0 + 1000, DAY_NS - 5000, 10))
    assert line.here(T0 + DAY_NS + 500) == T0 + 500
    assert line.bound_ns > 10_000


@pytest.mark.parametrize(
    ("pings", "words"), [([], "without a round trip"), ([Ping(5, 1, 4)], "received at 4 ns, before it was sent at 5 ns")]
)
def test_what_is_no_round_trip(pings: list[Ping], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_clock(pings)


REPORT = ActorReport(3, "there", 11, 2, T0 + 100, T0 + 900, 1.5, 0.1, 0.1, 0.2, 0.3, 50, 2, 0)


def test_every_stamp_of_a_trace_is_translated_and_what_was_done_survives_the_file(tmp_path: Path) -> None:
    line = Line(Reading(T0 - DAY_NS, DAY_NS, 400), Reading(T0 - DAY_NS + 10**9, DAY_NS, 500))
    turn = Turn(
        outcome="ok",
        chunk_t_ns=[T0 + 300, T0 + 400],
        chunk_tokens=[1, 2],
        step_t_ns=[T0 + 300, T0 + 400],
        step_tokens=[1, 2],
        step_drafted=[0, 3],
        step_accepted=[0, 1],
        step_server_ms=[0.0, 7.5],
        step_coalesced=[False, False],
    )
    row = RequestTrace(0, "p", "c", 0, "code", "main", 0, 5, 3, 3, 1, T0 + 200, T0 + 500, 77, 1, "complete", turn)
    found = translate(PointTrace(2, [row], [REPORT], simulated=True, meta={"a": 1}), line, "boot/time:[1]")
    write_trace(found, tmp_path / "trace.parquet")
    found = read_trace(tmp_path / "trace.parquet")
    (moved,), (report,) = found.requests, found.actors
    first = T0 - DAY_NS
    assert (moved.t_send_ns, moved.t_end_ns, moved.connect_ns) == (first + 200, first + 500, 77)
    assert moved.read.chunk_t_ns == moved.read.step_t_ns == [first + 300, first + 400]
    assert moved.read.step_server_ms == [0.0, 7.5]
    assert (report.t_start_ns, report.t_queue_empty_ns, report.wall_s) == (first + 100, first + 900, 1.5)
    assert (report.clock, report.clock_offset_ns, report.clock_drift_ppm) == ("boot/time:[1]", DAY_NS, 0.0)
    assert report.clock_bound_ns == line.bound_ns
    assert (found.simulated, found.meta, found.batch_size) == (True, {"a": 1}, 2)
    assert row.t_send_ns == T0 + 200  # the original is left alone


def test_a_raw_exchange_lies_on_the_same_line() -> None:
    line = Line(Reading(T0, 10**6, 1), Reading(T0 + 10**9, 10**6, 1))
    there = Exchange(T0 + 10**6, 200, [], [(T0 + 2 * 10**6, b"a"), (T0 + 3 * 10**6, b"b")], "complete", T0 + 4 * 10**6)
    here = translate_exchange(there, line)
    assert (here.t_send_ns, here.reads, here.t_end_ns) == (T0, [(T0 + 10**6, b"a"), (T0 + 2 * 10**6, b"b")], T0 + 3 * 10**6)


def test_the_helper_clock_runs_as_it_says() -> None:
    clock = OtherClock(0, (100.0, -100.0), 2 * 10**9)
    assert [clock.at(T0 + s * 10**9) - T0 - s * 10**9 for s in range(4)] == [0, 100_000, 0, -100_000]
