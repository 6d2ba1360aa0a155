from __future__ import annotations

import numpy as np
import pytest
from fake_engine import FakeEngine, FakePrompt, run

from specsweep.analysis import timing
from specsweep.analysis.columns import chunks, columns
from specsweep.analysis.window import Window, steady_window
from specsweep.client.trace import RequestTrace, Turn

MS = 1_000_000


def request(times_ms: list[float], tokens: list[int], *, send_ms: float = 0.0, index: int = 0, counted: int | None = None) -> RequestTrace:
    """Chunks that are steps, at these times; ``counted``: the server's number of tokens."""
    stamps = [round(t * MS) for t in times_ms]
    read = Turn(
        outcome="ok",
        step_state="exact",
        chunk_t_ns=stamps,
        chunk_tokens=tokens,
        step_t_ns=stamps,
        step_tokens=tokens,
        step_coalesced=[False] * len(tokens),
        n_completion_server=counted,
    )
    end = stamps[-1] if stamps else round(send_ms * MS)
    return RequestTrace(
        index, f"p{index}", f"p{index}", 0, "c", "main", 0, 10, 99, 0, index, round(send_ms * MS), end, 0, 1, "complete", read
    )


def test_chunks_of_three_tokens_every_nine_ms() -> None:
    """Time between chunks is a step time; time per token is a third of it, and is the inverse of the user's tokens per second."""
    row = request([50 + 9 * i for i in range(40)], [1] + [3] * 39)
    gaps = timing.step_gaps([row], server_clock=False)
    user = timing.user_tps(columns([row]))
    assert gaps is not None
    assert user is not None
    assert np.allclose(gaps.ms, 9.0)
    assert user.mean.value == pytest.approx(1000 / 3)
    assert 1000 / user.pooled.value == pytest.approx(3.0)


def test_ttft_is_no_step_time() -> None:
    gaps = timing.step_gaps([request([500, 510, 520], [1, 1, 1]), request([900, 910], [1, 2], index=1)], server_clock=False)
    assert gaps is not None
    assert gaps.ms.tolist() == [10, 10, 10]
    assert gaps.tokens.tolist() == [1, 1, 2]
    table = columns([request([500, 510], [1, 1], send_ms=100)])
    assert timing.ttft_ms(table).values.tolist() == [400]
    assert timing.request_latency_ms(table).values.tolist() == [410]


def test_a_step_that_slots_share_counts_once() -> None:
    """Four slots in one batch see the ten steps of the engine; one slot after the other sees twenty."""
    times = [100.0 + 10 * i for i in range(11)]
    together = timing.step_gaps([request(times, [1] * 11, index=i) for i in range(4)], server_clock=False)
    later = request([t + 105 for t in times], [1] * 11, index=1)
    apart = timing.step_gaps([request(times, [1] * 11), later], server_clock=False)
    assert together is not None
    assert apart is not None
    window = Window(0, 400 * MS, True, "")
    assert (together.ms.size, together.sample(window).distinct) == (40, 10)
    assert (apart.ms.size, apart.sample(window).distinct) == (20, 20)
    assert timing.ttft_ms(columns([later])).distinct == 1


def test_the_engines_clock_is_used_where_it_is_asked_for() -> None:
    row = request([10, 10.4, 10.5], [1, 2, 3])
    assert timing.step_gaps([row], server_clock=True) is None  # the stream does not carry it
    row.read.step_server_ms = [0.0, 7.0, 15.0]
    gaps = timing.step_gaps([row], server_clock=True)
    assert gaps is not None
    assert gaps.ms.tolist() == [7, 8]


def test_user_tps_is_the_mean_over_requests_of_their_own_rates() -> None:
    rows = [request([0, 100], [1, 10]), request([0, 100], [1, 30], index=1), request([5], [1], index=2)]
    user = timing.user_tps(columns(rows))
    assert user is not None
    assert user.mean.value == pytest.approx(200)
    assert user.per_request.index.tolist() == [0, 1]  # an answer of one token has no rate
    assert user.pooled.value == pytest.approx(40 / 0.2)


def test_the_first_chunk_may_hold_several_tokens() -> None:
    user = timing.user_tps(columns([request([0, 100], [4, 10])]))
    assert user is not None
    assert user.mean.value == pytest.approx(100)


def test_tokens_that_were_counted_and_never_streamed_count() -> None:
    user = timing.user_tps(columns([request([0, 100], [1, 10], counted=21)]))
    assert user is not None
    assert user.mean.value == pytest.approx(200)


