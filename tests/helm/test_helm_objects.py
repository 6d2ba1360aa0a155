"""The objects that the chart makes: whole, as the API knows them, and with what keeps a pod from doing more than it needs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from helm_chart import Json, of, pod_templates, rendered
from kubernetes.aio.client import (
    ApiClient,
    V1Deployment,
    V1NetworkPolicy,
    V1PersistentVolumeClaim,
    V1PodTemplateSpec,
    V1Role,
    V1RoleBinding,
    V1Service,
    V1ServiceAccount,
)

from specsweep.k8s.names import COMPONENT, MANAGED_BY, NAME, PART_OF, is_dns_label, is_label_value, labels

MODELS = (V1Deployment, V1NetworkPolicy, V1PersistentVolumeClaim, V1Role, V1RoleBinding, V1Service, V1ServiceAccount)
KINDS = {model.__name__.removeprefix("V1"): model.__name__ for model in MODELS}
INSTANCE = "app.kubernetes.io/instance"
RELEASES = ["specsweep", "a", "bench-1", "x" * 53, "a-very-long-release-name-of-one-team", "team-specsweep-" + "y" * 38]


def read_and_written(obj: Json, model: str) -> Any:
    """As the API's own model keeps it: fields that it does not know are gone, and of those it needs none may lack."""
    client = ApiClient()
    return client.sanitize_for_serialization(client.deserialize(json.dumps(obj), model, "application/json"))


def without_nothing(value: Any) -> Any:
    """Without empty values, which the models leave out."""
    if isinstance(value, dict):
        return {key: without_nothing(item) for key, item in value.items() if item not in (None, [])}
    if isinstance(value, list):
        return [without_nothing(item) for item in value]
    return value


@pytest.mark.parametrize("everything", [False, True])
async def test_the_api_knows_every_field(everything: bool) -> None:
    seen = 0
    for obj in rendered(everything=everything):
        if obj["kind"] in KINDS:
            assert without_nothing(read_and_written(obj, KINDS[obj["kind"]])) == without_nothing(obj)
            seen += 1
    for template in pod_templates(rendered(everything=everything)):
        assert without_nothing(read_and_written(template, V1PodTemplateSpec.__name__)) == without_nothing(template)
    assert seen >= (4 if not everything else 12)


@pytest.mark.parametrize("release", RELEASES)
def test_names_and_labels_are_valid_however_long_the_release(release: str) -> None:
    objects = rendered(release=release, everything=True)
    for obj in objects:
        assert is_dns_label(obj["metadata"]["name"]), obj["metadata"]["name"]
        found = obj["metadata"]["labels"]
        assert all(is_label_value(str(value)) for value in found.values())
        assert found.keys() >= {NAME, INSTANCE, COMPONENT, PART_OF, MANAGED_BY, "app.kubernetes.io/version", "helm.sh/chart"}
        assert (found[INSTANCE], found[MANAGED_BY], found[PART_OF]) == (release, "Helm", "specsweep")
    ray = of("RayCluster", objects)["metadata"]["name"]
    assert len(ray) <= 53, "KubeRay's own limit"


@pytest.mark.parametrize(
    "pair",
    [("a", "b"), ("x" * 52 + "a", "x" * 52 + "b"), ("specsweep", "specsweep-2")],
    ids=["short", "alike for 52 characters", "one in the other"],
)
def test_two_releases_in_one_namespace_share_nothing(pair: tuple[str, str]) -> None:
    first, second = (rendered(release=name, everything=True) for name in pair)
    assert not {(obj["kind"], obj["metadata"]["name"]) for obj in first} & {(obj["kind"], obj["metadata"]["name"]) for obj in second}
    selector = of("Deployment", first)["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= of("Deployment", second)["spec"]["template"]["metadata"]["labels"].items()
    assert (
        not of("Service", first)["spec"]["selector"].items() <= of("Deployment", second)["spec"]["template"]["metadata"]["labels"].items()
    )


def test_names_follow_the_overrides() -> None:
    names = {obj["metadata"]["name"] for obj in rendered({"fullnameOverride": "bench"})}
    assert names == {"bench", "bench-results"}
    assert {obj["metadata"]["name"] for obj in rendered({"nameOverride": "sweeps"}, release="a")} == {"a-sweeps", "a-sweeps-results"}
    assert of("ServiceAccount", rendered({"serviceAccount": {"name": "runner"}}))["metadata"]["name"] == "runner"


def test_selectors_find_the_pods_that_they_are_for() -> None:
    objects = rendered(everything=True)
    pod = of("Deployment", objects)["spec"]["template"]["metadata"]["labels"]
    assert of("Deployment", objects)["spec"]["selector"]["matchLabels"].items() <= pod.items()
    assert of("Service", objects)["spec"]["selector"].items() <= pod.items()
    (port,) = of("Service", objects)["spec"]["ports"]
    (container,) = of("Deployment", objects)["spec"]["template"]["spec"]["containers"]
    assert port["targetPort"] in {port["name"] for port in container["ports"]}


def test_pods_may_do_as_little_as_they_need() -> None:
    for template in pod_templates(rendered(everything=True)):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for container in (*spec["containers"], *spec.get("initContainers", [])):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            writable = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
            homes = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in writable}
            assert {variable["name"]: variable.get("value") for variable in container["env"]}["HOME"] in homes
            assert container["resources"].keys() == {"limits", "requests"}


