"""Every arm that Table 1 of the SPEED-Bench paper reports can be planned on the engine and the image that it names."""

from __future__ import annotations

import pytest
from launch_samples import refused
from plan_samples import plan_of

TRTLLM, TRTLLM_SAMPLING = "nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc1", "nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc7"
SGLANG = "lmsysorg/sglang:v0.5.7"
ARMS = [
    ("trtllm", "llama-3.3-70b", "ngram"),
    ("trtllm", "llama-3.3-70b", "draft_model"),
    ("trtllm", "llama-3.3-70b", "eagle3"),
    ("trtllm", "gpt-oss-120b", "ngram"),
    ("trtllm", "gpt-oss-120b", "eagle3"),
    ("trtllm", "deepseek-r1", "mtp"),
    ("sglang", "qwen3-235b", "draft_model"),
    ("sglang", "qwen3-235b", "eagle3"),
    ("sglang", "qwen3-next-80b", "eagle3"),
    ("sglang", "qwen3-next-80b", "mtp"),
]


def words(engine: str, target: str, drafter: str, temperature: int) -> tuple[str, ...]:
    sampling = engine == "trtllm" and temperature == 1 and drafter != "draft_model"  # Table 13
    image = SGLANG if engine == "sglang" else TRTLLM_SAMPLING if sampling else TRTLLM
    advanced = ("drafter.allow_advanced_sampling=true",) if sampling and drafter == "eagle3" else ()
    return (
        f"engine={engine}",
        f"engine.image={image}",
        f"target={target}",
        f"drafter={drafter}",
        f"temperature={temperature}",
        "batch_size=32",
        "draft_length=3",
        "isl=1k",
        "workload.prompts=128",
        "workload.ramp_prompts=32",
        *advanced,
    )


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(("engine", "target", "drafter"), ARMS)
def test_an_arm_of_table_1_is_planned_with_its_baseline(engine: str, target: str, drafter: str, temperature: int) -> None:
    arm = words(engine, target, drafter, temperature)
    if (target, temperature) == ("deepseek-r1", 1):  # the one cell that the table leaves out
        assert "accept greedily" in refused(*arm)
        return
    plan = plan_of("name=t", *arm)
    assert [p.axes["drafter"] for p in plan.points] == [drafter]
    assert plan.dropped == ()
    assert plan_of("name=t", *words(engine, target, "none", temperature)).dropped == ()
