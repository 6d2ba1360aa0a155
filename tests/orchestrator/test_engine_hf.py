"""Engine hf without torch: what its launcher writes and refuses, and its wire against the dialect that reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from launch_samples import refused, spec, warned
from safetensors.numpy import load_file

import specsweep.sweeps
from specsweep.client.dialects import dialect
from specsweep.client.trace import Exchange
from specsweep.client.trace import Sampling as Asked
from specsweep.orchestrator.engines import hf_env
from specsweep.orchestrator.engines.hf import LAUNCHER
from specsweep.orchestrator.engines.hf_server.steps import Sampling, Step, cut
from specsweep.orchestrator.engines.hf_server.wire import Answer, Counters, Refusal, read_request

HF = ("engine=hf", "target=tiny", "draft_length=3", "batch_size=2")
VLLM = dialect("vllm")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that has everything, as far as planning looks at it."""
    return install(tmp_path / "all" / hf_env.BUILT, ("torch-2.13.0", "transformers-5.24.0", "ray-2.60.0", "specsweep-0.1.0"), monkeypatch)


def install(home: Path, distributions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Path:
    python = home / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    for distribution in distributions:
        (home / "lib" / "python3.11" / "site-packages" / f"{distribution}.dist-info").mkdir(parents=True)
    monkeypatch.setenv("SPECSWEEP_ENGINES", str(home.parent))
    monkeypatch.setattr(hf_env.sys, "executable", "/nowhere/python")  # ours, without torch
    hf_env.found.cache_clear()
    return python


def settings(*overrides: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(spec(*HF, *overrides).files["server.json"])
    return found


def test_replicas_are_the_batch_limit_and_share_the_cores() -> None:
    found = settings("drafter=none", "engine.max_batch=4", "engine.threads=8")
    assert (found["replicas"], found["threads"], found["drafter"]["length"]) == (4, 2, 0)
    assert settings("drafter=none", "engine.max_batch=4", "engine.threads=2")["threads"] == 1


@pytest.mark.parametrize(
    ("drafter", "wanted"),
    [
        ("tiny", {"method": "draft_model", "length": 3, "weights": {"name": "/m/drafter"}}),
        ("medusa", {"method": "medusa", "length": 3, "weights": {"name": "/m/drafter"}}),
        ("ngram", {"method": "ngram", "length": 3, "match_size": 4, "match_size_min": 4, "weights": {}}),
    ],
)
def test_each_drafter_in_the_servers_words(drafter: str, wanted: dict[str, Any]) -> None:
    model = ("drafter.model={source: package_data, file: tiny_pair/medusa}",) if drafter == "medusa" else ()
    assert settings(f"drafter={drafter}", *model)["drafter"] == wanted


def test_it_starts_in_the_environment_that_was_built_and_arms_agree_but_for_the_drafter(environment: Path) -> None:
    one, other = spec(*HF, "drafter=tiny"), spec(*HF, "drafter=none")
    assert (one.argv[0], one.version) == (str(environment), "5.24.0")
    assert one.flags == other.flags
    assert one.drafter_flags["sha256"] == "bb"
    assert "/m/" not in str(one.flags) + str(one.drafter_flags)


def test_files_of_this_machine_need_no_network_and_the_hub_does() -> None:
    assert spec(*HF, "drafter=none").env["HF_HUB_OFFLINE"] == "1"
    hub = "target.model={source: hub, repo: a/b, revision: main}"
    found = spec("engine=hf", "target=tiny", "drafter=none", "batch_size=1", hub)
    assert "HF_HUB_OFFLINE" not in found.env
    assert json.loads(found.files["server.json"])["target"] == {"name": "a/b", "revision": "main"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("drafter=none", "batch_size=3"), "engine.max_batch=2"),
        (("drafter=none", "engine.dtype=fp8"), "engine.dtype=fp8"),
        (("drafter=none", "target.gpus=4"), "target.gpus=4 and engine.max_batch=2"),
        (("drafter=none", "target.tensor_parallel=2"), "target.tensor_parallel=2"),
        (("drafter=tiny_medusa", "draft_length=5"), "has 4 Medusa heads"),
        (("drafter=ngram", "drafter.match_size_min=9"), "drafter.match_size_min=9"),
        (("drafter=mtp",), "has no drafter method 'mtp'"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_field(overrides: tuple[str, ...], words: str) -> None:
    assert words in refused(*HF, *overrides)


def test_without_torch_it_says_so_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECSWEEP_ENGINES", str(tmp_path))
    said = LAUNCHER.missing({}) or ""
    assert "needs torch" in said
    assert "make engines" in said
    assert "specsweep[hf]" in said
    assert said in warned(*HF, "drafter=none")


def test_what_is_declared_and_not_there_is_told() -> None:
    assert "/nowhere/bin/python does not exist" in warned(*HF, "drafter=none", "engine.python=/nowhere/bin/python")
    assert "has transformers 5.24.0" in warned(*HF, "drafter=none", "engine.version=5.0.0")


@pytest.mark.parametrize(("folder", "right"), [(hf_env.HERE, True), (Path("/other/check out"), False)])
def test_an_environment_that_runs_the_code_of_another_checkout_is_not_taken(environment: Path, folder: Path, right: bool) -> None:
    info = environment.parent.parent / "lib" / "python3.11" / "site-packages" / "specsweep-0.1.0.dist-info"
    (info / "direct_url.json").write_text(json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}}))
    told = LAUNCHER.missing({})
    assert told is None if right else told is not None and str(folder) in told and "make engines" in told


