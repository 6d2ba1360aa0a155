"""What the simulator is told of a prompt: its benchmark, its length in the model's tokens, and the experts that its category chooses from."""

from __future__ import annotations

import numpy as np
import pytest

from specsweep.client.sim.engine import Limits, SimEngine, SimRequest
from specsweep.client.sim.model import load_model
from specsweep.client.sim.routing import Mixture, draw

EXPERTS = {"experts_gb": 40, "expert_count": 64, "experts_per_token": 4}
MODEL = {
    "name": "m",
    "hardware": {"name": "h", "gpus": 1, "bandwidth_gb_s": 1000, "tflops": 100},
    "target": {"weights_gb": 1, "kv_bytes_per_token": 1e6, "gflop_per_token": 1, **EXPERTS, "expert_share": {"random": 0.5}},
    "drafters": {"eagle3": {"rates": {"default": [0.1], "coding": [0.5], "specbench/math": [0.9], "long": {1000: [0.8], 4000: [0.2]}}}},
}


def one_step(category: str = "", n_prompt: int = 1000, isl: int | None = None) -> tuple[SimEngine, float]:
    engine = SimEngine(load_model(MODEL), draft_length=0, limits=Limits(8))
    engine.submit(SimRequest(0, n_prompt, 4, category, isl=isl), 0.0)
    lasted = engine.begin_step(0.0)
    assert lasted is not None
    return engine, lasted


def test_a_category_of_another_benchmark_is_its_own_where_the_model_has_it_and_the_plain_one_else() -> None:
    model = load_model(MODEL, "eagle3")
    assert [model.rates(c, 100)[0] for c in ("specbench/math", "math", "specbench/coding", "specbench/qa")] == [0.9, 0.1, 0.5, 0.1]


def test_time_goes_by_the_models_tokens_and_counters_by_the_sent_ones() -> None:
    _, long = one_step(n_prompt=1000)
    sent, short = one_step(n_prompt=1000, isl=500)
    _, really_short = one_step(n_prompt=500)
    assert short == pytest.approx(really_short)
    assert short < long
    sent.end_step()
    assert sent.counters.prompt_tokens == 1000


def test_acceptance_goes_by_the_models_tokens() -> None:
    taken = []
    for isl in (None, 1000):
        engine = SimEngine(load_model(MODEL, "eagle3"), draft_length=1, limits=Limits(8))
        engine.submit(SimRequest(0, 4000, 400, "long", isl=isl), 0.0)
        while engine.begin_step(0.0) is not None:
            engine.end_step()
        taken.append(engine.counters.accepted_tokens / engine.counters.drafts)
    assert taken == pytest.approx([0.2, 0.8], abs=0.08)


def test_tokens_that_choose_from_fewer_experts_load_fewer() -> None:
    model = load_model(MODEL)
    narrow, wide = (model.decode_step_s(256, 10, 0, category) for category in ("random", "mixed"))
    assert wide - narrow == pytest.approx(0.5 * 40e9 / 1e12, rel=0.01)  # half of the experts' bytes
    engine, _ = one_step("random", 100)
    assert engine.tokens_by_expert_share == {0.5: 100}
    assert engine.work.expert_share == 0.5


def test_a_share_of_the_experts_is_the_same_in_every_draw_and_another_in_every_layer() -> None:
    mixture = Mixture(layers=3, experts=64, top_k=4)
    first, second = (draw(mixture, 4000, np.random.default_rng(seed), share=0.75) > 0 for seed in (1, 2))
    assert (first.sum(axis=1) == 48).all()
    assert (first == second).all()
    assert (first[0] != first[1]).any()
    assert (draw(mixture, 4000, np.random.default_rng(1)) > 0).all()
