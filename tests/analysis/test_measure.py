"""Whole measurements of a fake engine whose truth is known, and of the ways in which streams mislead."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_engine import FakeEngine, FakePrompt, fail, forget_steps, merge_pairs, run
from hypothesis import given, settings
from hypothesis import strategies as st

from specsweep.analysis.measure import PointFacts, measure
from specsweep.analysis.metrics import BY_NAME, base_name
from specsweep.client.trace import PointTrace, from_table, to_table

ACCEPT = (0.8, 0.6, 0.5)
TRUE_AL = 1 + 0.8 + 0.8 * 0.6 + 0.8 * 0.6 * 0.5
PROMPTS = [FakePrompt(f"p{i}", ACCEPT, answer=200 + 7 * i, category="code" if i % 2 else "prose") for i in range(16)]
EIGHT = PointFacts(batch_size=8, draft_length=3, drafter="draft_model", max_batch=8)


def measured(engine: FakeEngine, facts: PointFacts, prompts: list[FakePrompt] | None = None) -> dict[str, Any]:
    return checked(measure(run(engine, prompts or PROMPTS), facts))


def checked(m: dict[str, Any]) -> dict[str, Any]:
    """What every measurement must keep: JSON without NaN, registered names, and each metric either there or absent with a reason."""
    json.dumps(m, allow_nan=False)
    assert all(base_name(name) in BY_NAME for name in m["metrics"])
    there, absent = {base_name(n) for n in m["metrics"]}, set(m["absent"])
    assert not there & absent
    assert there | absent == set(BY_NAME) - {"ar_cond"}
    assert all(m["absent"].values())
    assert all(type(leaf) in (int, float, str, bool, type(None)) for leaf in leaves(m))
    return m


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def check(m: dict[str, Any], name: str) -> dict[str, Any]:
    return next(c for c in m["checks"] if c["name"] == name)


def failing(m: dict[str, Any]) -> list[str]:
    return [c["name"] for c in m["checks"] if not c["ok"]]


# --- a good point --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    return measured(FakeEngine(8, 3, step_ms=10, prefill_ms=25, max_tokens=1000), EIGHT)


def test_acceptance_is_recovered(good: dict[str, Any]) -> None:
    m = good["metrics"]
    assert m["al_decode_ci_low"] < TRUE_AL < m["al_decode_ci_high"]
    assert m["al_verify_ci_low"] < TRUE_AL < m["al_verify_ci_high"]
    assert m["acceptance_rate"] == pytest.approx((m["al_verify"] - 1) / 3)
    assert [row["position"] for row in good["ar_cond"]] == [1, 2, 3]
    for row, true in zip(good["ar_cond"], ACCEPT, strict=True):
        assert row["value"] == pytest.approx(true, abs=0.03)
        assert row["ci_high"] - row["ci_low"] < 0.15
    histogram = {int(k): n for k, n in good["accept_hist"].items()}
    assert sum(k * n for k, n in histogram.items()) / sum(histogram.values()) == pytest.approx(m["al_decode"])


def test_speed_is_recovered(good: dict[str, Any]) -> None:
    m = good["metrics"]
    assert m["step_ms_decode_mean"] == pytest.approx(10.0)
    assert m["step_ms_decode_mean"] < m["step_ms_mean"] < 20
    assert m["ttft_ms_mean"] >= 25
    assert 1000 / m["tpot_ms_mean"] == pytest.approx(m["user_tps_pooled"])
    assert m["output_tps_steady"] > m["output_tps"]  # the whole span has the ramp-up and the tail in it
    assert m["output_tps_steady"] == pytest.approx(8 * m["user_tps_pooled"], rel=0.1)
    assert sum(good["tps_blocks"]["tokens"]) / (len(good["tps_blocks"]["tokens"]) * good["tps_blocks"]["block_s"]) == pytest.approx(
        m["output_tps_steady"]
    )


def test_it_is_valid_and_its_load_is_proved(good: dict[str, Any]) -> None:
    assert failing(good) == []
    assert good["validity"] == {"tps": True, "steps": True, "acceptance": True, "valid": True}
    assert (good["window"]["in_flight_floor"], good["window"]["in_flight_ceiling"]) == (8, 8)
    assert check(good, "counter_accepted_tokens")["value"] == 0
    assert good["simulated"] is True


def test_every_shown_number_has_its_interval(good: dict[str, Any]) -> None:
    client = {"client_lag_ms_p50", "client_lag_ms_p99", "client_cpu_share"}
    for name, value in good["metrics"].items():
        if name == base_name(name) and name not in client:
            assert good["metrics"][f"{name}_ci_low"] <= value <= good["metrics"][f"{name}_ci_high"], name
            assert good["ci"][name]["level"] == 0.95
            assert good["ci"][name]["scope"] == "within-session"


def test_only_the_first_pass_is_scored_and_everything_in_the_window_is_timed(good: dict[str, Any]) -> None:
    assert good["counts"]["main"] == 32
    assert good["counts"]["scored"] == 16
    assert good["counts"]["timed"] == 32
    rows = good["per_conversation"]
    assert [r["conversation_id"] for r in rows] == [p.prompt_id for p in PROMPTS]
    assert sum(r["step_tokens"] for r in rows) / sum(r["steps"] for r in rows) == pytest.approx(good["metrics"]["al_decode"])
    assert sum(r["accepted"] for r in rows) / sum(r["verify_steps"] for r in rows) == pytest.approx(good["metrics"]["al_verify"] - 1)
    assert sum(r["rate_sum"] for r in rows) / sum(r["rate_requests"] for r in rows) == pytest.approx(good["metrics"]["user_tps_mean"])


def test_categories_are_measured_apart() -> None:
    prompts = [FakePrompt(f"p{i}", (0.95,) if i % 2 else (0.1,), 150, "code" if i % 2 else "prose") for i in range(16)]
    m = measured(FakeEngine(4, 1, max_tokens=200), PointFacts(4, 1, "eagle3", max_batch=4), prompts)
    code, prose = m["by_category"]["code"], m["by_category"]["prose"]
    assert code["al_decode"] == pytest.approx(1.95, abs=0.05)
    assert prose["al_decode"] == pytest.approx(1.10, abs=0.05)
    assert code["user_tps_mean"] > 1.4 * prose["user_tps_mean"]
    assert code["al_decode_ci_low"] > prose["al_decode_ci_high"]


def test_a_stored_trace_gives_the_same_measurement() -> None:
    trace = run(FakeEngine(4, 3), PROMPTS)
    facts = replace(EIGHT, batch_size=4)
    again = from_table(to_table(trace))
    assert measure(again, facts) == measure(trace, facts)


def test_a_point_of_512_conversations_takes_less_than_a_second() -> None:
    prompts = [FakePrompt(f"p{i}", ACCEPT, answer=180 + i % 90) for i in range(512)]
    trace = run(FakeEngine(128, 3, max_tokens=300), prompts)
    spent = []
    for _ in range(3):
        begin = time.process_time()
        measure(trace, replace(EIGHT, batch_size=128, max_batch=128))
        spent.append(time.process_time() - begin)
    assert min(spent) < 1.0


# --- baselines -----------------------------------------------------------------------------------------------------------------


def test_without_a_drafter_the_length_is_one_and_there_is_no_rate() -> None:
    m = measured(FakeEngine(4), PointFacts(4, None, "none", max_batch=4))
    assert (m["metrics"]["al_decode"], m["metrics"]["al_decode_ci_low"], m["metrics"]["al_decode_ci_high"]) == (1, 1, 1)
    assert "no drafter" in m["absent"]["acceptance_rate"]
    assert m["ar_cond"] == []
    assert m["validity"]["valid"]
    assert check(m, "merge_probe")["value"] == 0


def test_a_baseline_shows_how_often_chunks_are_merged() -> None:
    trace = run(FakeEngine(4), PROMPTS)
    for r in trace.requests[8:10]:
        merge_pairs(r)
    m = checked(measure(trace, PointFacts(4, None, "none", max_batch=4)))
    assert check(m, "merge_probe")["value"] > 0.01
    assert m["metrics"]["al_decode"] == 1.0
    assert (m["validity"]["steps"], m["validity"]["tps"]) == (False, True)


# --- real troubles -------------------------------------------------------------------------------------------------------------


def test_chunks_of_three_tokens_every_nine_ms() -> None:
    """The time between chunks is not the time per token: 9 ms and 3 ms, each under its own name."""
    always = [FakePrompt(f"p{i}", (1.0, 1.0), answer=1000) for i in range(8)]
    m = measured(FakeEngine(1, 2, step_ms=9, max_tokens=61), PointFacts(1, 2, "draft_model", max_batch=1), always)
    assert m["metrics"]["step_ms_mean"] == pytest.approx(9.0)
    assert m["metrics"]["tpot_ms_mean"] == pytest.approx(3.0)
    assert 1000 / m["metrics"]["tpot_ms_mean"] == pytest.approx(m["metrics"]["user_tps_mean"], rel=0.01)
    assert check(m, "tpot_agrees")["ok"]


def test_a_drafter_that_is_never_right_is_marked_and_not_ranked() -> None:
    never = [FakePrompt(f"p{i}", (0.0, 0.0, 0.0)) for i in range(8)]
    m = measured(FakeEngine(2, 3, max_tokens=80), replace(EIGHT, batch_size=2), never)
    assert m["metrics"]["al_decode"] == 1.0
    assert failing(m) == ["drafter_contributed"]
    assert "contributed nothing" in check(m, "drafter_contributed")["message"]
    assert not any(m["validity"].values())


def test_an_ngram_drafter_that_finds_nothing_is_no_fault() -> None:
    m = measured(FakeEngine(2, 3, draft_share=0.0, max_tokens=80), replace(EIGHT, batch_size=2, drafter="ngram"))
    assert m["metrics"]["al_decode"] == 1.0
    assert "no draft" in m["absent"]["acceptance_rate"]
    assert m["validity"]["valid"]


def test_undrafted_steps_part_the_two_lengths() -> None:
    m = measured(FakeEngine(4, 3, draft_share=0.3, max_tokens=400), replace(EIGHT, batch_size=4, drafter="ngram"))["metrics"]
    assert m["al_verify"] == pytest.approx(TRUE_AL, rel=0.05)
    assert m["al_decode"] == pytest.approx(1 + 0.3 * (TRUE_AL - 1), rel=0.05)


def test_answers_that_stopped_at_eos_are_counted_as_they_are() -> None:
    prompts = [FakePrompt(f"p{i}", ACCEPT, answer=100 + 50 * i) for i in range(16)]
    m = measured(FakeEngine(4, 3, max_tokens=1024), replace(EIGHT, batch_size=4), prompts)
    assert m["metrics"]["output_tokens_mean"] == pytest.approx(np.mean([100 + 50 * i for i in range(16)]))
    assert m["metrics"]["share_cut"] == 0.0
    m = measured(FakeEngine(4, 3, max_tokens=475), replace(EIGHT, batch_size=4), prompts)
    assert m["metrics"]["share_cut"] == pytest.approx(8 / 16)


def test_merged_chunks_leave_counts_from_the_engine_and_true_rates() -> None:
    trace = run(FakeEngine(4, 3), PROMPTS)
    before = measure(trace, replace(EIGHT, batch_size=4))
    for r in trace.requests[5:9]:
        merge_pairs(r)
    m = checked(measure(trace, replace(EIGHT, batch_size=4)))
    assert "cannot be split exactly" in m["absent"]["al_decode"]
    assert "cannot be split exactly" in m["absent"]["step_ms_mean"]
    assert m["metrics"]["al_verify"] == pytest.approx(TRUE_AL, rel=0.1)
    assert m["ci"]["al_verify"]["source"].endswith("ramp-up included")
    assert m["metrics"]["output_tps"] == pytest.approx(before["metrics"]["output_tps"])
    assert m["validity"] == {"tps": True, "steps": False, "acceptance": True, "valid": True}
    assert all(row["value"] is None for row in m["ar_cond"])


def test_a_merge_within_draft_length_is_found_by_the_counters() -> None:
    """Two steps of two tokens in one chunk of four look like one good step at DL 3. Only the engine's count of steps knows."""
    prompts = [FakePrompt(f"p{i}", (0.5, 0.0, 0.0)) for i in range(8)]
    trace = run(FakeEngine(2, 3, knows_drafts=False), prompts)
    for r in trace.requests:
        merge_pairs(r)
        r.read.step_state = "assumed"
    m = checked(measure(trace, replace(EIGHT, batch_size=2)))
    assert "step_size" not in failing(m)
    assert "counter_drafts" in failing(m)
    assert not m["validity"]["acceptance"]


