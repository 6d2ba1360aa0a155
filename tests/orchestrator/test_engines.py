"""Every engine has its launch side, its wire side and its config; launchers refuse what an engine cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import specsweep.sweeps
from specsweep.client.dialects import DIALECTS, dialect
from specsweep.orchestrator.engines import ENGINES, SessionModels, launcher
from specsweep.orchestrator.engines.llamacpp import installed_version
from specsweep.orchestrator.errors import ConfigError

FOLDER = Path(specsweep.sweeps.__path__[0]) / "engine"


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_is_complete(name: str) -> None:
    settings = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert launcher(name).name == name == settings["name"]
    assert dialect(settings["dialect"]).name == settings["dialect"]


def test_no_engine_file_without_the_rest() -> None:
    files = {f.stem: yaml.safe_load(f.read_text()) for f in FOLDER.glob("*.yaml")}
    variants = {name: content["defaults"][0] for name, content in files.items() if "defaults" in content}
    assert set(files) - set(variants) == set(ENGINES)
    assert set(variants.values()) <= set(ENGINES)  # sim_vllm is the simulator with other settings
    assert {launcher(n).name for n in ENGINES} == set(ENGINES)
    assert {content["dialect"] for content in files.values()} == set(DIALECTS)


def test_an_unknown_engine_is_told_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="llamacpp"):
        launcher("llama")


def config(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "engine": {"name": "llamacpp", "version": installed_version(), "max_batch": 8, "threads": 2, "args": {"n_ubatch": 256}},
        "target": {"name": "t", "gpus": 0},
        "drafter": {"name": "ngram", "method": "ngram", "match_size": 6},
        "cluster": {"kind": "local"},
        "draft_length": 4,
    }
    return {key: {**value, **changes.get(key, {})} if isinstance(value, dict) else changes.get(key, value) for key, value in base.items()}


MODELS = SessionModels(Path("/m/t.gguf"), "aa", Path("/m/d.gguf"), "bb")


def settings(**changes: Any) -> dict[str, Any]:
    spec = launcher("llamacpp").spec(config(**changes), MODELS, n_ctx_per_slot=512)
    found: dict[str, Any] = json.loads(spec.files["server.json"])
    return found


def test_the_ngram_drafter_gets_its_draft_length_as_its_own_size() -> None:
    assert settings()["drafter"] == {"type": "ngram_simple", "size_n": 6, "size_m": 4}


def test_a_draft_model_has_no_minimum_so_that_dl_means_dl() -> None:
    found = settings(drafter={"name": "d", "method": "draft_model"})
    assert found["drafter"] == {"type": "draft_simple", "path": "/m/d.gguf", "n_max": 4, "n_min": 0, "p_min": 0.0}


def test_the_context_is_split_over_the_slots() -> None:
    found = settings(engine={"max_batch": 32})
    assert (found["n_parallel"], found["n_ctx"]) == (32, 32 * 512)
    assert found["args"] == {"n_ubatch": 256}


def test_flags_of_the_drafter_stand_apart_and_paths_name_nothing() -> None:
    one = launcher("llamacpp").spec(config(), MODELS, n_ctx_per_slot=512)
    other = launcher("llamacpp").spec(config(drafter={"name": "none", "method": "none"}), MODELS, n_ctx_per_slot=1024)
    assert one.flags == other.flags, "arms of a speedup agree"
    assert one.drafter_flags != other.drafter_flags
    assert "/m/" not in json.dumps([one.flags, one.drafter_flags])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"draft_length": 65}, "draft_length_limit"),
        ({"target": {"tensor_parallel": 8}}, "tensor_parallel"),
        ({"engine": {"version": "2020.1.1"}}, "engine_version"),
    ],
)
def test_what_it_cannot_do_it_says_before_anything_runs(changes: dict[str, Any], rule: str) -> None:
    assert [name for name, _ in launcher("llamacpp").check(config(**changes))] == [rule]
    assert launcher("llamacpp").check(config()) == []


def test_a_server_of_another_version_can_be_attached_to() -> None:
    assert launcher("llamacpp").check(config(engine={"version": "2020.1.1"}, cluster={"kind": "attach"})) == []


@pytest.mark.parametrize("name", ["openai_chat"])
def test_what_cannot_be_started_here_is_only_attached(name: str) -> None:
    assert launcher(name).attach_only
    assert [rule for rule, _ in launcher(name).check(config())] == ["attach_only"]
    with pytest.raises(ConfigError, match="cluster=attach"):
        launcher(name).spec(config(), MODELS, n_ctx_per_slot=512)


def test_a_draft_model_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"drafter\.model"):
        launcher("llamacpp").spec(
            config(drafter={"name": "d", "method": "draft_model"}), SessionModels(Path("t"), "aa"), n_ctx_per_slot=512
        )


def test_a_llama_server_of_the_user_gets_the_same_settings_as_flags(tmp_path: Path) -> None:
    binary = tmp_path / "llama-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    own = {"version": "b11434", "binary": str(binary), "args": {"ubatch-size": 2048}}
    found = launcher("llamacpp").spec(config(engine=own, target={"gpus": 1}), MODELS, n_ctx_per_slot=512)
    line = " ".join(found.argv)
    assert line.startswith(f"{binary} --model /m/t.gguf --host {{host}} --port {{port}} --n-gpu-layers 99 --parallel 8 --ctx-size 4096 ")
    assert "--metrics --slots --no-cache-prompt --cache-ram 0" in line
    assert line.endswith("--spec-type ngram-simple --spec-ngram-simple-size-n 6 --spec-ngram-simple-size-m 4 --ubatch-size 2048")
    drafting = launcher("llamacpp").spec(config(engine=own, drafter={"name": "d", "method": "eagle3"}), MODELS, n_ctx_per_slot=512)
    assert (
        "--spec-type draft-eagle3 --spec-draft-model /m/d.gguf --spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0.0"
        in " ".join(drafting.argv)
    )
    assert launcher("llamacpp").missing(own) is None
    assert "does not exist" in str(launcher("llamacpp").missing({"binary": "/nowhere/llama-server"}))


def test_an_mtp_drafter_is_in_the_targets_own_file() -> None:
    assert settings(drafter={"name": "mtp", "method": "mtp"})["drafter"] == {"type": "draft_mtp", "n_max": 4, "n_min": 0, "p_min": 0.0}


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        ({"target": {"model": {"source": "hub", "repo": "a/b", "revision": "c"}}}, "target t"),
        ({"drafter": {"name": "h", "method": "eagle3", "model": {"source": "path", "path": "/m/head"}}}, "drafter h"),
    ],
)
def test_what_is_no_gguf_is_refused_before_anything_starts(changes: dict[str, Any], role: str) -> None:
    ((rule, reason),) = launcher("llamacpp").check(config(**changes))
    assert rule == "gguf"
    assert role in reason
    assert (
        launcher("llamacpp").check(config(drafter={"name": "h", "method": "eagle3", "model": {"source": "path", "path": "/m/h.gguf"}}))
        == []
    )