def test_a_stream_without_token_numbers_spreads_the_counted_ones_over_its_chunks() -> None:
    table = columns([request([0, 50, 100], [0, 0, 0], counted=12)])
    assert chunks(table).share.tolist() == [4, 4, 4]


def test_nothing_but_first_tokens_gives_no_rate() -> None:
    assert timing.user_tps(columns([request([5], [1])])) is None


def test_output_tps_counts_what_arrived_in_the_window() -> None:
    rows = [request([100 * i for i in range(1, 21)], [1] + [2] * 19, index=i) for i in range(3)]
    found = timing.steady_tps(columns(rows), Window(1000 * MS, 2000 * MS, True, ""))
    assert found is not None
    assert found.interval.value == pytest.approx(3 * 10 * 2 / 1.0)  # (1000, 2000]: ten chunks of two tokens each
    assert found.tokens.sum() * 1.0 == 60
    whole = timing.whole_span_tps(columns(rows))
    assert whole is not None
    assert whole.value == pytest.approx(3 * 39 / 2.0)


def test_gaps_that_somebodys_prefill_stretched_are_set_apart() -> None:
    watched = request([10, 20, 30, 40, 50], [1] * 5)
    newcomer = request([38, 50], [1, 1], send_ms=25, index=1)
    gaps = timing.step_gaps([watched], server_clock=False)
    assert gaps is not None
    clean = timing.undisturbed(gaps, [watched, newcomer])
    assert clean.tolist() == [True, False, False, True]  # 20-30 and 30-40 overlap 25-38


def test_a_request_that_never_answered_disturbs_until_its_end() -> None:
    watched = request([10, 20, 30], [1] * 3)
    silent = request([], [], send_ms=5, index=1)
    silent.t_end_ns = 25 * MS
    gaps = timing.step_gaps([watched], server_clock=False)
    assert gaps is not None
    assert timing.undisturbed(gaps, [watched, silent]).tolist() == [False, False]


def test_a_long_prefill_is_seen_past_shorter_ones_that_began_later() -> None:
    watched = request([10, 60, 70, 90], [1] * 4)
    long = request([75], [1], send_ms=12, index=1)
    short = request([20], [1], send_ms=15, index=2)
    gaps = timing.step_gaps([watched], server_clock=False)
    assert gaps is not None
    assert timing.undisturbed(gaps, [watched, long, short]).tolist() == [False, False, False]


def test_only_gaps_with_both_ends_in_the_window_count() -> None:
    gaps = timing.step_gaps([request([10, 20, 30, 40], [1] * 4)], server_clock=False)
    assert gaps is not None
    assert timing.inside(gaps, Window(20 * MS, 35 * MS, True, "")).tolist() == [False, True, False]


def test_step_times_of_the_engine_are_recovered_under_refills() -> None:
    """Twelve-ms steps, 30-ms prefills: the clean gaps are the steps, all gaps hold the refills' prefills on top."""
    trace = run(FakeEngine(batch_size=8, step_ms=12, prefill_ms=30, max_tokens=50), [FakePrompt(f"p{i}") for i in range(40)])
    window = steady_window(trace)
    gaps = timing.step_gaps([r for r in trace.requests if r.phase == "main"], server_clock=False)
    assert gaps is not None
    gaps = gaps.where(timing.inside(gaps, window))
    clean = gaps.where(timing.undisturbed(gaps, trace.requests))
    assert clean.ms.size > 100
    assert np.allclose(clean.ms, 12.0)
    prefills = sum(window.open_ns < r.read.chunk_t_ns[0] <= window.close_ns for r in trace.requests)
    steps = len({t for r in trace.requests for t in r.read.chunk_t_ns[1:] if window.open_ns < t <= window.close_ns})
    # A prefill stretches a gap of the seven others; its own request has no gap then.
    assert gaps.ms.mean() == pytest.approx(12 + 30 * prefills / steps * 7 / 8, rel=0.01)


def test_blocks_cut_time_without_losing_any() -> None:
    blocks = timing.Blocks(0, 1200 * MS)
    parts = blocks.overlap(np.array([50 * MS]), np.array([1150 * MS]))
    assert parts.sum() == pytest.approx(1.1)
    assert parts[0, 0] == pytest.approx(0.05)
    assert blocks.number(np.array([-5, 0, 100 * MS, 1200 * MS])).tolist() == [0, 0, 1, 11]