def test_a_chat_server_that_tells_only_usage() -> None:
    trace = run(FakeEngine(4, 3, counts=False), PROMPTS)
    trace.meta["dialect"] = "openai_chat"
    for r in trace.requests:
        forget_steps(r)
        r.read.chunk_tokens = [1] * len(r.read.chunk_t_ns)  # deltas of text; only the usage knows the tokens
        r.read.n_prompt_server = 117  # the server's own template
    m = checked(measure(trace, replace(EIGHT, batch_size=4, max_batch=None)))
    for name in ("al_decode", "al_verify", "step_ms_mean"):
        assert name in m["absent"]
    exact = measure(run(FakeEngine(4, 3), PROMPTS), replace(EIGHT, batch_size=4))["metrics"]
    assert m["metrics"]["output_tps"] == pytest.approx(exact["output_tps"])
    assert m["metrics"]["user_tps_mean"] == pytest.approx(exact["user_tps_mean"])
    assert m["metrics"]["ttft_ms_mean"] == pytest.approx(exact["ttft_ms_mean"])
    assert (m["validity"]["tps"], m["validity"]["steps"], m["validity"]["valid"]) == (True, False, True)


def test_one_usage_and_no_stream_at_all() -> None:
    trace = run(FakeEngine(2, counts=False), PROMPTS)
    for r in trace.requests:
        forget_steps(r)
        r.read.chunk_t_ns, r.read.chunk_tokens = [], []
    m = checked(measure(trace, PointFacts(2, None, "none")))
    assert m["metrics"]["output_tokens_mean"] > 0
    assert "no token times" in m["absent"]["ttft_ms_mean"] or "no " in m["absent"]["ttft_ms_mean"]
    assert "user_tps_mean" in m["absent"]


