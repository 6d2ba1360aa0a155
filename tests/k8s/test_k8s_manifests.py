"""Each property of the objects that somebody relies on, seen in the objects themselves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from k8s_samples import OWNER, prefetch, program, server, sweep
from kubernetes.aio.client import ApiClient, V1ConfigMap, V1Job, V1Service

from specsweep.k8s import manifests
from specsweep.k8s.errors import SpecError
from specsweep.k8s.merge import MAIN
from specsweep.k8s.names import CONTENT
from specsweep.k8s.specs import ClaimMount, Placement, SecretRef


def of(kind: str, objects: list[dict[str, Any]]) -> dict[str, Any]:
    return next(obj for obj in objects if obj["kind"] == kind)


def job(**fields: Any) -> dict[str, Any]:
    return of("Job", manifests.server_objects(server(**fields), OWNER))


def pod(**fields: Any) -> dict[str, Any]:
    return dict(job(**fields)["spec"]["template"]["spec"])


def container(of_pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = of_pod["containers"]
    return dict(found)


def as_kubelet_reads(text: str, env: dict[str, str]) -> str:
    """Kubernetes' expansion: ``$(NAME)`` is the variable if there is one, ``$$`` is ``$``."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def test_a_server_is_a_config_map_a_headless_service_and_a_job_of_one_name() -> None:
    objects = manifests.server_objects(server(), OWNER)
    assert [obj["kind"] for obj in objects] == ["ConfigMap", "Service", "Job"]
    assert {obj["metadata"]["name"] for obj in objects} == {"fig7-3f2a91c0e2"}
    assert of("Service", objects)["spec"]["clusterIP"] == "None"
    assert of("ConfigMap", objects)["data"] == {"engine.yaml": "max-num-seqs: 64\n"}
    without = manifests.server_objects(server(program=program(files={}, argv=("serve",))), OWNER)
    assert [obj["kind"] for obj in without] == ["Service", "Job"]


