"""Jobs that run to their end: the sweep itself, handed over and left alone, and a download, waited for."""

from __future__ import annotations

from collections.abc import Callable

from specsweep.k8s.api import Api
from specsweep.k8s.errors import Conflict, NotFound, Outdated
from specsweep.k8s.evidence import last_lines
from specsweep.k8s.fleet import Fleet, is_over
from specsweep.k8s.manifests import content_of, owned, prefetch_objects, sweep_objects
from specsweep.k8s.names import carries
from specsweep.k8s.outcomes import Ready, Retryable, Starting, Terminal
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


async def finish(
    fleet: Fleet,
    spec: PrefetchSpec,
    owner: Owner | None,
    *,
    budgets: Budgets | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Runs a download to its end; one that runs already is joined. ``progress`` is told what it waits for, then the last line it wrote.

    Its Job stays (for whoever looks) until its owner goes or it is run again. Raises StartRetryable or StartTerminal with evidence.
    """
    job = await fleet.create(prefetch_objects(spec, owner))
    watched = Watched(fleet, job, budgets or Budgets(startup_s=float("inf")), lambda log: None)
    look_s = fleet.pace.first_look_s
    told = ""
    while True:
        versions = fleet.versions
        pod, now = watched.picture()
        conditions = read_job(now).conditions if now is not None else {}
        if any(name in conditions and conditions[name].holds for name in ("Complete", "SuccessCriteriaMet")):
            return
        verdict, pod = await watched.full_verdict()
        if isinstance(verdict, Retryable | Terminal) and not _is_tried_again(now, pod):
            raise await watched.failure(verdict)
        text = told
        if pod is not None and isinstance(verdict, Ready):
            text = (await last_lines(fleet.api, pod["metadata"]["name"], lines=1)).strip()
        elif isinstance(verdict, Starting):
            text = verdict.waits_for
        elif isinstance(verdict, Retryable | Terminal):
            text = f"another try: {verdict.reason}"
        if text != told:
            told = text
            progress(text)
        look_s = await watched.wait(versions, verdict, look_s)


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
