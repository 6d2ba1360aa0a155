"""A drafter's checkpoint against what it is to be used as: what its config says decides before anything is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plan_samples import plan_of

from specsweep.orchestrator.drafter_facts import facts, kind
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.preparation import Preparation

TINY = Path(__file__).parents[1] / "tiny_pair"
VLLM = ("name=t", "engine=vllm", "target=tiny", "target.gpus=1", "draft_length=3")
EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 256, "vocab_size": 4096, "draft_vocab_size": 4096}


def head(folder: Path, config: dict[str, Any] | str) -> str:
    """An override that gives a folder with this config as the drafter's model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return f"drafter.model={{source: path, path: {folder}}}"


def refused(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan_of(*words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "eagle3"),
        ({"architectures": ["Eagle3LlamaForCausalLM"]}, "eagle3"),
        ({"architectures": ["Eagle3DraftModel"], "speculators_model_type": "eagle3"}, "eagle3"),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "draft_vocab_size": 32000}, "eagle3"),
        ({"architectures": ["LlamaForCausalLM"], "eagle_config": {"use_aux_hidden_state": True}}, "eagle3"),
        ({"architectures": ["LlamaForCausalLMEagle"]}, "eagle"),
        ({"architectures": ["EagleQwen2ForCausalLM"], "model_type": "eagle"}, "eagle"),
        ({"architectures": ["LlamaForCausalLM"], "eagle_config": {"use_aux_hidden_state": False}}, "eagle"),
        ({"architectures": ["EagleLlamaForCausalLM"], "eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, None),  # says both
        ({"model_type": "medusa", "medusa_num_heads": 4}, "medusa"),
        ({"architectures": ["DFlashDraftModel"], "block_size": 16, "num_hidden_layers": 5}, "dflash"),
        ({"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 28}, "model"),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}, None),  # heads call themselves that too
        ({"architectures": ["DeepSeekMTPModel"], "model_type": "deepseek_mtp", "num_hidden_layers": 61}, None),
        ({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000, "eagle_config": {"use_aux_hidden_state": False}}, None),
        ({"architectures": ["Qwen3DSparkModel"], "dflash_config": {"mask_token_id": 1}, "num_hidden_layers": 5}, None),
        ({"architectures": ["DominoDFlashModel"], "dflash_config": {}}, None),
        ({"architectures": ["Eagle2_5_VLForConditionalGeneration"], "text_config": {"num_hidden_layers": 28}}, None),  # a vision model
        ({"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}, "eagle"),
        ({"architectures": ["DeepseekV3ForCausalLMNextN"], "num_hidden_layers": 61}, None),
        ({}, None),
    ],
)
def test_a_config_says_what_the_checkpoint_is_or_leaves_it_open(config: dict[str, Any], expected: str | None) -> None:
    assert kind(config) == expected


@pytest.mark.parametrize(
    ("drafter", "config", "words"),
    [
        ("eagle3", {"architectures": ["LlamaForCausalLMEagle"]}, ("an EAGLE3 head", "of the first EAGLE", "LlamaForCausalLMEagle")),
        ("eagle3", {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16}, ("a whole language model", "drafter=draft_model")),
        ("draft_model", EAGLE3, ("a whole language model", "an EAGLE3 head", "drafter=eagle3")),
        ("dflash", EAGLE3, ("a DFlash drafter", "an EAGLE3 head")),
        ("pard", {"model_type": "medusa"}, ("Medusa heads", "drafter=medusa")),
    ],
)
def test_a_head_of_another_kind_than_the_method_is_refused_by_name(
    tmp_path: Path, drafter: str, config: dict[str, Any], words: tuple[str, ...]
) -> None:
    said = refused(*VLLM, f"drafter={drafter}", head(tmp_path / "h", config))
    assert f"drafter {drafter} (method {drafter})" in said
    assert str(tmp_path / "h") in said
    assert all(word in said for word in words)


@pytest.mark.parametrize(("engine", "key", "value"), [("sglang", "speculative-algorithm", "EAGLE"), ("vllm", "method", "eagle")])
def test_an_eagle3_head_is_not_run_under_another_algorithm(engine: str, key: str, value: str) -> None:
    words = ("name=t", f"engine={engine}", "target=tiny", "target.gpus=1", "drafter=tiny_eagle3")
    said = refused(*words, f"drafter.args={{{key}: {value}}}")
    assert f"drafter.args.{key}={value}" in said
    assert "no accepted token" in said
    assert plan_of(*words, f"drafter.args={{{key}: {'EAGLE3' if engine == 'sglang' else 'eagle3'}}}").points


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 4096}, ("hidden states of 4096 values, the target's have 256",)),
        ({"hidden_size": 128, "target_hidden_size": 512}, ("512 values, the target's have 256",)),
        ({"vocab_size": 128256}, ("128256 tokens, the target's 4096",)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 40]}}, ("reads layer 40, the target has 4",)),
        ({"hidden_size": None, "transformer_layer_config": {"hidden_size": 2880}}, ("2880 values",)),
    ],
)
def test_a_head_of_another_target_is_refused_with_both_sizes(tmp_path: Path, change: dict[str, Any], words: tuple[str, ...]) -> None:
    said = refused(*VLLM, "drafter=eagle3", head(tmp_path / "h", EAGLE3 | change))
    assert "was made for another target than tiny" in said
    assert all(word in said for word in words)