def test_one_pod_no_retry_no_restart_and_deadlines() -> None:
    spec = job()["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 0)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (14400, 600)
    assert "activeDeadlineSeconds" not in job(active_deadline_s=None)["spec"]


def test_every_object_belongs_to_the_owner_without_blocking_its_deletion() -> None:
    for obj in manifests.server_objects(server(), OWNER):
        (reference,) = obj["metadata"]["ownerReferences"]
        assert reference == {"apiVersion": "batch/v1", "kind": "Job", "name": "fig7", "uid": OWNER.uid, "blockOwnerDeletion": False}


def test_labels_are_on_every_object_and_on_the_pod_and_the_service_selects_the_pod() -> None:
    spec = server()
    objects = manifests.server_objects(spec, OWNER)
    for obj in objects:
        assert obj["metadata"]["labels"].items() >= spec.labels.items()
    pod_labels = of("Job", objects)["spec"]["template"]["metadata"]["labels"]
    assert pod_labels.items() >= of("Service", objects)["spec"]["selector"].items()


def test_limits_equal_requests_and_hold_gpus() -> None:
    resources = container(pod(program=program(extra_resources={"rdma/ib": "1"})))["resources"]
    assert resources["limits"] == resources["requests"] == {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8", "rdma/ib": "1"}
    assert not [name for name in container(pod(gpus=0))["resources"]["limits"] if "gpu" in name]


def test_gpu_nodes_are_chosen_by_product_and_their_taint_is_tolerated() -> None:
    spec = pod(placement=Placement(node_selector={"zone": "a"}, tolerations=({"key": "team", "operator": "Exists"},)))
    assert spec["nodeSelector"] == {"zone": "a", "nvidia.com/gpu.product": "NVIDIA-B200"}
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]
    assert {"key": "team", "operator": "Exists"} in spec["tolerations"]
    assert "nodeSelector" not in pod(gpus=0)
    assert "nodeSelector" not in pod(gpu_product=None)
    other = pod(gpu_resource="amd.com/gpu", gpu_product="MI300X", gpu_product_label="amd.com/gpu.product-name")
    assert other["nodeSelector"] == {"amd.com/gpu.product-name": "MI300X"}


def test_a_lost_node_is_noticed_before_kubernetes_five_minutes() -> None:
    lost = {item["key"]: item["tolerationSeconds"] for item in pod()["tolerations"] if item.get("effect") == "NoExecute"}
    assert lost == {"node.kubernetes.io/not-ready": 60, "node.kubernetes.io/unreachable": 60}


def test_shared_memory_is_an_empty_dir_in_memory() -> None:
    spec = pod()
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}} in spec["volumes"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in container(spec)["volumeMounts"]
    assert "shm" not in {volume["name"] for volume in pod(shm=None)["volumes"]}


def test_the_pod_may_do_as_little_as_it_needs() -> None:
    spec = pod()
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert not [name for name in ("hostNetwork", "hostIPC", "hostPID") if spec.get(name)]
    security = container(spec)["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    asked = container(pod(program=program(capabilities=("IPC_LOCK",), run_as_user=1000)))["securityContext"]
    assert asked["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert (asked["runAsUser"], asked["runAsNonRoot"]) == (1000, True)


def test_user_and_home_are_set_and_home_can_be_written() -> None:
    main = container(pod())
    env = {item["name"]: item.get("value") for item in main["env"]}
    assert env["USER"]
    (home,) = [mount for mount in main["volumeMounts"] if mount["mountPath"] == env["HOME"]]
    assert {"name": home["name"], "emptyDir": {}} in pod()["volumes"]
    assert not home.get("readOnly")
    own = {item["name"]: item.get("value") for item in container(pod(program=program(env={"HOME": "/root"})))["env"]}
    assert own["HOME"] == "/root"


def test_startup_and_readiness_probes_and_no_liveness_probe() -> None:
    main = container(pod(startup_s=5400, probe_period_s=10, health_path="/ready", port=8123))
    assert "livenessProbe" not in main
    assert main["startupProbe"]["httpGet"] == main["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 8123}
    assert main["startupProbe"]["periodSeconds"] == 10
    assert main["startupProbe"]["failureThreshold"] * 10 >= 5400
    short = container(pod(startup_s=7, probe_period_s=2))["startupProbe"]
    assert short["failureThreshold"] * short["periodSeconds"] >= 7


def test_the_hub_token_is_a_reference_and_no_value_anywhere() -> None:
    objects = manifests.server_objects(server(), OWNER)
    variables = {item["name"]: item for item in container(of("Job", objects)["spec"]["template"]["spec"])["env"]}
    assert variables["HF_TOKEN"] == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    optional = container(pod(program=program(secret_env={"HF_TOKEN": SecretRef("hub", "token", optional=True)})))["env"]
    assert optional[-1]["valueFrom"]["secretKeyRef"]["optional"] is True


def test_weights_are_mounted_read_only_and_a_claim_once() -> None:
    claims = (
        ClaimMount("weights", "/models"),
        ClaimMount("weights", "/drafters", sub_path="d"),
        ClaimMount("out", "/out", read_only=False),
    )
    spec = pod(program=program(claims=claims))
    of_claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert [volume["persistentVolumeClaim"] for volume in of_claims] == [{"claimName": "weights", "readOnly": True}, {"claimName": "out"}]
    mounts = {mount["mountPath"]: mount for mount in container(spec)["volumeMounts"]}
    assert mounts["/models"]["readOnly"] is mounts["/drafters"]["readOnly"] is True
    assert mounts["/models"]["name"] == mounts["/drafters"]["name"] != mounts["/out"]["name"]
    assert mounts["/drafters"]["subPath"] == "d"
    assert mounts["/out"]["readOnly"] is False


def test_a_claim_that_one_mount_writes_is_not_attached_read_only() -> None:
    claims = (ClaimMount("data", "/in"), ClaimMount("data", "/out", read_only=False))
    spec = pod(program=program(claims=claims))
    assert [volume["persistentVolumeClaim"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume] == [{"claimName": "data"}]


def test_placeholders_are_filled_in() -> None:
    main = container(pod(port=8123))
    command = [*main["command"], *main["args"]]
    (files,) = [mount["mountPath"] for mount in main["volumeMounts"] if mount["name"] == "files"]
    assert command == ["vllm", "serve", "/models/target", "--host", "0.0.0.0", "--port", "8123", "--config", f"{files}/engine.yaml"]


@settings(deadline=None)
@given(st.text("$()A{}x", max_size=12))
def test_dollars_reach_the_program_as_they_were_written(text: str) -> None:
    main = container(pod(program=program(argv=("serve", text), env={"A": "1", "B": text}, files={}, claims=())))
    assert as_kubelet_reads(main["args"][0], {"A": "1"}) == text
    assert as_kubelet_reads(next(item["value"] for item in main["env"] if item["name"] == "B"), {"A": "1"}) == text


def test_placement_reaches_the_pod() -> None:
    spec = pod(placement=Placement(runtime_class="nvidia", image_pull_secrets=("reg",), priority_class="high"))
    assert (spec["runtimeClassName"], spec["priorityClassName"], spec["imagePullSecrets"]) == ("nvidia", "high", [{"name": "reg"}])


def test_a_queue_suspends_the_job_until_kueue_admits_it() -> None:
    queued = job(placement=Placement(queue="gpus", queue_priority="low"))
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "low"
    assert "suspend" not in job()["spec"]


def test_a_template_overrides_any_field() -> None:
    spec = pod(placement=Placement(template={"spec": {"schedulerName": "volcano", "containers": [{"name": MAIN, "tty": True}]}}))
    assert spec["schedulerName"] == "volcano"
    assert container(spec)["tty"] is True


def test_the_hash_of_an_object_tells_another_server_and_not_another_owner() -> None:
    def contents(**fields: Any) -> list[str | None]:
        return [manifests.content_of(obj) for obj in manifests.server_objects(server(**fields), OWNER)]

    assert contents() == contents() == [manifests.content_of(obj) for obj in manifests.server_objects(server(), None)]
    assert None not in contents()
    assert contents()[-1] != contents(gpus=4)[-1]
    assert contents()[-1] != contents(program=program(files={"engine.yaml": "max-num-seqs: 65\n"}))[-1], (
        "the Job with other files is another"
    )
    assert manifests.content_of({"metadata": {"annotations": {"other": "x"}}}) is None


def test_the_sweep_runs_again_after_a_crash_but_not_after_a_final_code_and_disruptions_do_not_count() -> None:
    found = of("Job", manifests.sweep_objects(sweep()))["spec"]
    assert found["backoffLimit"] == 6
    ignore, fail = found["podFailurePolicy"]["rules"]
    assert (ignore["action"], ignore["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert (fail["action"], fail["onExitCodes"]) == ("FailJob", {"containerName": MAIN, "operator": "In", "values": [2, 5]})
    assert found["podReplacementPolicy"] == "Failed"


def test_the_sweep_has_its_service_account_and_knows_its_pod() -> None:
    spec = of("Job", manifests.sweep_objects(sweep()))["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("specsweep", True)
    fields = {
        item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"]
        for item in container(spec)["env"]
        if "fieldRef" in item.get("valueFrom", {})
    }
    assert fields["POD_NAME"] == "metadata.name"
    assert {"POD_NAMESPACE", "POD_IP", "NODE_NAME"} <= set(fields)


def test_the_sweep_has_shared_memory_for_what_its_processes_hand_over() -> None:
    spec = of("Job", manifests.sweep_objects(sweep(shm="1Gi")))["spec"]["template"]["spec"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}} in spec["volumes"]
    with pytest.raises(SpecError, match="/dev/shm counts against the memory limit"):
        sweep(shm="1000Gi")


def test_the_config_map_of_a_sweep_is_given_to_its_job_afterwards() -> None:
    config, made = manifests.sweep_objects(sweep())
    assert "ownerReferences" not in config["metadata"]
    assert "ownerReferences" not in made["metadata"]
    assert manifests.owned(OWNER)["metadata"]["ownerReferences"][0]["uid"] == OWNER.uid


def test_a_prefetch_writes_to_its_volume_and_is_tried_again() -> None:
    (found,) = manifests.prefetch_objects(prefetch(), OWNER)
    spec = found["spec"]
    assert spec["backoffLimit"] == 3
    assert [v["persistentVolumeClaim"] for v in spec["template"]["spec"]["volumes"] if "persistentVolumeClaim" in v] == [
        {"claimName": "weights"}
    ]


ALL = [manifests.server_objects(server(), OWNER), manifests.sweep_objects(sweep()), manifests.prefetch_objects(prefetch(), OWNER)]


@pytest.mark.parametrize("objects", ALL)
def test_objects_are_json_and_none_of_it_is_null(objects: list[dict[str, Any]]) -> None:
    assert json.loads(json.dumps(objects)) == objects
    assert "null" not in json.dumps(objects)
    assert all(CONTENT in obj["metadata"]["annotations"] for obj in objects)


@pytest.mark.parametrize("objects", ALL)
def test_every_field_is_one_that_the_api_has(objects: list[dict[str, Any]]) -> None:
    """The official models drop what they do not know: a field that is misspelled would not come back."""
    models = {"Job": V1Job, "Service": V1Service, "ConfigMap": V1ConfigMap}
    client = ApiClient()
    for obj in objects:
        model = models[obj["kind"]]
        assert client.sanitize_for_serialization(client.deserialize(json.dumps(obj), model.__name__, "application/json")) == obj


def test_files_in_folders_are_keys_without_and_stand_in_the_pod_with() -> None:
    spec = sweep(program=program(files={"config/engine/mine.yaml": "name: mine\n", "top.yaml": "a: 1\n"}))
    files, job = manifests.sweep_objects(spec)
    assert files["data"] == {"config..engine..mine.yaml": "name: mine\n", "top.yaml": "a: 1\n"}
    (volume,) = [volume for volume in job["spec"]["template"]["spec"]["volumes"] if volume["name"] == "files"]
    paths = {item["path"]: files["data"][item["key"]] for item in volume["configMap"]["items"]}
    assert paths == dict(spec.program.files)