def test_an_environment_without_a_part_of_it_names_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "bare" / hf_env.BUILT, ("torch-2.13.0", "transformers-5.24.0"), monkeypatch)
    assert "no ray and no specsweep in the environment" in (LAUNCHER.missing({}) or "")


@pytest.mark.parametrize(
    ("new", "left", "wanted"),
    [
        ((5, 6, 7), 9, ((5, 6, 7), "")),
        ((5, 6, 7), 3, ((5, 6, 7), "length")),
        ((5, 6, 7), 2, ((5, 6), "length")),
        ((5, 0, 7), 9, ((5, 0), "stop")),
        ((5, 6, 0), 2, ((5, 6), "length")),
    ],
)
def test_an_answer_ends_with_its_first_end_token_or_at_the_cap(new: tuple[int, ...], left: int, wanted: tuple[Any, str]) -> None:
    assert cut(new, left, frozenset({0})) == wanted


def test_the_tiny_heads_are_what_their_drafter_file_and_their_config_say() -> None:
    folder = Path(__file__).parents[1] / "tiny_pair"
    config, target = (json.loads((folder / name / "config.json").read_text()) for name in ("medusa", "target"))
    drafter = yaml.safe_load((Path(specsweep.sweeps.__path__[0]) / "drafter" / "tiny_medusa.yaml").read_text())
    heads, layers, hidden = config["medusa_num_heads"], config["medusa_num_layers"], target["hidden_size"]
    assert drafter["heads"] == heads
    names = {f"{k}.{i}.linear" for k in range(heads) for i in range(layers)}
    shapes = {name: weight.shape for name, weight in load_file(folder / "medusa" / "model.safetensors").items()}
    assert shapes == {f"{n}.weight": (hidden, hidden) for n in names} | {f"{n}.bias": (hidden,) for n in names}


STEPS = (Step((11,)), Step((12, 13, 14), 3, 2), Step((15,)), Step((16,), 3, 0), Step((17, 18), 3, 3, "length"))  # the last one is cut


def test_the_dialect_reads_every_step_with_its_truth() -> None:
    answer, counters = Answer("cmpl-1", "tiny", 1, n_prompt=5, draft_length=3), Counters(3, 2)
    counters.request(5)
    frames = []
    for t, step in enumerate(STEPS):
        counters.step(step)
        frames.append((t, answer.event(step)))
    frames.append((len(STEPS), answer.last_event()))
    turn = VLLM.read(Exchange(0, 200, [], frames, "complete"), draft_length=3, n_prompt=5)
    assert (turn.outcome, turn.step_state, turn.finish_reason) == ("ok", "exact", "length")
    assert turn.output_ids == [11, 12, 13, 14, 15, 16, 17, 18]
    assert turn.step_tokens == [1, 3, 1, 1, 2]
    assert (turn.srv_accepted_per_step, turn.srv_drafted_per_step) == ([2, 0, 3], [3, 3, 3])
    assert turn.last_cut
    found = VLLM.counters(counters.page())
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (turn.srv_steps, 9, turn.srv_accepted)
    assert list(found.accepted_per_pos) == [2, 2, 1]
    assert (found.prompt_tokens, found.generation_tokens, found.preemptions) == (5, 8, 0)


def test_the_page_tells_running_from_waiting() -> None:
    counters = Counters(0, replicas=2)
    counters.in_flight = 3
    found = VLLM.counters(counters.page())
    assert (found.running, found.waiting, found.drafts) == (2, 1, None)


LIMITS: dict[str, Any] = {"model": "tiny", "vocab_size": 100, "max_model_len": 40}


def test_it_takes_what_the_dialect_sends() -> None:
    body = VLLM.request([1, 2, 99], Asked(max_tokens=8, temperature=0.5, top_p=0.9, top_k=-1, seed=3, ignore_eos=False), model="tiny")
    assert read_request(body, **LIMITS) == ([1, 2, 99], Sampling(8, 0.5, 0.9, -1, 3, False))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "other"}, "model=other: this server has tiny"),
        ({"prompt": [1, 100]}, "token ids from 0 to 99"),
        ({"prompt": []}, "not empty"),
        ({"prompt": "text"}, "prompt: must be a list"),
        ({"prompt": [True]}, "prompt: must be a list"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": 39}, "context is 40"),
        ({"temperature": "hot"}, "temperature=hot"),
        ({"min_p": 0.1}, "min_p=0.1"),
        ({"stream": False}, "stream=true"),
    ],
)
def test_a_request_that_it_cannot_serve_is_refused_with_the_field(changes: dict[str, Any], words: str) -> None:
    asked = {"model": "tiny", "prompt": [1, 2], "max_tokens": 8, "stream": True}
    with pytest.raises(Refusal, match=words.replace("[", r"\[")):
        read_request(json.dumps(asked | changes).encode(), **LIMITS)
