"""From a spec to the API objects that run it: pure functions, plain dicts.

A server is a Job and not a Deployment: a Deployment restarts a crashed engine in silence, and its rolling update waits for a
second set of GPUs that an exclusive node does not have. The Job has one pod, no retries and ``restartPolicy: Never``, so a crash
stays a crash that can be read; Kueue can suspend it; a deadline ends it even if we are gone. There is no liveness probe: a server
that is busy must not be killed for it while it is measured. Files come from a ConfigMap, addresses from the pod (a headless
Service gives it a name, no proxy stands between).

All objects of one run share its name and belong to one owner (``blockOwnerDeletion`` is false, as true needs a right on the
owner's finalizers). Each carries a hash of itself as made here: what is found under that name and has the same hash is the same.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from specsweep.k8s.merge import MAIN, with_template
from specsweep.k8s.names import CONTENT
from specsweep.k8s.podspec import FILES_DIR, pod_template
from specsweep.k8s.specs import Owner, PrefetchSpec, ServerSpec, SweepSpec, file_key

QUEUE = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
HOST = "0.0.0.0"  # every address of the pod, its own is not known beforehand
PROBE_TIMEOUT_S = 10  # a server under full load answers its health path late
NOT_READY_AFTER = 6  # failed probes
SPARE_PROBES = 3  # the kubelet kills at its budget; ours comes first, with the log still there

Manifest = dict[str, Any]


def server_objects(spec: ServerSpec, owner: Owner | None) -> list[Manifest]:
    """ConfigMap (if there are files), Service and Job of one server, in the order to create them."""
    template = pod_template(
        spec,
        placeholders={"{host}": HOST, "{port}": str(spec.port), "{files}": FILES_DIR},
        resources={spec.gpu_resource: str(spec.gpus)} if spec.gpus else {},
        node_selector={spec.gpu_product_label: spec.gpu_product} if spec.gpus and spec.gpu_product else {},
        tolerations=[
            *([{"key": spec.gpu_resource, "operator": "Exists"}] if spec.gpus else []),
            *(
                {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": spec.node_lost_s}
                for state in ("not-ready", "unreachable")
            ),
        ],
        container={"ports": [{"name": "http", "containerPort": spec.port, "protocol": "TCP"}], **_probes(spec)},
    )
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(spec, owner),
        "spec": {
            "clusterIP": "None",
            "selector": dict(spec.labels),
            "ports": [{"name": "http", "port": spec.port, "targetPort": "http", "protocol": "TCP"}],
        },
    }
    return [*_files(spec, owner), _stamped(service), _job(spec, owner, template, backoffLimit=0)]


def sweep_objects(spec: SweepSpec) -> list[Manifest]:
    """ConfigMap and Job of a sweep. The Job has no owner; it is to be made the owner of the ConfigMap (:func:`owned`) and of all the rest."""
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP", "NODE_NAME": "spec.nodeName"}
    template = pod_template(
        spec,
        placeholders={"{files}": FILES_DIR},
        pod={"serviceAccountName": spec.service_account, "automountServiceAccountToken": True},  # it starts the servers
        env=[{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
    )
    return [*_files(spec, None), _job(spec, None, template, **_tries(spec))]


def prefetch_objects(spec: PrefetchSpec, owner: Owner | None) -> list[Manifest]:
    """ConfigMap (if there are files) and Job of a download."""
    template = pod_template(spec, placeholders={"{files}": FILES_DIR})
    return [*_files(spec, owner), _job(spec, owner, template, **_tries(spec))]


def _tries(spec: SweepSpec | PrefetchSpec) -> Manifest:
    """What Kubernetes itself took away is not the program's failure; what will fail again is not tried again."""
    rules: list[Manifest] = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    if spec.final_codes:
        rules.append({"action": "FailJob", "onExitCodes": {"containerName": MAIN, "operator": "In", "values": sorted(spec.final_codes)}})
    return {"backoffLimit": spec.retries, "podFailurePolicy": {"rules": rules}, "podReplacementPolicy": "Failed"}


def owned(owner: Owner) -> Manifest:
    """A merge patch that gives an object to ``owner``."""
    return {"metadata": {"ownerReferences": [_reference(owner)]}}


def content_of(obj: Mapping[str, Any]) -> str | None:
    """The hash that an object carries of itself as it was made; None for one that is not ours."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    found = annotations.get(CONTENT)
    return found if isinstance(found, str) else None


def _job(spec: ServerSpec | SweepSpec | PrefetchSpec, owner: Owner | None, template: Mapping[str, Any], **fields: Any) -> Manifest:
    place = spec.placement
    metadata = _metadata(spec, owner)
    if place.queue is not None:
        metadata["labels"][QUEUE] = place.queue
        if place.queue_priority is not None:
            metadata["labels"][QUEUE_PRIORITY] = place.queue_priority
        fields["suspend"] = True  # until Kueue has room for it
    if spec.active_deadline_s is not None:
        fields["activeDeadlineSeconds"] = spec.active_deadline_s
    if spec.ttl_s is not None:
        fields["ttlSecondsAfterFinished"] = spec.ttl_s
    merged = with_template(template, place.template)
    job = {"parallelism": 1, "completions": 1, "template": merged, **fields}
    return _stamped({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job})


def _files(spec: ServerSpec | SweepSpec | PrefetchSpec, owner: Owner | None) -> list[Manifest]:
    if not spec.program.files:
        return []
    data = {file_key(name): text for name, text in spec.program.files.items()}
    return [_stamped({"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(spec, owner), "data": data})]


def _metadata(spec: ServerSpec | SweepSpec | PrefetchSpec, owner: Owner | None) -> Manifest:
    return {
        "name": spec.name,
        "namespace": spec.namespace,
        "labels": dict(spec.labels),
        "annotations": dict(spec.annotations),
        **({"ownerReferences": [_reference(owner)]} if owner is not None else {}),
    }


def _reference(owner: Owner) -> Manifest:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, "blockOwnerDeletion": False}


def _probes(spec: ServerSpec) -> Manifest:
    asks = {
        "httpGet": {"path": spec.health_path, "port": spec.port},
        "periodSeconds": spec.probe_period_s,
        "timeoutSeconds": PROBE_TIMEOUT_S,
    }
    times = math.ceil(spec.startup_s / spec.probe_period_s) + SPARE_PROBES
    return {"startupProbe": {**asks, "failureThreshold": times}, "readinessProbe": {**asks, "failureThreshold": NOT_READY_AFTER}}


def _stamped(obj: Manifest) -> Manifest:
    # Without its owner: the same server started again by the next attempt of the same sweep is the same server.
    metadata = {name: value for name, value in obj["metadata"].items() if name != "ownerReferences"}
    text = json.dumps({**obj, "metadata": metadata}, sort_keys=True, separators=(",", ":"))
    obj["metadata"]["annotations"][CONTENT] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return obj
