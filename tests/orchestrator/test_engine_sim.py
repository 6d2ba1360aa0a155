"""The simulator as an engine of a sweep: what is planned, what it is started with, what it is marked as."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from launch_samples import refused, spec
from plan_samples import plan_of

from specsweep.client.sim.service_settings import read_service
from specsweep.client.sim.troubles import Troubles, read_troubles
from specsweep.client.sim.truth import prompt_key
from specsweep.client.workload.prompts import Prompt, PromptSet
from specsweep.orchestrator.engines import launcher
from specsweep.orchestrator.session_run import prompt_facts

SIM = ("engine=sim", "target=tiny", "workload=mixed", "isl=128")


def settings(*overrides: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(spec(*SIM, *overrides).files["server.json"])
    return found


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_the_server_can_be_built_from_what_the_launcher_writes(dialect: str) -> None:
    clock = "server" if dialect == "llamacpp" else "client"
    written = settings(f"engine.dialect={dialect}", f"engine.step_clock={clock}", "drafter=eagle3", "draft_length=5", "batch_size=16")
    service = read_service(written)
    assert (service.dialect, service.served.drafter, service.served.draft_length) == (dialect, "eagle3", 5)
    assert (service.limits.max_batch, service.served.model, service.served.vocab_size) == (32, "tiny", 4096)
    assert service.engine().draft_length == 5
    assert service.prompts == Path("prompts.json")


def test_a_head_is_the_one_of_the_drafters_name_else_of_its_method() -> None:
    named = settings("engine.preset=gpt-oss-120b", "drafter=eagle3_lmsys", "draft_length=3", "isl=16k", "workload.osl=64")
    assert (named["head"], named["drafter"]) == ("eagle3_lmsys", "eagle3")
    usual = settings("engine.preset=llama-3.3-70b", "drafter=eagle3_lmsys", "draft_length=3")  # that preset has no such head
    assert "head" not in usual
    al = [read_service(found).arm().acceptance_length("mixed", 32_000, 3) for found in (named, {**named, "head": ""})]
    assert al[0] == pytest.approx(1.22, abs=0.01)
    assert al[1] > 1.5


def test_the_counter_model_and_another_engines_pace_reach_the_server() -> None:
    plain = settings("engine.preset=gpt-oss-120b", "drafter=eagle3", "draft_length=3")
    bent = settings("engine.preset=gpt-oss-120b", "drafter=eagle3", "draft_length=3", "engine.counter=true")
    assert read_service(plain).arm().name == "gpt-oss-120b"
    assert read_service(bent).arm().name == "counter-gpt-oss-120b"
    paces = [
        read_service(settings("engine.preset=gpt-oss-120b", f"engine.dialect={d}")).arm().decode_step_s(8, 100) for d in ("vllm", "trtllm")
    ]
    assert paces[0] > paces[1]


def test_a_trees_width_reaches_the_server() -> None:
    wide = settings("engine.preset=qwen3-235b", "drafter=eagle3", "draft_length=5", "drafter.topk=4")
    narrow = settings("engine.preset=qwen3-235b", "drafter=eagle3", "draft_length=5")
    lengths = [read_service(found).arm().acceptance_length("coding", 300, 5) for found in (wide, narrow)]
    assert lengths[0] > lengths[1] + 0.5


def test_a_preset_follows_the_target_and_can_be_named() -> None:
    assert settings()["model"] == "tiny"
    assert settings("engine.preset=gpt-oss-120b", "drafter=eagle3")["model"] == "gpt-oss-120b"
    assert json.loads(spec("engine=sim", "target=llama-3.3-70b", "isl=1k").files["server.json"])["model"] == "llama-3.3-70b"


def test_a_model_of_ones_own_is_named_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = (Path(__file__).parents[2] / "client/sim/presets/tiny.yaml").read_text()
    file.write_text(text)
    one = spec(*SIM, f"engine.model={file}")
    assert json.loads(one.files["server.json"])["model"] == str(file)
    assert str(tmp_path) not in json.dumps([dict(one.flags), dict(one.drafter_flags)])
    file.write_text(text.replace("gflop_per_token: 0.05", "gflop_per_token: 0.06"))
    assert spec(*SIM, f"engine.model={file}").flags["model_sha256"] != one.flags["model_sha256"]


def test_the_arms_of_a_speedup_agree_but_for_the_drafter() -> None:
    one, other = spec(*SIM), spec(*SIM, "drafter=ngram", "draft_length=4")
    assert one.flags == other.flags
    assert one.drafter_flags != other.drafter_flags


def test_the_config_names_every_trouble_and_asks_for_none() -> None:
    config = plan_of("name=t", *SIM).sessions[0].config
    assert set(config["engine"]["troubles"]) == {field.name for field in dataclasses.fields(Troubles)}
    assert read_troubles(config["engine"]["troubles"]) == Troubles()
    assert settings()["troubles"] == {}


def test_troubles_reach_the_server_and_part_points() -> None:
    assert settings("engine.troubles.stall_share=0.1")["troubles"] == {"stall_share": 0.1}
    plain, troubled = (plan_of("name=t", *SIM, *more).sessions[0].points[0].point_id for more in ((), ("engine.troubles.cut_share=0.2",)))
    assert plain != troubled


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("engine.dialect=openai_chat",), "the simulator speaks vllm, sglang, trtllm, llamacpp"),
        (("engine.dialect=llamacpp",), "set engine.step_clock=server"),
        (("engine.step_clock=server",), "set engine.step_clock=client"),
        (("engine.preset=gpt-5",), "engine.preset=gpt-5 is not known; choose one of deepseek-r1"),
        (("engine.preset=tiny", "engine.model=/x.yaml"), "give one of the two"),
        (("engine.model=/x.yaml",), "/x.yaml"),
        (("engine.step_truth=most",), "engine.step_truth=most: choose one of detailed"),
        (("engine.troubles.stall_share=2",), "engine.troubles.stall_share=2: expected a number of at least 0 and at most 1"),
        (("engine.troubles.stalls=1",), "did you mean 'stall_share'"),
        (("drafter=pard", "drafter.model={source: path, path: /x}"), "drafter='pard' is not described for tiny"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_anything_runs(overrides: tuple[str, ...], words: str) -> None:
    assert words in refused(*SIM, *overrides)


def test_a_drafter_needs_no_model_since_nothing_is_loaded() -> None:
    plan = plan_of("name=t", *SIM, "drafter=eagle3,mtp,ngram,draft_model", "draft_length=3")
    assert len(plan.sessions) == 4
    assert not plan.dropped


def test_it_is_simulated_whatever_the_server_answers() -> None:
    sim = launcher("sim")
    assert sim.facts({})["simulated"] is True
    assert sim.facts({"/sim": {"simulated": False, "model": "tiny"}}) == {"simulated": True, "model": "tiny"}


def test_the_session_tells_the_category_of_every_prompt() -> None:
    def prompt(number: int, category: str, ids: tuple[int, ...]) -> Prompt:
        return Prompt(f"p{number}", category, ids, "", 0)

    sets = [
        PromptSet(main=(prompt(1, "coding", (5, 6, 7)), prompt(2, "qa", ())), ramp=(prompt(3, "math", tuple(range(100))),)),
        PromptSet(main=(prompt(1, "coding", (5, 6, 7)),), ramp=()),
    ]
    coding, math = {"category": "coding", "length_ratio": 1.0}, {"category": "math", "length_ratio": 1.0}
    spec_bench = Prompt("p4", "coding", (1, 2, 3, 4), "", 6, source="SpecBench/MT-Bench")
    assert prompt_facts([PromptSet((spec_bench,), ())]) == {prompt_key((1, 2, 3, 4)): {"category": "specbench/coding", "length_ratio": 1.5}}
    assert prompt_facts(sets) == {prompt_key((5, 6, 7)): coding, prompt_key(range(64)): math}
