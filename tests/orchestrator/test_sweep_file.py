"""Sweep files of several grids: what they expand to, what wins, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_samples import axis, ids, plan_of, write_groups

from specsweep.orchestrator.config import compose
from specsweep.orchestrator.errors import ConfigError

BATCHES = st.lists(st.integers(1, 20), min_size=1, max_size=3, unique=True)
ARMS = st.lists(st.sampled_from(["none", "ngram", "draft_model"]), min_size=1, max_size=3, unique=True)


def sweeps(folder: Path, **files: Mapping[str, Any]) -> tuple[Path]:
    return (write_groups(folder, {f"sweep/{name}": json.dumps(content) for name, content in files.items()}),)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(ARMS, BATCHES), min_size=1, max_size=3))
def test_parts_are_the_union_of_their_grids(tmp_path_factory: pytest.TempPathFactory, grids: list[tuple[list[str], list[int]]]) -> None:
    top = {"set": {"workload.osl": 16}, "axes": {"target": "tiny", "draft_length": [2, 3]}}
    parts = [{"axes": {"drafter": arms, "batch_size": sizes}} for arms, sizes in grids]
    plan = plan_of("sweep=many", dirs=sweeps(tmp_path_factory.mktemp("groups"), many={**top, "parts": parts}))
    each = [
        plan_of("target=tiny", "draft_length=2,3", "workload.osl=16", f"drafter={','.join(a)}", f"batch_size={','.join(map(str, b))}")
        for a, b in grids
    ]
    assert ids(plan) == set().union(*map(ids, each))
    assert len(plan.points) == len(ids(plan))
    assert {p.config["name"] for p in plan.points} == {"many"}


def test_a_part_finds_its_baseline_in_another(tmp_path: Path) -> None:
    parts = [{"axes": {"drafter": "none"}}, {"axes": {"drafter": "ngram", "draft_length": [2, 4]}}]
    plan = plan_of("sweep=two", dirs=sweeps(tmp_path, two={"axes": {"batch_size": [1, 2]}, "parts": parts}))
    alone = {p.axes["batch_size"]: p.point_id for p in plan.points if p.is_baseline}
    assert [p.baseline_id for p in plan.points if not p.is_baseline] == [
        alone[p.axes["batch_size"]] for p in plan.points if not p.is_baseline
    ]
    assert plan.warnings == ()


def test_the_outer_wins_and_parts_refine_the_top(tmp_path: Path) -> None:
    dirs = sweeps(
        tmp_path,
        inner={"axes": {"batch_size": [1, 2], "isl": 64}, "set": {"workload.osl": 8}},
        outer={"include": ["inner"], "axes": {"batch_size": 4}, "set": {"seed": 3}, "parts": [{"axes": {"batch_size": 8}}]},
    )
    found = plan_of("sweep=outer", dirs=dirs).points
    assert sorted((p.axes["batch_size"], p.axes["isl"], p.config["workload"]["osl"], p.config["seed"]) for p in found) == [
        (4, 64, 8, 3),
        (8, 256, 128, 3),
    ]
    assert set(axis(plan_of("sweep=outer", "batch_size=16", "isl=32", dirs=dirs), "batch_size")) == {16}
    assert len(plan_of("sweep=outer", "batch_size=16", "isl=32", "workload.osl=8", dirs=dirs).points) == 1  # now one and the same


def test_dictionaries_merge_from_the_inside_out(tmp_path: Path) -> None:
    dirs = sweeps(
        tmp_path,
        inner={"set": {"engine.args": {"a": 1, "b": 1}}},
        outer={"include": ["inner"], "set": {"engine.args": {"b": 2, "c": 2}}},
    )
    (point,) = plan_of("sweep=outer", "engine.args={c: 3}", dirs=dirs).points
    assert point.config["engine"]["args"] == {"a": 1, "b": 2, "c": 3}


def test_replace_changes_values_of_what_is_included(tmp_path: Path) -> None:
    dirs = sweeps(
        tmp_path,
        inner={"parts": [{"axes": {"drafter": ["none", "draft_model"], "target": "tiny"}}, {"axes": {"drafter": "ngram"}}]},
        outer={"include": ["inner"], "replace": {"drafter": {"draft_model": "tiny"}}},
    )
    assert sorted(axis(plan_of("sweep=outer", dirs=dirs), "drafter")) == ["ngram", "none", "tiny"]


def test_what_differs_between_parts_alone_becomes_an_axis(tmp_path: Path) -> None:
    """Else two releases of an engine would read as two measurements of one cell."""
    parts = [{"set": {"engine.image": "rc1"}}, {"set": {"engine.image": "rc7", "workload.osl": 16}}]
    dirs = sweeps(tmp_path, releases={"set": {"workload.osl": 16}, "parts": parts})
    plan = plan_of("sweep=releases", dirs=dirs)
    assert sorted(p.axes["engine.image"] for p in plan.points) == ["rc1", "rc7"]
    assert "workload.osl" not in plan.points[0].axes
    swept = sweeps(tmp_path, mixed={"parts": [{"axes": {"drafter": "ngram", "drafter.match_size": [3, 5]}}, {"axes": {"drafter": "none"}}]})
    sizes = {(p.axes["drafter"], p.axes["drafter.match_size"]) for p in plan_of("sweep=mixed", dirs=swept).points}
    assert sizes == {("ngram", 3), ("ngram", 5), ("none", None)}


def test_an_override_must_fit_some_part_and_not_every_part(tmp_path: Path) -> None:
    dirs = sweeps(tmp_path, two={"parts": [{"axes": {"drafter": "ngram"}}, {"axes": {"drafter": "draft_model", "target": "tiny"}}]})
    plan = plan_of("sweep=two", "drafter.match_size=6", dirs=dirs)
    assert axis(plan, "drafter") == ["ngram"]
    assert [d.rule for d in plan.dropped] == ["no_such_key"]
    with pytest.raises(ConfigError, match=r"drafter\.match_sise"):
        plan_of("sweep=two", "drafter.match_sise=6", dirs=dirs)


def test_a_path_that_only_the_user_can_give_is_asked_for_by_its_key(tmp_path: Path) -> None:
    head = "defaults: [eagle3, _self_]\nmodel: {source: path, path: '${heads}/trained_4k'}\n"
    write_groups(tmp_path, {"drafter/mine": head})
    with pytest.raises(ConfigError, match=r"drafter\.model\.path=\$\{heads\}/trained_4k: heads is not set; give it with heads=…"):
        plan_of("target=tiny", "engine=sim", "drafter=mine", dirs=(tmp_path,))
    plan = plan_of("target=tiny", "engine=sim", "drafter=none,mine", dirs=(tmp_path,))
    assert [(d.axes["drafter"], d.rule) for d in plan.dropped] == [("mine", "not_set")]
    found = plan_of("target=tiny", "engine=sim", "drafter=mine", "heads=/models", dirs=(tmp_path,)).points
    assert [p.config["drafter"]["model"]["path"] for p in found] == ["/models/trained_4k"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"x": {"include": ["quickstrt"]}}, ["sweep/x.yaml: include", "'quickstart'"]),
        ({"x": {"include": "quickstart"}}, ["sweep/x.yaml: include is a list"]),
        ({"x": {"include": [3]}}, ["sweep/x.yaml", "3"]),
        ({"x": {"include": ["x"]}}, ["sweep/x.yaml: include: x", "itself"]),
        ({"x": {"include": ["y"]}, "y": {"include": ["x"]}}, ["sweep/y.yaml: include: x", "x → y → x"]),
        ({"x": {"parts": {"axes": {}}}}, ["sweep/x.yaml: parts is a list"]),
        ({"x": {"parts": [{"axis": {}}]}}, ["sweep/x.yaml: part 1", "'axes'"]),
        ({"x": {"parts": [{"axes": [1]}]}}, ["sweep/x.yaml: part 1", "mapping"]),
        ({"x": {"replace": {"engine": {"a": "b"}}}}, ["sweep/x.yaml: replace", "include names nothing"]),
        ({"x": {"include": ["smoke"], "replace": {"engine": {"trtllm": "sim"}}}}, ["sweep/x.yaml: replace.engine.trtllm"]),
        ({"x": {"include": ["smoke"], "replace": {"engine": "sim"}}}, ["sweep/x.yaml: replace.engine", "{old: new}"]),
        ({"x": {"parts": [{"set": {"store": "a"}}, {"set": {"store": "b"}}]}}, ["store: b in sweep/x.yaml, part 2 and a in", "part 1"]),
        ({"x": {"parts": [{}, {"set": {"cluster": "attach", "endpoint": "http://h:1"}}]}}, ["cluster: attach", "part 2", "whole sweep"]),
        ({"x": {}}, ["sweep/x.yaml holds no keys"]),
    ],
)
def test_refused_naming_file_part_and_key(tmp_path: Path, files: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of("sweep=x", dirs=sweeps(tmp_path, **files))
    assert [w for w in words if w not in caught.value.message] == []


def test_what_is_shared_may_be_set_once_for_all_parts(tmp_path: Path) -> None:
    dirs = sweeps(tmp_path, x={"set": {"store": "a"}, "parts": [{"axes": {"batch_size": 1}}, {"set": {"store": "a"}}]})
    assert compose(["sweep=x"], dirs).base["store"] == "a"
    assert compose(["sweep=x", "store=b"], dirs).base["store"] == "b"
