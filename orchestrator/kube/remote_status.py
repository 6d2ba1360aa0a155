"""How the sweeps of a namespace are, seen from anywhere: what each published of itself, and what the cluster knows of its pods.

Three lists of objects for any number of sweeps, and events only of pods that wait for something. What a sweep published last may be old:
it is believed for what was measured, and the cluster for what runs.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specsweep.k8s import names
from specsweep.k8s.merge import MAIN
from specsweep.k8s.outcomes import Ready, Retryable, Starting, Terminal, Verdict
from specsweep.k8s.pods import Terminated, newest_last, read_job, read_pod
from specsweep.k8s.resources import CONFIG_MAPS, JOBS, PODS
from specsweep.k8s.verdict import FOREVER, judge
from specsweep.orchestrator.errors import (
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    ClientError,
    ClusterRetryable,
    ClusterTerminal,
    ConfigError,
    EngineError,
)
from specsweep.orchestrator.kube.publisher import COMPONENT as STATUS
from specsweep.orchestrator.kube.resumption import not_there
from specsweep.orchestrator.kube.status_document import KEY, at, nothing_known, read
from specsweep.orchestrator.kube.submission import OVERRIDES, POINTS, SWEEP_NAME
from specsweep.orchestrator.sweep_status import SweepStatus

if TYPE_CHECKING:
    from specsweep.k8s.api import Api

Json = Mapping[str, Any]
MOST_ASKED = 20  # pods whose events are asked for
ENDS: Mapping[int, str] = {
    EXIT_OK: "done",
    ConfigError.exit_code: "refused its input",
    ClusterTerminal.exit_code: "could not use the cluster",
    ClusterRetryable.exit_code: "lost the cluster for a time",
    EngineError.exit_code: "measured no point: engines or requests failed",
    EXIT_INCOMPLETE: "done, with points that failed or are not valid",
    ClientError.exit_code: "failed on the measuring side",
    EXIT_INTERRUPTED: "was interrupted",
}


@dataclass(frozen=True, slots=True)
class EnginePod:
    name: str
    session: str  # the first digits of its id
    drafter: str
    gpus: str  # "8", empty if none
    node: str
    state: str  # in words: ready, or what it waits for, or how it ended


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a sweep is in the cluster. ``state``: of its Job and its own pod, in words."""

    namespace: str
    job: str
    pod: str
    node: str
    state: str
    engines: tuple[EnginePod, ...]
    told_utc: str | None  # when the sweep last said how far it is
    overrides: str  # the words as a JSON list


@dataclass(slots=True)
class _Found:
    job: Json | None = None
    status: Json | None = None
    pods: list[Json] = field(default_factory=list)
    engine_jobs: list[Json] = field(default_factory=list)


async def sweeps(api: Api, wanted: Sequence[str] = ()) -> list[tuple[SweepStatus, Placed]]:
    """Of the sweeps that are named, or all of the namespace. Raises ConfigError for a name that is not there."""
    selector = {names.MANAGED_BY: names.APP, **({names.SWEEP: names.label_value(wanted[0])} if len(wanted) == 1 else {})}
    lists = [
        api.find(JOBS, selector=names.selector(selector)),
        api.find(PODS, selector=names.selector(selector)),
        api.find(CONFIG_MAPS, selector=names.selector({**selector, names.COMPONENT: STATUS})),
    ]
    (jobs, _), (pods, _), (statuses, _) = await asyncio.gather(*lists)
    found = _by_sweep(jobs, pods, statuses)
    for name in wanted:
        if names.label_value(name) not in found:
            raise ConfigError(await not_there(api, name))
    chosen = {names.label_value(name) for name in wanted} or set(found)
    return [await _status(api, label, found[label]) for label in sorted(chosen)]


def _by_sweep(jobs: Iterable[Json], pods: Iterable[Json], statuses: Iterable[Json]) -> dict[str, _Found]:
    """By the sweep's label. What is left of a sweep without a Job and without a status is none."""
    found: dict[str, _Found] = {}
    for job in jobs:
        own = found.setdefault(names.label_of(job, names.SWEEP), _Found())
        if names.label_of(job, names.COMPONENT) == "sweep":
            own.job = job
        elif names.label_of(job, names.COMPONENT) == "engine":
            own.engine_jobs.append(job)
    for status in statuses:
        found.setdefault(names.label_of(status, names.SWEEP), _Found()).status = status
    for pod in pods:
        found.setdefault(names.label_of(pod, names.SWEEP), _Found()).pods.append(pod)
    return {name: own for name, own in found.items() if own.job is not None or own.status is not None}


