"""The simulator's model: what its file may say, and what rates and step times follow from it."""

from __future__ import annotations

import copy
import itertools
import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.sim.acceptance import acceptance_length, survival
from specsweep.client.sim.model import Answers, Jitter, ModelError, SimModel, StepWork, load_model, presets

PAPER = {
    "llama-3.3-70b": {"ngram", "draft_model", "eagle3"},
    "gpt-oss-120b": {"ngram", "eagle3"},
    "deepseek-r1": {"mtp"},
    "qwen3-235b": {"draft_model", "eagle3"},
    "qwen3-next-80b": {"eagle3", "mtp"},
}
FILE: dict[str, Any] = {
    "name": "m",
    "hardware": {"name": "h", "gpus": 2, "bandwidth_gb_s": 500, "tflops": 50},  # 1 TB/s and 100 TFLOP/s together
    "target": {"weights_gb": 10, "kv_bytes_per_token": 1000, "gflop_per_token": 20},
    "drafters": {
        "eagle3": {
            "rates": {"default": [0.8, 0.6], "by_length": {1000: [0.9, 0.8], 4000: [0.5, 0.2]}},
            "isl_factor": {2000: 1.0, 8000: 0.5},
            "temperature_factor": {0: 1.0, 1: 0.8},
            "draft_share": {"default": 1.0, "rare": 0.25},
            "weights_gb": 1,
            "pass_overhead_ms": 0.5,
        }
    },
}


load_once = cache(load_model)


def with_field(path: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(FILE)
    *folders, last = path.split(".")
    node = changed
    for key in folders:
        node = node.setdefault(key, {})
    if value is None:
        del node[last]
    else:
        node[last] = value
    return changed


def target_with(**fields: object) -> SimModel:
    return load_model({**FILE, "target": {**FILE["target"], **fields}})


# --- the file ------------------------------------------------------------------------------------------------------------------


def test_presets_cover_the_papers_targets_and_drafters() -> None:
    assert set(presets()) == {*PAPER, "tiny"}
    for name, drafters in PAPER.items():
        assert load_model(name).draft_passes(0) == 0
        for drafter in drafters:
            model = load_model(name, drafter)
            assert 1.0 < model.acceptance_length("coding", 500, 3) < 4.0
            assert model.acceptance_length("coding", 500, 7) >= model.acceptance_length("coding", 500, 3)
    assert {d for d in ("ngram", "draft_model", "eagle3", "mtp") if load_model("tiny", d)} == {"ngram", "draft_model", "eagle3", "mtp"}


@pytest.mark.parametrize("name", PAPER)
def test_a_preset_states_its_fit(name: str) -> None:
    fit = load_model(name).fit
    assert {"source", "free", "rms_error", "rms_error_not_fitted", "fitted", "not_fitted", "assumed"} <= set(fit)
    assert fit["observations"] == len(fit["fitted"]) >= len(fit["rms_error"]) > 0


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("name", None, "name is missing"),
        ("hardwear", {}, "hardwear={} is not a field; known: "),
        ("hardware.gpus", 0, "hardware.gpus=0: expected a number of at least 1"),
        ("hardware.gpus", 1.5, "hardware.gpus=1.5: expected a whole number"),
        ("hardware.tflops", 0, "hardware.tflops=0: expected a number above 0"),
        ("target.weights_gb", "heavy", "target.weights_gb='heavy': expected a number"),
        ("target.weights_gb", True, "target.weights_gb=True: expected a number"),
        ("target.weights_gb", math.nan, "target.weights_gb=nan: expected a number"),
        ("target.kv_efficiency", 1.5, "target.kv_efficiency=1.5: expected a number above 0 and at most 1"),
        ("target.experts_gb", 5, "do not fit together"),
        ("target.wieghts", 5, "target.wieghts=5 is not a field"),
        ("drafters.eagle3", [], "drafters.eagle3=[]: expected a mapping"),
        ("drafters.eagle3.rates", {"coding": [0.5]}, "drafters.eagle3.rates has no entry 'default'"),
        ("drafters.eagle3.rates.coding", [0.5, 1.2], "drafters.eagle3.rates.coding[1][1]=1.2: expected a number"),
        ("drafters.eagle3.rates.coding", [], "expected a list of rates"),
        ("drafters.eagle3.rates.coding", {}, "drafters.eagle3.rates.coding is empty"),
        ("drafters.eagle3.rates.coding", {"long": [0.5]}, "a key of drafters.eagle3.rates.coding='long'"),
        ("drafters.eagle3.draft_share", {"coding": 0.5}, "drafters.eagle3.draft_share has no entry 'default'"),
        ("drafters.eagle3.draft_share", 1.5, "drafters.eagle3.draft_share.default=1.5"),
        ("drafters.eagle3.passes_per_step", -1, "drafters.eagle3.passes_per_step=-1"),
        ("drafters.eagle3.speed", 3, "drafters.eagle3.speed=3 is not a field"),
        ("jitter.sigma", 0.1, "jitter.sigma=0.1 is not a field"),
        ("answers.median_tokens", -1, "answers.median_tokens=-1: expected a number of at least 0"),
    ],
)
def test_a_bad_field_is_named_with_its_value(path: str, value: object, says: str) -> None:
    with pytest.raises(ModelError) as error:
        load_model(with_field(path, value))
    assert says in str(error.value)


