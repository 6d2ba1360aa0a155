"""What is not known of the clients' clocks: whatever truth lies within the bound, no figure is further off than the check says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_engine import FakeEngine, FakePrompt, report, run

from specsweep.analysis import timing
from specsweep.analysis.clock_checks import MAX_CLOCK_SHARE, clock_checks, step_share
from specsweep.analysis.columns import columns
from specsweep.analysis.measure import PointFacts, measure
from specsweep.analysis.window import steady_window
from specsweep.client.trace import PointTrace, RequestTrace

MS = 1_000_000
SIZE = 8


def noisy(rng: np.random.Generator, step: int) -> float:
    return float(rng.uniform(0.8, 1.2))


def spread_trace(actors: int = 2, seed: int = 0) -> PointTrace:
    """One run of the engine, its slots dealt to processes."""
    prompts = [FakePrompt(f"p{i}", (0.7, 0.5), answer=40 + 7 * (i % 9)) for i in range(160)]
    trace = run(FakeEngine(batch_size=SIZE, draft_length=2, step_noise=noisy, prefill_ms=7.0, seed=seed), prompts)
    for r in trace.requests:
        r.actor = r.slot % actors
    (one,) = trace.actors
    trace.actors = [replace(one, actor=i, slots=SIZE // actors) for i in range(actors)]
    return trace


def with_bounds(trace: PointTrace, *bounds_ns: int) -> PointTrace:
    """The clock of actor i + 1 is known to within the i-th bound; actor 0 has the coordinator's."""
    rest = [replace(a, clock=f"c{a.actor}", host=f"h{a.actor}", clock_bound_ns=b) for a, b in zip(trace.actors[1:], bounds_ns, strict=True)]
    return replace(trace, actors=[trace.actors[0], *rest])


def as_it_might_have_been(trace: PointTrace, actor: int, first_ns: int, last_ns: int) -> PointTrace:
    """All stamps of an actor later by ``first_ns`` at the point's beginning, by ``last_ns`` at its end, and in between in between."""
    begin = min(r.t_send_ns for r in trace.requests)
    end = max(r.read.chunk_t_ns[-1] for r in trace.requests)

    def moved(t: int) -> int:
        return t + round(first_ns + (last_ns - first_ns) * (t - begin) / (end - begin))

    def request(r: RequestTrace) -> RequestTrace:
        read = replace(r.read, chunk_t_ns=list(map(moved, r.read.chunk_t_ns)), step_t_ns=list(map(moved, r.read.step_t_ns)))
        return replace(r, t_send_ns=moved(r.t_send_ns), t_end_ns=moved(r.t_end_ns), read=read)

    return replace(
        trace,
        requests=[request(r) if r.actor == actor else r for r in trace.requests],
        actors=[replace(a, t_queue_empty_ns=moved(a.t_queue_empty_ns)) if a.actor == actor else a for a in trace.actors],
    )


FACTS = PointFacts(batch_size=SIZE, draft_length=2, drafter="eagle3")


def figures(trace: PointTrace) -> dict[str, float]:
    return measure(trace, FACTS)["metrics"]


def found(trace: PointTrace) -> dict[str, tuple[float, bool]]:
    return {c["name"]: (c["value"], c["ok"]) for c in measure(trace, FACTS)["checks"] if c["name"].startswith("clock_bound")}


def test_one_clock_asks_nothing() -> None:
    assert found(spread_trace()) == {}


@pytest.mark.parametrize("seed", range(4))
def test_no_error_within_the_bound_moves_output_tps_by_more_than_is_said(seed: int) -> None:
    bound = 30 * MS
    trace = with_bounds(spread_trace(seed=seed), bound)
    share, _ = found(trace)["clock_bound"]
    steady = figures(trace)["output_tps_steady"]
    window = steady_window(trace)
    step_tokens = SIZE * 3  # a step is in the window or not: that is no matter of clocks
    grain = 4 * step_tokens / (steady * window.seconds)
    rng = np.random.default_rng(seed)
    ends = [(-bound, bound), (bound, -bound), (bound, bound), *rng.integers(-bound, bound, (4, 2)).tolist()]
    for first, last in ends:
        moved = figures(as_it_might_have_been(trace, 1, first, last))["output_tps_steady"]
        assert abs(moved / steady - 1) <= share + grain