async def _status(api: Api, label: str, found: _Found) -> tuple[SweepStatus, Placed]:
    annotations = (found.job or {}).get("metadata", {}).get("annotations") or {}
    published, told, fault = _published(found.status, api)
    own = [pod for pod in found.pods if names.label_of(pod, names.COMPONENT) == "sweep"]
    pod = max(own, key=newest_last) if own else None
    state, running, over = await _state(api, found.job, pod)
    status = published or nothing_known(str(annotations.get(SWEEP_NAME) or label), int(annotations.get(POINTS) or 0))
    if fault:
        status = dataclasses.replace(status, damaged=(f"what the sweep says of itself: {fault}",))
    seen = read_pod(pod) if pod is not None else None
    placed = Placed(
        namespace=api.namespace,
        job=str(found.job["metadata"]["name"]) if found.job is not None else "",
        pod=seen.name if seen else "",
        node=seen.node if seen else "",
        state=state,
        engines=tuple(await _engines(api, found)),
        told_utc=told,
        overrides=str(annotations.get(OVERRIDES) or ""),
    )
    return as_cluster_says(status, running=running, over=over, known=found.job is not None), placed


def as_cluster_says(status: SweepStatus, *, running: bool, over: bool, known: bool = True) -> SweepStatus:
    """What the sweep said of itself last, corrected by whether its pod runs. ``known``: there is a Job that says so."""
    if not known or (running and status.state == "running"):
        return status
    if running:
        return dataclasses.replace(status, state="running")
    complete = status.points and not status.missing and not status.failed
    begun = status.measured or status.failed
    state = "finished" if complete else "stopped" if over or begun else "not started"
    return dataclasses.replace(status, state=state, now=None, now_s=None, writer=None)  # type: ignore[arg-type]


def _published(status: Json | None, api: Api) -> tuple[SweepStatus | None, str | None, str]:
    """What it was, brought to this moment; when it was so; and why it cannot be read, if it cannot."""
    if status is None:
        return None, None, ""
    try:
        found, when = read(str((status.get("data") or {}).get(KEY, "")))
    except ValueError as error:
        return None, None, str(error)
    return at(found, max(0.0, (api.now() - when).total_seconds())), when.isoformat(), ""


async def _state(api: Api, job: Json | None, pod: Json | None) -> tuple[str, bool, bool]:
    """In words; whether its pod runs; whether its Job is over."""
    if job is None:
        return "it is no Job: a run from a shell in the cluster", True, False
    read_as = read_job(job)
    over = [name for name in ("Complete", "Failed") if name in read_as.conditions and read_as.conditions[name].holds]
    container = read_pod(pod).container(MAIN) if pod is not None else None
    end = container.state if container is not None and isinstance(container.state, Terminated) else None
    if read_as.deleted:
        return "is being removed", False, True
    if over:
        reason = read_as.conditions[over[0]]
        code = end.exit_code if end is not None else None
        words = ENDS.get(code) if code is not None else None
        return words or ("done" if over == ["Complete"] else f"failed ({reason.reason}): {reason.message}"), False, True
    if end is not None:
        how = ENDS.get(end.exit_code if end.exit_code is not None else -1) or f"ended with code {end.exit_code}"
        return f"its pod {how}; Kubernetes starts another one", False, False
    verdict = await _verdict(api, pod, job, events=True)
    if isinstance(verdict, Ready):
        return "runs", True, False
    return _in_words(verdict), False, False


async def _engines(api: Api, found: _Found) -> list[EnginePod]:
    by_job = {
        owner.get("name"): pod for pod in sorted(found.pods, key=newest_last) for owner in pod["metadata"].get("ownerReferences") or ()
    }
    jobs = sorted(found.engine_jobs, key=newest_last)
    return await asyncio.gather(*(_engine(api, job, by_job.get(job["metadata"]["name"]), ask=i < MOST_ASKED) for i, job in enumerate(jobs)))


async def _engine(api: Api, job: Json, pod: Json | None, *, ask: bool) -> EnginePod:
    verdict = await _verdict(api, pod, job, events=ask)
    return EnginePod(
        name=str(job["metadata"]["name"]),
        session=names.label_of(job, names.SESSION),
        drafter=str((job["metadata"].get("annotations") or {}).get("specsweep.io/drafter", "")),
        gpus=_gpus(job),
        node=read_pod(pod).node if pod is not None else "",
        state="ready" if isinstance(verdict, Ready) else _in_words(verdict),
    )


def _in_words(verdict: Starting | Retryable | Terminal) -> str:
    return f"waits for {verdict.waits_for}" if isinstance(verdict, Starting) else verdict.reason


async def _verdict(api: Api, pod: Json | None, job: Json | None, *, events: bool) -> Verdict:
    """Without deadlines: those are for whoever started it. Events are asked for only where the pod alone says too little."""
    verdict = judge(pod, job, [], now=api.now(), budgets=FOREVER)
    if not events or not isinstance(verdict, Starting):
        return verdict
    uids = [obj["metadata"]["uid"] for obj in (job, pod) if obj is not None]
    return judge(pod, job, await api.events(*uids), now=api.now(), budgets=FOREVER)


def _gpus(job: Json) -> str:
    containers = job["spec"]["template"].get("spec", {}).get("containers") or [{}]
    limits = (containers[0].get("resources") or {}).get("limits") or {}
    return next((str(amount) for name, amount in limits.items() if "/gpu" in name), "")
