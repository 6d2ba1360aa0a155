"""Names of points: equal for equal wishes, different for different ones, and the same next year."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_samples import ids, only, plan_of, write_groups

from specsweep.client.trace import Sampling
from specsweep.orchestrator import identity
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.identity import Contents
from specsweep.orchestrator.plan import make_plan

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_canonical_json_is_json_of_an_equal_value(value: Any) -> None:
    text = identity.canonical_json(value)
    assert json.loads(text) == value
    assert identity.canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(), JSON, min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    assert identity.canonical_json(dict(reversed(value.items()))) == identity.canonical_json(value)


def test_numbers_are_their_value_and_nothing_else_is() -> None:
    texts = {identity.canonical_json(v) for v in (0, 0.0, -0.0)}
    assert texts == {"0"}
    assert identity.canonical_json(2**53 + 1) == "9007199254740993"
    different = [1, True, "1", None, [1], {"1": 1}, 1.5, "1.0", "", [], {}]
    assert len({identity.canonical_json(v) for v in different}) == len(different)
    assert identity.canonical_json({"ü": (1, 2)}) == '{"\\u00fc":[1,2]}'


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf]])
def test_what_is_not_a_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="identity"):
        identity.canonical_json(value)


@pytest.mark.parametrize("value", [Path("x"), {1: 2}, {1, 2}, b"x"])
def test_what_json_has_no_word_for_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        identity.canonical_json(value)


def test_ids_are_64_hex_digits_and_differ() -> None:
    assert identity.env_id({"driver": "570"}) == identity.digest('{"driver":"570"}')
    assert len({identity.env_id({"driver": v, "cores": 2}) for v in ("570", "571")}) == 2


# -- points


def point_id(*overrides: str) -> str:
    return only(plan_of(*overrides)).point_id


BASE = ("drafter=ngram",)


@pytest.mark.parametrize(
    "override",
    [
        "engine.version=0.10",
        "engine.args.flash_attn=true",
        "engine.max_batch=16",
        "engine.threads=1",
        "target=tiny",
        "target.model.sha256=00",
        "target.model.convert=null",
        "+target.reasoning_effort=high",
        "drafter=none",
        "drafter.match_size=9",
        "drafter.stateful=true",
        "draft_length=5",
        "batch_size=2",
        "isl=128",
        "workload=mixed",
        "workload.padding=x",
        "workload.osl=16",
        "workload.top_p=0.9",
        "workload.top_k=5",
        "workload.ignore_eos=true",
        "temperature=0.5",
        "seed=1",
        "repeat=2",
        "hardware=h100",
        "measure.requests_per_slot=5",
    ],
)
def test_what_is_measured_names_the_point(override: str) -> None:
    assert point_id(*BASE, override) != point_id(*BASE)


@pytest.mark.parametrize(
    "override",
    [
        "name=other",
        "store=/elsewhere",
        "cache=/elsewhere",
        "record_raw=true",
        "rerun=all",
        "measure.stall_seconds=5",
        "measure.quiet_seconds=0",
        "measure.client_processes=3",
        "tracking.enabled=false",
        "tracking.uri=http://mlflow",
        "engine.port=8080",
        "engine.startup_timeout_s=5",
        "engine.cost.start_s=99",
        "target.cost.step_ms=99",
        "target.name=alias",
        "target.max_model_len=4096",
        "target.vocab_size=null",
        "+target.note=null",
        "+engine.more={}",
        "temperature=0",
        "temperature=-0.0",
        "engine.max_batch=8",  # what the ladder gives
    ],
)
def test_what_is_not_measured_does_not(override: str) -> None:
    assert point_id(*BASE, override) == point_id(*BASE)


def test_where_a_model_lies_is_no_part_but_its_content_is(tmp_path: Path) -> None:
    def hashed(spec: Any) -> str:
        return identity.digest(Path(spec["path"]).read_text())

    def planned(folder: str, text: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "m.gguf").write_text(text)
        mine = write_groups(
            tmp_path / f"{folder}-groups",
            {f"target/{folder}": f"model: {{source: path, path: {tmp_path / folder / 'm.gguf'}, convert: f16}}\nvocab_size: 9\n"},
        )
        return only(make_plan([f"target={folder}"], [mine], contents=Contents(hashed, lambda recipe, isl: "w"))).point_id

    assert planned("here", "weights") == planned("there", "weights")
    assert planned("here", "weights") != planned("there", "other weights")


def test_a_model_that_nobody_describes_is_known_by_its_name(tmp_path: Path) -> None:
    mine = write_groups(tmp_path, {"target/a": "model: null\n", "target/b": "model: null\n"})
    attach = ("engine=openai_chat", "cluster=attach", "endpoint=http://h:1")
    names = {plan_of(f"target={t}", *attach, dirs=(mine,)).points[0].point_id for t in ("a", "b")}
    assert len(names) == 2


def test_the_endpoint_is_a_place() -> None:
    attach = ("engine=vllm", "cluster=attach")
    assert point_id(*attach, "endpoint=http://a:1") == point_id(*attach, "endpoint=http://b:2", "cluster.token_env=TOKEN")


def test_point_id_is_the_hash_of_what_is_declared() -> None:
    plan = plan_of("sweep=quickstart", "temperature=0,0.5", "repeats=2", "batch_size=1,8,9", "isl=128,256", "hardware='é'")
    assert len(plan.points) == 3 * 3 * 2 * 2 * 2 * 2
    for point in plan.points:
        assert point.point_id == identity.point_id(point.declared)
        assert json.loads(json.dumps(point.declared)) == point.declared


def test_declared_of_a_whole_config_is_what_the_grid_declares() -> None:
    from plan_samples import contents

    for point in plan_of("sweep=quickstart", "batch_size=1,9", "drafter=none,ngram").points:
        assert identity.declared(point.config, contents()) == point.declared


def test_real_models_and_workloads_have_contents() -> None:
    plan = make_plan(["sweep=smoke"], contents=Contents())
    assert len(ids(plan)) == 4
    target, drafter = (plan.points[-1].declared[group]["model"] for group in ("target", "drafter"))
    assert target != drafter
    assert ids(make_plan(["sweep=smoke", "workload=low_entropy"], contents=Contents())).isdisjoint(ids(plan))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("target.model={source:path,path:/nowhere/x.gguf}", "target=tiny.*/nowhere/x.gguf"),
        ("workload.corpus=/nowhere/x.jsonl", "/nowhere/x.jsonl"),
    ],
)
def test_a_missing_file_is_found_out_before_anything_starts(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_plan(["sweep=smoke", override], contents=Contents())


def test_every_sampling_field_is_declared() -> None:
    point = only(plan_of("workload.osl=7", "temperature=0.5", "workload.top_p=0.9", "workload.top_k=3", "seed=4"))
    assert Sampling(**point.declared["sampling"]) == Sampling(7, 0.5, 0.9, 3, 4, False)
    assert point.declared["sampling"] == identity.sampling(point.config)


AXES = {
    "drafter": ["none", "ngram"],
    "draft_length": [1, 4, 8],
    "batch_size": [1, 4, 8, 16, 64],
    "isl": [128, 256],
    "workload": ["low_entropy", "mixed", "high_entropy"],
    "temperature": [0, 0.5],
    "repeat": [1, 2, 3],
}
_grids = st.fixed_dictionaries({axis: st.lists(st.sampled_from(values), min_size=1, unique=True) for axis, values in AXES.items()})


def overrides(grid: dict[str, list[Any]]) -> list[str]:
    return [f"{axis}={','.join(map(str, values))}" for axis, values in grid.items()]


@settings(max_examples=6, deadline=None)
@given(_grids, _grids)
def test_growing_a_sweep_never_renames_a_point(small: dict[str, list[Any]], more: dict[str, list[Any]]) -> None:
    grown = {axis: list(dict.fromkeys(more[axis] + small[axis])) for axis in AXES}  # new values in front, as in a rewritten sweep
    before, after = plan_of(*overrides(small)), plan_of(*overrides(grown))
    assert ids(before) <= ids(after)
    renamed = {p.point_id: dict(p.axes) for p in after.points}
    assert all(renamed[p.point_id] == p.axes for p in before.points)


def test_declared_can_be_read() -> None:
    point = next(p for p in plan_of("sweep=quickstart").points if p.short_id == PINNED["ngram 4 1 low_entropy"])
    assert {k: v for k, v in point.declared.items() if k != "workload"} == {
        "batch_size": 1,
        "draft_length": 4,
        "drafter": {"method": "ngram", "stateful": False, "match_size": 4},
        "engine": {"name": "llamacpp", "version": "2026.10.11549", "dialect": "llamacpp", "max_batch": 8},
        "hardware": None,
        "isl": 80,
        "repeat": 1,
        "requests_per_slot": 4,
        "sampling": {"max_tokens": 32, "temperature": 0.0, "top_p": 1.0, "top_k": -1, "seed": 0, "ignore_eos": False},
        "schema_version": 1,
        "target": {
            "model": "model b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53+f16",
            "tensor_parallel": 1,
            "gpus": 0,
        },
    }


def test_pinned() -> None:
    """If this fails, stores that exist would measure everything again. A field that is new and null by default must not do that;
    a change of what is measured (a corpus, a default) must. Only then, put in the new values."""
    plan = plan_of("sweep=quickstart")
    shown = {" ".join(str(p.axes[a]) for a in ("drafter", "draft_length", "batch_size", "workload")): p.short_id for p in plan.points}
    assert {name: shown[name] for name in PINNED} == PINNED
    assert identity.digest(" ".join(sorted(ids(plan))))[:16] == PINNED_ALL


PINNED = {
    "none None 1 low_entropy": "1da399d0cffa7775",
    "ngram 4 1 low_entropy": "f9f074884c1a83f7",
    "ngram 8 8 high_entropy": "a9e27ffafebed5ae",
}
PINNED_ALL = "945baad094ec3e42"
