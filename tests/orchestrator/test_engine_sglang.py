"""SGLang's command lines against the worked ones of its documentation, version by version."""

from __future__ import annotations

import pytest
from launch_samples import flags, refused, spec
from plan_samples import plan_of

OLD, NEW = "engine.image=lmsysorg/sglang:v0.5.7", "engine.image=lmsysorg/sglang:v0.5.23-cu130"
LLAMA = ("engine=sglang", "target=llama-3.3-70b", "batch_size=512", "draft_length=3")


def test_the_baseline_pins_what_would_differ_between_arms() -> None:
    found = flags(spec(*LLAMA, OLD, "drafter=none"))
    assert found["command"] == ("python3", "-m", "sglang.launch_server")
    wanted = {
        "model-path": "meta-llama/Llama-3.3-70B-Instruct",
        "tp-size": "1",
        "context-length": "8192",
        "max-running-requests": "512",
        "disable-radix-cache": True,
        "stream-interval": "1",
        "cuda-graph-max-bs": "512",
        "enable-metrics": True,
        "port": "{port}",
    }
    assert {k: found.get(k) for k in wanted} == wanted
    assert not [k for k in found if k.startswith("speculative")]
    assert "incremental-streaming-output" not in found  # it loses tokens in 0.5.7


def test_newer_versions_rename_the_graph_range_and_stream_increments() -> None:
    found = flags(spec(*LLAMA, NEW, "drafter=none"))
    assert found["cuda-graph-max-bs-decode"] == "512"
    assert found["incremental-streaming-output"] is True
    assert "cuda-graph-max-bs" not in found


def test_a_chain_gives_all_three_numbers_and_its_dl_is_the_number_of_steps() -> None:
    found = spec(*LLAMA, OLD, "drafter=eagle3")
    drafting = {k: v for k, v in flags(found).items() if k.startswith("speculative")}
    assert drafting == {
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",
        "speculative-draft-model-revision": "main",
        "speculative-num-steps": "3",
        "speculative-eagle-topk": "1",
        "speculative-num-draft-tokens": "4",
    }
    assert found.env == {"SGLANG_ENABLE_SPEC_V2": "1"}  # the baseline's overlap scheduler, which 0.5.7 would drop
    assert spec(*LLAMA, NEW, "drafter=eagle3").env == {}


@pytest.mark.parametrize(
    ("target", "drafter", "algorithm", "draft_path"),
    [
        ("llama-3.3-70b", "draft_model", "STANDALONE", "meta-llama/Llama-3.2-1B-Instruct"),
        ("deepseek-r1", "mtp", "NEXTN", None),
        ("qwen3-next-80b", "mtp", "NEXTN", None),
        ("llama-3.3-70b", "ngram", "NGRAM", None),
    ],
)
def test_each_drafter_in_its_words(target: str, drafter: str, algorithm: str, draft_path: str | None) -> None:
    found = flags(spec("engine=sglang", NEW, f"target={target}", f"drafter={drafter}", "draft_length=3"))
    assert found["speculative-algorithm"] == algorithm
    assert found.get("speculative-draft-model-path") == draft_path
    assert found["speculative-num-draft-tokens"] == "4"


def test_a_tree_says_its_nodes_and_its_attention() -> None:
    tree = ("drafter=eagle3", "drafter.topk=4", "draft_length=5", "drafter.attention_backend=flashinfer", "drafter.num_draft_tokens=8")
    found = flags(spec("engine=sglang", OLD, "target=gpt-oss-120b", *tree))
    assert (found["speculative-num-steps"], found["speculative-eagle-topk"], found["speculative-num-draft-tokens"]) == ("5", "4", "8")
    assert found["attention-backend"] == "flashinfer"
    assert spec("engine=sglang", OLD, "target=gpt-oss-120b", *tree).env == {}  # spec v2 of 0.5.7 drafts chains only


def test_moe_targets_keep_their_parallelism() -> None:
    found = flags(spec("engine=sglang", NEW, "target=deepseek-r1", "drafter=mtp"))
    assert (found["tp-size"], found["ep-size"]) == ("8", "4")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("target=tiny", "drafter=draft_model"), "CUDA only"),
        (("target=llama-3.3-70b", "drafter=dflash", "drafter.model={source: hub, repo: a/b, revision: c}", OLD), "has no DFLASH"),
        (("target=llama-3.3-70b", "drafter=suffix"), "no drafter method 'suffix'"),
        (("target=llama-3.3-70b", "drafter=eagle3", "drafter.topk=4"), "drafter.num_draft_tokens"),
        (("target=llama-3.3-70b", "drafter=eagle3", "drafter.topk=4", "drafter.num_draft_tokens=8"), "attention backend auto"),
        (("target=llama-3.3-70b", "drafter=eagle3", "drafter.num_draft_tokens=9", "draft_length=3"), "draft_length + 1 = 4"),
        (("target=deepseek-r1", "target.expert_parallel=3"), "does not divide"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_field(overrides: tuple[str, ...], words: str) -> None:
    assert words in refused("engine=sglang", *overrides)


def test_what_the_paper_measured_all_the_same_is_planned_with_a_warning() -> None:
    plan = plan_of("name=t", "engine=sglang", OLD, "target=qwen3-next-80b", "drafter=none,eagle3", "draft_length=3")
    assert len(plan.points) == 2
    assert any("no EAGLE3 for qwen3_next" in w for w in plan.warnings)


def test_a_scheduler_that_differs_between_arms_is_said() -> None:
    plan = plan_of("name=t", "engine=sglang", OLD, "target=llama-3.3-70b", "drafter=none,ngram")
    assert any("overlap" in w for w in plan.warnings)
    pinned = plan_of("name=t", "engine=sglang", OLD, "engine.overlap_schedule=false", "target=llama-3.3-70b", "drafter=none,ngram")
    assert not any("overlap" in w for w in pinned.warnings)


def test_further_settings_of_a_drafter_are_passed_on() -> None:
    found = flags(spec(*LLAMA, NEW, "drafter=eagle3", "drafter.args={speculative-accept-threshold-single: 1.0}"))
    assert found["speculative-accept-threshold-single"] == "1.0"
