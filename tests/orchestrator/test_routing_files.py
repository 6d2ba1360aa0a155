"""Routing captures from files: which are recognised, what is read, and what is refused."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from specsweep.analysis.routing import Routing, summarise, to_npz
from specsweep.client.routing_answers import counted, has_routing, read_answer
from specsweep.client.routing_dump import RoutingDumpError
from specsweep.client.sim.routing import Mixture, Recorder
from specsweep.orchestrator import cli
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.routing_files import capture_at, read_capture

CHOSEN = np.array([[[0, 0], [1, 2]], [[0, 0], [2, 3]], [[0, 0], [1, 3]]])  # token, layer, slot; the first layer is dense


def npy(chosen: np.ndarray, kind: str = "u1") -> str:
    buffer = io.BytesIO()
    np.save(buffer, chosen.astype(kind))
    return base64.b64encode(buffer.getvalue()).decode()


def raw(chosen: np.ndarray) -> str:
    return base64.b64encode(chosen.astype("<i4").tobytes()).decode()


def vllm(chosen: np.ndarray, **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": "", "routed_experts": npy(chosen)}], **more}


@pytest.mark.parametrize(
    "answer",
    [
        vllm(CHOSEN),
        {"choices": [{"routed_experts": npy(CHOSEN, "u2")}]},
        vllm(CHOSEN[1:], prompt_routed_experts=npy(CHOSEN[:1])),
        {"choices": [{"routed_experts": npy(CHOSEN[1:]), "prompt_routed_experts": npy(CHOSEN[:1])}]},
        {"meta_info": {"routed_experts": raw(CHOSEN)}},
        {"choices": [{}], "sglext": {"routed_experts": raw(CHOSEN)}},
    ],
)
def test_all_forms_of_answers_say_the_same(answer: dict[str, Any]) -> None:
    assert has_routing(answer)
    np.testing.assert_array_equal(read_answer(answer, layers=2, top_k=2), CHOSEN)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "--enable-return-routed-experts"),
        ({"choices": [{"routed_experts": "?"}]}, "not base64"),
        ({"choices": [{"routed_experts": base64.b64encode(b"no array").decode()}]}, "no .npy"),
        ({"choices": [{"routed_experts": npy(CHOSEN[:, 0])}]}, "by token, layer and slot"),
        ({"choices": [{"routed_experts": npy(CHOSEN[:0])}]}, "holds nothing"),
        ({"choices": [{"routed_experts": npy(-CHOSEN, "i4")}]}, "numbered from 0"),
        ({"meta_info": {"routed_experts": base64.b64encode(b"12345").decode()}}, "no list of 32-bit"),
        ({"meta_info": {"routed_experts": raw(CHOSEN[:, :, :1])}}, "rows of 2 layers with 2"),
        (vllm(CHOSEN[:, :1]), "1 layers, and the model has 2"),
        (vllm(CHOSEN, prompt_routed_experts=npy(CHOSEN[:, :1])), "different numbers of layers"),
    ],
)
def test_answers_that_do_not_fit_are_refused_by_name(answer: dict[str, Any], words: str) -> None:
    with pytest.raises(RoutingDumpError, match=words) as found:
        read_answer(answer, layers=2, top_k=2, name="answer 3")
    assert "answer 3" in str(found.value)


def test_answers_are_counted_and_dense_layers_stay_empty() -> None:
    counts, by_slot = counted([CHOSEN, CHOSEN[:1]])
    assert counts.tolist() == [[[0, 0, 0, 0], [0, 2, 2, 2]], [[0, 0, 0, 0], [0, 1, 1, 0]]]
    assert by_slot[:, 1].tolist() == [[0, 3, 1, 0], [0, 0, 2, 2]]
    with pytest.raises(RoutingDumpError, match="an expert 3 of 3"):
        counted([CHOSEN], 3)
    with pytest.raises(RoutingDumpError, match="2 answers, of 2 shapes"):
        counted([CHOSEN, CHOSEN[:, :1]])


@given(st.integers(1, 30), st.integers(1, 3), st.integers(2, 4), st.integers(0, 2**31))
def test_every_token_is_counted_once_for_each_of_its_experts(tokens: int, layers: int, top_k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = np.argsort(rng.random((tokens, layers, 6)), axis=2)[:, :, :top_k]
    counts, by_slot = counted([read_answer(vllm(chosen))], 6)
    assert (counts.sum(axis=2) == tokens * top_k).all()
    assert (by_slot.sum(axis=2) == tokens).all()
    np.testing.assert_array_equal(by_slot.sum(axis=0), counts[0])


def test_files_are_recognised_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text("\n".join(json.dumps(vllm(CHOSEN)) for _ in range(3)) + "\n\n")
    (tmp_path / "answer.json").write_text(json.dumps([vllm(CHOSEN)]))
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "broken.jsonl").write_text("{")
    (tmp_path / "routing.npz").write_bytes(to_npz(Routing(np.ones((1, 2, 3), np.int32), np.zeros(1, np.int64))))
    found = {path.name: capture_at(path) is not None for path in tmp_path.iterdir()}
    assert found == {"answers.jsonl": True, "answer.json": True, "other.jsonl": False, "broken.jsonl": False, "routing.npz": True}
    assert capture_at(tmp_path) is None
    assert capture_at(tmp_path / "none.npz") is None
    read = read_capture(tmp_path / "answers.jsonl")
    assert read.counts.shape == (3, 2, 4)
    assert (read.top_k, summarise(read)["tokens"]) == (2, 9)


def test_the_folder_of_a_recorder_and_of_statistics(tmp_path: Path) -> None:
    sglang, trtllm = tmp_path / "sglang", tmp_path / "trtllm"
    recorder = Recorder(Mixture(2, 8, 2), sglang, seed=0)
    recorder.order("/start_expert_distribution_record")
    recorder.step(1, 50)
    recorder.order("/dump_expert_distribution_record")
    assert capture_at(sglang) == sglang
    assert summarise(read_capture(sglang, top_k=2))["tokens"] == 50
    trtllm.mkdir()
    (trtllm / "meta_info.json").write_text('{"num_experts": 4, "num_experts_per_token": 2}')
    counts = {f"{i}_{layer}": np.array([2, 2, 0, 0], np.int32) for i in (7, 8, 9) for layer in (1, 2)}
    (trtllm / "rank0.safetensors").write_bytes(save(counts))
    read = read_capture(trtllm)
    assert read.pass_ids.tolist() == [7, 8, 9], "the whole window: nobody says which of it was the capture"
    assert (summarise(read)["tokens"], summarise(read)["dense_layers"]) == (6, 1)
    with pytest.raises(ConfigError, match=r"trtllm.*2 experts"):
        read_capture(trtllm, top_k=4)


def test_inspect_tells_the_routing_of_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"meta_info": {"routed_experts": raw(CHOSEN)}}) + "\n")
    assert cli.main(["inspect", str(path), "--layers", "2", "--top-k", "2", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["routing"]["by_layer"][0]["layer"] == 1
    assert found["routing"]["tokens"] == 3
    assert cli.main(["inspect", str(path), "--layers", "2", "--top-k", "2"]) == 0
    assert "a request for a pass" in capsys.readouterr().out
    assert cli.main(["inspect", str(path)]) == 2
    assert "give the model's layers" in capsys.readouterr().err
    assert cli.main(["inspect", str(path), "--layers", "0"]) == 2