def test_failed_requests_are_out_of_every_number_and_over_a_percent_spoils_the_point() -> None:
    trace = run(FakeEngine(4, 3), PROMPTS)
    for r in trace.requests[6:8]:
        fail(r, after_tokens=5)
    m = checked(measure(trace, replace(EIGHT, batch_size=4)))
    assert m["counts"]["failed_by_kind"] == {"stream_error": 2}
    assert failing(m) == ["failed_share"]
    assert "requests failed, most often stream_error" in check(m, "failed_share")["message"]
    assert "2 failed requests" in check(m, "counter_accepted_tokens")["message"]
    assert not any(m["validity"].values())
    assert {r["conversation_id"] for r in m["per_conversation"]} == {p.prompt_id for p in PROMPTS} - {"p2", "p3"}


def test_all_requests_failed() -> None:
    trace = run(FakeEngine(4, 3), PROMPTS)
    for r in trace.requests:
        fail(r, kind="disconnected")
    m = checked(measure(trace, replace(EIGHT, batch_size=4)))
    assert set(m["metrics"]) <= {"client_lag_ms_p50", "client_lag_ms_p99", "client_cpu_share"}
    assert not any(m["validity"].values())
    assert [row["value"] for row in m["ar_cond"]] == [None, None, None]
    assert m["official"]["timing"] == {}