@pytest.mark.parametrize("seed", range(4))
def test_no_clock_within_its_bound_moves_step_ms_decode_by_more_than_is_said(seed: int) -> None:
    bound = 4 * MS
    trace = with_bounds(spread_trace(seed=seed), bound)
    share, _ = found(trace)["clock_bound_step"]
    clean = figures(trace)
    for error in (-bound, bound):
        moved = figures(as_it_might_have_been(trace, 1, error, error))
        for name in ("step_ms_decode_mean", "step_ms_decode_p50"):
            assert abs(moved[name] / clean[name] - 1) <= share + 0.002  # window edges move with the clock, by a few gaps
    assert share > 0


def test_a_bound_of_a_step_time_spoils_step_times_alone() -> None:
    values = found(with_bounds(spread_trace(), 9 * MS))
    assert values["clock_bound"][1]
    assert not values["clock_bound_step"][1]
    validity = measure(with_bounds(spread_trace(), 9 * MS), FACTS)["validity"]
    assert (validity["tps"], validity["steps"]) == (True, False)


def test_a_small_bound_is_fine_and_a_large_one_spoils_the_rates() -> None:
    trace = spread_trace()
    window = steady_window(trace)
    assert all(ok for _, ok in found(with_bounds(trace, 20_000)).values())
    limit = round(MAX_CLOCK_SHARE * window.seconds * 1e9 / 2)
    assert found(with_bounds(trace, limit - 1000))["clock_bound"][1]
    assert not found(with_bounds(trace, limit + 1000))["clock_bound"][1]


def test_the_worst_clock_is_named() -> None:
    trace = with_bounds(spread_trace(4), 1 * MS, 5 * MS, 2 * MS)
    rates, _ = clock_checks(trace.actors, 10.0, 0.003)
    assert rates.value == pytest.approx(0.001)
    assert "3 other clocks" in rates.message
    assert "5.000 ms (the worst: actor 2 on h2)" in rates.message


def test_errors_of_several_clocks_add_up() -> None:
    trace = spread_trace(4)
    window = steady_window(trace)
    gaps = timing.step_gaps([r for r in trace.requests if r.phase == "main"], server_clock=False)
    assert gaps is not None
    gaps = gaps.where(timing.inside(gaps, window))

    def share(*bounds: int) -> float:
        value = step_share(gaps, trace.requests, with_bounds(trace, *bounds).actors)
        assert value is not None
        return value

    alone = [share(3 * MS, 0, 0), share(0, 3 * MS, 0), share(0, 0, 3 * MS)]
    assert share(3 * MS, 3 * MS, 3 * MS) == pytest.approx(sum(alone))
    assert share(10**12, 0, 0) <= 1.0


def test_where_no_gap_is_undisturbed_nothing_is_asked_of_step_times() -> None:
    trace = with_bounds(spread_trace(), MS)
    for r in trace.requests:  # a request that never had a token, all the time
        if r.phase == "ramp":
            r.t_send_ns, r.t_end_ns = 0, 10**15
            r.read.chunk_t_ns, r.read.chunk_tokens = [], []
    gaps = timing.step_gaps([r for r in trace.requests if r.phase == "main"], server_clock=False)
    assert gaps is not None
    assert step_share(gaps, trace.requests, trace.actors) is None
    assert [c.name for c in clock_checks(trace.actors, 1.0, None)] == ["clock_bound"]


def test_a_window_without_length_is_not_divided_by() -> None:
    actor = report(1, 0, 1, 1.0)
    (check,) = clock_checks([replace(actor, clock="c", clock_bound_ns=1)], 0.0, None)
    assert not check.ok


def test_blocks_of_one_clock_alone_are_unmoved() -> None:
    """TTFT, latencies, user TPS and step times are of one clock each: the same to the digit, wherever it stands."""
    trace = with_bounds(spread_trace(), 5 * MS)
    moved = as_it_might_have_been(trace, 1, 5 * MS, 5 * MS)
    whole, other = columns(trace.requests), columns(moved.requests)
    assert (other.first - other.send == whole.first - whole.send).all()
    assert (other.last - other.first == whole.last - whole.first).all()
