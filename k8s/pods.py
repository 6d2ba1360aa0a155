"""What a pod's JSON says, read once into plain values, so that the verdict is about meaning and not about missing keys.

A pod on its way has any subset of its status: no container states before the kubelet saw it, no conditions before the scheduler
did, and an event has its times in one of two places, depending on who wrote it. Nothing here raises, whatever is missing or odd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specsweep.k8s.redaction import redacted


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Running:
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Terminated:
    exit_code: int | None
    signal: int | None
    reason: str
    message: str  # the log's last lines, or what the program left for us; without secrets
    ran_s: float | None = None


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    state: Waiting | Running | Terminated | None
    restarts: int
    image_id: str


@dataclass(frozen=True, slots=True)
class Condition:
    status: str
    reason: str
    message: str
    since: datetime | None

    @property
    def holds(self) -> bool:
        return self.status == "True"


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    phase: str
    reason: str
    message: str
    node: str
    ip: str
    created: datetime | None
    deleted: bool  # somebody asked for its end
    gates: tuple[str, ...]
    conditions: Mapping[str, Condition]
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    memory_limits: Mapping[str, str]  # container → limit

    def container(self, name: str) -> Container | None:
        return next((container for container in self.containers if container.name == name), None)


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    suspended: bool
    deleted: bool
    created: datetime | None
    conditions: Mapping[str, Condition]


@dataclass(frozen=True, slots=True)
class Event:
    reason: str
    message: str
    first: datetime | None
    last: datetime | None
    count: int
    kind: str = "Normal"


def newest_last(obj: Mapping[str, Any]) -> tuple[bool, str]:
    """A key to sort API objects by: what is being deleted comes before what is not, then the older one before the newer."""
    return not obj["metadata"].get("deletionTimestamp"), str(obj["metadata"].get("creationTimestamp") or "")


def read_pod(obj: Mapping[str, Any]) -> Pod:
    metadata, spec, status = (_object(obj.get(name)) for name in ("metadata", "spec", "status"))
    limits = {
        _text(container.get("name")): _text(_object(_object(container.get("resources")).get("limits")).get("memory"))
        for container in (*_objects(spec.get("initContainers")), *_objects(spec.get("containers")))
    }
    return Pod(
        name=_text(metadata.get("name")),
        phase=_text(status.get("phase")),
        reason=_text(status.get("reason")),
        message=_text(status.get("message")),
        node=_text(spec.get("nodeName")),
        ip=_text(status.get("podIP")),
        created=read_time(metadata.get("creationTimestamp")),
        deleted=bool(metadata.get("deletionTimestamp")),
        gates=tuple(_text(gate.get("name")) for gate in _objects(spec.get("schedulingGates"))),
        conditions=_conditions(status),
        init_containers=tuple(_container(item) for item in _objects(status.get("initContainerStatuses"))),
        containers=tuple(_container(item) for item in _objects(status.get("containerStatuses"))),
        memory_limits=limits,
    )


def read_job(obj: Mapping[str, Any]) -> Job:
    metadata, spec, status = (_object(obj.get(name)) for name in ("metadata", "spec", "status"))
    return Job(
        name=_text(metadata.get("name")),
        suspended=spec.get("suspend") is True,
        deleted=bool(metadata.get("deletionTimestamp")),
        created=read_time(metadata.get("creationTimestamp")),
        conditions=_conditions(status),
    )


def read_event(obj: Mapping[str, Any]) -> Event:
    """Of ``v1`` Event, from the old recorder (``firstTimestamp``, ``count``) or the new one (``eventTime``, ``series``)."""
    series = _object(obj.get("series"))
    first = read_time(obj.get("firstTimestamp")) or read_time(obj.get("eventTime"))
    last = read_time(obj.get("lastTimestamp")) or read_time(series.get("lastObservedTime")) or first
    return Event(
        reason=_text(obj.get("reason")),
        message=_text(obj.get("message")).strip(),
        first=first,
        last=last,
        count=_number(obj.get("count")) or _number(series.get("count")) or 1,
        kind=_text(obj.get("type")) or "Normal",
    )


def read_time(value: object) -> datetime | None:
    """An RFC 3339 time in UTC; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _container(obj: Mapping[str, Any]) -> Container:
    return Container(
        name=_text(obj.get("name")),
        state=_state(_object(obj.get("state"))),
        restarts=_number(obj.get("restartCount")) or 0,
        image_id=_text(obj.get("imageID")),
    )


def _state(obj: Mapping[str, Any]) -> Waiting | Running | Terminated | None:
    if "terminated" in obj:
        ended = _object(obj["terminated"])
        code, signal = _number(ended.get("exitCode")), _number(ended.get("signal"))
        began, over = read_time(ended.get("startedAt")), read_time(ended.get("finishedAt"))
        ran_s = (over - began).total_seconds() if began is not None and over is not None else None
        return Terminated(code, signal, _text(ended.get("reason")), redacted(_text(ended.get("message")).strip()), ran_s)
    if "running" in obj:
        return Running(read_time(_object(obj["running"]).get("startedAt")))
    if "waiting" in obj:
        waiting = _object(obj["waiting"])
        return Waiting(_text(waiting.get("reason")), _text(waiting.get("message")).strip())
    return None


def _conditions(status: Mapping[str, Any]) -> dict[str, Condition]:
    return {
        _text(item.get("type")): Condition(
            _text(item.get("status")),
            _text(item.get("reason")),
            _text(item.get("message")).strip(),
            read_time(item.get("lastTransitionTime")),
        )
        for item in _objects(status.get("conditions"))
    }


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
