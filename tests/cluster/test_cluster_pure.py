"""The parts of the kubelet that need no cluster: variables, status, services' names, logs' ends."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.environment import ConfigError, bytes_of, expanded, variables
from cluster.images import Images, PullError
from cluster.rest import RestError
from cluster.service_names import ServiceNames
from cluster.status import State, Taken, phase_of, pod_status
from cluster.view import Bind, view
from cluster.volumes import Volume, binds

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "labels": {"a/b": "c"}},
    "spec": {"nodeName": "one"},
    "status": {"podIP": "10.77.0.9"},
}


def ran(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code}}


@pytest.mark.parametrize(
    ("text", "becomes"),
    [("$(A)/x", "1/x"), ("$$(A)", "$(A)"), ("$(B)", "$(B)"), ("$A", "$A"), ("$$$(A)", "$1"), ("a$", "a$")],
)
def test_references_to_variables(text: str, becomes: str) -> None:
    assert expanded(text, {"A": "1"}) == becomes


@pytest.mark.parametrize(("text", "is_"), [("64Mi", 64 * 2**20), ("1k", 1000), ("2", 2), ("1.5Gi", 3 * 2**29), ("500m", 0)])
def test_quantities(text: str, is_: int) -> None:
    assert bytes_of(text) == is_


async def found_variables(container: dict[str, Any]) -> dict[str, str]:
    async def fetch(kind: str, name: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        if name == "no":
            raise RestError(404, {}, name)
        data = {"token": "s"}
        return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()} if kind == "secrets" else data}

    return await variables(container, POD, fetch, {"HOME": "/"})


async def test_variables_come_from_everywhere_a_pod_may_name() -> None:
    limits = {"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}
    env: list[dict[str, Any]] = [
        {"name": "PLAIN", "value": "$(HOME)x"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "yes", "key": "token"}}},
        {"name": "ABSENT", "valueFrom": {"secretKeyRef": {"name": "no", "key": "token", "optional": True}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]
    found = await found_variables({**limits, "env": env, "envFrom": [{"prefix": "X_", "configMapRef": {"name": "yes"}}]})
    assert found == {
        "HOME": "/",
        "X_token": "s",
        "PLAIN": "/x",
        "SECRET": "s",
        "IP": "10.77.0.9",
        "LABEL": "c",
        "CPU": "2",
        "MEMORY": "1024",
    }


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ({"secretKeyRef": {"name": "no", "key": "token"}}, 'secret "no" not found'),
        ({"secretKeyRef": {"name": "yes", "key": "other"}}, "couldn't find key other in Secret n/yes"),
        ({"configMapKeyRef": {"name": "no", "key": "token"}}, 'configmap "no" not found'),
    ],
)
async def test_what_is_not_there_is_named_as_the_kubelet_names_it(reference: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        await found_variables({"env": [{"name": "A", "valueFrom": reference}]})


@pytest.mark.parametrize(
    ("init", "main", "policy", "phase"),
    [
        ([], [{"waiting": {}}], "Never", "Pending"),
        ([], [{"running": {}}], "Never", "Running"),
        ([], [{"running": {}}, {"waiting": {}}], "Never", "Pending"),
        ([], [ran(0)], "Never", "Succeeded"),
        ([], [ran(1)], "Never", "Failed"),
        ([], [ran(1)], "OnFailure", "Running"),
        ([], [ran(0)], "Always", "Running"),
        ([], [ran(0), {"running": {}}], "Never", "Running"),
        ([ran(1)], [{"waiting": {}}], "Never", "Failed"),
        ([ran(0)], [{"waiting": {}}], "Never", "Pending"),
    ],
)
def test_phases(init: list[dict[str, Any]], main: list[dict[str, Any]], policy: str, phase: str) -> None:
    states = [[State("c", "i", current) for current in part] for part in (init, main)]
    assert phase_of(states[0], states[1], policy, None) == phase


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    state = State("main", "i", {"running": {}}, ready=True)
    old = {"Ready": {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}}
    given: dict[str, Any] = {"policy": "Never", "ip": "1.2.3.4", "host_ip": "1.2.3.1", "since": "", "before": old}
    same = {each["type"]: each for each in pod_status([], [state], **given)["conditions"]}
    assert same["Ready"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    state.ready = False
    other = {each["type"]: each for each in pod_status([], [state], **given)["conditions"]}
    assert other["Ready"]["lastTransitionTime"] > "2026-01-01T00:00:00Z"
    assert other["Ready"]["message"] == "containers with unready status: [main]"
    taken = pod_status([], [state], taken=Taken("Evicted", "low on memory", {"reason": "TerminationByKubelet"}), **given)
    assert (taken["phase"], taken["reason"]) == ("Failed", "Evicted")


def test_a_pod_finds_services_by_all_their_names(tmp_path: Path) -> None:
    names = ServiceNames()
    file = tmp_path / "hosts"
    endpoints = [
        {"addresses": ["10.77.0.5"], "conditions": {"ready": True}},
        {"addresses": ["10.77.0.6"], "conditions": {"ready": False}},
    ]
    labels = {"kubernetes.io/service-name": "db"}
    for uid, namespace in (("1", "n"), ("2", "other")):
        metadata = {"uid": uid, "namespace": namespace, "labels": labels}
        names.see("ADDED", {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints})
    names.add(file, "n", "p", "10.77.0.9")
    found = [line.split() for line in file.read_text().splitlines()]
    assert ["10.77.0.9", "p"] in found
    assert ["10.77.0.5", "db.n.svc.cluster.local", "db.n.svc", "db.n", "db"] in found
    assert ["10.77.0.5", "db.other.svc.cluster.local", "db.other.svc", "db.other"] in found
    assert "10.77.0.6" not in file.read_text()


def test_inner_folders_are_mounted_after_outer_ones(tmp_path: Path) -> None:
    volumes = {"a": Volume(tmp_path, read_only=True), "b": Volume(None, size=5)}
    mounts = [{"name": "b", "mountPath": "/data/fast"}, {"name": "a", "mountPath": "/data"}]
    outer, inner = binds({"volumeMounts": mounts}, volumes)
    assert (outer.target, outer.read_only, inner.target, inner.size) == ("/data", True, "/data/fast", 5)


def test_a_mount_below_a_link_stays_inside_of_the_view(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    lines = view(tmp_path / "root", [Bind(None, str(tmp_path / "link" / "secrets"))])
    assert lines[-1].endswith(f"{tmp_path}/root/root{tmp_path}/real/secrets")


@pytest.mark.parametrize(
    ("name", "may_pull", "reason"),
    [("nobody/has-it:1", True, "ErrImagePull"), ("Not/Valid", True, "InvalidImageName"), ("nobody/x:1", False, "ErrImageNeverPull")],
)
def test_images_that_are_not_there(name: str, may_pull: bool, reason: str) -> None:
    with pytest.raises(PullError) as error:
        Images().pull(name, may_pull=may_pull)
    assert error.value.reason == reason


def test_a_volume_does_not_hide_the_image(tmp_path: Path) -> None:
    above = str(Path(sys.prefix).parent)
    found = binds({"volumeMounts": [{"name": "tmp", "mountPath": above}]}, {"tmp": Volume(tmp_path)})
    assert found[0].target == above
    assert Path(sys.prefix) in {bind.source for bind in found[1:] if bind.read_only}
