from __future__ import annotations

import numpy as np
import pytest
from fake_engine import FakeEngine, FakePrompt, forget_steps, merge_pairs, run

from specsweep.analysis import acceptance
from specsweep.client.trace import EngineCounters, RequestTrace, Turn

ACCEPT = (0.8, 0.6, 0.5)
PROMPTS = [FakePrompt(f"p{i}", ACCEPT, answer=900, category="code" if i % 2 else "prose") for i in range(20)]


def turn(tokens: list[int], drafted: list[int] | None = None, accepted: list[int] | None = None, **facts: object) -> Turn:
    """Steps after a prefill step of one token; unknown drafts unless given."""
    n = len(tokens)
    return Turn(
        outcome="ok",
        step_state="exact",
        step_tokens=[1, *tokens],
        step_t_ns=list(range(n + 1)),
        step_drafted=[0, *(drafted or [-1] * n)],
        step_accepted=[0, *(accepted or [-1] * n)],
        **facts,  # type: ignore[arg-type]
    )


def request(read: Turn, prompt: str = "p") -> RequestTrace:
    return RequestTrace(0, prompt, prompt, 0, "c", "main", 0, 10, 99, 0, 0, 0, 1, 0, 1, "complete", read)


def test_al_decode_is_pooled_over_whole_decode_steps() -> None:
    rows = [request(turn([4, 4, 1], last_cut=True), "a"), request(turn([1]), "b"), request(turn([2, 1]), "c")]
    steps = acceptance.decode_steps(rows)
    found = acceptance.al_decode(steps)
    assert found.interval is not None
    assert found.interval.value == pytest.approx((4 + 4 + 1 + 2 + 1) / 5)  # neither the prefill steps nor the cut one
    assert acceptance.histogram(steps) == {1: 2, 2: 1, 4: 2}
    by_request = acceptance.al_decode_request_mean(steps)
    assert by_request.interval is not None
    assert by_request.interval.value == pytest.approx((4 + 1 + 1.5) / 3)


def test_requests_of_one_prompt_are_one_cluster() -> None:
    rows = [request(turn([2, 3]), p) for p in ("a", "a", "b", "c")]
    found = acceptance.al_decode(acceptance.decode_steps(rows))
    assert found.interval is not None
    assert found.interval.n == 3


def test_an_answer_of_one_token_has_no_decode_step() -> None:
    found = acceptance.al_decode(acceptance.decode_steps([request(turn([])), request(turn([3], last_cut=True))]))
    assert found.interval is None
    assert "complete decode step" in found.reason


def test_rates_by_position_recover_what_was_put_in() -> None:
    trace = run(FakeEngine(batch_size=4, draft_length=3, max_tokens=400), PROMPTS)
    rows, base = acceptance.conditional(acceptance.verified_steps([r for r in trace.requests if r.phase == "main"]), 3)
    assert base == "steps that drafted this position"
    for row, true in zip(rows, ACCEPT, strict=True):
        assert row["ci_low"] < true < row["ci_high"]
        assert row["value"] == pytest.approx(row["accepted"] / row["reached"])
    assert rows[1]["reached"] == rows[0]["accepted"]


def test_a_short_draft_is_not_a_rejection() -> None:
    steps = turn([2, 1, 4], drafted=[1, 1, 3], accepted=[1, 0, 3])
    rows, _ = acceptance.conditional(acceptance.verified_steps([request(steps)]), 3)
    assert [(r["reached"], r["accepted"]) for r in rows] == [(3, 2), (1, 1), (1, 1)]


def test_positions_that_no_step_reached_are_listed_without_a_value() -> None:
    rows, _ = acceptance.conditional(acceptance.verified_steps([request(turn([1, 1], [2, 2], [0, 0]))]), 4)
    assert [r["position"] for r in rows] == [1, 2, 3, 4]
    assert (rows[0]["value"], rows[0]["reached"]) == (0.0, 2)
    assert all(r["value"] is None and r["reached"] == 0 for r in rows[1:])


def test_an_undrafted_step_is_no_rejection_at_position_1() -> None:
    rows, _ = acceptance.conditional(acceptance.verified_steps([request(turn([3, 1, 1], [2, 0, 2], [2, 0, 0]))]), 2)
    assert (rows[0]["reached"], rows[0]["accepted"]) == (2, 1)


def test_the_servers_step_count_tells_undrafted_steps_from_rejections() -> None:
    """Chunks of one token may be either; with three verify steps counted, one of the three ones was drafted and rejected."""
    rows, base = acceptance.conditional(acceptance.verified_steps([request(turn([3, 1, 1, 1, 2], srv_steps=3))]), 2)
    assert (rows[0]["reached"], rows[0]["accepted"]) == (3, 2)
    assert base == "steps that drafted this position"
    rows, base = acceptance.conditional(acceptance.verified_steps([request(turn([3, 1, 1, 1, 2]))]), 2)
    assert rows[0]["reached"] == 5
    assert "does not say which were drafted" in base