def test_one_conversation_has_numbers_and_no_intervals() -> None:
    m = measured(FakeEngine(1, 3, max_tokens=200), replace(EIGHT, batch_size=1), PROMPTS[:1])
    assert m["metrics"]["al_decode"] == pytest.approx(TRUE_AL, rel=0.2)
    assert "al_decode_ci_low" not in m["metrics"]
    assert "fewer than three" in m["ci"]["al_decode"]["method"]
    assert m["validity"]["valid"]


def test_a_draft_length_that_is_not_known() -> None:
    m = measured(FakeEngine(2, 3, draft_sizes=(1, 3), max_tokens=200), replace(EIGHT, batch_size=2, draft_length=None, drafter="ngram"))
    assert [row["position"] for row in m["ar_cond"]] == [1, 2, 3]
    assert m["ar_cond"][0]["value"] == pytest.approx(0.8, abs=0.05)


def test_coalesced_steps_take_the_quantiles_away_and_leave_the_mean() -> None:
    trace = run(FakeEngine(4, 3, max_tokens=100), PROMPTS)
    for r in trace.requests:
        for i in range(5, len(r.read.step_coalesced), 20):
            r.read.step_coalesced[i] = True
    m = checked(measure(trace, replace(EIGHT, batch_size=4)))
    assert failing(m) == ["coalesced_steps"]
    assert "arrived together" in m["absent"]["step_ms_p50"]
    assert "step_ms_mean" in m["metrics"]
    assert (m["validity"]["steps"], m["validity"]["valid"]) == (False, True)


