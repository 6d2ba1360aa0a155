"""Each rule: a config that breaks it, the reason that a person reads, and the same config put right."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_samples import plan_of, write_groups

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.rules import RULES

ATTACH = ("cluster=attach", "endpoint=http://h:1")
LEARNS = "method: ngram\nstateful: true\nmatch_size: 3\n"
OTHER = "method: suffix\nstateful: false\n"

CASES = [
    ("engine_only_attached", ["engine=openai_chat"], ["engine=openai_chat", *ATTACH], ["openai_chat", "cluster=attach endpoint="]),
    ("engine_has_drafter", ["drafter=other"], ["drafter=ngram"], ["llamacpp", "'suffix'", "draft_model, eagle3, mtp, ngram, none"]),
    ("draft_length_positive", ["drafter=ngram", "draft_length=0"], ["drafter=ngram", "draft_length=1"], ["draft_length=0", "drafter=none"]),
    ("target_has_model", ["target.model=null"], ["target=tiny"], ["smollm2-135m", "target.model"]),
    ("drafter_has_model", ["drafter=draft_model"], ["drafter=draft_model", "target=tiny"], ["smollm2-135m", "drafter.model"]),
    ("target_has_mtp", ["drafter=mtp", "target=tiny"], ["drafter=mtp", "target=tiny_mtp"], ["tiny", "target.mtp_predict"]),
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
    ("draft_length_limit", ["drafter=ngram", "draft_length=65"], ["drafter=ngram", "draft_length=64"], ["64", "65"]),
]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return write_groups(tmp_path, {"drafter/learns": LEARNS, "drafter/other": OTHER})


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
