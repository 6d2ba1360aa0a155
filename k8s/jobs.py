"""Jobs that run to their end: the sweep itself, handed over and left alone, and a download, waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from specsweep.k8s.api import Api
from specsweep.k8s.errors import Conflict, NotFound, Outdated
from specsweep.k8s.evidence import last_lines
from specsweep.k8s.fleet import Fleet, is_over
from specsweep.k8s.manifests import content_of, owned, prefetch_objects, sweep_objects
from specsweep.k8s.merge import MAIN
from specsweep.k8s.names import carries, selector
from specsweep.k8s.outcomes import GAVE_UP, Ready, Retryable, Starting, Terminal
from specsweep.k8s.pods import Terminated, read_job, read_pod
from specsweep.k8s.resources import CONFIG_MAPS, JOBS, Resource
from specsweep.k8s.specs import Owner, PrefetchSpec, SweepSpec
from specsweep.k8s.verdict import Budgets
from specsweep.k8s.watched import Json, Watched

REMOVAL_S = 300.0


async def submit(api: Api, spec: SweepSpec) -> tuple[Json, bool]:
    """The sweep's Job, and whether it ran already. One that is over is replaced: that is how a sweep is resumed.

    Raises Conflict if that name is somebody else's, or if the sweep runs with other settings.
    """
    *files, wanted = sweep_objects(spec)
    try:
        found = await api.get(JOBS, spec.name)
    except NotFound:
        pass
    else:
        ours = carries(found["metadata"].get("labels") or {}, spec.labels)
        if ours and not is_over(found) and content_of(found) != content_of(wanted):
            raise Conflict(
                f"sweep {spec.name} runs with other settings; cancel it first (kubectl delete job {spec.name}) or name this one otherwise"
            )
        if ours and is_over(found):
            await _removed(api, JOBS, spec)
    # The files first, so that the pod finds them. Until they have their owner, a second submit finds them by name.
    for obj in files:
        try:
            await api.create_or_adopt(obj)
        except Outdated:  # of an earlier submit that did not come to its Job, or whose Job is gone
            await _removed(api, CONFIG_MAPS, spec)
            await api.create_or_adopt(obj)
    job, ran = await api.create_or_adopt(wanted)
    for obj in files:
        await api.patch(CONFIG_MAPS, obj["metadata"]["name"], owned(Owner.of(job)))
    return job, ran


async def adopt_downloads(api: Api, owner: Owner, labels: Mapping[str, str]) -> None:
    """Gives the downloads with ``labels`` that were begun before their sweep to ``owner``, so that they go with it."""
    for resource in (JOBS, CONFIG_MAPS):
        found, _ = await api.find(resource, selector=selector(labels))
        for obj in found:
            if not obj["metadata"].get("ownerReferences") and not obj["metadata"].get("deletionTimestamp"):
                with suppress(NotFound):  # gone meanwhile
                    await api.patch(resource, obj["metadata"]["name"], owned(owner))


async def finish(
    fleet: Fleet,
    spec: PrefetchSpec,
    owner: Owner | None,
    *,
    budgets: Budgets | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Runs a download to its end; one that runs already is joined. ``progress`` is told what it waits for, then the last line it wrote,
    each thing once: another try that comes to the same end has nothing new to say.

    Its Job stays (for whoever looks) until its owner goes or it is run again. Raises StartRetryable or StartTerminal with evidence;
    the latter's kind is :data:`~specsweep.k8s.outcomes.GAVE_UP` where the program itself says that another try is of no use (``spec.final_codes``).
    """
    job = await fleet.create(prefetch_objects(spec, owner))
    watched = Watched(fleet, job, budgets or Budgets(startup_s=float("inf")), lambda log: None)
    look_s = fleet.pace.first_look_s
    told: set[str] = set()
    while True:
        versions = fleet.versions
        pod, now = watched.picture()
        conditions = read_job(now).conditions if now is not None else {}
        if any(name in conditions and conditions[name].holds for name in ("Complete", "SuccessCriteriaMet")):
            return
        verdict, pod = await watched.full_verdict()
        code = _exit_code(pod)
        if code == 0:  # the Job's controller is a moment behind
            return
        text = ""
        if pod is not None and (isinstance(verdict, Ready) or code is not None):
            text = (await last_lines(fleet.api, pod["metadata"]["name"], lines=1)).strip().rpartition("\n")[2]
        if code in spec.final_codes:
            raise await watched.failure(Terminal(text or f"ended with code {code} and said nothing", GAVE_UP))
        if isinstance(verdict, Retryable | Terminal):
            if not _is_tried_again(now, pod):
                raise await watched.failure(verdict)
            unknown = isinstance(verdict, Retryable) and verdict.once  # its reason is the end of the log, which was told as it grew
            text = f"{f'ended with code {code}: {text}' if unknown and code is not None else verdict.reason}; it is tried again"
        elif isinstance(verdict, Starting):
            text = f"waits for {verdict.waits_for}"
        if text not in told:
            told.add(text)
            progress(text)
        look_s = await watched.wait(versions, verdict, look_s)


def _exit_code(pod: Json | None) -> int | None:
    """Of a program that ended by itself; None while it runs, and of a pod that was taken away, whose program may say anything."""
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return None
    seen = read_pod(pod)
    container, taken = seen.container(MAIN), seen.conditions.get("DisruptionTarget")
    if container is None or not isinstance(container.state, Terminated) or (taken is not None and taken.holds):
        return None
    return container.state.exit_code


def _is_tried_again(job: Json | None, pod: Json | None) -> bool:
    """Whether the Job will make another pod for one that ended by itself. One that cannot even start is not helped by that."""
    if job is None or job["metadata"].get("deletionTimestamp") or is_over(job):
        return False
    return pod is None or any(isinstance(container.state, Terminated) for container in read_pod(pod).containers)


async def _removed(api: Api, resource: Resource, spec: SweepSpec) -> None:
    try:
        found = await api.get(resource, spec.name)
    except NotFound:
        return
    if carries(found["metadata"].get("labels") or {}, spec.labels):
        await api.delete(resource, spec.name, uid=found["metadata"]["uid"])
        await api.gone(resource, spec.name, uid=found["metadata"]["uid"], within_s=REMOVAL_S)