def test_the_engines_clock_is_not_hurt_by_reads() -> None:
    trace = run(FakeEngine(4, 3, server_clock=True, step_ms=7), PROMPTS)
    for r in trace.requests:
        r.read.step_coalesced = [False, *[True] * (len(r.read.step_t_ns) - 1)]
    m = checked(measure(trace, replace(EIGHT, batch_size=4, step_clock="server")))
    assert m["metrics"]["step_ms_decode_p50"] == pytest.approx(7.0)
    assert m["validity"]["steps"]


def test_other_clients_on_the_server_are_found() -> None:
    m = measured(FakeEngine(4, 3, extra={"generation_tokens": 100.0}), replace(EIGHT, batch_size=4))
    assert failing(m) == ["counter_generation_tokens"]
    assert not m["validity"]["tps"]


def test_per_gpu_needs_gpus() -> None:
    m = measured(FakeEngine(2, 3), replace(EIGHT, batch_size=2, gpus=4))["metrics"]
    assert m["output_tps_per_gpu"] == pytest.approx(m["output_tps"] / 4)
    assert "GPU" in measured(FakeEngine(2, 3), replace(EIGHT, batch_size=2))["absent"]["output_tps_per_gpu"]


def test_another_batch_size_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size: the trace was recorded at 4, the point says 8"):
        measure(run(FakeEngine(4, 3), PROMPTS), EIGHT)


def test_the_official_numbers_keep_their_own_definitions() -> None:
    trace = run(FakeEngine(4, 3, max_tokens=100, prefill_ms=60), PROMPTS)
    trace.meta["dialect"] = "vllm"
    m = checked(measure(trace, replace(EIGHT, batch_size=4, gpus=2)))
    found = m["official"]
    assert found["definition"].startswith("main 2026-08")
    assert found["acceptance"]["Average_AL"] < m["metrics"]["al_decode"]  # the prefill token counts as a step of one
    assert found["acceptance"]["Acceptance_Length_Histogram"]["1"] > m["accept_hist"]["1"]
    assert set(found["acceptance"]["Category_AL"]) == {"code", "prose"}
    assert found["timing"]["Output TPS/gpu"] == pytest.approx(found["timing"]["Output TPS"] / 2)
    steps, clean = found["timing"]["Request Generation Step Time"], m["metrics"]["step_ms_mean"] / 1000
    assert float(steps["mean"]) > 1.05 * clean  # TTFT is one of its steps
    assert found["announced"]["acceptance"]["Average_AL"] > found["acceptance"]["Average_AL"]


def test_the_official_wrapper_takes_a_final_eos_out() -> None:
    prompts = [FakePrompt(f"p{i}", ACCEPT, answer=50) for i in range(8)]
    trace = run(FakeEngine(1, 3, max_tokens=100), prompts)
    as_streamed = measure(trace, replace(EIGHT, batch_size=1))["official"]["timing"]["Number of Output Tokens"]["mean"]
    trace.meta["dialect"] = "vllm"
    as_wrapped = measure(trace, replace(EIGHT, batch_size=1))["official"]["timing"]["Number of Output Tokens"]["mean"]
    assert (as_streamed, as_wrapped) == ("50.0000", "49.0000")


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 5),
    draft_length=st.integers(0, 4),
    cap=st.integers(1, 30),
    faults=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["fail", "merge", "forget"])), max_size=6),
    seed=st.integers(0, 9999),
)
def test_no_trace_breaks_it(batch: int, draft_length: int, cap: int, faults: list[tuple[int, str]], seed: int) -> None:
    prompts = [FakePrompt(f"p{i}", (0.5,) * draft_length, answer=1 + i * 3) for i in range(5)]
    trace = run(FakeEngine(batch, draft_length, max_tokens=cap, seed=seed), prompts)
    spoil(trace, faults)
    m = checked(measure(trace, PointFacts(batch, draft_length or None, "eagle3" if draft_length else "none")))
    for name, value in m["metrics"].items():
        assert math.isfinite(value), name
        low, high = m["metrics"].get(f"{name}_ci_low"), m["metrics"].get(f"{name}_ci_high")
        assert low is None or high is None or low <= value * (1 + 1e-9) <= high * (1 + 1e-8), name


def spoil(trace: PointTrace, faults: list[tuple[int, str]]) -> None:
    for index, fault in faults:
        r = trace.requests[index % len(trace.requests)]
        if r.read.outcome == "ok" and r.read.step_state == "exact":
            {"fail": fail, "merge": merge_pairs, "forget": forget_steps}[fault](r)  # type: ignore[operator]
