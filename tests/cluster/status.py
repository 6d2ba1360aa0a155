"""A pod's status from the states of its containers: what the kubelet owes the API server, as a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cluster.rest import Json

CREATING: Json = {"waiting": {"reason": "ContainerCreating"}}
INITIALIZING: Json = {"waiting": {"reason": "PodInitializing"}}


@dataclass
class State:
    """One container, as it is now."""

    name: str
    image: str
    current: Json = field(default_factory=lambda: CREATING)
    last: Json = field(default_factory=dict)
    started: bool = False
    ready: bool = False
    restarts: int = 0
    image_id: str = ""
    container_id: str = ""

    @property
    def ended(self) -> bool:
        return "terminated" in self.current

    def status(self) -> Json:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image_id,
            "containerID": self.container_id,
            "state": self.current,
            "lastState": self.last,
            "started": self.started,
            "ready": self.ready,
            "restartCount": self.restarts,
        }


@dataclass(frozen=True, slots=True)
class Taken:
    """Why the node itself ended a pod."""

    reason: str
    message: str
    condition: Json | None = None  # DisruptionTarget


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def restarts(policy: str, code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def phase_of(init: Sequence[State], main: Sequence[State], policy: str, taken: Taken | None) -> str:
    if taken is not None:
        return "Failed"
    if any(state.ended and _code(state) and not restarts(policy, _code(state)) for state in init):
        return "Failed"
    if all(state.ended and not restarts(policy, _code(state)) for state in main):
        return "Failed" if any(_code(state) for state in main) else "Succeeded"
    # Running from the first start on, whatever some of them wait for later.
    return "Running" if all("waiting" not in state.current or state.restarts or state.last for state in main) else "Pending"


def pod_status(
    init: Sequence[State],
    main: Sequence[State],
    *,
    policy: str,
    ip: str,
    host_ip: str,
    since: str,
    before: Mapping[str, Json],
    taken: Taken | None = None,
) -> Json:
    """A strategic merge patch of the status. ``before``: the conditions of the last one by type, for their times."""
    phase = phase_of(init, main, policy, taken)
    over = phase in ("Failed", "Succeeded")
    initialized = all(state.ended and _code(state) == 0 for state in init)
    ready = not over and all(state.ready for state in main)
    completed = {"reason": "PodCompleted"} if phase == "Succeeded" else {"reason": "PodFailed"} if over else {}
    unready = ", ".join(state.name for state in main if not state.ready)
    why = {} if ready else completed or {"reason": "ContainersNotReady", "message": f"containers with unready status: [{unready}]"}
    conditions = [
        _condition("PodReadyToStartContainers", bool(ip) and not over, {}, before),
        _condition("Initialized", initialized, {} if initialized else {"reason": "ContainersNotInitialized"}, before),
        _condition("ContainersReady", ready, why, before),
        _condition("Ready", ready, why, before),
    ]
    if taken is not None and taken.condition is not None:
        conditions.append({"type": "DisruptionTarget", "status": "True", "lastTransitionTime": now(), **taken.condition})
    return {
        "phase": phase,
        "startTime": since,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        **({"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {}),
        "conditions": conditions,
        **({"initContainerStatuses": [state.status() for state in init]} if init else {}),
        "containerStatuses": [state.status() for state in main],
        **({"reason": taken.reason, "message": taken.message} if taken is not None else {}),
    }


def _condition(kind: str, holds: bool, why: Json, before: Mapping[str, Json]) -> Json:
    status = "True" if holds else "False"
    old = before.get(kind)
    since = old["lastTransitionTime"] if old is not None and old.get("status") == status and old.get("lastTransitionTime") else now()
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since, "reason": None, "message": None, **why}


def _code(state: State) -> int:
    return int(state.current["terminated"]["exitCode"]) if state.ended else 0
