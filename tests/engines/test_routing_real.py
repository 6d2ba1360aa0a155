"""The routing of a real mixture of experts (small, random, run by transformers) through the reader of each engine's form."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from specsweep.analysis.routing import summarise
from specsweep.orchestrator.engines.hf_env import built
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.routing_files import capture_at, read_capture

pytestmark = [pytest.mark.own_env, pytest.mark.timeout(300)]
LAYERS, EXPERTS, TOP_K = 3, 8, 2


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    python = built()
    if not python.exists():
        pytest.skip("needs `make engines`")
    folder = tmp_path_factory.mktemp("moe")
    program = Path(__file__).with_name("moe_program.py")
    done = subprocess.run([str(python), str(program), str(folder)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder, [np.array(of) for of in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize("name", ["vllm.jsonl", "sglang.jsonl", "recorder", "statistics"])
def test_every_form_gives_the_routing_that_transformers_chose(ran: tuple[Path, list[np.ndarray]], name: str) -> None:
    folder, truth = ran
    path = folder / name
    assert capture_at(path) == path
    routing = read_capture(path, layers=LAYERS, top_k=TOP_K, experts=EXPERTS)
    expected = [[np.bincount(of[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)] for of in truth]
    np.testing.assert_array_equal(routing.counts, expected)
    found = summarise(routing)
    assert found["tokens"] == sum(map(len, truth)) == 39
    for layer, numbers in enumerate(found["by_layer"]):
        experts = [len(set(of[:, layer].ravel().tolist())) for of in truth]
        assert numbers["unique_mean"] == pytest.approx(np.mean(experts))
        assert numbers["whole_unique"] == len({e for of in truth for e in of[:, layer].ravel().tolist()})
    if routing.by_slot is not None:
        first = [np.bincount(np.concatenate([of[:, layer, 0] for of in truth]), minlength=EXPERTS) for layer in range(LAYERS)]
        np.testing.assert_array_equal(routing.by_slot[0], first)


def test_sglangs_answers_do_not_say_their_shape(ran: tuple[Path, list[np.ndarray]]) -> None:
    with pytest.raises(ConfigError, match="7 rows of 6 each; give the model's layers and experts a token"):
        read_capture(ran[0] / "sglang.jsonl")
