"""The simulated engine: what it promises about tokens, limits and counters, whatever the load."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsweep.client.sim.engine import Emission, Limits, SimEngine, SimRequest
from specsweep.client.sim.model import Answers, SimModel, StepWork, load_model

WIDE = Limits(64)


def model_with(rates: list[float], *, share: float = 1.0, **fields: Any) -> SimModel:
    drafter = {"rates": {"default": rates}, "draft_share": share, "pass_overhead_ms": 0.1}
    return load_model(
        {
            "name": "m",
            "hardware": {"name": "h", "gpus": 1, "bandwidth_gb_s": 1000, "tflops": 100},
            "target": {"weights_gb": 10, "kv_bytes_per_token": 1000, "gflop_per_token": 10},
            "drafters": {"eagle3": drafter},
            **fields,
        },
        "eagle3",
    )


PLAIN = load_model(
    {
        "name": "m",
        "hardware": {"name": "h", "gpus": 1, "bandwidth_gb_s": 1000, "tflops": 100},
        "target": {"weights_gb": 10, "kv_bytes_per_token": 1000, "gflop_per_token": 10},
    }
)


@dataclass
class Result:
    engine: SimEngine
    by_request: dict[int, list[Emission]] = field(default_factory=lambda: defaultdict(list))
    work: list[StepWork] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    end: float = 0.0


def drain(engine: SimEngine, *, steps: int = 100_000) -> Result:
    found = Result(engine)
    for _ in range(steps):
        end = engine.begin_step(found.end)
        if end is None:
            return found
        assert end > found.end
        found.end = end
        found.work.append(engine.work)
        found.running.append(engine.counters.running)
        for emission in engine.end_step():
            found.by_request[emission.request_id].append(emission)
    raise AssertionError("the engine does not come to an end")


def serve(model: SimModel, requests: list[SimRequest], draft_length: int = 3, limits: Limits = WIDE, **options: Any) -> Result:
    engine = SimEngine(model, draft_length=draft_length, limits=limits, **options)
    for request in requests:
        engine.submit(request, 0.0)
    return drain(engine)


def tokens(emissions: list[Emission]) -> list[int]:
    return [e.tokens for e in emissions]


# --- one request ---------------------------------------------------------------------------------------------------------------


def test_the_prefill_gives_one_undrafted_token_and_then_all_drafts_count() -> None:
    (emissions,) = serve(model_with([1.0]), [SimRequest(7, 100, 9)]).by_request.values()
    assert tokens(emissions) == [1, 4, 4]
    assert [(e.first, e.drafted, e.accepted, e.finish) for e in emissions] == [
        (True, 0, 0, ""),
        (False, 3, 3, ""),
        (False, 3, 3, "length"),
    ]
    assert [e.step for e in emissions] == [1, 2, 3]


def test_an_answer_is_cut_at_its_limit_and_counted_before_the_cut() -> None:
    result = serve(model_with([1.0]), [SimRequest(0, 100, 7)])
    last = result.by_request[0][-1]
    assert (last.tokens, last.drafted, last.accepted, last.finish) == (2, 3, 3, "length")
    counters = result.engine.counters
    assert (counters.generation_tokens, counters.drafts, counters.draft_tokens, counters.accepted_tokens) == (7, 2, 6, 6)
    assert counters.accepted_per_pos == [2, 2, 2]


@pytest.mark.parametrize(("max_tokens", "drafted"), [(7, [0, 3, 1]), (6, [0, 3, 0]), (5, [0, 3]), (2, [0, 0]), (1, [0])])
def test_an_engine_that_trims_never_drafts_past_the_limit(max_tokens: int, drafted: list[int]) -> None:
    (emissions,) = serve(model_with([1.0]), [SimRequest(0, 10, max_tokens)], trim_last_draft=True).by_request.values()
    assert [e.drafted for e in emissions] == drafted
    assert sum(tokens(emissions)) == max_tokens
    assert all(e.tokens == e.accepted + 1 for e in emissions)


def test_without_a_drafter_every_step_gives_one_token() -> None:
    result = serve(PLAIN, [SimRequest(0, 100, 20)], draft_length=0)
    assert tokens(result.by_request[0]) == [1] * 20
    assert result.engine.counters.drafts == 0


def test_rejected_drafts_still_give_the_targets_token() -> None:
    result = serve(model_with([0.0]), [SimRequest(0, 100, 5)])
    assert tokens(result.by_request[0]) == [1] * 5
    assert (result.engine.counters.drafts, result.engine.counters.accepted_tokens) == (4, 0)


def test_acceptance_follows_the_rates_position_by_position() -> None:
    rates = (0.8, 0.5, 0.3)
    result = serve(model_with(list(rates)), [SimRequest(i, 10, 400) for i in range(60)])
    counters = result.engine.counters
    reached = [counters.drafts, *counters.accepted_per_pos]
    for rate, before, after in zip(rates, reached, reached[1:], strict=False):
        assert after / before == pytest.approx(rate, abs=0.02)


def test_a_drafter_that_finds_nothing_gives_undrafted_steps() -> None:
    result = serve(model_with([0.9], share=0.3), [SimRequest(i, 10, 300) for i in range(30)])
    steps = [e for emissions in result.by_request.values() for e in emissions if not e.first]
    assert sum(e.drafted > 0 for e in steps) / len(steps) == pytest.approx(0.3, abs=0.03)
    assert all(e.tokens == 1 for e in steps if not e.drafted)
    assert result.engine.counters.drafts == sum(e.drafted > 0 for e in steps)


def test_an_answer_ends_by_itself_unless_eos_is_ignored() -> None:
    model = replace(model_with([0.7]), answers=Answers(median_tokens=30, spread=0.4))
    ended = serve(model, [SimRequest(i, 10, 60, ignore_eos=False) for i in range(50)]).by_request
    finishes = Counter(e[-1].finish for e in ended.values())
    assert finishes["stop"] > 30
    assert finishes["length"] > 0
    for emissions in ended.values():
        assert (sum(tokens(emissions)) == 60) or emissions[-1].finish == "stop"
    ignoring = serve(model, [SimRequest(i, 10, 60) for i in range(50)]).by_request
    assert all(sum(tokens(e)) == 60 and e[-1].finish == "length" for e in ignoring.values())


# --- determinism ---------------------------------------------------------------------------------------------------------------


def history(result: Result) -> dict[int, list[tuple[int, int, int]]]:
    return {k: [(e.tokens, e.drafted, e.accepted) for e in v] for k, v in result.by_request.items()}


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    model = model_with([0.6], jitter={"sd": 0.2})
    requests = [SimRequest(i, 50, 80) for i in range(10)]
    a, b, c = (serve(model, requests, seed=seed) for seed in (1, 1, 2))
    assert (history(a), a.end) == (history(b), b.end)
    assert history(a) != history(c)
    assert a.end != c.end


def test_a_requests_acceptance_does_not_depend_on_who_shares_its_batch() -> None:
    model = model_with([0.6], share=0.7)
    requests = [SimRequest(i, 50, 80) for i in range(10)]
    together, two_by_two = serve(model, requests), serve(model, requests, limits=Limits(2))
    assert history(together) == history(two_by_two)


def test_a_prompt_is_drafted_for_alike_each_time() -> None:
    model = model_with([0.6])
    again = history(serve(model, [SimRequest(i, 50, 80, prompt_key=i % 2) for i in range(4)]))
    assert again[0] == again[2] != again[1] == again[3]


# --- the batch -----------------------------------------------------------------------------------------------------------------


def test_steps_are_lockstep_and_never_serve_more_than_the_batch_limit() -> None:
    result = serve(model_with([0.5]), [SimRequest(i, 20, 30) for i in range(20)], limits=Limits(4))
    assert max(result.running) == 4
    assert max(w.decode_requests for w in result.work) == 4
    assert sorted(result.by_request) == list(range(20))
    firsts = [e[0].step for e in result.by_request.values()]
    assert firsts == sorted(firsts)  # in the order of their arrival


def test_a_prompt_is_prefilled_in_chunks_beside_the_others_decoding() -> None:
    engine = SimEngine(PLAIN, draft_length=0, limits=Limits(4, max_batched_tokens=100))
    engine.submit(SimRequest(0, 10, 50), 0.0)
    engine.begin_step(0.0)
    engine.end_step()
    engine.submit(SimRequest(1, 250, 5), 0.0)
    seen = []
    for _ in range(3):
        engine.begin_step(0.0)
        seen.append((engine.work.decode_requests, engine.work.prefill_tokens, [e.request_id for e in engine.end_step()]))
    assert seen == [(1, 99, [0]), (1, 99, [0]), (1, 52, [0, 1])]


def test_without_chunks_a_prompt_waits_for_a_step_that_holds_it() -> None:
    requests = [SimRequest(0, 80, 5), SimRequest(1, 80, 5)]
    result = serve(PLAIN, requests, 0, Limits(4, max_batched_tokens=100, chunked_prefill=False))
    assert [w.prefill_tokens for w in result.work[:2]] == [80, 80]
    with pytest.raises(ValueError, match=r"request 2: 205 tokens are more than max_batched_tokens=100"):
        result.engine.submit(SimRequest(2, 200, 5), 0.0)


def test_drafts_are_trimmed_when_the_token_budget_is_short() -> None:
    result = serve(model_with([1.0]), [SimRequest(i, 1, 40) for i in range(4)], limits=Limits(4, max_batched_tokens=6))
    assert max(w.verified_tokens + w.prefill_tokens for w in result.work) <= 6
    assert {e.drafted for emissions in result.by_request.values() for e in emissions} == {0, 1, 3}
    assert all(sum(tokens(e)) == 40 for e in result.by_request.values())


def test_cached_prompt_tokens_are_not_computed_again() -> None:
    result = serve(PLAIN, [SimRequest(0, 100, 2, n_cached=60), SimRequest(1, 100, 2, n_cached=100)], 0)
    assert result.work[0].prefill_tokens == 40 + 1  # the last prompt token is always computed
    assert result.engine.counters.cached_prompt_tokens == 60 + 99
    assert result.engine.counters.prompt_tokens == 200


def test_a_full_cache_preempts_the_youngest_who_starts_over_with_an_undrafted_token() -> None:
    result = serve(model_with([0.0]), [SimRequest(0, 40, 40), SimRequest(1, 40, 40)], limits=Limits(4, kv_tokens=120))
    counters = result.engine.counters
    assert counters.preemptions == 1
    assert all(sum(tokens(e)) == 40 for e in result.by_request.values())
    undrafted = {k: [e.first for e in v if not e.drafted] for k, v in result.by_request.items()}
    assert undrafted == {0: [True], 1: [True, False]}
    assert (counters.generation_tokens, counters.prompt_tokens) == (80, 80)  # a resumed prompt is not counted again


def test_an_aborted_request_leaves_nothing_and_makes_room() -> None:
    engine = SimEngine(PLAIN, draft_length=0, limits=Limits(1))
    for i in range(3):
        engine.submit(SimRequest(i, 10, 5), 0.0)
    engine.begin_step(0.0)
    engine.abort(0)  # in the middle of its step
    engine.abort(2)  # while it waits
    engine.abort(99)
    assert engine.end_step() == []
    assert sorted(drain(engine).by_request) == [1]
    assert (engine.counters.running, engine.counters.waiting) == (0, 0)
    engine.submit(SimRequest(0, 10, 1), 0.0)  # its number is free again
    assert len(drain(engine).by_request[0]) == 1


def test_gauges_and_queue_time() -> None:
    engine = SimEngine(PLAIN, draft_length=0, limits=Limits(2))
    for i in range(3):
        engine.submit(SimRequest(i, 10, 2), 1.0)
    assert (engine.counters.running, engine.counters.waiting) == (0, 3)
    end = engine.begin_step(1.5)
    assert (engine.counters.running, engine.counters.waiting, engine.counters.queue_s) == (2, 1, 1.0)
    engine.end_step()
    engine.begin_step(2.0)
    engine.end_step()  # the first two are done
    engine.begin_step(4.0)
    assert (engine.counters.running, engine.counters.waiting, engine.counters.queue_s) == (1, 0, 4.0)
    assert end == pytest.approx(1.5 + PLAIN.step_s(StepWork(prefill_tokens=20, prefill_context_tokens=20, prefill_pairs=100)))


# --- whatever the load ---------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_request_gets_its_tokens_and_no_limit_is_broken(data: st.DataObject) -> None:
    draft_length = data.draw(st.integers(1, 6), "draft_length")
    max_batch = data.draw(st.integers(1, 6), "max_batch")
    kv = data.draw(st.none() | st.integers(90, 200), "kv_tokens")
    limits = Limits(max_batch, data.draw(st.integers(max_batch, 80), "budget"), kv)
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=10), "requests")
    trim = data.draw(st.booleans(), "trim")
    model = model_with([0.7, 0.5], share=data.draw(st.sampled_from([0.5, 1.0]), "share"))
    requests = [SimRequest(i, n_prompt, cap) for i, (n_prompt, cap) in enumerate(sizes)]
    result = serve(model, requests, draft_length, limits, trim_last_draft=trim)
    for request in requests:
        emissions = result.by_request[request.request_id]
        assert sum(tokens(emissions)) == request.max_tokens
        assert [e.first for e in emissions] == [True] + [False] * (len(emissions) - 1)
        assert [bool(e.finish) for e in emissions] == [False] * (len(emissions) - 1) + [True]
        assert all(0 <= e.accepted <= e.drafted <= draft_length for e in emissions)
        assert all(e.tokens == e.accepted + 1 for e in emissions[:-1])
    everything = [e for emissions in result.by_request.values() for e in emissions]
    counters = result.engine.counters
    assert all(w.verified_tokens + w.prefill_tokens <= limits.max_batched_tokens for w in result.work)
    assert all(kv is None or w.context_tokens + w.prefill_context_tokens <= kv for w in result.work)
    assert max(result.running) <= max_batch
    assert counters.generation_tokens == sum(e.tokens for e in everything)
    assert counters.draft_tokens == sum(e.drafted for e in everything)
    assert counters.accepted_tokens == sum(e.accepted for e in everything) == sum(counters.accepted_per_pos)
    assert counters.drafts == sum(e.drafted > 0 for e in everything)
    assert counters.prompt_tokens == sum(r.n_prompt for r in requests)
    assert kv is not None or counters.preemptions == 0


# --- bad input -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_batch": 0}, "max_batch=0: expected a whole number of at least 1"),
        ({"max_batch": 8, "max_batched_tokens": 4}, "max_batched_tokens=4 is below max_batch=8"),
        ({"max_batch": 8, "kv_tokens": 0}, "kv_tokens=0: expected"),
    ],
)
def test_impossible_limits_are_refused(fields: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Limits(**fields)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (SimRequest(1, 0, 5), "request 1: n_prompt=0"),
        (SimRequest(1, 5, 0), "max_tokens=0"),
        (SimRequest(0, 5, 5), "request 0 is in the engine already"),
        (SimRequest(1, 900, 101), "request 1 needs a KV cache of 1001 tokens and 3 drafts, the engine has kv_tokens=1000"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused(request_: SimRequest, says: str) -> None:
    engine = SimEngine(model_with([0.5]), draft_length=3, limits=Limits(4, kv_tokens=1000))
    engine.submit(SimRequest(0, 10, 10), 0.0)
    with pytest.raises(ValueError, match=says):
        engine.submit(request_, 0.0)
    assert list(drain(engine).by_request) == [0]


def test_draft_length_and_drafter_have_to_fit() -> None:
    with pytest.raises(ValueError, match=r"draft_length=0 with drafter 'eagle3' of m: expected at least 1"):
        SimEngine(model_with([0.5]), draft_length=0, limits=WIDE)
    with pytest.raises(ValueError, match=r"draft_length=3 with drafter 'none' of m: expected 0"):
        SimEngine(PLAIN, draft_length=3, limits=WIDE)


def test_steps_begin_and_end_in_turn() -> None:
    engine = SimEngine(PLAIN, draft_length=0, limits=WIDE)
    assert engine.begin_step(0.0) is None
    with pytest.raises(RuntimeError, match="end_step without begin_step"):
        engine.end_step()
    engine.submit(SimRequest(0, 10, 10), 0.0)
    engine.begin_step(0.0)
    with pytest.raises(RuntimeError, match="begin_step before end_step"):
        engine.begin_step(1.0)
