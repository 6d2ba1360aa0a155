"""The heads of the tiny target as engines read them: what they add to its weights, what they borrow, what their configs say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from safetensors.numpy import load_file

from specsweep.orchestrator.model_sources import package_data
from specsweep.orchestrator.models import ensure_model

TINY = Path(__file__).parents[1] / "tiny_pair"
SWEEPS = Path(__file__).parents[2] / "sweeps"


def weights(folder: str) -> dict[str, NDArray[np.float16]]:
    return {name: w for shard in sorted((TINY / folder).glob("*.safetensors")) for name, w in load_file(shard).items()}


def config(folder: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((TINY / folder / "config.json").read_text())
    return found


def test_the_checkpoint_with_an_mtp_layer_is_the_target_and_biases_of_zero() -> None:
    target, with_mtp = weights("target"), weights("target_mtp")
    assert all(np.array_equal(target[name], with_mtp[name]) for name in target)
    added = {name: w for name, w in with_mtp.items() if name not in target and "mtp_layers" not in name}
    assert {name.rsplit(".", 1)[1] for name in added} == {"bias"}
    assert len(added) == 3 * 4  # q, k and v in each of four layers
    assert not any(w.any() for w in added.values())


def test_its_index_names_every_tensor_and_its_shard() -> None:
    folder = TINY / "target_mtp"
    where = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert where == {name: shard.name for shard in folder.glob("*.safetensors") for name in load_file(shard)}


def test_it_comes_with_the_targets_tokenizer(tmp_path: Path) -> None:
    spec = {"source": "package_data", "file": "tiny_pair/target_mtp", "convert": None}
    model = ensure_model(spec, tmp_path, progress=lambda _: None)
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (model.tokenizer_path / name).read_bytes() == (TINY / "target" / name).read_bytes()


def test_the_eagle3_head_reads_three_layers_and_borrows_what_the_target_has() -> None:
    head, target = config("eagle3"), config("target")
    layers = head["eagle_config"]["eagle_aux_hidden_state_layer_ids"]  # type: ignore[index]
    hidden = target["hidden_size"]
    assert len(set(layers)) == 3
    assert set(layers) <= set(range(1 + target["num_hidden_layers"]))  # type: ignore[operator]
    found = weights("eagle3")
    assert found["fc.weight"].shape == (hidden, 3 * hidden)  # type: ignore[operator]
    assert not [name for name in found if "embed" in name or "lm_head" in name or "d2t" in name or "t2d" in name]
    assert head["vocab_size"] == head["draft_vocab_size"] == target["vocab_size"]


def test_no_weight_is_lost_in_float16() -> None:
    for folder in ("eagle3", "target_mtp"):
        assert all(np.isfinite(w).all() for w in weights(folder).values())


@pytest.mark.parametrize(("group", "folder"), [("drafter/tiny_eagle3", "eagle3"), ("target/tiny_mtp", "target_mtp")])
def test_their_configs_name_them(group: str, folder: str) -> None:
    found = yaml.safe_load((SWEEPS / f"{group}.yaml").read_text())
    assert package_data(found["model"]["file"]) == TINY / folder
