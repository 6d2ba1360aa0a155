"""A routing capture in the plan: what it is called, what it is started with, and what it is never compared with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launch_samples import flags, spec, warned
from plan_samples import contents, ids, only, plan_of

from specsweep.orchestrator import identity
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.plan import make_plan

MOE = ("engine=sglang", "target=qwen3-235b", "workload=mixed", "isl=1k")
ONCE = (*MOE, "workload.osl=1")


def test_a_point_that_captures_nothing_is_named_as_if_nothing_could_be_captured() -> None:
    for override in ((), ("capture=none",)):
        point = only(plan_of(*MOE, *override))
        assert "capture" not in point.declared
        assert not point.is_capture
    assert ids(plan_of(*MOE)) == ids(plan_of(*MOE, "capture=none"))


def test_a_capture_is_another_point_and_says_so_among_its_axes() -> None:
    timed, capture = only(plan_of(*ONCE)), only(plan_of(*ONCE, "capture=routing"))
    assert capture.point_id != timed.point_id
    assert capture.point_id == identity.point_id(capture.declared) == identity.point_id(identity.declared(capture.config, contents()))
    assert {**timed.declared, "capture": "routing"} == capture.declared
    assert capture.is_capture
    assert capture.axes["capture"] == "routing", "what lies beside it in one sweep must not take it for the same point"
    assert "capture" not in timed.axes


def test_what_a_target_has_of_experts_names_no_point() -> None:
    assert ids(plan_of(*MOE)) == ids(plan_of(*MOE, "target.experts.count=64"))


def test_a_capture_shares_its_engine_with_captures_only() -> None:
    plan = plan_of(*ONCE, "capture=none,routing", "workload=mixed,high_entropy")
    assert len(plan.sessions) == 2
    assert sorted([p.is_capture for p in s.points] for s in plan.sessions) == [[False, False], [True, True]]
    alone = plan_of(*ONCE, "workload=mixed,high_entropy")
    assert alone.sessions[0].session_id in {s.session_id for s in plan.sessions}, "sessions that are timed keep their names"


def test_a_capture_is_no_baseline_and_has_none() -> None:
    plan = plan_of(*MOE, "capture=none,routing", "drafter=none,eagle3", "draft_length=3", "workload.osl=8")
    by_kind = {(p.is_capture, p.is_baseline): p for p in plan.points}
    assert len(by_kind) == 4
    assert by_kind[False, False].baseline_id == by_kind[False, True].point_id
    assert by_kind[True, False].baseline_id is by_kind[True, True].baseline_id is None
    assert "speedup" not in " ".join(plan_of(*MOE, "capture=routing", "drafter=eagle3", "workload.osl=8").warnings)


def test_sglang_is_started_with_its_recorder_and_without_what_would_falsify_it() -> None:
    found = spec(*ONCE, "capture=routing", "engine.version=0.5.7")
    given = flags(found)
    assert given["expert-distribution-recorder-mode"] == "per_pass"
    assert given["disable-cuda-graph"] is given["disable-overlap-schedule"] is given["disable-shared-experts-fusion"] is True
    assert not any(name.startswith("cuda-graph-max-bs") for name in given)
    assert found.env["SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR"] == "{files}/routing"
    assert found.recorder_files == 8, "one file a rank"
    timed = spec(*ONCE, "engine.version=0.5.7")
    assert not any("expert-dist" in name or name == "disable-cuda-graph" for name in flags(timed))
    assert timed.env == {}
    assert timed.recorder_files == 0


def test_tensorrt_llm_gets_its_window_and_an_engine_start_for_every_point() -> None:
    words = ("engine=trtllm", "target=qwen3-235b", "workload=mixed,high_entropy", "isl=1k", "workload.osl=1")
    plan = plan_of(*words, "capture=routing")
    assert [len(s.points) for s in plan.sessions] == [1, 1]
    assert [len(s.points) for s in plan_of(*words).sessions] == [2]
    found = spec("engine=trtllm", "target=qwen3-235b", "workload=mixed", "isl=1k", "workload.osl=1", "capture=routing")
    assert found.env == {"EXPERT_STATISTIC_ITER_RANGE": "0-4096", "EXPERT_STATISTIC_PATH": "{files}/routing"}
    assert found.recorder_files == 8
    assert spec("engine=trtllm", "target=qwen3-235b", "workload=mixed", "isl=1k").env == {}


def test_what_to_know_of_a_capture_is_warned_of() -> None:
    assert "rejected ones included" in warned(*MOE, "capture=routing", "drafter=eagle3", "workload.osl=8")
    gpt = ("engine=sglang", "target=gpt-oss-120b", "workload=mixed", "isl=1k", "capture=routing", "workload.osl=1")
    assert "engine.moe_backend=triton" in warned(*gpt)
    assert "moe_backend" not in warned(*gpt, "engine.moe_backend=triton")


def test_the_sweep_that_ships_has_random_tokens_and_texts_that_fill_its_bucket() -> None:
    plan = plan_of("sweep=experts")
    assert {p.axes["workload"] for p in plan.points} == {"random", "mixed"}
    assert plan.dropped == ()


def test_texts_that_end_before_the_bucket_are_not_captured(tmp_path: Path) -> None:
    rows = [{"prompt_id": f"p{i}", "category": "c", "text": f"{i} " + "word " * 50} for i in range(40)]
    (tmp_path / "short.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=r"the shortest has 5\d tokens of text, the rest of isl=8000 would be padding"):
        plan_of("sweep=experts", "workload=mixed", f"workload.corpus={tmp_path / 'short.jsonl'}")


def test_a_corpus_that_is_not_there_is_told_like_everywhere() -> None:
    with pytest.raises(ConfigError, match=r"workload\.corpus='/nowhere/texts\.jsonl'"):
        make_plan([*ONCE, "capture=routing", "workload.corpus=/nowhere/texts.jsonl"])


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="capture=experts: must be one of none, routing"):
        plan_of("capture=experts")
