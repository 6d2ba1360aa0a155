"""Do the 95 % intervals hold the simulated engine's true values? 2,000 points of 40 conversations each, in virtual time, whole pipeline.

Each point is a closed loop over the engine with a drafter and one without, over the same 40 prompts that no other point has; both traces go
through the measurement and the comparison that real points go through. Prompts differ in how easily they are drafted for and in the length
of their answers, step times vary and are alike from one to the next, prefills stretch the steps of everybody. The truth is what a run of
the same engine over thousands of prompts shows.

Seeds are fixed, so the figures are the same in every run; their standard error is half a percent. ``-s`` prints them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from sim_client import Load, run_point

from specsweep.analysis.attempts import Estimate, cells
from specsweep.analysis.measure import PointFacts, measure
from specsweep.analysis.speedup import speedups
from specsweep.client.sim.model import SimModel, load_model

pytestmark = pytest.mark.slow

SEEDS = 2000
BATCH, CONVERSATIONS, DRAFT_LENGTH = 4, 40, 3
TRUTH_RUNS, TRUTH_REQUESTS = 2, 12_000
LOW, HIGH = 0.92, 0.97
MODEL: dict[str, Any] = {
    "name": "coverage",
    "hardware": {"name": "invented", "gpus": 1, "bandwidth_gb_s": 1000, "tflops": 100},
    "target": {"weights_gb": 10, "kv_bytes_per_token": 30000, "gflop_per_token": 10, "prefill_efficiency": 0.5},
    "jitter": {"sd": 0.2, "steps": 5},
    "answers": {"median_tokens": 30, "spread": 0.5},
    "drafters": {
        "draft_model": {
            "rates": {"default": [0.75, 0.7, 0.65], "hard": [0.6, 0.5, 0.4]},
            "prompt_spread": 0.6,
            "weights_gb": 0.5,
            "pass_overhead_ms": 0.2,
        }
    },
}
METRICS = ("al_decode", "al_verify", "user_tps_mean", "output_tps_steady", "speedup_user_tps", "speedup_output_tps")


def arms() -> tuple[SimModel, SimModel]:
    return load_model(MODEL), load_model(MODEL, "draft_model")


def attempt(model: SimModel, requests: int, seed: int) -> dict[str, Any]:
    """The point and its measurement as the store would give them."""
    draft_length = DRAFT_LENGTH if model.acceptance else 0
    load = Load(BATCH, requests, categories=("", "hard"), first_key=100_000 * seed, max_tokens=120)
    # Arms are separate sessions: the same prompts, other moods of the engine.
    trace = run_point(model, draft_length, load, seed=2 * seed + (draft_length > 0)).trace
    facts = PointFacts(BATCH, draft_length or None, model.drafter, max_batch=BATCH)
    axes = {"engine": "sim", "target": "t", "drafter": model.drafter, "draft_length": draft_length, "batch_size": BATCH, "repeat": 0}
    point = {"point_id": model.drafter, "status": "measured", "axes": axes}
    if draft_length:
        point["baseline_id"] = "none"
    return {"point": point, "measurement": measure(trace, facts)}


def compared(requests: int, seed: int) -> dict[str, tuple[float, float | None, float | None]]:
    """Value and bounds of every metric of one pair of points."""
    pair = [attempt(model, requests, seed) for model in arms()]
    metrics = pair[1]["measurement"]["metrics"]
    found = {n: (metrics[n], metrics.get(f"{n}_ci_low"), metrics.get(f"{n}_ci_high")) for n in METRICS if not n.startswith("speedup")}
    (row,) = speedups(cells(pair), pair)
    assert not row.reason, row.reason
    return found | {"speedup_user_tps": bounds(row.user_tps), "speedup_output_tps": bounds(row.output_tps)}


def bounds(ratio: Estimate | None) -> tuple[float, float | None, float | None]:
    assert ratio is not None
    return ratio.value, ratio.low, ratio.high


def point_of(seed: int) -> dict[str, tuple[float, float | None, float | None]]:
    return compared(CONVERSATIONS, seed)


@pytest.fixture(scope="module")
def found() -> Iterator[tuple[dict[str, float], dict[str, np.ndarray]]]:
    """The truth of every metric, and (value, low, high) of every seed."""
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=multiprocessing.get_context("fork")) as pool:
        longest = [pool.submit(compared, TRUTH_REQUESTS, SEEDS + i) for i in range(TRUTH_RUNS)]
        points = list(pool.map(point_of, range(SEEDS), chunksize=50))
        truth = {name: float(np.mean([run.result()[name][0] for run in longest])) for name in METRICS}
    return truth, {name: np.array([p[name] for p in points], float) for name in METRICS}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", METRICS)
def test_intervals_cover_the_truth(name: str, found: tuple[dict[str, float], dict[str, np.ndarray]]) -> None:
    truth, value_low_high = found[0][name], found[1][name]
    value, low, high = value_low_high.T
    coverage = float(np.mean((low <= truth) & (truth <= high)))
    print(
        f"{name}: {coverage:.3f}; truth {truth:.4g}, bias {value.mean() / truth - 1:+.4f}, half width {np.median(high / low) / 2 - 0.5:.3f}"
    )
    assert LOW <= coverage <= HIGH
