"""What a plan says of points that can run: memory that does not hold a batch, and drafters that remember."""

from __future__ import annotations

import pytest
from plan_samples import only, plan_of

GPU = ("name=t", "engine=sglang", "target=llama-3.3-70b")


def test_a_batch_that_the_memory_cannot_hold_is_told_with_the_arithmetic() -> None:
    """BF16 weights of 141 GB leave about 60 k tokens on a GPU of 180 GB: 32 requests of 2 k, not 512."""
    small = plan_of(*GPU, "cluster.gpu_memory_gb=180", "batch_size=16", "isl=1k", "workload.osl=1024")
    assert [w for w in small.warnings if "KV cache" in w] == []
    large = plan_of(*GPU, "cluster.gpu_memory_gb=180", "batch_size=512,256", "isl=1k", "workload.osl=1024")
    [warning] = [w for w in large.warnings if "KV cache" in w]
    assert "batch_size=512" in warning
    assert f"{512 * (1000 + 1024):,} tokens" in warning
    assert "1 more points" in warning
    assert len(large.points) == 2


def test_a_target_whose_memory_nobody_describes_is_not_judged() -> None:
    assert not [w for w in plan_of(*GPU, "batch_size=512", "isl=8k").warnings if "KV cache" in w]


@pytest.mark.parametrize(("engine", "stateful"), [("sglang", True), ("trtllm", False)])
def test_an_n_gram_drafter_that_remembers_gets_a_fresh_engine_for_every_point(engine: str, stateful: bool) -> None:
    plan = plan_of(
        "name=t",
        f"engine={engine}",
        "target=llama-3.3-70b",
        "drafter=ngram",
        "batch_size=1,2",
        "workload.prompts=16",
        "workload.ramp_prompts=4",
    )
    assert len(plan.sessions) == (2 if stateful else 1)
    assert {p.config["drafter"]["stateful"] for p in plan.points} == {stateful}


def test_a_shared_pool_of_n_grams_remembers() -> None:
    point = only(
        plan_of("name=t", "engine=trtllm", "target=llama-3.3-70b", "drafter=ngram", "drafter.shared_pool=true", "workload.prompts=16")
    )
    assert point.config["drafter"]["stateful"] is True
