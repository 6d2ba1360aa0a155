"""Whole points in virtual time: what the measurement finds is what the simulated engine did, and what it did is what its model says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sim_client import START_NS, Load, Run, run_point

from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.sim.engine import Limits
from specsweep.client.sim.model import load_model

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


def test_preemptions_and_a_small_batch_limit_are_marked() -> None:
    model = load_model("tiny", "eagle3")
    squeezed = run_point(model, 3, replace(LOAD, ignore_eos=True), limits=Limits(8, kv_tokens=1500))
    assert squeezed.engine.counters.preemptions > 0
    failed = {c["name"] for c in measured(squeezed, 3, "eagle3")["checks"] if not c["ok"]}
    assert any("preempt" in name for name in failed)
