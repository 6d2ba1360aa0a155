from __future__ import annotations

import json

import numpy as np
import pytest
import sweep_samples as samples
from fake_engine import FakeEngine, FakePrompt
from fake_engine import run as run_engine
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import BETWEEN, WITHIN, Cell, Estimate, cells
from specsweep.analysis.measure import PointFacts, measure
from specsweep.analysis.speedup import Speedup, crossover, ratio_text, speedups, verdict


def one(*attempts):
    (row,) = speedups(cells(attempts), attempts)
    return row


def arms(rate=120.0, bs=1, **drafting):
    return samples.attempt(samples.axes("none", None, bs), rate=100), samples.attempt(
        samples.axes("ngram", 4, bs), rate=rate, al=2.0, **drafting
    )


def test_both_ratios_carry_the_true_speedup():
    row = one(*arms(rate=120))
    assert row.reason == ""
    assert row.user_tps.low < 1.2 < row.user_tps.high
    assert row.output_tps.low < 1.2 < row.output_tps.high
    assert verdict(row.user_tps) == "faster"
    assert row.user_tps.scope == WITHIN


def test_pairing_removes_what_makes_prompts_differ():
    """Prompts differ by a factor of three, arms by 10 %: unpaired intervals overlap widely, the paired ratio is clear."""
    none, ngram = arms(rate=110, prompt_spread=0.6)
    none = samples.attempt(samples.axes("none"), rate=100, prompt_spread=0.6)
    assert none["measurement"]["metrics"]["user_tps_mean_ci_high"] > ngram["measurement"]["metrics"]["user_tps_mean_ci_low"]
    assert verdict(one(none, ngram).user_tps) == "faster"


def test_user_ratio_is_the_mean_over_requests_not_the_pooled_one():
    none, ngram = arms()
    slow, fast = none["measurement"]["per_conversation"][:2], ngram["measurement"]["per_conversation"][:2]
    for conversation, tokens, seconds in zip([*slow, *fast], (100, 100, 100, 300), (10, 1, 10, 1), strict=True):
        conversation.update(decode_tokens=tokens, decode_s=seconds, rate_requests=1, rate_sum=tokens / seconds)
    none["measurement"]["per_conversation"], ngram["measurement"]["per_conversation"] = slow, fast
    assert one(none, ngram).user_tps.value == pytest.approx((10 + 300) / (10 + 100))


def test_an_interval_that_includes_one_shows_nothing():
    assert verdict(one(*arms(rate=100)).user_tps) == "not shown"
    assert verdict(one(*arms(rate=80)).user_tps) == "slower"


@given(st.floats(0.2, 5), st.floats(0, 1), st.floats(0, 1))
def test_verdict_says_faster_or_slower_only_for_a_whole_interval_on_one_side(value, below, above):
    ratio = Estimate(value, value - below * value, value + above)
    word = verdict(ratio)
    assert (word == "faster") == (ratio.low > 1)
    assert (word == "slower") == (ratio.high < 1)


def test_no_interval_is_never_a_verdict():
    assert verdict(Estimate(1.9)) == "not shown"
    assert verdict(None) == "not shown"


@given(st.floats(0.3, 3), st.floats(0.0001, 0.5))
def test_text_never_rounds_a_shown_difference_onto_one(value, width):
    ratio = Estimate(value, value * (1 - width), value * (1 + width))
    low, high = (float(x) for x in ratio_text(ratio).split("[")[1].rstrip("]").split(", "))
    if verdict(ratio) == "faster" and ratio.low > 1.0002:
        assert low > 1
    if verdict(ratio) == "slower" and ratio.high < 0.9998:
        assert high < 1


def test_other_environment_gives_no_speedup_but_the_field():
    none, ngram = arms()
    ngram["point"]["env"] = {**ngram["point"]["env"], "flags": {**samples.ENV["flags"], "threads": 4}}
    row = one(none, ngram)
    assert row.user_tps is None
    assert "flags.threads: 4 against 2" in row.reason


def test_drafter_fields_and_unstable_ones_may_differ():
    none, ngram = arms()
    assert none["point"]["env"]["drafter"] != ngram["point"]["env"]["drafter"]
    ngram["point"]["env"]["flags"] = {**samples.ENV["flags"], "speculative_config": "ngram", "draft-max": 4}
    assert one(none, ngram).reason == ""


