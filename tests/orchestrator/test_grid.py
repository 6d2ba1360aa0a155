"""The grid: what becomes a point, what is collapsed, what is lost and whether it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_samples import axis, ids, only, plan_of, write_groups

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.grid import default_max_batch
from specsweep.orchestrator.points import AXES, Dropped, Plan

ATTACH = ("engine=vllm", "cluster=attach", "endpoint=http://h:1")


def dropped(plan: Plan, rule: str) -> list[Dropped]:
    return [d for d in plan.dropped if d.rule == rule]


def test_none_appears_once_whatever_the_draft_lengths() -> None:
    plan = plan_of("drafter=none,ngram", "draft_length=range(1,6)", "drafter.match_size=3,4", "batch_size=1,2")
    assert axis(plan, "drafter").count("none") == 2  # once a batch size
    assert axis(plan, "drafter").count("ngram") == 2 * 5 * 2
    (line,) = plan.dropped
    assert line.axes == {"drafter": "none", "draft_length": [1, 2, 3, 4, 5], "drafter.match_size": [3, 4]}
    assert {p.axes["drafter.match_size"] for p in plan.points if p.is_baseline} == {None}


@settings(max_examples=10, deadline=None)
@given(
    st.sets(st.sampled_from(["ngram", "draft_model", "tiny"])),
    st.lists(st.integers(0, 70), min_size=1, max_size=3, unique=True),
    st.sets(st.integers(2, 40), max_size=2),
    st.sets(st.sampled_from([8000, 9000])),
)
def test_every_cell_is_a_point_or_is_told(drafters: set[str], lengths: list[int], batches: set[int], isls: set[int]) -> None:
    def swept(key: str, *values: object) -> str:
        return f"{key}={','.join(map(str, values))}"

    plan = plan_of(
        swept("drafter", "none", *drafters),
        swept("draft_length", *lengths),
        swept("batch_size", 1, *batches),
        swept("isl", 128, *isls),
        "engine.max_batch=16",
    )
    cells = (1 + len(batches)) * (1 + len(isls)) * (1 + len(drafters) * len(lengths))
    lost = [d for d in plan.dropped if d.rule != "none_has_no_draft"]
    assert len(plan.points) + len(lost) == cells
    assert all(d.reason for d in lost)
    assert len(ids(plan)) == len(plan.points)


def test_axes_hold_every_name_in_declared_order_and_extra_axes_last() -> None:
    point = only(plan_of("workload.padding=please", "drafter=ngram"))
    assert tuple(point.axes) == AXES
    plan = plan_of("workload.padding=a,b", "drafter=ngram", "+engine.args.x=1,2")
    assert tuple(plan.points[0].axes) == (*AXES, "workload.padding", "engine.args.x")
    assert {(p.axes["workload.padding"], p.config["workload"]["padding"]) for p in plan.points} == {("a", "a"), ("b", "b")}
    assert len(ids(plan)) == 4


def test_config_of_a_point_is_complete() -> None:
    config = only(plan_of("drafter=ngram", "batch_size=9", "draft_length=3", "isl=64", "temperature=0.5", "repeat=2")).config
    assert {k: config[k] for k in ("batch_size", "draft_length", "isl", "temperature", "repeat")} == {
        "batch_size": 9,
        "draft_length": 3,
        "isl": 64,
        "temperature": 0.5,
        "repeat": 2,
    }
    assert config["engine"]["max_batch"] == 32
    assert config["measure"]["stall_seconds"] == 60.0
    assert [config[g]["name"] for g in ("engine", "target", "drafter", "workload", "cluster")] == [
        "llamacpp",
        "smollm2-135m",
        "ngram",
        "low_entropy",
        "local",
    ]


@given(st.integers(1, 100_000))
def test_max_batch_holds_the_batch_and_is_round(batch_size: int) -> None:
    size = default_max_batch(batch_size)
    assert batch_size <= size <= max(8, batch_size * 4)
    assert size & (size - 1) == 0


def test_max_batch_depends_on_the_point_alone() -> None:
    small = plan_of("batch_size=1,4,8")
    grown = plan_of("batch_size=1,4,8,16")
    assert {p.config["engine"]["max_batch"] for p in small.points} == {8}
    assert ids(small) < ids(grown)
    assert len(grown.sessions) == 2


def test_a_key_that_only_some_options_have_keeps_those_and_tells_of_the_others() -> None:
    for value in ("3,4", "3"):  # swept or not
        plan = plan_of("target=tiny", "drafter=none,ngram,draft_model", f"drafter.match_size={value}", "batch_size=1,2")
        assert set(axis(plan, "drafter")) == {"none", "ngram"}
        lost = dropped(plan, "no_such_key")
        assert len(lost) == 2 * len(value.split(","))
        assert {d.axes["drafter"] for d in lost} == {"draft_model"}
        assert all("draft_model" in d.reason and "match_size" in d.reason for d in lost)


def test_a_key_of_one_engine_only(tmp_path: Path) -> None:
    mine = write_groups(tmp_path, {"engine/other": "defaults: [llamacpp, _self_]\nspecial: 1\n"})
    plan = plan_of("engine=llamacpp,other", "engine.special=1,2", dirs=(mine,))
    assert axis(plan, "engine") == ["other", "other"]
    assert [d.axes["engine"] for d in dropped(plan, "no_such_key")] == ["llamacpp", "llamacpp"]


def test_a_key_that_no_option_has_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="'match_size'"):
        plan_of("drafter=none,ngram", "drafter.matchsize=2,3")


def test_settings_of_drafter_none_are_not_ignored_in_silence() -> None:
    with pytest.raises(ConfigError, match="only drafter is none"):
        plan_of("drafter=none", "drafter.match_size=3")


def test_a_sweep_can_be_narrowed_to_none_although_its_file_sets_drafter_keys(tmp_path: Path) -> None:
    mine = write_groups(tmp_path, {"sweep/s": "axes: {drafter: [none, ngram], drafter.match_size: [2, 3]}\n"})
    assert len(plan_of("sweep=s", dirs=(mine,)).points) == 3
    plan = plan_of("sweep=s", "drafter=none", dirs=(mine,))
    assert only(plan).is_baseline
    assert plan.dropped[0].axes["drafter.match_size"] == [2, 3]


def test_cells_that_name_one_point_are_one(tmp_path: Path) -> None:
    mine = write_groups(tmp_path, {"drafter/again": "defaults: [ngram, _self_]\n"})
    plan = plan_of("drafter=ngram,again", dirs=(mine,))
    assert axis(plan, "drafter") == ["ngram"]
    (lost,) = dropped(plan, "same_point")
    assert "drafter=again" in lost.reason
    assert "drafter=ngram" in lost.reason
    assert axis(plan_of("batch_size=2,2,1"), "batch_size") == [2, 1]


def test_repeats_are_short_for_the_axis() -> None:
    assert ids(plan_of("repeats=3")) == ids(plan_of("repeat=1,2,3"))
    assert axis(plan_of("repeats=2"), "repeat") == [1, 2]
    plan = plan_of("repeat=3")
    assert axis(plan, "repeat") == [3]
    assert any("repeats=3" in w for w in plan.warnings)


def test_interpolation_over_groups() -> None:
    plan = plan_of("target=tiny,smollm2-135m", "drafter=draft_model")
    assert axis(plan, "target") == ["tiny"]
    assert plan.points[0].config["drafter"]["model"] == plan.points[0].config["target"]["draft_model"]
    (lost,) = dropped(plan, "drafter_has_model")
    assert "smollm2-135m" in lost.reason


def test_an_attached_server_is_one_server() -> None:
    plan = plan_of(*ATTACH, "drafter=ngram", "draft_length=3,5", "batch_size=1,64")
    assert set(axis(plan, "draft_length")) == {3}
    assert len(plan.sessions) == 1  # its batch limit is not ours to set
    assert plan.points[0].config["engine"]["max_batch"] is None
    assert {d.axes["draft_length"] for d in dropped(plan, "one_server")} == {5}
    assert "draft_length=3" in dropped(plan, "one_server")[0].reason


# -- baselines


def test_each_point_knows_the_none_arm_that_agrees_in_everything_else() -> None:
    plan = plan_of("sweep=quickstart", "repeats=2", "temperature=0,0.5", "isl=128,256", "batch_size=1,16")
    by_id = {p.point_id: p for p in plan.points}
    arms = [p for p in plan.points if not p.is_baseline]
    assert arms
    for point in arms:
        baseline = by_id[point.baseline_id]
        assert baseline.is_baseline
        assert baseline.baseline_id is None
        same = [a for a in AXES if a not in ("drafter", "draft_length")]
        assert [baseline.axes[a] for a in same] == [point.axes[a] for a in same]
        assert baseline.config["engine"] == point.config["engine"]


def test_points_without_a_baseline_are_told() -> None:
    plan = plan_of("drafter=ngram")
    assert only(plan).baseline_id is None
    assert any("no speedups" in w for w in plan.warnings)
    assert not plan_of("drafter=none").warnings


def test_attached_arms_point_to_a_baseline_measured_in_another_run() -> None:
    baseline = only(plan_of(*ATTACH, "drafter=none"))
    arm = only(plan_of(*ATTACH, "drafter=ngram", "draft_length=3"))
    assert arm.baseline_id == baseline.point_id


def test_grids_that_cannot_be_meant_are_refused_before_they_are_built() -> None:
    with pytest.raises(ConfigError, match=r"cells \(.*batch_size 5,000.*\)|batch_size 5000"):
        plan_of("batch_size=range(1,5001)", "isl=range(1,1001)")


def test_no_point_left_says_why() -> None:
    with pytest.raises(ConfigError, match="cluster=attach"):
        plan_of("engine=openai_chat")