def test_unknown_drafter_preset_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"drafter='eagel'.*it has none, eagle3"):
        load_model(FILE, "eagel")
    with pytest.raises(ModelError, match=r"model='gpt-oss' is neither a preset \(deepseek-r1, gpt-oss-120b"):
        load_model("gpt-oss")
    broken = tmp_path / "m.yaml"
    broken.write_text("name: [")
    with pytest.raises(ModelError, match="is not YAML"):
        load_model(broken)
    broken.write_text("- 1")
    with pytest.raises(ModelError, match="expected a mapping"):
        load_model(broken)


# --- acceptance ----------------------------------------------------------------------------------------------------------------


def test_rates_by_category_length_and_temperature() -> None:
    model = load_model(FILE, "eagle3")
    assert model.rates("by_length", 500) == model.rates("by_length", 1000) == (0.9, 0.8)
    assert model.rates("by_length", 2000) == pytest.approx((0.7, 0.5))  # half way between 1000 and 4000 in octaves
    assert model.rates("by_length", 4000)[1] == pytest.approx(0.2 * model.rates("x", 4000)[1] / 0.6)
    assert model.rates("whatever", 4000) == pytest.approx((0.8 * 0.75, 0.6 * 0.75))
    assert model.rates("whatever", 64000) == pytest.approx((0.4, 0.3))  # flat beyond the last length
    assert model.rates("whatever", 100, 0.5) == pytest.approx((0.8 * 0.9, 0.6 * 0.9))
    assert (model.draft_probability("rare"), model.draft_probability("")) == (0.25, 1.0)
    assert load_model(FILE).rates("by_length", 1000) == ()


def test_ease_shifts_the_log_odds_by_the_spread() -> None:
    model = load_model(with_field("drafters.eagle3.prompt_spread", 0.5), "eagle3")
    easy, hard = model.rates("", 100, ease=2.0)[0], model.rates("", 100, ease=-2.0)[0]
    assert math.log(easy / (1 - easy)) - math.log(hard / (1 - hard)) == pytest.approx(2.0)
    assert load_model(FILE, "eagle3").rates("", 100, ease=2.0) == (0.8, 0.6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(1, 12), st.floats(0, 1))
def test_acceptance_length_follows_from_survival(rates: list[float], draft_length: int, share: float) -> None:
    chances = survival(tuple(rates), draft_length)
    assert len(chances) == draft_length
    assert all(a >= b for a, b in itertools.pairwise(chances))
    assert chances[0] == rates[0]
    assert 1 <= acceptance_length(tuple(rates), draft_length, share) <= 1 + draft_length


def test_positions_beyond_the_given_ones_repeat_the_last() -> None:
    assert survival((0.5, 0.4), 4) == pytest.approx((0.5, 0.2, 0.08, 0.032))
    assert survival((0.5, 0.4), 1) == (0.5,)


# --- time ----------------------------------------------------------------------------------------------------------------------


def test_a_small_step_lasts_as_long_as_its_memory_traffic() -> None:
    model = load_model(FILE)  # 1 TB/s: 10 GB are 10 ms, 1000 tokens of KV a microsecond
    one = model.step_s(StepWork(decode_requests=1, verified_tokens=1, context_tokens=1000))
    assert one == pytest.approx(0.010 + 1e-6)
    assert model.step_s(StepWork(decode_requests=1, verified_tokens=4, context_tokens=1000)) == pytest.approx(one)  # drafts are free
    assert model.step_s(StepWork()) == 0.0