def test_resolved_command_lines_are_compared_flag_by_flag():
    none, ngram = arms()
    none["point"]["env"]["argv"] = ["--model", "m.gguf", "--max-num-seqs", "8"]
    ngram["point"]["env"]["argv"] = ["--model", "m.gguf", "--speculative-config", "{}", "--max-num-seqs=16"]
    assert one(none, ngram).reason.endswith("argv.max-num-seqs: 16 against 8")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda none, ngram: (ngram,), "the baseline is not measured yet"),
        (lambda none, ngram: (samples.attempt(samples.axes(), failed=True), ngram), "the baseline failed: engine: the engine died"),
        (
            lambda none, ngram: (samples.attempt(samples.axes(), invalid="lag"), ngram),
            "the baseline's rates are not valid: lag = 0.034 (limit 0.01)",
        ),
        (lambda none, ngram: (none, samples.attempt(samples.axes("ngram", 4), baseline=False)), "no point with drafter none"),
        (lambda none, ngram: (none, samples.attempt(samples.axes("ngram", 4), failed=True)), "failed: engine: the engine died"),
    ],
)
def test_where_there_is_no_speedup_there_is_a_reason(change, reason):
    row = one(*change(*arms()))
    assert row.user_tps is None
    assert row.output_tps is None
    assert reason in row.reason


def test_a_wrong_baseline_is_found_out():
    none, ngram = arms()
    none["point"]["axes"]["batch_size"] = 8
    row = next(r for r in speedups(cells([ngram]), [none, ngram]))
    assert row.reason == "the arms differ in batch_size: 1 against 8"


def test_arms_without_a_common_prompt_are_not_compared():
    none, ngram = arms()
    for c in ngram["measurement"]["per_conversation"]:
        c["conversation_id"] = "other-" + c["conversation_id"]
    assert one(none, ngram).reason == "the arms have no prompt in common"


def test_prompts_that_only_one_arm_ran_are_left_out_and_named():
    none, ngram = arms()
    del ngram["measurement"]["per_conversation"][10:]
    row = one(none, ngram)
    assert row.conversations == 10
    assert row.warnings[0] == "only 10 prompts are common to both arms (10 with the drafter, 24 without)"


def test_longer_answers_in_one_category_are_flagged_there():
    """A drafter arm that falls into a loop on code: splendid speed, other work."""
    row = one(*arms(rate=150, lengths={"code": 2.0}))
    assert verdict(row.user_tps) == "faster"
    assert any("2.00× as long with the drafter (category code)" in w or "(category code)" in w for w in row.warnings)
    assert not any("category fiction" in w for w in row.warnings)


def test_equal_arms_raise_no_warning():
    assert one(*arms()).warnings == ()


def test_shares_of_cut_answers_that_differ_are_flagged():
    none, _ = arms()
    ngram = samples.attempt(samples.axes("ngram", 4), rate=120, al=2.0, share_cut=0.9)
    assert "the cap cut 90% of the answers with the drafter and 50% without" in one(none, ngram).warnings


def test_proxy_is_step_time_ratio_times_acceptance_length():
    row = one(*arms(rate=120))  # t_ar = 10 ms, AL = 2, t_sd = 2000 / 120 ms
    assert row.proxy == pytest.approx(10 * 2.0 / (2000 / 120))
    assert row.proxy_clean == pytest.approx(1.2)


def test_no_proxy_from_step_times_that_are_not_valid():
    none, ngram = arms()
    ngram["measurement"]["validity"]["steps"] = False
    row = one(none, ngram)
    assert row.proxy is None
    assert row.user_tps is not None


def repeats(factors, rate=120.0):
    made = []
    for k, factor in enumerate(factors, 1):
        made.append(samples.attempt(samples.axes("none", None, 1, repeat=k), rate=100))
        made.append(samples.attempt(samples.axes("ngram", 4, 1, repeat=k), rate=rate * factor, al=2.0))
    return made


def test_repeats_are_one_row_with_an_interval_between_sessions():
    row = one(*repeats((0.9, 1.0, 1.1)))
    assert (row.user_tps.scope, row.user_tps.sessions) == (BETWEEN, 3)
    single = one(*repeats((1.0,)))
    assert row.user_tps.high - row.user_tps.low > 3 * (single.user_tps.high - single.user_tps.low)


def test_sessions_that_agree_by_luck_do_not_narrow_the_interval_to_nothing():
    pair, single = one(*repeats((1.0, 1.0))), one(*repeats((1.0,)))
    assert pair.user_tps.high - pair.user_tps.low > single.user_tps.high - single.user_tps.low


def test_a_repeat_that_failed_is_left_out_and_said_so():
    made = repeats((1.0, 1.0, 1.0))
    made[3] = samples.attempt(samples.axes("ngram", 4, 1, repeat=2), failed=True)
    row = one(*made)
    assert row.user_tps.sessions == 2
    assert "1 of 3 repeats left out: failed: engine" in row.warnings[-1]