@pytest.mark.parametrize(
    "config",
    [
        EAGLE3,
        EAGLE3 | {"hidden_size": 128, "target_hidden_size": 256},  # a narrower head
        EAGLE3 | {"vocab_size": 4100},  # the same vocabulary, padded
        EAGLE3 | {"draft_vocab_size": 1024},  # drafts from a part of it
        {"architectures": 3, "hidden_size": "wide", "eagle_config": [], "eagle_aux_hidden_state_layer_ids": [None]},
        {
            "architectures": ["LlamaForCausalLMEagle3"],
            "hidden_size": True,
            "vocab_size": 10**400,
            "eagle_aux_hidden_state_layer_ids": [True],
        },
        {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": -5},
        "not JSON",
        "[]",
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_what_fits_or_says_nothing_is_planned(tmp_path: Path, config: dict[str, Any] | str) -> None:
    assert plan_of(*VLLM, "drafter=eagle3", head(tmp_path / "h", config)).points


@pytest.mark.parametrize(
    "spec", [{"source": "path", "path": "a\0b"}, {"source": ["path"], "path": "x"}, {"source": "path"}, "text", {}, None]
)
def test_a_model_that_cannot_be_there_says_nothing(spec: Any, tmp_path: Path) -> None:
    assert facts(spec, tmp_path) is None


def test_the_tiny_pairs_own_drafters_are_what_they_are_used_as() -> None:
    plan = plan_of("name=t", "engine=vllm", "target=tiny", "target.gpus=1", "drafter=tiny,tiny_eagle3")
    assert {p.axes["drafter"] for p in plan.points} == {"tiny", "tiny_eagle3"}
    assert plan_of("name=t", "engine=hf", "target=tiny", "drafter=tiny_medusa").points


def test_an_engine_that_loads_no_weights_or_runs_elsewhere_is_not_asked(tmp_path: Path) -> None:
    wrong = head(tmp_path / "h", {"architectures": ["LlamaForCausalLMEagle"]})
    assert plan_of("name=t", "engine=sim", "target=tiny", "drafter=eagle3", wrong).points
    assert plan_of(*VLLM, "drafter=eagle3", wrong, "cluster=attach", "endpoint=http://h:1").points


def hub(cache: Path, repo: str, commit: str, config: dict[str, Any], *, ref: str | None = None) -> None:
    place = cache / "hub" / f"models--{repo.replace('/', '--')}"
    folder = place / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if ref:
        (place / "refs").mkdir()
        (place / "refs" / ref).write_text(commit)


def test_a_head_of_the_hub_is_looked_at_if_it_is_here_already_and_never_fetched(tmp_path: Path) -> None:
    spec = {"source": "hub", "repo": "org/head", "revision": "main"}
    words = (*VLLM, "drafter=eagle3", "drafter.model={source: hub, repo: org/head, revision: main}", f"cache={tmp_path}")
    assert facts(spec, tmp_path) is None
    assert plan_of(*words).points
    hub(tmp_path, "org/head", "abc123", {"architectures": ["LlamaForCausalLMEagle"]}, ref="main")
    assert facts({**spec, "revision": "abc123"}, tmp_path) == facts(spec, tmp_path) == {"architectures": ["LlamaForCausalLMEagle"]}
    assert "the config of org/head says a head of the first EAGLE" in refused(*words)


def test_a_run_looks_again_at_what_it_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan could not see the head; the run refuses it before the engine starts."""
    (point,) = plan_of(*VLLM, "drafter=eagle3", "drafter.model={source: hub, repo: org/head, revision: main}", f"cache={tmp_path}").points

    def fetched(repo: str, revision: str, file: str | None, cache: Path, progress: Any, *, weights: bool = False) -> Path:
        hub(tmp_path, repo, "abc123", EAGLE3 | {"hidden_size": 4096}, ref=revision)
        return cache / "models--org--head" / "snapshots" / "abc123"

    monkeypatch.setattr("specsweep.orchestrator.models.fetch_from_hub", fetched)
    with pytest.raises(ConfigError, match="hidden states of 4096 values, the target's have 256"):
        Preparation(tmp_path, lambda line: None).models(point.config)


def test_a_gguf_says_by_its_architecture_what_it_is(tmp_path: Path) -> None:
    import gguf

    def write(name: str, architecture: str) -> Path:
        writer = gguf.GGUFWriter(tmp_path / name, architecture)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return tmp_path / name

    found = {name: facts({"source": "path", "path": str(write(name, name))}, tmp_path) for name in ("eagle3", "dflash", "llama")}
    assert {name: kind(fact) for name, fact in found.items() if fact} == {"eagle3": "eagle3", "dflash": "dflash", "llama": "model"}
