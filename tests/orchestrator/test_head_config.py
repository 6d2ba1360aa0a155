"""Heads with another context length: the same weights under a patched config, named by what it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from plan_samples import only, plan_of

from specsweep.orchestrator.engines import launcher
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.head_config import patched
from specsweep.orchestrator.preparation import Preparation

TINY = Path(__file__).parents[1] / "tiny_pair" / "eagle3"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}


def test_weights_are_links_and_only_the_config_differs(tmp_path: Path) -> None:
    drafter = {"name": "head", "rope_scaling": YARN, "max_position_embeddings": 8192}
    place = patched(TINY, drafter, tmp_path)
    config = json.loads((place / "config.json").read_text())
    assert config == json.loads((TINY / "config.json").read_text()) | {"rope_scaling": YARN, "max_position_embeddings": 8192}
    assert {f.name for f in place.iterdir()} == {f.name for f in TINY.iterdir()}
    assert (place / "model.safetensors").resolve() == (TINY / "model.safetensors").resolve()
    assert patched(TINY, drafter, tmp_path) == place
    assert patched(TINY, {**drafter, "max_position_embeddings": 4096}, tmp_path) != place


def test_without_a_change_the_folder_itself_is_loaded(tmp_path: Path) -> None:
    assert patched(TINY, {"name": "head", "rope_scaling": None}, tmp_path) == TINY
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_has_no_config_cannot_be_patched(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(ConfigError, match=r"drafter 'head': max_position_embeddings change a config\.json"):
        patched(tmp_path / "m", {"name": "head", "max_position_embeddings": 4096}, tmp_path)


def test_a_sweep_gives_the_engine_the_patched_head_and_another_point_id(tmp_path: Path) -> None:
    head = tmp_path / "head"
    shutil.copytree(TINY, head)
    words = ("name=t", "engine=sglang", "target=tiny", "target.gpus=1", "drafter=eagle3", f"drafter.model={{source: path, path: {head}}}")
    plain, longer = only(plan_of(*words)), only(plan_of(*words, "drafter.max_position_embeddings=8192"))
    assert plain.point_id != longer.point_id
    models = Preparation(tmp_path / "cache", lambda line: None).models(longer.config)
    assert models.drafter is not None
    assert json.loads((models.drafter / "config.json").read_text())["max_position_embeddings"] == 8192
    assert str(models.drafter) in launcher("sglang").spec(longer.config, models, n_ctx_per_slot=512).argv


def test_a_plan_warns_where_prompts_pass_the_head(tmp_path: Path) -> None:
    words = ("name=t", "engine=sglang", "target=llama-3.3-70b", "drafter=eagle3", "drafter.max_position_embeddings=2048")
    assert any("pass the 2048 positions" in w for w in plan_of(*words, "isl=8k").warnings)
    assert not any("positions" in w for w in plan_of(*words, "isl=1k").warnings)
