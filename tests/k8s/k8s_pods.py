"""Pods, Jobs and events as an API server of 1.3x returns them, at one moment each. Times are around ``NOW``."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
NODE = "gpu-node-7"
IMAGE = "vllm/vllm-openai:v0.13.0"


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, seconds_ago: float, reason: str = "", message: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": ago(seconds_ago),
        "observedGeneration": 1,
    }
    return {**found, **({"reason": reason} if reason else {}), **({"message": message} if message else {})}


def scheduled(seconds_ago: float) -> dict[str, Any]:
    return condition("PodScheduled", "True", seconds_ago)


def status(state: dict[str, Any], *, ready: bool = False, restarts: int = 0, name: str = "main") -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "image": IMAGE,
        "imageID": "",
        "state": state,
        "lastState": {},
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "resources": {"limits": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"}},
    }
    if "waiting" not in state:
        found["imageID"] = "docker.io/vllm/vllm-openai@sha256:6f1e3a"
        found["containerID"] = "containerd://4d2c"
    return found


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running(seconds_ago: float) -> dict[str, Any]:
    return {"running": {"startedAt": ago(seconds_ago)}}


def terminated(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    ended: dict[str, Any] = {
        "exitCode": code,
        "reason": reason,
        "startedAt": ago(300),
        "finishedAt": ago(10),
        "containerID": "containerd://4d2c",
    }
    return {"terminated": {**ended, **({"message": message} if message else {})}}


def pod(
    phase: str,
    *,
    conditions: list[dict[str, Any]] | None = None,
    containers: list[dict[str, Any]] | None = None,
    node: str | None = NODE,
    created: float = 600,
    deleting: bool = False,
    spec: dict[str, Any] | None = None,
    **of_status: Any,
) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["vllm"],
        "resources": {
            "limits": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"},
            "requests": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "fig7-3f2a91c0e2-x7k2p",
            "generateName": "fig7-3f2a91c0e2-",
            "namespace": "bench",
            "uid": "5f0e-pod",
            "resourceVersion": "4711",
            "creationTimestamp": ago(created),
            "labels": {"specsweep.io/sweep": "fig7", "batch.kubernetes.io/job-name": "fig7-3f2a91c0e2"},
            **({"deletionTimestamp": ago(-30), "deletionGracePeriodSeconds": 30} if deleting else {}),
        },
        "spec": {"restartPolicy": "Never", "containers": [container], **({"nodeName": node} if node else {}), **(spec or {})},
        "status": {
            "phase": phase,
            "conditions": conditions or [],
            "qosClass": "Guaranteed",
            **({"hostIP": "10.1.0.7", "startTime": ago(500)} if node else {}),
            **({"containerStatuses": containers} if containers is not None else {}),
            **of_status,
        },
    }


def unscheduled(message: str, seconds_ago: float) -> dict[str, Any]:
    return pod(
        "Pending",
        node=None,
        conditions=[condition("PodScheduled", "False", seconds_ago, "Unschedulable", message)],
        created=seconds_ago + 1,
    )


def creating(reason: str = "ContainerCreating", message: str = "", *, seconds_ago: float = 60) -> dict[str, Any]:
    conditions = [
        condition("PodReadyToStartContainers", "False", seconds_ago),
        condition("Initialized", "True", seconds_ago),
        condition("Ready", "False", seconds_ago, "ContainersNotReady", "containers with unready status: [main]"),
        condition("ContainersReady", "False", seconds_ago, "ContainersNotReady", "containers with unready status: [main]"),
        scheduled(seconds_ago),
    ]
    return pod("Pending", conditions=conditions, containers=[status(waiting(reason, message))], created=seconds_ago + 5)


def up(*, started: float, ready: bool, **fields: Any) -> dict[str, Any]:
    conditions = [
        condition("PodReadyToStartContainers", "True", started),
        condition("Initialized", "True", started + 60),
        condition("Ready", str(ready), started, *(() if ready else ("ContainersNotReady", "containers with unready status: [main]"))),
        condition("ContainersReady", str(ready), started),
        scheduled(started + 60),
    ]
    given: dict[str, Any] = {"conditions": conditions, "containers": [status(running(started), ready=ready)], "podIP": "10.42.3.9"}
    return pod("Running", **{**given, **fields})


def ended(code: int, reason: str = "Error", message: str = "", **fields: Any) -> dict[str, Any]:
    phase = "Succeeded" if code == 0 else "Failed"
    why = "PodCompleted" if code == 0 else "PodFailed"
    conditions = [condition("Ready", "False", 10, why), condition("ContainersReady", "False", 10, why), scheduled(400)]
    given: dict[str, Any] = {"conditions": conditions, "containers": [status(terminated(code, reason, message))], "podIP": "10.42.3.9"}
    return pod(phase, **{**given, **fields})


def with_condition(obj: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    found = deepcopy(obj)
    found["status"].setdefault("conditions", []).extend(more)
    return found


def job(*conditions: dict[str, Any], suspended: bool = False, created: float = 610, deleting: bool = False) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "fig7-3f2a91c0e2",
            "namespace": "bench",
            "uid": "77aa-job",
            "creationTimestamp": ago(created),
            **({"deletionTimestamp": ago(1), "finalizers": ["foregroundDeletion"]} if deleting else {}),
        },
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "suspend": suspended},
        "status": {"conditions": list(conditions), "active": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}},
    }


def event(reason: str, message: str, first: float, last: float | None = None, *, new_style: bool = False) -> dict[str, Any]:
    times: dict[str, Any] = (
        {"firstTimestamp": None, "lastTimestamp": None, "eventTime": ago(first).replace("Z", ".123456Z")}
        if new_style
        else {"firstTimestamp": ago(first), "lastTimestamp": ago(first if last is None else last), "count": 3, "eventTime": None}
    )
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": {"kind": "Pod", "name": "fig7-3f2a91c0e2-x7k2p", "uid": "5f0e-pod"},
        **times,
    }


def kueue_suspended(seconds_ago: float) -> dict[str, Any]:
    return job(condition("Suspended", "True", seconds_ago, "JobSuspended", "Job suspended"), suspended=True)