def test_a_large_step_lasts_as_long_as_its_arithmetic() -> None:
    model = load_model(FILE)  # 20 GFLOP a token, 100 TFLOP/s: 0.2 ms a token
    assert model.step_s(StepWork(decode_requests=100, verified_tokens=400, context_tokens=1)) == pytest.approx(0.080)
    slow_decode = target_with(compute_efficiency=0.5)
    assert slow_decode.step_s(StepWork(decode_requests=100, verified_tokens=400)) == pytest.approx(0.160)
    assert slow_decode.step_s(StepWork(prefill_tokens=400)) == pytest.approx(0.080)
    pairs = target_with(mflop_per_pair=1).step_s(StepWork(prefill_tokens=400, prefill_pairs=10**6))
    assert pairs == pytest.approx(0.080 + 0.010)


def test_experts_are_read_as_they_are_touched() -> None:
    moe = target_with(weights_gb=0, experts_gb=100, expert_count=4, experts_per_token=1, gflop_per_token=0, kv_bytes_per_token=0)
    one, two, many = (moe.decode_step_s(n, 1) for n in (1, 2, 1000))
    assert (one, two, many) == pytest.approx((0.025, 0.1 * (1 - 0.75**2), 0.1))
    apart = moe.step_s(StepWork(decode_requests=1, verified_tokens=2))
    reuse = target_with(
        weights_gb=0, experts_gb=100, expert_count=4, experts_per_token=1, gflop_per_token=0, kv_bytes_per_token=0, routing_reuse=1
    )
    assert apart == pytest.approx(two)
    assert reuse.step_s(StepWork(decode_requests=1, verified_tokens=2)) == pytest.approx(one)


def test_drafting_comes_on_top_pass_by_pass() -> None:
    with_drafts, without = load_model(FILE, "eagle3"), load_model(FILE)
    for draft_length in (1, 3, 7):
        extra = with_drafts.decode_step_s(1, 100, draft_length) - without.decode_step_s(1, 100)
        assert extra == pytest.approx(draft_length * (0.001 + 0.0005))
    lookup = with_field("drafters.eagle3.passes_per_step", 0)
    lookup["drafters"]["eagle3"]["step_overhead_ms"] = 2
    assert load_model(lookup, "eagle3").decode_step_s(1, 100, 3) == pytest.approx(without.decode_step_s(1, 100) + 0.002)


def test_overheads_hide_behind_nothing() -> None:
    plain, slow = load_model(FILE), target_with(overhead_ms=3, overhead_us_per_token=100)
    assert slow.decode_step_s(10, 1) - plain.decode_step_s(10, 1) == pytest.approx(0.003 + 0.001)


@given(st.integers(1, 512), st.integers(1, 32000), st.sampled_from(sorted(PAPER)))
def test_more_work_never_takes_less_time(batch: int, context: int, name: str) -> None:
    model = load_once(name)
    now = model.decode_step_s(batch, context)
    assert 0 < now <= model.decode_step_s(batch + 1, context)
    assert now <= model.decode_step_s(batch, context + 1000)


def test_jitter_keeps_the_mean_and_is_alike_from_step_to_step() -> None:
    factors = Jitter(sd=0.3, steps=5).factors(random.Random(1))
    logs = [math.log(factors.next()) + 0.3**2 / 2 for _ in range(20_000)]
    variance = sum(x * x for x in logs) / len(logs)
    lag_one = sum(a * b for a, b in itertools.pairwise(logs)) / len(logs) / variance
    assert math.sqrt(variance) == pytest.approx(0.3, rel=0.05)
    assert lag_one == pytest.approx(math.exp(-1 / 5), abs=0.03)
    assert Jitter().factors(random.Random(1)).next() == 1.0


def test_answers_end_by_themselves_only_where_the_model_says_so() -> None:
    drawn = sorted(Answers(median_tokens=50, spread=0.5).draw(random.Random(i)) or 0 for i in range(2001))
    assert drawn[1000] == pytest.approx(50, rel=0.1)
    assert drawn[0] >= 1
    assert Answers().draw(random.Random(1)) is None
