"""Composition of the config tree, sweep files, a user's own groups, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from plan_samples import axis, only, plan_of, write_groups

from specsweep.orchestrator.config import ConfigTree, compose
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.fields import GROUPS

TREE = ConfigTree()
SHIPPED = [(group, option) for group in GROUPS for option in TREE.options(group)]
SWEEPS = TREE.options("sweep")


@pytest.mark.parametrize(("group", "option"), SHIPPED)
def test_composes_as_hydra_itself_does(group: str, option: str) -> None:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(TREE.folders[-1]), version_base="1.3"):
        theirs: Any = OmegaConf.to_container(hydra_compose("config", [f"{group}={option}"]), resolve=False)
    ours = TREE.compose({group: option})
    for name in GROUPS:
        theirs[name].setdefault("name", ours[name]["name"])  # ours names an option that does not name itself
    assert ours == theirs
    assert ours[group]["name"]


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_that_ships_can_be_planned(name: str) -> None:
    plan = plan_of(f"sweep={name}", "heads=/models")
    assert plan.name == name.replace("/", "-")
    assert plan.points
    assert plan.est_s > 0
    assert len({p.point_id for p in plan.points}) == len(plan.points)
    told = {"none_has_no_draft", "capture_text"}  # the second: committed texts are short, and the sweep of experts waits for longer ones
    assert not [d for d in plan.dropped if d.rule not in told]


@pytest.mark.parametrize("form", ["", "mini/", "sim/"])
def test_the_paper_is_the_union_of_its_experiments(form: str) -> None:
    each = [n for n in SWEEPS if re.fullmatch(rf"{form}(table|fig)\d+", n)]
    assert len(each) == 18
    found = [{p.point_id for p in plan_of(f"sweep={n}", "heads=/models").points} for n in each]
    assert {p.point_id for p in plan_of(f"sweep={form}paper", "heads=/models").points} == set().union(*found)


def test_table_1_measures_the_baseline_on_both_releases_of_tensorrt_llm() -> None:
    arms = [p.axes for p in plan_of("sweep=table1").points if p.axes["engine"] == "trtllm" and p.axes["temperature"] == 1]
    assert {a["engine.image"][-3:] for a in arms if a["drafter"] == "none"} == {"rc1", "rc7"}
    assert {a["engine.image"][-3:] for a in arms if a["drafter"] == "draft_model"} == {"rc1"}
    assert not [a for a in arms if a["target"] == "deepseek-r1"]
    assert [p for p in plan_of("sweep=table1").points if not p.is_baseline and p.baseline_id is None] == []


def test_heads_that_only_the_user_has_are_asked_for() -> None:
    for name in ("fig4", "fig8", "mini/fig8"):
        with pytest.raises(ConfigError, match="heads is not set; give it with heads="):
            plan_of(f"sweep={name}")
    assert {d.axes["drafter"] for d in plan_of("sweep=fig16").dropped} == {"eagle3_reference"}


def test_the_command_line_replaces_an_axis_by_key() -> None:
    sweep = compose(["sweep=quickstart", "batch_size=2", "drafter=ngram"])
    assert sweep.parts[0].scalars["batch_size"] == (2,)
    assert sweep.parts[0].groups["drafter"] == ("ngram",)
    assert sweep.parts[0].groups["workload"] == ("low_entropy", "high_entropy")  # from the file
    assert sweep.parts[0].scalars["draft_length"] == (4, 8)


def test_later_overrides_win_over_earlier_ones() -> None:
    assert compose(["batch_size=1,2", "batch_size=8"]).parts[0].scalars["batch_size"] == (8,)
    assert compose(["batch_size=8", "batch_size=1,2"]).parts[0].scalars["batch_size"] == (1, 2)
    assert axis(plan_of("workload.osl=8,16", "workload.osl=32"), "workload") == ["low_entropy"]
    assert only(plan_of("workload.osl=8,16", "workload.osl=32")).config["workload"]["osl"] == 32


def test_name_comes_from_the_command_line_then_the_sweep() -> None:
    assert compose(["sweep=quickstart"]).name == "quickstart"
    assert compose(["sweep=quickstart", "name=mine"]).name == "mine"
    assert compose([]).name == "adhoc"


@pytest.mark.parametrize("value", ["a", "a,b"])
@pytest.mark.parametrize("axis_value", ["1", "1,2"])
def test_two_overrides_of_one_dictionary_merge_with_and_without_a_sweep(value: str, axis_value: str) -> None:
    plan = plan_of("engine.args={a:1}", "engine.args={b:2}", f"batch_size={axis_value}", f"+engine.env.x={value}")
    assert {repr(p.config["engine"]["args"]) for p in plan.points} == {"{'a': 1, 'b': 2}"}


def test_overrides_of_nested_keys_apply_in_the_order_in_which_they_stand() -> None:
    for first in ("1", "1,3"):
        plan = plan_of(f"engine.args.a={first}", "engine.args={a:2}", "+engine.env.b=0")
        assert [p.config["engine"]["args"] for p in plan.points] == [{"a": 2}]


def test_a_dictionary_swept_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        compose(["engine.args={a:1},{a:2}", "engine.args={b:1},{b:2}"])


def test_a_model_from_another_source_replaces_the_old_one() -> None:
    target = only(plan_of("target.model={source:path,path:/models/x.gguf}")).config["target"]
    assert target["model"] == {"source": "path", "path": "/models/x.gguf"}
    merged = only(plan_of("target.model={convert:f32}")).config["target"]["model"]
    assert (merged["source"], merged["convert"]) == ("wheel", "f32")


def test_plus_adds_and_tilde_removes() -> None:
    config = only(plan_of("+target.reasoning_effort=high", "~engine.threads", "++workload.osl=64")).config
    assert config["target"]["reasoning_effort"] == "high"
    assert "threads" not in config["engine"]
    assert config["workload"]["osl"] == 64


def test_open_mappings_take_any_key_and_any_value() -> None:
    config = only(plan_of("engine.args={version:0.10,path:3}", "engine.args.deep={x:1}", "workload.template_args.thinking=false")).config
    assert config["engine"]["args"] == {"version": 0.1, "path": 3, "deep": {"x": 1}}
    assert config["workload"]["template_args"] == {"thinking": False}


def test_an_added_key_that_nobody_reads_is_warned_about() -> None:
    plan = plan_of("+remark=hello")
    assert any("remark" in w for w in plan.warnings)
    assert only(plan).point_id == only(plan_of()).point_id


def test_numbers_stay_numbers() -> None:
    plan = plan_of("workload.temperature=1e-6,0")
    assert axis(plan, "temperature") == [1e-6, 0.0]
    assert all(isinstance(p.config["temperature"], float) for p in plan.points)
    assert axis(plan_of("isl=1k,256"), "isl") == [1000, 256]


def test_versions_and_revisions_survive_into_config_and_identity(tmp_path: Path) -> None:
    mine = write_groups(
        tmp_path, {"target/qwen2.5-72b": "model: {source: hub, repo: Q/Qwen2.5-72B, file: q.gguf, revision: null}\nrevision: null\n"}
    )
    point = only(
        plan_of("target=qwen2.5-72b", "engine.version=0.10", "target.revision=12e4567", "target.model.revision=1e234", dirs=(mine,))
    )
    assert point.axes["target"] == "qwen2.5-72b"
    assert point.config["engine"]["version"] == point.declared["engine"]["version"] == "0.10"
    assert point.config["target"]["revision"] == point.declared["target"]["revision"] == "12e4567"
    assert point.config["target"]["model"]["revision"] == "1e234"
    other = only(plan_of("target=qwen2.5-72b", "engine.version=0.1", "target.revision=12e4567", dirs=(mine,)))
    assert other.point_id != point.point_id


def test_users_add_groups_and_build_on_ours(tmp_path: Path) -> None:
    mine = write_groups(
        tmp_path,
        {
            "engine/fast": "defaults: [llamacpp, _self_]\nthreads: 2\n",
            "drafter/ngram": "method: ngram\nstateful: false\nmatch_size: 9\n",
            "target/family/small": "defaults: [/target/tiny, _self_]\n",
            "sweep/mine": "axes: {engine: fast, drafter: ngram, batch_size: 'range(1,3)'}\nset: {workload.osl: 16}\n",
        },
    )
    plan = plan_of("sweep=mine", dirs=(mine,))
    assert axis(plan, "batch_size") == [1, 2]
    config = plan.points[0].config
    assert config["engine"]["threads"] == 2
    assert config["engine"]["name"] == "llamacpp"
    assert config["drafter"]["match_size"] == 9  # the user's folder comes before ours
    assert config["workload"]["osl"] == 16
    assert plan.name == "mine"
    assert "family/small" in ConfigTree([mine]).options("target")


@pytest.mark.parametrize(
    ("files", "overrides", "words"),
    [
        ({"engine/old": "defaults: [llamacpp, _self_]\nversion: 0.10\n"}, ["engine=old"], ["engine.version", "quotes"]),
        ({"target/bad": "model: [\n"}, ["target=bad"], ["target=bad", "cannot be composed"]),
        ({"target/bad": "defaults: [nothing]\n"}, ["target=bad"], ["target=bad", "nothing"]),
        ({"target/empty": ""}, ["target=empty"], ["target=empty", "no keys"]),
        ({"drafter/half": "stateful: false\n"}, ["drafter=half"], ["drafter=half", "drafter.method"]),
        ({"workload/half": "osl: 3\n"}, ["workload=half"], ["workload=half", "workload.prompts", "defaults:"]),
        ({"target/loop": "model: ${target.none}\n"}, ["target=loop"], ["target.model", "target.none"]),
        ({"workload/ref": "defaults: [mixed, _self_]\nosl: ${isl}\n"}, ["workload=ref"], ["workload.osl", "isl"]),
        ({"sweep/typo": "axis: {batch_size: 1}\n"}, ["sweep=typo"], ["sweep/typo.yaml", "'axis'", "'axes'"]),
        ({"sweep/none": "axes: {batch_size: []}\n"}, ["sweep=none"], ["sweep/none.yaml", "batch_size", "empty"]),
        ({"sweep/flat": "axes: 3\n"}, ["sweep=flat"], ["axes", "mapping"]),
        ({"sweep/ver": "axes: {engine.version: [0.10, 0.11]}\n"}, ["sweep=ver"], ["engine.version", "quotes"]),
        ({"sweep/key": "set: {engine.treads: 3}\n"}, ["sweep=key"], ["engine.treads", "sweep/key.yaml", "'threads'"]),
    ],
)
def test_faults_in_a_users_file_name_the_file_or_key(tmp_path: Path, files: dict[str, str], overrides: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(*overrides, dirs=(write_groups(tmp_path, files),))
    assert [w for w in words if w not in caught.value.message] == []


def test_config_dirs_that_cannot_be_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        compose([], [tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="none of the groups"):
        compose([], [tmp_path])
    with pytest.raises(ConfigError, match="would replace"):
        compose([], [write_groups(tmp_path, {"config": "a: 1", "target/x": "a: 1"})])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["sweep=quikstart"], ["sweep=quikstart", "'quickstart'", "smoke"]),
        (["bach_size=3"], ["bach_size=3", "'batch_size'"]),
        (["engine=vlm"], ["engine=vlm", "'vllm'", "openai_chat"]),
        (["drafter=ngram", "drafter.match_sise=3"], ["drafter.match_sise=3", "'match_size'", "+drafter.match_sise"]),
        (["measure.requests=3"], ["measure.requests=3", "'requests_per_slot'"]),
        (["workload.osl.x=3"], ["workload.osl.x=3"]),
        (["~workload.nothing"], ["~workload.nothing"]),
        (["+batch_size=3"], ["+batch_size=3", "+ out"]),
        (["+workload.osl=3"], ["+workload.osl=3", "128"]),
        (["batch_size=0"], ["batch_size=0", "from 1"]),
        (["batch_size=99999999999999999999999999"], ["batch_size=99999999999999999999999999", "65536"]),
        (["workload.seed=4294967296"], ["workload.seed=4294967296", "from 0 to 4294967295"]),  # NumPy's frozen generator takes 32 bits
        (["seed=4294967295"], ["seed=4294967295", "4294967294"]),  # llama.cpp reads it as "any"
        (["isl=-1"], ["isl=-1", "at least 0 (0: natural)"]),
        (["measure=5"], ["measure=5", "requests_per_slot"]),
        (["tracking=false"], ["tracking=false", "enabled"]),
        (["target.model=5"], ["target.model=5", "mapping"]),
        (["workload.template_args=5"], ["workload.template_args=5", "mapping"]),
        (["engine.args=null"], ["engine.args=null", "mapping"]),
        (["hardware={a:1}"], ["hardware={a:1}", "one value"]),
        (["workload.osl={a:1}"], ["workload.osl={a:1}", "one value"]),
        (["engine.dialect=foo"], ["engine.dialect=foo", "llamacpp"]),
        (["store="], ["store=", "folder"]),
        (["store=null"], ["store=", "folder"]),
        (["store='~nobody-of-that-name/x'"], ["store=~nobody-of-that-name/x"]),
        (["batch_size=1.5"], ["batch_size=1.5", "whole number"]),
        (["batch_size=many"], ["batch_size=many", "whole number"]),
        (["batch_size=true"], ["batch_size=True", "whole number"]),
        (["batch_size=[1,2]"], ["batch_size=[1, 2]", "write batch_size=1,2"]),
        (["temperature=-1"], ["temperature=-1"]),
        (["temperature=nan"], ["temperature=nan"]),
        (["workload.top_p=0"], ["workload.top_p=0"]),
        (["workload.top_p=0.5,2"], ["workload.top_p=2"]),
        (["measure={requests_per_slot:0}"], ["measure.requests_per_slot=0"]),
        (["target.model={revision:12e4567}"], ["target.model.revision", "quotes"]),
        (["workload={oslo:16}"], ["by name"]),
        (["+target.x={path:3}"], ["target.x.path", "quotes"]),
        (["rerun=never"], ["rerun=never", "failed, invalid, all"]),
        (["tracking.enabled=yes"], ["tracking.enabled=yes", "true or false"]),
        (["drafter=null"], ["drafter=null", "none"]),
        (["drafter={method:ngram}"], ["drafter", "by name"]),
        (["~drafter"], ["~drafter", "drafter=none"]),
        (["~measure"], ["~measure", "cannot be removed", "measure.requests_per_slot=…"]),
        (["~measure.requests_per_slot"], ["~measure.requests_per_slot", "cannot be removed", "measure.requests_per_slot=…"]),
        (["~tracking"], ["~tracking", "cannot be removed", "tracking.enabled=…"]),
        (["~target.name"], ["~target.name", "cannot be removed"]),
        *([[f"~{key}"], [f"~{key}", "cannot be removed", f"{key}=…"]] for key in ("store", "cache", "seed", "hardware", "rerun", "name")),
        (["repeats=100000"], ["repeats=100000", "10000"]),
        (["repeats=1000000000000000"], ["repeats=1000000000000000", "10000"]),
        (["repeat=range(1,10002)"], ["repeat", "10,001 values", "10,000"]),
        (["draft_length=1000000000000"], ["draft_length=1000000000000", "65536"]),
        (["cluster=local,attach"], ["cluster=local,attach", "one place"]),
        (["cluster=attach"], ["endpoint=http://host:port"]),
        (["endpoint=http://h:1"], ["cluster=attach"]),
        (["cluster=attach", "endpoint=foo"], ["endpoint='foo'", "http://host:port"]),
        (["cluster=attach", "endpoint=ftp://h"], ["endpoint='ftp://h'", "http or https"]),
        (["cluster=attach", "endpoint=http://"], ["endpoint='http://'", "no host"]),
        (["cluster=attach", "endpoint=http://h:1/v1"], ["endpoint='http://h:1/v1'", "before /v1"]),
        (["name=../x"], ["name=../x", "letters, digits"]),
        (["name=a/b"], ["name=a/b", "letters, digits"]),
        (["name='x y'"], ["name=x y", "letters, digits"]),
        ([f"name={'x' * 129}"], ["name=xxx", "up to 128"]),
        (["tracking.uri=sqlite:////nope/x.db"], ["tracking.uri=sqlite:////nope/x.db", "/nope does not exist"]),
        (["store=${oc.env:NO_SUCH_VARIABLE}/x"], ["store=${oc.env:NO_SUCH_VARIABLE}/x", "NO_SUCH_VARIABLE"]),
        (["store=a,b"], ["store=a,b", "one value"]),
        (["measure.client_processes=1,2"], ["measure.client_processes=1,2", "one value"]),
        (["sweep=quickstart,smoke"], ["one sweep"]),
        (["repeats=2", "repeat=1,2"], ["repeats=2", "repeat=1,2"]),
    ],
)
def test_refused_naming_field_value_and_what_is_known(overrides: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(*overrides)
    assert [w for w in words if w not in caught.value.message] == []


def test_base_holds_what_the_whole_sweep_shares() -> None:
    base = compose(["store=/tmp/x", "measure.stall_seconds=5", "drafter=ngram", "drafter.match_size=7", "hardware=4090"]).base
    assert (base["store"], base["measure"]["stall_seconds"], base["hardware"]) == ("/tmp/x", 5.0, "4090")
    assert base["drafter"]["match_size"] == 7
    assert base["rerun"] == "failed"


def test_places_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    monkeypatch.setenv("ENGINE_URL", "http://box:8000")
    config = compose(["store=${oc.env:SCRATCH}/results", "cluster=attach", "endpoint=${oc.env:ENGINE_URL}"])
    assert config.base["store"] == "/scratch/me/results"
    assert config.base["cluster"]["endpoint"] == "http://box:8000"
    monkeypatch.setenv("ENGINE_URL", "box")
    with pytest.raises(ConfigError, match="endpoint='box' is not a URL"):
        compose(["cluster=attach", "endpoint=${oc.env:ENGINE_URL}"])


def test_a_sweep_file_in_a_folder_has_a_plain_name(tmp_path: Path) -> None:
    mine = write_groups(tmp_path, {"sweep/nightly/short": "axes: {batch_size: [1, 2]}\n"})
    assert compose(["sweep=nightly/short"], [mine]).name == "nightly-short"


def test_the_database_may_lie_in_a_store_that_is_not_there_yet(tmp_path: Path) -> None:
    store = tmp_path / "new"
    assert compose([f"store={store}", f"tracking.uri=sqlite:///{store}/runs.db"]).base["tracking"]["uri"].endswith("/runs.db")


def test_a_token_that_is_not_there_is_told_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    attached = ["cluster=attach", "endpoint=http://h:1", "cluster.token_env=SPECSWEEP_TEST_TOKEN"]
    monkeypatch.delenv("SPECSWEEP_TEST_TOKEN", raising=False)
    assert [w for w in compose(attached).warnings if "SPECSWEEP_TEST_TOKEN" in w and "no such variable" in w]
    monkeypatch.setenv("SPECSWEEP_TEST_TOKEN", "secret")
    assert compose(attached).warnings == ()
