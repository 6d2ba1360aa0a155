from __future__ import annotations

from dataclasses import replace

import pytest
from fake_engine import FakeEngine, FakePrompt, fail, run

from specsweep.analysis.window import in_flight, steady_window
from specsweep.client.trace import PointTrace

PROMPTS = [FakePrompt(f"p{i}") for i in range(12)]


def test_it_opens_with_the_last_first_token_of_the_ramp_and_closes_with_the_queue() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    window = steady_window(trace)
    ramp = [r for r in trace.requests if r.phase == "ramp"]
    assert window.ok
    assert window.open_ns == max(r.read.chunk_t_ns[0] for r in ramp)
    assert window.close_ns == trace.actors[0].t_queue_empty_ns
    assert window.seconds == pytest.approx((window.close_ns - window.open_ns) / 1e9)


def test_the_first_idle_process_closes_it() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    early = replace(trace.actors[0], actor=1, t_queue_empty_ns=trace.actors[0].t_queue_empty_ns - 50_000_000)
    trace.actors.append(early)
    assert steady_window(trace).close_ns == early.t_queue_empty_ns


def test_without_reports_the_last_send_closes_it() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    trace.actors.clear()
    assert steady_window(trace).close_ns == max(r.t_send_ns for r in trace.requests)


def test_a_failed_ramp_request_opens_it_with_its_end() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    last = max((r for r in trace.requests if r.phase == "ramp"), key=lambda r: r.t_end_ns)
    fail(last)
    assert steady_window(trace).open_ns == last.t_end_ns


def test_too_few_requests_are_explained() -> None:
    trace = run(FakeEngine(batch_size=4, prefill_ms=50), PROMPTS, requests=0)
    window = steady_window(trace)
    assert not window.ok
    assert "no request of the main phase" in window.reason
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    trace.actors = [replace(trace.actors[0], t_queue_empty_ns=trace.requests[0].t_send_ns)]
    window = steady_window(trace)
    assert not window.ok
    assert "too few for batch size 4" in window.reason
    assert window.seconds > 0


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="no request"):
        steady_window(PointTrace(batch_size=1, requests=[], actors=[]))


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_closed_loop_keeps_exactly_bs_in_flight(size: int) -> None:
    trace = run(FakeEngine(batch_size=size), PROMPTS)
    flight = in_flight(trace, steady_window(trace))
    assert (flight.floor, flight.ceiling) == (size, size)
    assert flight.longest_gap_ms == pytest.approx(0.02)


def test_the_short_gap_of_another_slot_may_lie_across_the_opening() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    window = steady_window(trace)
    before = next(r for r in trace.requests if r.phase == "ramp" and r.t_end_ns > window.open_ns)
    opens = before.t_end_ns + 10_000  # inside the 0.02 ms between its end and the next send
    flight = in_flight(trace, replace(window, open_ns=opens))
    assert flight.floor == 4


def test_a_slot_that_stands_empty_shows() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS, send_gap_ns=40_000_000)
    flight = in_flight(trace, steady_window(trace))
    assert flight.floor < 4
    assert flight.longest_gap_ms == pytest.approx(40)
    assert flight.idle_share > 0.01


def test_the_gap_between_two_turns_of_a_conversation_is_not_a_missing_request() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS, send_gap_ns=40_000_000)
    for r in trace.requests:
        r.turn = 0 if r.phase == "ramp" else 1
    flight = in_flight(trace, steady_window(trace))
    assert flight.floor == 4
    assert (flight.longest_gap_ms, flight.idle_share) == (0, 0)
    assert flight.turn_gap_longest_ms == pytest.approx(40)
    assert 0 < flight.turn_gap_share < 0.2
    assert 1 <= flight.between_turns <= 4


def test_without_conversations_nothing_is_between_turns() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    flight = in_flight(trace, steady_window(trace))
    assert (flight.turn_gap_longest_ms, flight.turn_gap_share, flight.between_turns) == (0, 0, 0)


def test_it_opens_with_the_first_turns_of_the_ramp() -> None:
    """A later turn of a ramp conversation starts long after every slot is filled."""
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    opens = steady_window(trace).open_ns
    last = max(trace.requests, key=lambda r: r.t_send_ns)
    last.phase, last.turn = "ramp", 1
    assert steady_window(trace).open_ns == opens


def test_one_request_too_many_shows() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    window = steady_window(trace)
    extra = replace(trace.requests[8], index=99, slot=9)
    trace.requests.append(extra)
    assert in_flight(trace, window).ceiling == 5
