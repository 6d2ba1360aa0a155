"""TensorRT-LLM's command line and the YAML that is written for each arm, version by version."""

from __future__ import annotations

from typing import Any

import pytest
from launch_samples import flags, refused, settings, spec, speculation
from plan_samples import plan_of

OLD, NEW = "engine.image=nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc1", "engine.image=nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc5"
ENGINE = ("engine=trtllm", "draft_length=3")
HEAD = "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"


def test_the_baseline() -> None:
    found = spec(*ENGINE, OLD, "target=llama-3.3-70b", "drafter=none", "batch_size=512")
    assert found.argv[:2] == ("trtllm-serve", "meta-llama/Llama-3.3-70B-Instruct")
    line = flags(found)
    wanted = {"backend": "pytorch", "tp_size": "1", "max_batch_size": "512", "max_seq_len": "8192", "port": "{port}"}
    assert {k: line.get(k) for k in wanted} == wanted
    assert line["extra_llm_api_options"] == "{files}/engine.yaml"
    yaml = settings(found)
    assert yaml["kv_cache_config"]["enable_block_reuse"] is False
    assert yaml["cuda_graph_config"] == {"enable_padding": True, "max_batch_size": 512}
    assert (yaml["stream_interval"], yaml["enable_attention_dp"]) == (1, False)
    assert "speculative_config" not in yaml
    assert "disable_overlap_scheduler" not in yaml


def test_the_token_budget_holds_a_full_batch_of_drafts_and_a_whole_prompt() -> None:
    found = flags(spec(*ENGINE, OLD, "target=gpt-oss-120b", "drafter=eagle3", "batch_size=2048", "draft_length=7"))
    assert int(found["max_num_tokens"]) >= 2048 * 8
    assert flags(spec(*ENGINE, OLD, "target=gpt-oss-120b", "drafter=none", context=33024))["max_num_tokens"] == "33024"


@pytest.mark.parametrize(
    ("image", "drafter", "wanted"),
    [
        (OLD, "eagle3", {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model_dir": HEAD, "eagle3_one_model": True}),
        (NEW, "eagle3", {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": HEAD, "eagle3_one_model": True}),
        (OLD, "ngram", {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 4, "is_public_pool": False}),
        (OLD, "draft_model", {"decoding_type": "DraftTarget", "max_draft_len": 3, "speculative_model_dir": "meta-llama/Llama-3.2-1B-Instruct"}),
    ],
)  # fmt: skip
def test_each_drafter_in_its_words(image: str, drafter: str, wanted: dict[str, Any]) -> None:
    assert speculation(spec(*ENGINE, image, "target=llama-3.3-70b", f"drafter={drafter}")) == wanted


def test_mtp_counts_layers_in_1_2_and_is_never_relaxed() -> None:
    old = speculation(spec(*ENGINE, OLD, "target=deepseek-r1", "drafter=mtp"))
    new = speculation(spec(*ENGINE, NEW, "target=deepseek-r1", "drafter=mtp"))
    assert old == {"decoding_type": "MTP", "num_nextn_predict_layers": 3, "use_relaxed_acceptance_for_thinking": False}
    assert new == {"decoding_type": "MTP", "max_draft_len": 3, "use_relaxed_acceptance_for_thinking": False}


def test_tp_8_with_ep_4_is_natural_here() -> None:
    found = flags(spec(*ENGINE, OLD, "target=deepseek-r1", "drafter=mtp"))
    assert (found["tp_size"], found["ep_size"]) == ("8", "4")


def test_two_model_eagle_and_newer_spelling_of_the_config_flag() -> None:
    found = spec(*ENGINE, NEW, "target=llama-3.3-70b", "drafter=eagle3", "drafter.one_model=false")
    assert (speculation(found) or {})["eagle3_one_model"] is False
    assert flags(found)["config"] == "{files}/engine.yaml"


def test_the_overlap_scheduler_is_off_where_it_must_be_and_the_plan_says_so() -> None:
    arms = (*ENGINE, OLD, "target=llama-3.3-70b")
    assert settings(spec(*arms, "drafter=ngram"))["disable_overlap_scheduler"] is True
    assert "disable_overlap_scheduler" not in settings(spec(*arms, "drafter=eagle3"))
    assert any("overlap scheduler" in w for w in plan_of("name=t", *arms, "drafter=none,ngram").warnings)
    assert settings(spec(*arms, "drafter=none", "engine.overlap_schedule=false"))["disable_overlap_scheduler"] is True


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("target=tiny", "drafter=none"), "GPUs only"),
        (("target=qwen3-next-80b", "drafter=mtp", OLD), "no MTP for qwen3_next"),
        (("target=llama-3.3-70b", "drafter=eagle3", "temperature=1", "engine.image=nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc7"), "accept greedily"),
        (("target=llama-3.3-70b", "drafter=eagle3", "drafter.topk=4", OLD), "not to use its trees"),
        (("target=llama-3.3-70b", "drafter=pard", OLD), "has no pard"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_with_the_field(overrides: tuple[str, ...], words: str) -> None:
    assert words in refused("engine=trtllm", *overrides)


def test_sampling_drafters_are_allowed_where_the_key_is_known() -> None:
    allowed = ("target=llama-3.3-70b", "drafter=eagle3", "temperature=1", "drafter.allow_advanced_sampling=true")
    assert (speculation(spec(*ENGINE, OLD, *allowed)) or {})["allow_advanced_sampling"] is True
    assert speculation(spec(*ENGINE, NEW, *allowed[:3])) is not None


def test_further_settings_of_a_drafter_are_passed_on() -> None:
    found = speculation(spec(*ENGINE, NEW, "target=llama-3.3-70b", "drafter=eagle3", "drafter.args={eagle3_layers_to_capture: [1, 2]}"))
    assert (found or {})["eagle3_layers_to_capture"] == [1, 2]
