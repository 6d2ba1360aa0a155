"""Each rule: a config that breaks it, the reason that a person reads, and the same config put right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_samples import plan_of, write_groups

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.rules import RULES

ATTACH = ("cluster=attach", "endpoint=http://h:1")
LEARNS = "method: ngram\nstateful: true\nmatch_size: 3\n"
OTHER = "method: suffix\nstateful: false\n"

CAPTURE = ["capture=routing", "engine=sglang", "target=qwen3-235b", "workload=mixed", "workload.prompts=6", "workload.osl=1"]
LOGPROBS = ["capture=logprobs", "target=tiny", "workload=mixed", "workload.prompts=6", "isl=64"]
SIM = ["capture=routing", "engine=sim", "engine.dialect=sglang", "engine.preset=gpt-oss-120b", "target=tiny", "workload=mixed"]

KUBERNETES = ["engine=sim", "cluster=kubernetes"]
PODS = [*KUBERNETES, "cluster.image=r/specsweep:1"]
CASES = [
    ("engine_only_attached", ["engine=openai_chat"], ["engine=openai_chat", *ATTACH], ["openai_chat", "cluster=attach endpoint="]),
    ("engine_has_drafter", ["drafter=other"], ["drafter=ngram"], ["llamacpp", "'suffix'", "draft_model, eagle3, mtp, ngram, none"]),
    ("draft_length_positive", ["drafter=ngram", "draft_length=0"], ["drafter=ngram", "draft_length=1"], ["draft_length=0", "drafter=none"]),
    ("target_has_model", ["target.model=null"], ["target=tiny"], ["smollm2-135m", "target.model"]),
    ("drafter_has_model", ["drafter=draft_model"], ["drafter=draft_model", "target=tiny"], ["smollm2-135m", "drafter.model"]),
    ("target_has_mtp", ["drafter=mtp", "target=tiny"], ["drafter=mtp", "target=tiny_mtp"], ["tiny", "target.mtp_predict"]),
    (
        "drafter_is_what_it_says",
        ["target=tiny", "drafter=draft_model", "drafter.model={source: package_data, file: tiny_pair/eagle3}"],
        ["target=tiny", "drafter=draft_model"],
        ["method draft_model", "a whole language model", "an EAGLE3 head", "LlamaForCausalLMEagle3"],
    ),
    ("same_vocabulary", ["drafter=tiny"], ["drafter=tiny", "target=tiny"], ["4096", "49152"]),
    ("batch_fits_engine", ["batch_size=9", "engine.max_batch=8"], ["batch_size=9"], ["batch_size=9", "engine.max_batch=8"]),
    ("fits_context", ["isl=8065"], ["isl=8064"], ["isl=8065", "osl=128", "8193", "max_model_len=8192"]),
    (
        "fits_context",
        ["drafter=ngram", "isl=8057", "draft_length=8"],
        ["drafter=ngram", "isl=8057", "draft_length=7"],
        ["isl=8057", "osl=128", "draft_length=8", "8193", "max_model_len=8192"],
    ),
    (
        "enough_prompts",
        ["drafter=learns", "batch_size=7"],
        ["drafter=learns", "batch_size=7", "workload.prompts=28"],
        ["batch_size=7", "workload.prompts=28", "24"],
    ),
    (
        "enough_prompts",
        ["drafter=learns", "batch_size=6", "workload.ramp_prompts=5"],
        ["drafter=learns", "batch_size=6", "workload.ramp_prompts=6"],
        ["batch_size=6", "workload.ramp_prompts=6", "5"],
    ),
    (
        "chat_wire_needs_chat",
        ["engine=openai_chat", *ATTACH, "workload.chat=false"],
        ["engine=openai_chat", *ATTACH, "workload.chat=true"],
        ["openai_chat", "chat=false"],
    ),
    ("has_an_image", KUBERNETES, [*KUBERNETES, "cluster.image=r/specsweep:1"], ["cluster.image=REGISTRY/specsweep:TAG"]),
    (
        "has_an_image",
        [*KUBERNETES, "cluster.image=r/specsweep:1", "engine=vllm", "engine.image=null"],
        [*KUBERNETES, "engine=vllm", "engine.image=r/vllm:1"],
        ["engine.image is not set", "engine vllm runs from its image"],
    ),
    (
        "pod_is_right",
        [*PODS, "engine.pod.cpus=3"],
        [*PODS, "engine.pod.cpu=3"],
        ["engine.pod.cpus is not known", "engine.pod.template"],
    ),
    (
        "gpus_fit_the_limit",
        [*PODS, "cluster.gpu_limits={B200: 8}", "cluster.pod.gpu_product=B200", "cluster.pod.gpus=16"],
        [*PODS, "cluster.gpu_limits={B200: 8}", "cluster.pod.gpu_product=B200", "cluster.pod.gpus=8"],
        ["takes 16 GPUs of B200", "cluster.gpu_limits.B200=8"],
    ),
    (
        "fits_context",
        ["workload=talk", "isl=0", "workload.osl=40", "target.max_model_len=99"],
        ["workload=talk", "isl=0", "workload.osl=40", "target.max_model_len=100"],
        ["3 turns of conversation t0", "has 60 tokens", "workload.osl=40", "target.max_model_len=99", "last turn", "talk.jsonl"],
    ),
    (
        "fits_context",
        ["workload=short", "isl=0", "target.max_model_len=1200"],
        ["workload=short", "isl=0", "target.max_model_len=1300"],
        ["prompt p", "1102 tokens at its natural length", "workload.osl=128", "target.max_model_len=1200", "short.jsonl"],
    ),
    (
        "fits_context",
        ["isl=0", "workload=tasks"],
        ["workload=tasks", "isl=0", "target.max_model_len=70000"],
        ["prompt long of", "tasks.jsonl", "asks for max_tokens=65536 itself", "target.max_model_len=8192"],
    ),
    (
        "fits_context",
        ["isl=64", "workload=tasks"],
        ["workload=tasks", "isl=64", "target.max_model_len=70000"],
        ["prompt long of", "its 64 tokens"],
    ),
    (
        "fits_context",
        ["workload=mixed", "isl=64", "target.max_model_len=null", "workload.osl=20000000"],
        ["workload=mixed", "isl=64", "target.max_model_len=null"],
        ["isl=64", "workload.osl=20000000", "10,485,760, the longest context of any model"],
    ),
    (
        "conversations_need_ids",
        ["engine=openai_chat", *ATTACH, "isl=0", "workload=talk"],
        ["engine=openai_chat", *ATTACH, "isl=0", "workload=short"],
        ["workload talk has conversations", "engine openai_chat takes texts", "engine=vllm cluster=attach"],
    ),
    ("capture_engine", [*CAPTURE, "engine=vllm"], CAPTURE, ["vLLM", "lower bound", "engine=sglang"]),
    ("capture_engine", [*CAPTURE, "engine=llamacpp"], CAPTURE, ["llama.cpp has no recorder", "engine=sglang"]),
    ("capture_engine", [*CAPTURE, "engine=hf"], CAPTURE, ["records no experts"]),
    ("capture_engine", [*CAPTURE, "engine=openai_chat", *ATTACH], CAPTURE, ["chat completions say nothing of experts"]),
    ("capture_sim", [*SIM, "engine.dialect=vllm"], SIM, ["engine.dialect=sglang"]),
    ("sim_experts", [*SIM, "engine.preset=tiny"], SIM, ["tiny is dense", "engine.preset", "qwen3-235b"]),
    ("capture_files", [*CAPTURE, *ATTACH], CAPTURE, ["cluster=local"]),
    (
        "capture_experts",
        [*CAPTURE, "target=llama-3.3-70b"],
        CAPTURE,
        ["llama-3.3-70b is dense", "target.experts", "count, per_token, layers"],
    ),
    ("capture_drafts", [*CAPTURE, "drafter=eagle3"], [*CAPTURE, "drafter=eagle3", "workload.osl=8"], ["workload.osl=1", "drafter=none"]),
    (
        "capture_drafts",
        [*CAPTURE, "workload.osl=8", "drafter=eagle3", "engine=trtllm"],
        [*CAPTURE, "workload.osl=8", "drafter=eagle3"],
        ["told apart", "drafter=none"],
    ),
    ("capture_batch", [*CAPTURE, "batch_size=7"], [*CAPTURE, "batch_size=6"], ["batch_size=7", "workload.prompts=7", "there are 6"]),
    (
        "capture_text",
        [*CAPTURE, "workload=short", "isl=1200"],
        [*CAPTURE, "workload=short", "isl=1000"],
        ["workload short", "padding", "isl=1200", "isl=1", "workload.corpus=FILE"],
    ),
    ("logprobs_engine", [*LOGPROBS, "engine=hf"], [*LOGPROBS, "engine=llamacpp"], ["gives no log-probabilities", "engine=vllm"]),
    ("logprobs_engine", [*LOGPROBS, "engine=openai_chat", *ATTACH], [*LOGPROBS, "engine=vllm", *ATTACH], ["without ids", "engine=vllm"]),
    ("logprobs_sim", [*LOGPROBS, "engine=sim", "engine.dialect=sglang"], [*LOGPROBS, "engine=sim"], ["simulator", "engine.dialect=vllm"]),
    (
        "logprobs_target",
        [*LOGPROBS, "drafter=ngram"],
        [*LOGPROBS, "drafter=ngram", "engine=vllm"],
        ["draft token", "ngram", "drafter=none"],
    ),
    ("logprobs_temperature", [*LOGPROBS, "temperature=0.7"], [*LOGPROBS, "temperature=1"], ["temperature=0.7", "temperature=0 ("]),
    (
        "logprobs_temperature",
        [*LOGPROBS, "temperature=1", "workload.top_p=0.9"],
        [*LOGPROBS, "temperature=0", "workload.top_p=0.9"],
        ["workload.top_p=0.9", "workload.top_k=-1", "temperature=0"],
    ),
    ("draft_length_limit", ["drafter=ngram", "draft_length=65"], ["drafter=ngram", "draft_length=64"], ["64", "65"]),
]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    texts = tmp_path / "short.jsonl"
    rows = [{"prompt_id": f"p{i}", "category": "c", "text": f"{i} " + "word " * 1100} for i in range(20)]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    talks = tmp_path / "talk.jsonl"
    said = " word" * 20  # 20 tokens
    talks.write_text("".join(json.dumps(_talk(i, said, said)) + "\n" for i in range(2)))
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "a", "id": "long", "max_tokens": 65536}\n{"prompt": "b"}\n')
    few = "\nprompts: 1\nramp_prompts: 1\norder: as_listed"
    groups = {
        "workload/short": f"defaults: [mixed, _self_]\ncorpus: {texts}\nprompts: 5\n",
        "workload/talk": f"defaults: [mixed, _self_]\ncorpus: {talks}{few}\n",
        "workload/tasks": f"defaults: [mixed, _self_]\ncorpus: {tasks}{few}\n",
    }
    return write_groups(tmp_path, {"drafter/learns": LEARNS, "drafter/other": OTHER, **groups})


def _talk(i: int, *said: str) -> dict[str, object]:
    return {"prompt_id": f"t{i}", "category": "c", "text": f"{i}" + said[0][5:], "turns": list(said)}


def test_a_conversation_that_may_outgrow_the_context_is_measured_with_a_warning(mine: Path) -> None:
    words = ("workload=talk", "isl=0", "workload.osl=40")
    plan = plan_of(*words, "target.max_model_len=100", dirs=(mine,))
    assert len(plan.points) == 1
    assert any("conversation t0 of 3 turns may outgrow target.max_model_len=100" in warning for warning in plan.warnings)
    assert not any("outgrow" in warning for warning in plan_of(*words, "target.max_model_len=180", dirs=(mine,)).warnings)


def test_without_history_each_turn_needs_only_itself(mine: Path) -> None:
    plan = plan_of("workload=talk", "isl=0", "workload.osl=40", "workload.chat=false", "target.max_model_len=60", dirs=(mine,))
    assert not any("outgrow" in warning for warning in plan.warnings)


@pytest.mark.parametrize(("rule", "wrong", "right", "words"), CASES, ids=[f"{c[0]}-{c[1][-1]}" for c in CASES])
def test_rule(rule: str, wrong: list[str], right: list[str], words: list[str], mine: Path) -> None:
    assert plan_of(*right, dirs=(mine,)).dropped == ()
    with pytest.raises(ConfigError) as caught:  # no point is left, and the reason is told
        plan_of(*wrong, dirs=(mine,))
    assert [w for w in words if w not in caught.value.message] == []
    key, _, value = wrong[-1].partition("=")
    if key in ("drafter", "isl", "draft_length") and key == right[-1].partition("=")[0]:
        other = right[-1].partition("=")[2]
        both = plan_of(*wrong[:-1], f"{key}={value},{other}", dirs=(mine,))
        assert {d.rule for d in both.dropped} == {rule}
        assert {str(p.axes[key]) for p in both.points} == {other}


def test_no_rule_goes_without_a_case() -> None:
    assert {r.name for r in RULES} <= {c[0] for c in CASES}
    assert all(r.source for r in RULES)


def test_an_attached_draft_model_need_not_be_described() -> None:
    assert plan_of("engine=vllm", *ATTACH, "drafter=draft_model").dropped == ()


def test_all_that_is_wrong_with_a_cell_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of("isl=9000", "batch_size=9", "engine.max_batch=8")
    assert "isl=9000" in caught.value.message
    assert "batch_size=9" in caught.value.message