def test_between_session_intervals_cover_the_truth():
    """Sessions that differ by 5 % each: the interval over three of them holds the true ratio in about 95 of 100 sweeps."""
    rng = np.random.default_rng(3)
    hits = 0
    sweeps = 120
    for _ in range(sweeps):
        row = one(*repeats(np.exp(0.05 * rng.standard_normal(3)), rate=120))
        hits += row.user_tps.low <= 1.2 <= row.user_tps.high
    assert hits / sweeps > 0.90


def rows(*pairs):
    """(BS, value) with ±2 %."""
    made = []
    for bs, value in pairs:
        cell = Cell(samples.axes("ngram", 4, bs), ())
        ratio = None if value is None else Estimate(value, value * 0.98, value * 1.02)
        made.append(Speedup(cell, user_tps=ratio, reason="" if ratio else "the baseline is not measured yet"))
    return made


@pytest.mark.parametrize(
    ("pairs", "statement"),
    [
        ([(1, 1.3), (8, 1.1)], "pays at every batch size compared: BS 1 (1.30 [1.27, 1.33]), BS 8 (1.10 [1.08, 1.12])"),
        ([(1, 0.97), (8, 0.9)], "does not pay at any batch size compared: slower at BS 1 (0.97 [0.95, 0.99]), BS 8 (0.90 [0.88, 0.92])"),
        (
            [(1, 1.0), (8, 1.01)],
            "no difference shown at any batch size compared: BS 1 (1.00 [0.98, 1.02]), BS 8 (1.01 [0.99, 1.03])",
        ),
        ([(8, 0.9), (1, 1.3)], "pays at BS 1 (1.30 [1.27, 1.33]); does not pay above BS 1: slower at BS 8 (0.90 [0.88, 0.92])"),
        (
            [(1, 1.3), (4, 1.0), (8, 0.9)],
            "pays at BS 1 (1.30 [1.27, 1.33]); no difference shown at BS 4 (1.00 [0.98, 1.02]); "
            "does not pay above BS 4: slower at BS 8 (0.90 [0.88, 0.92])",
        ),
        (
            [(1, 1.3), (4, 1.0)],
            "pays at BS 1 (1.30 [1.27, 1.33]); not shown to pay above BS 1: no difference shown at BS 4 (1.00 [0.98, 1.02])",
        ),
        ([(1, 0.9), (4, 1.2)], "slower at BS 1 (0.90 [0.88, 0.92]); pays above BS 1: BS 4 (1.20 [1.18, 1.22])"),
        ([(1, 1.3), (4, None)], "pays at every batch size compared: BS 1 (1.30 [1.27, 1.33]); not compared at BS 4"),
        ([(1, None)], "no speedup could be measured: the baseline is not measured yet"),
    ],
)
def test_crossover_in_words(pairs, statement):
    assert crossover(rows(*pairs)) == statement


# --- through the real measurement, from traces of an engine whose truth is known


def measured(drafter, draft_length, batch_size, seed, **engine):
    prompts = [FakePrompt(f"p{i:02d}", accept=(0.9 - 0.6 * i / 24,) * (draft_length or 0)) for i in range(24)]
    trace = run_engine(FakeEngine(batch_size=batch_size, draft_length=draft_length or 0, seed=seed, **engine), prompts)
    facts = PointFacts(
        batch_size=batch_size, draft_length=draft_length, drafter=drafter, stateful=False, gpus=0, step_clock="client", max_batch=batch_size
    )
    made = samples.attempt(samples.axes(drafter, draft_length, batch_size))
    return {**made, "measurement": json.loads(json.dumps(measure(trace, facts), allow_nan=False))}


def test_speedup_of_measured_traces_agrees_with_what_the_engine_did():
    """Steps of 14 ms instead of 10, AL of about 2: what the ratio, its interval and the proxy have to find again."""
    found = []
    for seed in range(6):
        none = measured("none", None, 4, seed=100 + seed, step_ms=10.0, prefill_ms=0.0)
        found.append(one(none, measured("ngram", 3, 4, seed=seed, step_ms=14.0, prefill_ms=0.0)))
    assert all(r.reason == "" and r.warnings == () for r in found)
    accept = [0.9 - 0.6 * i / 24 for i in range(24)]
    truth = float(np.mean([1 + p + p**2 + p**3 for p in accept])) * 10 / 14
    assert np.mean([r.user_tps.value for r in found]) == pytest.approx(truth, rel=0.02)
    assert np.mean([r.output_tps.value for r in found]) == pytest.approx(truth, rel=0.12)  # slow prompts hold their slots longer
    assert sum(r.user_tps.low <= truth <= r.user_tps.high for r in found) >= 5
    assert all(r.proxy == pytest.approx(r.user_tps.value, rel=0.1) for r in found)
