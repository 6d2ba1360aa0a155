"""Whole points in virtual time: what the measurement finds is what the simulated engine did, and what it did is what its model says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sim_client import START_NS, Load, Run, run_point

from specsweep.analysis.attempts import cells
from specsweep.analysis.measure import PointFacts, measure
from specsweep.analysis.speedup import crossover, speedups
from specsweep.client.sim.engine import Limits
from specsweep.client.sim.model import SimModel, load_model

LOAD = Load(8, 40, max_tokens=90, n_prompt=300, categories=("low_entropy", "high_entropy", ""))


def measured(run: Run, draft_length: int, drafter: str) -> dict[str, Any]:
    size = run.trace.batch_size
    return measure(run.trace, PointFacts(size, draft_length or None, drafter, max_batch=size))


def scored(run: Run) -> list[Any]:
    """The emissions of decode steps of main requests in the first pass."""
    main = {r.index for r in run.trace.requests if r.phase == "main" and r.pass_index == 0}
    return [e for e in run.emissions if e.request_id in main and not e.first]


@pytest.mark.parametrize(("preset", "drafter"), [("tiny", "draft_model"), ("tiny", "ngram"), ("llama-3.3-70b", "eagle3")])
@pytest.mark.parametrize("draft_length", [1, 3, 5])
def test_acceptance_is_the_runs_own(preset: str, drafter: str, draft_length: int) -> None:
    run = run_point(load_model(preset, drafter), draft_length, LOAD, seed=draft_length)
    found = measured(run, draft_length, drafter)
    steps = scored(run)
    whole = [e for e in steps if e.tokens == e.accepted + 1]
    verified = [e for e in steps if e.drafted]
    assert found["validity"]["valid"]
    assert found["simulated"]
    assert found["metrics"]["al_decode"] == pytest.approx(sum(e.tokens for e in whole) / len(whole), rel=1e-12)
    assert found["metrics"]["al_verify"] == pytest.approx(1 + sum(e.accepted for e in verified) / len(verified), rel=1e-12)
    reached = [len(verified)] + [sum(e.accepted >= i for e in verified) for i in range(1, draft_length + 1)]
    truth = [after / before for before, after in pairwise(reached)]
    assert [p["value"] for p in found["ar_cond"]] == pytest.approx(truth, rel=1e-12)


def test_counters_agree_with_the_stream() -> None:
    run = run_point(load_model("tiny", "eagle3"), 3, LOAD)
    checks = {c["name"]: c for c in measured(run, 3, "eagle3")["checks"]}
    counted = [c for name, c in checks.items() if "counter" in name or "verify" in name or "generation" in name]
    assert counted
    assert all(c["ok"] for c in checks.values())


@pytest.mark.parametrize("drafter", ["none", "eagle3"])
def test_step_times_and_rates_are_the_engines_own(drafter: str) -> None:
    draft_length = 3 if drafter != "none" else 0
    run = run_point(load_model("tiny", drafter), draft_length, Load(8, 120, max_tokens=120, n_prompt=300), seed=4)
    found = measured(run, draft_length, drafter)
    opened, closed = ((found["window"][end] - START_NS) / 1e9 for end in ("open_ns", "close_ns"))
    inside = [e for e, (_, end) in zip(_steps(run), run.steps, strict=True) if opened < end <= closed]
    assert found["metrics"]["output_tps_steady"] == pytest.approx(sum(inside) / (closed - opened), rel=0.02)
    weighted = np.repeat(*zip(*_gaps(run, opened, closed), strict=True))
    assert found["metrics"]["step_ms_p50"] == pytest.approx(1e3 * float(np.median(weighted)), rel=0.01)
    assert found["metrics"]["step_ms_mean"] == pytest.approx(1e3 * float(weighted.mean()), rel=0.01)


def _steps(run: Run) -> list[int]:
    """Tokens by engine step."""
    sizes = [0] * len(run.steps)
    for e in run.emissions:
        sizes[e.step - 1] += e.tokens
    return sizes


def _gaps(run: Run, opened: float, closed: float) -> list[tuple[float, int]]:
    """Duration of each step inside the window and how many requests decoded in it."""
    decoding = [0] * len(run.steps)
    for e in run.emissions:
        decoding[e.step - 1] += not e.first
    return [(end - start, n) for (start, end), n in zip(run.steps, decoding, strict=True) if opened <= start and end <= closed and n]


def test_alike_prompts_accept_as_the_model_says() -> None:
    model = load_model("llama-3.3-70b", "eagle3")
    load = Load(16, 300, max_tokens=400, n_prompt=1000, categories=("low_entropy",), ignore_eos=True)
    found = measured(run_point(model, 3, load, seed=2), 3, "eagle3")["metrics"]
    assert found["al_verify"] == pytest.approx(model.acceptance_length("low_entropy", 1000, 3), rel=0.01)
    assert found["al_verify"] == pytest.approx(2.93, rel=0.01)  # as printed


def user_tps(preset: str, drafter: str, draft_length: int, batch_size: int) -> float:
    load = Load(batch_size, 3 * batch_size + 8, max_tokens=200, n_prompt=2000, categories=("mixed",), ignore_eos=True)
    run = run_point(load_model(preset, drafter), draft_length, load, limits=Limits(batch_size, 16384))
    return float(measured(run, draft_length, drafter)["metrics"]["user_tps_mean"])


def test_the_best_draft_length_of_gpt_oss_falls_with_the_batch() -> None:
    """By construction of the preset: a longer draft wins while verifying is nearly free and loses when it is not."""
    gain = {size: user_tps("gpt-oss-120b", "eagle3", 3, size) / user_tps("gpt-oss-120b", "eagle3", 1, size) for size in (2, 16, 128)}
    assert gain[2] > 1.02
    assert gain[16] > 1.0
    assert gain[128] < 0.95


def test_a_drafter_beyond_its_training_length_makes_generation_slower() -> None:
    def seconds_a_token(n_prompt: int, drafter: str, draft_length: int) -> float:
        load = Load(16, 64, max_tokens=60, n_prompt=n_prompt, categories=("high_entropy",), ignore_eos=True)
        run = run_point(load_model("llama-3.3-70b", drafter), draft_length, load, limits=Limits(16, 200_000))
        metrics = measured(run, draft_length, drafter)["metrics"]
        return float(metrics["step_ms_decode_mean"] / metrics["al_decode"])

    def speedup(n_prompt: int) -> float:
        return seconds_a_token(n_prompt, "none", 0) / seconds_a_token(n_prompt, "eagle3", 3)

    assert speedup(1000) > 1.4
    assert speedup(8000) < 0.95


def test_a_head_that_is_never_right_is_marked_and_not_ranked() -> None:
    """What an EAGLE3 head under another algorithm looks like: no error, an acceptance length of exactly 1, slower than no drafter."""
    run = run_point(dead_head(), 3, replace(LOAD, ignore_eos=True))
    found = measured(run, 3, "eagle3")
    assert found["metrics"]["al_decode"] == 1.0
    assert found["metrics"]["acceptance_rate"] == 0.0
    failed = {c["name"]: c["message"] for c in found["checks"] if not c["ok"]}
    assert failed.keys() == {"drafter_contributed"}
    assert "the drafter contributed nothing" in failed["drafter_contributed"]
    assert not found["validity"]["valid"]


def dead_head() -> SimModel:
    return load_model(
        {
            "name": "m",
            "hardware": {"name": "h", "gpus": 1, "bandwidth_gb_s": 1000, "tflops": 100},
            "target": {"weights_gb": 10, "kv_bytes_per_token": 1000, "gflop_per_token": 10},
            "drafters": {"eagle3": {"rates": {"default": [0.0]}, "draft_share": 1.0, "pass_overhead_ms": 0.1}},
        },
        "eagle3",
    )


def test_a_speedup_below_one_is_stated_with_its_interval_and_the_batch_size_where_it_begins() -> None:
    """A long draft on GPT-OSS wins alone and loses in a full batch, by construction of the preset."""
    rows = []
    for size in (1, 96):
        load = Load(size, max(4 * size, 24), prompts=24, max_tokens=80, n_prompt=500, categories=("mixed",), ignore_eos=True)
        arms = []
        for drafter, length in (("none", 0), ("eagle3", 7)):
            run = run_point(load_model("gpt-oss-120b", drafter), length, load, limits=Limits(size, 16384))
            axes = {**AXES, "drafter": drafter, "draft_length": length or None, "batch_size": size}
            arms.append(attempt(axes, measured(run, length, drafter)))
        rows += speedups(cells(arms), arms)
    words = crossover(rows)
    assert [row.verdict for row in rows] == ["faster", "slower"], words
    assert "pays at BS 1 (1." in words
    assert "does not pay above BS 1: slower at BS 96 (0." in words
    slow = rows[-1].user_tps
    assert slow is not None
    assert slow.low is not None
    assert slow.high is not None
    assert slow.low < slow.value < slow.high < 1


AXES = {"engine": "sim", "target": "gpt-oss-120b", "workload": "mixed", "isl": 500, "temperature": 0.0, "repeat": 1}


def attempt(axes: dict[str, Any], measurement: dict[str, Any]) -> dict[str, Any]:
    size = axes["batch_size"]
    baseline = None if axes["drafter"] == "none" else f"none {size}"
    point = {
        "point_id": f"{axes['drafter']} {size}",
        "env_id": "e",
        "status": "measured",
        "axes": axes,
        "declared": {"workload": "w", "sampling": {"temperature": 0.0, "max_tokens": 120}},
        "config": {},
        "env": {},
        "baseline_id": baseline,
        "error": None,
    }
    return {"point": point, "measurement": measurement}


def failed_checks(run: Run) -> dict[str, str]:
    return {c["name"]: c["message"] for c in measured(run, 3, "eagle3")["checks"] if not c["ok"]}


def test_preemptions_are_marked() -> None:
    squeezed = run_point(load_model("tiny", "eagle3"), 3, replace(LOAD, ignore_eos=True), limits=Limits(8, kv_tokens=1500))
    assert squeezed.engine.counters.preemptions > 0
    assert f"{squeezed.engine.counters.preemptions} times the KV cache was full" in failed_checks(squeezed)["preemptions"]


LONG_PROMPTS = Load(8, 250, max_tokens=16, n_prompt=300, ignore_eos=True)


@pytest.mark.parametrize("limits", [Limits(8, kv_tokens=1000), Limits(3)])  # each lets three requests of 316 tokens in
def test_a_cache_or_a_limit_that_holds_fewer_requests_than_the_batch_is_marked(limits: Limits) -> None:
    squeezed = run_point(load_model("llama-3.3-70b", "eagle3"), 3, LONG_PROMPTS, limits=limits)
    assert squeezed.engine.counters.preemptions == 0
    failed = failed_checks(squeezed)
    assert failed.keys() == {"running_requests", "queued_in_engine"}
    assert "up to 3 requests at once, fewer than 8, while up to 5 waited" in failed["running_requests"]
    assert "3 ran and 5 waited" in failed["queued_in_engine"]
    roomy = run_point(load_model("llama-3.3-70b", "eagle3"), 3, LONG_PROMPTS)
    assert not failed_checks(roomy)