def test_ray_pods_are_guaranteed_and_the_head_takes_no_client() -> None:
    cluster = of("RayCluster", rendered(everything=True))["spec"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for template in (cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]):
        (container,) = template["spec"]["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert re.fullmatch(r"\d+", container["resources"]["limits"]["cpu"])
    workers = cluster["workerGroupSpecs"][0]
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (3, 3, 3)
    for group in (cluster["headGroupSpec"], workers):
        assert group["rayStartParams"]["object-store-memory"] == "536870912", "whole bytes, not 5.36870912e+08"


def test_ray_workers_are_spread_over_hosts() -> None:
    found = of("RayCluster", rendered(everything=True))
    (spread,) = found["spec"]["workerGroupSpecs"][0]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["labelSelector"]["matchLabels"]["ray.io/cluster"] == found["metadata"]["name"]
    assert "topologySpreadConstraints" not in found["spec"]["headGroupSpec"]["template"]["spec"]


def test_one_image_for_all_by_digest_if_there_is_one_else_by_tag() -> None:
    def images(values: Json) -> set[str]:
        return {
            container["image"]
            for template in pod_templates(rendered({**values, "mlflow": {"enabled": True}, "ray": {"enabled": True}}))
            for container in template["spec"]["containers"]
        }

    digest = "sha256:" + "0" * 64
    assert images({"image": {"repository": "reg:5000/s"}}) == {"reg:5000/s:0.1.0"}
    assert images({"image": {"repository": "reg:5000/s", "tag": "1.10"}}) == {"reg:5000/s:1.10"}
    assert images({"image": {"repository": "reg:5000/s", "tag": "1.10", "digest": digest}}) == {f"reg:5000/s@{digest}"}


def test_a_pod_template_is_merged_by_name_and_not_replaced() -> None:
    pod = of("Deployment", rendered(everything=True))["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert values["MLFLOW_LOGGING_LEVEL"] == "INFO", "the template is merged last"
    assert values["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false", "and what it does not name stays"
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/var/lib/mlflow", "/tmp", "/etc/ca"}
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {"data", "tmp", "ca"}
    assert pod["metadata"]["annotations"] == {"example.com/note": "mine"}
    assert pod["spec"]["priorityClassName"] == "low"
    worker = of("RayCluster", rendered(everything=True))["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    assert worker["nodeSelector"] == {"pool": "clients"}, "over the chart's own"


def test_what_has_the_same_key_takes_the_place_of_the_chart_s() -> None:
    uri = {"name": "MLFLOW_BACKEND_STORE_URI", "valueFrom": {"secretKeyRef": {"name": "db", "key": "uri"}}}
    mount = {"name": "tmp", "mountPath": "/tmp", "subPath": "a"}
    scratch = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    spec = {
        "containers": [{"name": "proxy", "image": "p"}, {"name": "mlflow", "env": [uri], "volumeMounts": [mount], "args": ["server"]}],
        "initContainers": [{"name": "first", "image": "i"}],
        "volumes": [scratch],
    }
    objects = rendered({"image": {"repository": "s"}, "mlflow": {"enabled": True, "podTemplate": {"spec": spec}}})
    pod = of("Deployment", objects)["spec"]["template"]["spec"]
    container, sidecar = pod["containers"]
    assert [variable for variable in container["env"] if variable["name"] == uri["name"]] == [uri]
    assert len(container["env"]) > 3, "the others stay"
    assert [found for found in container["volumeMounts"] if found["mountPath"] == "/tmp"] == [mount]
    assert container["args"] == ["server"], "a list without keys is replaced"
    assert container["command"] == ["mlflow"]
    assert sidecar == {"name": "proxy", "image": "p"}
    assert pod["initContainers"] == spec["initContainers"]
    assert [volume for volume in pod["volumes"] if volume["name"] == "tmp"] == [scratch], "not of two kinds at once"
    assert len(pod["volumes"]) == 2


def test_claims_are_made_unless_one_is_named_and_outlive_the_release() -> None:
    claims = {obj["metadata"]["name"]: obj for obj in rendered(everything=True) if obj["kind"] == "PersistentVolumeClaim"}
    assert claims.keys() == {"specsweep-results", "specsweep-weights", "specsweep-mlflow"}
    for claim in claims.values():
        assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claims["specsweep-results"]["spec"]["storageClassName"] == "fast"
    assert claims["specsweep-weights"]["spec"]["accessModes"] == ["ReadWriteMany"]
    there = {
        "results": {"existingClaim": "r"},
        "weights": {"enabled": True, "existingClaim": "w"},
        "mlflow": {"enabled": True, "persistence": {"existingClaim": "m"}},
        "image": {"repository": "s"},
    }
    objects = rendered(there)
    assert "PersistentVolumeClaim" not in {obj["kind"] for obj in objects}
    data = of("Deployment", objects)["spec"]["template"]["spec"]["volumes"][0]
    assert data["persistentVolumeClaim"] == {"claimName": "m"}
    (claim,) = [obj for obj in rendered({"results": {"keep": False}}) if obj["kind"] == "PersistentVolumeClaim"]
    assert "annotations" not in claim["metadata"]


def test_mlflow_is_replaced_and_never_doubled() -> None:
    spec = of("Deployment", rendered(everything=True))["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_database_is_upgraded_before_the_start_and_only_when_asked() -> None:
    spec = of("Deployment", rendered(everything=True))["spec"]["template"]["spec"]
    (upgrade,), (server,) = spec["initContainers"], spec["containers"]
    assert [*upgrade["command"], *upgrade["args"]] == ["mlflow", "db", "upgrade", "$(MLFLOW_BACKEND_STORE_URI)"]
    uri = {"secretKeyRef": {"name": "mlflow-database", "key": "uri"}}
    assert [variable["valueFrom"] for variable in upgrade["env"] if variable["name"] == "MLFLOW_BACKEND_STORE_URI"] == [uri]
    assert upgrade["image"] == server["image"]
    plain = of("Deployment", rendered({"image": {"repository": "s"}, "mlflow": {"enabled": True}}))["spec"]["template"]["spec"]
    assert "initContainers" not in plain


def admits(policy: Json, peer: dict[str, str], *, direction: str) -> bool:
    """Whether a pod with the labels ``peer`` may be spoken to, as far as pods are named by labels."""
    selectors = [
        end["podSelector"]["matchLabels"]
        for rule in policy["spec"][direction]
        for end in rule.get("from" if direction == "ingress" else "to", [])
        if "podSelector" in end
    ]
    return any(selector.items() <= peer.items() for selector in selectors)


def test_engines_answer_to_sweeps_and_clients_alone() -> None:
    objects = rendered(everything=True)
    engine, sweep, client, prefetch = (labels(component, sweep="fig7") for component in ("engine", "sweep", "client", "prefetch"))
    ray = of("RayCluster", objects)["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    mlflow = of("Deployment", objects)["spec"]["template"]["metadata"]["labels"]
    policies = {obj["metadata"]["name"].removeprefix("specsweep-"): obj for obj in objects if obj["kind"] == "NetworkPolicy"}
    for name, pods, others in (
        ("engines", [engine], [sweep, client, ray, mlflow, prefetch]),
        ("sweeps", [sweep], [engine, client, ray, mlflow, prefetch]),
        ("clients", [client, ray], [engine, sweep, mlflow, prefetch]),
        ("mlflow", [mlflow], [engine, sweep, client, ray, prefetch]),
    ):
        selector = policies[name]["spec"]["podSelector"]["matchLabels"]
        assert all(selector.items() <= pod.items() for pod in pods), name
        assert not any(selector.items() <= pod.items() for pod in others), name
    for name, asks, admitted in (
        ("engines", sweep, True),
        ("engines", ray, True),
        ("engines", engine, False),
        ("engines", mlflow, False),
        ("engines", {"app": "somebody"}, False),
        ("mlflow", sweep, True),
        ("mlflow", engine, False),
        ("clients", ray, True),
        ("clients", engine, False),
        ("sweeps", ray, True),
        ("sweeps", engine, False),
    ):
        assert admits(policies[name], asks, direction="ingress") is admitted, (name, asks)
    for peer in (engine, ray, mlflow):
        assert admits(policies["sweeps"], peer, direction="egress")
    assert admits(policies["clients"], engine, direction="egress")
    assert not admits(policies["clients"], mlflow, direction="egress")


def test_what_is_no_pod_is_reached_by_range_and_port() -> None:
    def ways(policy: Json) -> set[tuple[str, Any]]:
        rules = policy["spec"]["egress"]
        return {
            (end["ipBlock"]["cidr"] if "ipBlock" in end else "", port["port"])
            for rule in rules
            for end in rule.get("to", [{}])
            if "podSelector" not in end
            for port in rule["ports"]
        }

    objects = rendered(everything=True)
    sweeps, engines = (of("NetworkPolicy", objects, f"specsweep-{name}") for name in ("sweeps", "engines"))
    hub = {("0.0.0.0/0", 443), ("::/0", 443)}
    dns = {("", 53)}
    assert ways(sweeps) == {("10.0.0.1/32", 6443)} | hub | dns
    assert ways(engines) == hub | dns
    closed = rendered({"networkPolicy.hub.enabled": False}, everything=True)
    assert ways(of("NetworkPolicy", closed, "specsweep-engines")) == dns
    outside = rendered({"networkPolicy": {"enabled": True}, "mlflow": {"externalUri": "http://mlflow:5000"}})
    assert ("0.0.0.0/0", 5000) in ways(of("NetworkPolicy", outside, "specsweep-sweeps"))
    assert not [obj for obj in rendered() if obj["kind"] == "NetworkPolicy"]
