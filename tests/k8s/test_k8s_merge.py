"""A template merges as `kubectl patch --type strategic` does it, and cannot break what the rest relies on."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsweep.k8s.errors import SpecError
from specsweep.k8s.merge import MAIN, merge, with_template

POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "ours"}},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-B200"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [
            {
                "name": MAIN,
                "image": "one",
                "command": ["serve"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 8000, "name": "http"}],
                "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}, "requests": {"nvidia.com/gpu": "8", "cpu": "4"}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}],
    },
}


def main_of(pod: dict[str, Any]) -> dict[str, Any]:
    return next(container for container in pod["spec"]["containers"] if container["name"] == MAIN)


def over_main(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": MAIN, **fields}]}}


def test_containers_merge_by_name_and_their_env_by_name() -> None:
    merged = with_template(POD, over_main(env=[{"name": "B", "value": "3"}, {"name": "C", "value": "4"}], image="two"))
    assert main_of(merged)["image"] == "two"
    assert main_of(merged)["command"] == ["serve"]
    assert [(item["name"], item["value"]) for item in main_of(merged)["env"]] == [("A", "1"), ("B", "3"), ("C", "4")]


def test_a_container_of_another_name_is_a_sidecar_behind_ours() -> None:
    merged = with_template(POD, {"spec": {"containers": [{"name": "proxy", "image": "p"}]}})
    assert [container["name"] for container in merged["spec"]["containers"]] == [MAIN, "proxy"]


@pytest.mark.parametrize(
    ("field", "key", "ours", "new"),
    [
        ("ports", "containerPort", 8000, 9000),
        ("volumeMounts", "mountPath", "/dev/shm", "/data"),
    ],
)
def test_lists_of_a_container_merge_by_the_key_of_the_api(field: str, key: str, ours: Any, new: Any) -> None:
    merged = main_of(with_template(POD, over_main(**{field: [{key: ours, "name": "renamed"}, {key: new, "name": "added"}]})))
    assert [(item[key], item["name"]) for item in merged[field]] == [(ours, "renamed"), (new, "added")]


@pytest.mark.parametrize(
    ("field", "key", "values"),
    [
        ("imagePullSecrets", "name", ("a", "b")),
        ("hostAliases", "ip", ("10.0.0.1", "::1")),
        ("topologySpreadConstraints", "topologyKey", ("zone", "host")),
        ("schedulingGates", "name", ("one", "two")),
        ("resourceClaims", "name", ("gpu", "nic")),
        ("initContainers", "name", ("fetch", "warm")),
        ("volumes", "name", ("shm", "data")),
    ],
)
def test_lists_of_a_pod_merge_by_the_key_of_the_api(field: str, key: str, values: tuple[str, str]) -> None:
    base = {"spec": {field: [{key: values[0], "old": 1}]}}
    merged = merge(base, {"spec": {field: [{key: values[0], "new": 2}, {key: values[1], "new": 3}]}})
    assert merged["spec"][field] == [{key: values[0], "old": 1, "new": 2}, {key: values[1], "new": 3}]


def test_lists_without_a_key_are_replaced() -> None:
    merged = with_template(POD, {"spec": {"tolerations": [{"key": "x"}], "containers": [{"name": MAIN, "command": ["other"]}]}})
    assert merged["spec"]["tolerations"] == [{"key": "x"}]
    assert main_of(merged)["command"] == ["other"]


def test_null_removes_and_maps_merge() -> None:
    merged = with_template(POD, {"spec": {"nodeSelector": {"zone": "a", "nvidia.com/gpu.product": None}, "tolerations": None}})
    assert merged["spec"]["nodeSelector"] == {"zone": "a"}
    assert "tolerations" not in merged["spec"]


def test_patch_delete_and_replace() -> None:
    deleted = with_template(POD, over_main(env=[{"name": "A", "$patch": "delete"}]))
    assert [item["name"] for item in main_of(deleted)["env"]] == ["B"]
    replaced = with_template(POD, over_main(env=[{"$patch": "replace"}, {"name": "Z", "value": "9"}]))
    assert main_of(replaced)["env"] == [{"name": "Z", "value": "9"}]
    selector = with_template(POD, {"spec": {"nodeSelector": {"$patch": "replace", "zone": "a"}}})
    assert selector["spec"]["nodeSelector"] == {"zone": "a"}
    gone = with_template(POD, {"spec": {"nodeSelector": {"$patch": "delete"}}})
    assert "nodeSelector" not in gone["spec"]


def test_retain_keys_drops_the_other_source_of_a_volume() -> None:
    volume = {"name": "shm", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/dev/shm"}}
    assert with_template(POD, {"spec": {"volumes": [volume]}})["spec"]["volumes"] == [{"name": "shm", "hostPath": {"path": "/dev/shm"}}]


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ({"containers": []}, "'containers' is not a field of a pod template"),
        ({"metadata": {"labels": {"app": "theirs"}}}, r"metadata\.labels\[app\]='theirs'"),
        ({"metadata": {"labels": None}}, r"metadata\.labels\[app\]=None"),
        ({"spec": {"restartPolicy": "OnFailure"}}, r"spec\.restartPolicy='OnFailure'"),
        (over_main(**{"$patch": "delete"}), "'main' is the program itself"),
        ({"spec": {"containers": [{"image": "x"}]}}, r"spec\.containers\[0\] has no 'name'"),
        ({"spec": {"volumes": [{"name": "a"}, {"name": "a"}]}}, r"spec\.volumes has name='a' twice"),
        ({"spec": {"containers": ["main"]}}, r"spec\.containers\[0\]='main' must be an object"),
        (over_main(resources={"limits": {"nvidia.com/gpu": "4"}}), r"main\]\.resources: limits\[nvidia\.com/gpu\]='4'.*'8' must be equal"),
        (over_main(resources={"limits": None}), r"limits\[nvidia\.com/gpu\]=None"),
        (over_main(env=[{"name": "HF_TOKEN", "value": "abc"}]), r"main\]\.env\[HF_TOKEN\] holds a secret"),
        ({"spec": {"$setElementOrder/containers": []}}, r"spec\.\$setElementOrder/containers is not known"),
        ({"spec": {"nodeSelector": {"$patch": "remove"}}}, r"\$patch='remove'"),
        ({"spec": {"tolerations": [{"$patch": "delete", "key": "x"}]}}, r"spec\.tolerations is replaced as a whole"),
        ({"spec": {"containers": {"name": "main"}}}, r"spec\.containers=.* must be a list"),
        ({"spec": {"volumes": "data"}}, r"spec\.volumes='data' must be a list"),
        ({"spec": {"nodeSelector": "a=b"}}, r"spec\.nodeSelector='a=b' must be an object"),
        ({"metadata": "x"}, r"metadata='x' must be an object"),
        ({"spec": {"nodeSelector": {1: "a"}}}, "has the key 1"),
        ({"spec": {"initContainers": [{"name": "a", "resources": [1]}]}}, r"initContainers\[a\]\.resources=\[1\] must be an object"),
        ({"spec": {"initContainers": [{"name": "a", "resources": {"limits": ["x/y"]}}]}}, r"resources\.limits=\['x/y'\] must be an object"),
        (over_main(env=[{"name": 5, "value": "a"}]), r"main\]\.env has the name 5"),
        (over_main(env=[{"name": "A", "value": 5}]), r"main\]\.env\[A\]: its value is of type int"),
    ],
)
def test_what_is_wrong_or_not_allowed_is_named_by_its_path(template: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        with_template(POD, template)


NAMES = st.sampled_from(["main", "a", "b"])
SCALARS = st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["x", "y"]))
ENV = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"value": SCALARS, "$patch": st.just("delete")}),
    max_size=3,
    unique_by=lambda item: item["name"],
)
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"image": SCALARS, "env": ENV, "command": st.lists(st.just("c"), max_size=2)}),
    max_size=3,
    unique_by=lambda item: item["name"],
)
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"labels": st.dictionaries(st.sampled_from(["app", "x"]), SCALARS, max_size=2)}),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": CONTAINERS,
                "nodeSelector": st.one_of(st.none(), st.dictionaries(st.sampled_from(["a", "$patch"]), st.just("replace"), max_size=2)),
                "tolerations": st.lists(st.fixed_dictionaries({"key": SCALARS}), max_size=2),
                "priority": SCALARS,
            },
        ),
    },
)


@settings(deadline=None)
@given(PATCHES)
def test_merging_twice_is_merging_once_and_the_inputs_stay(patch: dict[str, Any]) -> None:
    base, before = deepcopy(POD), deepcopy(patch)
    once = merge(base, patch)
    assert merge(once, patch) == once
    assert (base, patch) == (POD, before)


@settings(deadline=None)
@given(PATCHES)
def test_merging_nothing_changes_nothing(patch: dict[str, Any]) -> None:
    base = merge(POD, patch)
    assert merge(base, {}) == base


@settings(deadline=None)
@given(PATCHES)
def test_no_directive_and_no_null_of_an_object_reaches_the_api(patch: dict[str, Any]) -> None:
    def walk(value: Any, in_list: bool = False) -> None:
        if isinstance(value, dict):
            assert not [key for key in value if key.startswith("$")]
            for item in value.values():
                assert item is not None or in_list
                walk(item, in_list)
        elif isinstance(value, list):
            for item in value:
                walk(item, True)

    walk(merge(POD, patch))