def test_the_servers_own_lists_come_first_and_are_uncut() -> None:
    cut = turn([3, 2], srv_accepted_per_step=[2, 3], srv_drafted_per_step=[3, 3], last_cut=True)
    rows, _ = acceptance.conditional(acceptance.verified_steps([request(cut)]), 3)
    assert [(r["reached"], r["accepted"]) for r in rows] == [(2, 2), (2, 2), (2, 1)]


def test_a_cut_step_of_unknown_acceptance_is_left_out() -> None:
    rows, _ = acceptance.conditional(acceptance.verified_steps([request(turn([2, 1], [3, 3], last_cut=True))]), 3)
    assert rows[0]["reached"] == 1


def test_verify_length_leaves_undrafted_steps_out() -> None:
    rows = [request(turn([4, 1, 1, 2], [3, 0, 0, 3], [3, 0, 0, 1]), p) for p in "abc"]
    steps = acceptance.decode_steps(rows)
    found, decode = acceptance.al_verify(rows, steps, None), acceptance.al_decode(steps)
    assert found.interval is not None
    assert decode.interval is not None
    assert found.interval.value == pytest.approx(3.0)
    assert decode.interval.value == pytest.approx(2.0)


def test_the_rate_has_verified_tokens_as_its_base() -> None:
    """With a draft minimum of 2, drafts of one token are thrown away by the server: proposed, never verified. They are not in the base."""
    rows = [request(turn([3, 1, 1], [2, 0, 0], [2, 0, 0], srv_steps=1, srv_accepted=2, srv_drafted=2), p) for p in "abc"]
    found = acceptance.acceptance_rate(rows, acceptance.decode_steps(rows), None)
    assert found.interval is not None
    assert found.interval.value == 1.0
    assert "verified draft tokens" in found.source


def test_merged_streams_leave_the_servers_counts() -> None:
    trace = run(FakeEngine(batch_size=2, draft_length=3), PROMPTS)
    for r in trace.requests:
        merge_pairs(r)
    assert trace.counters is not None
    assert "cannot be split" in acceptance.why_no_steps(trace.requests)
    found = acceptance.al_verify(trace.requests, None, trace.counters)
    assert found.interval is not None
    assert found.interval.value == pytest.approx(1 + (trace.counters.accepted_tokens or 0) / (trace.counters.drafts or 1))
    assert found.interval.low is None
    assert "counters" in found.source


def test_request_truth_beats_run_counters() -> None:
    rows = [request(turn([], srv_steps=10, srv_accepted=a, srv_drafted=30), p) for p, a in zip("abcd", (15, 20, 25, 20), strict=True)]
    found = acceptance.al_verify(rows, None, EngineCounters(drafts=1.0, accepted_tokens=99.0))
    assert found.interval is not None
    assert found.interval.value == pytest.approx(3.0)
    assert found.interval.low is not None


def test_nothing_is_known_without_steps_and_counters() -> None:
    trace = run(FakeEngine(batch_size=1, draft_length=3, counts=False), PROMPTS[:4])
    for r in trace.requests:
        forget_steps(r)
    assert "say nothing about steps" in acceptance.why_no_steps(trace.requests)
    found = acceptance.acceptance_rate(trace.requests, None, None)
    assert found.interval is None
    assert found.reason


def test_no_draft_at_all_is_said_and_not_divided_by() -> None:
    rows = [request(turn([1, 1, 1], [0, 0, 0], [0, 0, 0]))]
    found = acceptance.al_verify(rows, acceptance.decode_steps(rows), None)
    assert found.interval is None
    assert "no draft" in found.reason


@pytest.mark.parametrize("engine", [FakeEngine(4, 3), FakeEngine(2, 3, draft_share=0.4), FakeEngine(3, 4, draft_sizes=(1, 2, 4))])
def test_stream_totals_are_the_engines_counters(engine: FakeEngine) -> None:
    prompts = [FakePrompt(f"p{i}", (0.7, 0.6, 0.5, 0.4), answer=int(20 + 3 * i)) for i in range(12)]
    trace = run(engine, prompts)
    totals = acceptance.stream_totals(trace.requests)
    for name in ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens"):
        assert totals[name] == getattr(trace.counters, name)


def test_totals_that_a_stream_cannot_give_are_none() -> None:
    trace = run(FakeEngine(batch_size=1, draft_length=3, knows_drafts=False), PROMPTS[:4])
    totals = acceptance.stream_totals(trace.requests)
    assert totals["drafts"] is None
    assert totals["decode_steps"] == trace.counters.drafts  # type: ignore[union-attr]


def test_a_step_list_of_another_length_is_unknown_not_misaligned() -> None:
    read = turn([2, 3])
    read.step_drafted = [0]
    steps = acceptance.decode_steps([request(read)])
    assert np.all(steps.drafted == acceptance.UNKNOWN)
