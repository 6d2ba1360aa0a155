"""From what Kubernetes shows of a server to one of four verdicts. Nothing else decides, and this is a pure function.

    Starting    it waits for something, since a time and until a deadline that the budgets give
    Ready       its Ready condition is true
    Retryable   it ended, or will not come, for a reason that another start may heal
    Terminal    it will not come in this form; the reason says what to change

Kubernetes itself tries again to pull an image, to mount a volume, to find a node. So those troubles are Starting with a deadline
and not an end: starting anew would only begin its back-off again. When the deadline is over, they are Terminal. What no waiting heals
(:mod:`specsweep.k8s.pulls`) is an end at once: a pod that waits holds its GPUs.

Times are compared on the cluster's clock: ``now`` must come from the API server, not from this machine. Reasons quote the
scheduler and the kubelet in their own words. What an engine's log means is told by ``classify``: this room knows no engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any

from specsweep.k8s.ends import SUSPENDED_AGAIN, LogCause, disruption, ended, job_end
from specsweep.k8s.merge import MAIN
from specsweep.k8s.outcomes import Ready, Retryable, Starting, Terminal, Verdict
from specsweep.k8s.pods import Event, Job, Pod, Running, Terminated, Waiting, read_event, read_job, read_pod
from specsweep.k8s.pulls import pull_end
from specsweep.k8s.scheduling import LATE_S, advice, fits_nowhere

_FINAL_WAITS = {
    "InvalidImageName": ("image", "correct the image's name"),
    "ErrImageNeverPull": ("image", "the node does not have the image and may not pull it: change the pull policy"),
    "SignatureValidationFailed": ("image", "the node's policy does not accept the image's signature"),
    "CreateContainerConfigError": ("container config", "create what is missing, or correct its name and key"),
    "CreateContainerError": ("container", "correct the command, the volumes or the pod template"),
    "RunContainerError": ("container", "correct the command, the runtime class or the pod template"),
}
_PULL_WAITS = ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
QUOTA, REFUSED, NO_POD = "quota", "refused", "no pod"
_CREATING = ("ContainerCreating", "PodInitializing", "")
# "Multi-Attach error for volume …" until 1.36, "Waiting for detach for volume …" since; what follows is the same.
_ONE_NODE = re.compile(r"Multi-Attach error|already (?:used by|exclusively attached to one)")
_HELD_ELSEWHERE = (
    "that volume can be on one node at a time (ReadWriteOnce): end the pod that has it, or use one of ReadOnlyMany or ReadWriteMany"
)
_LONGEST_S = 1e9  # a time in the far future is somebody's wrong clock
_MOUNT_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")


@dataclass(frozen=True, slots=True)
class Budgets:
    """Seconds that each kind of waiting may take."""

    queue_s: float = 3600.0  # for a node with room
    unfit_s: float = 300.0  # for a node at all, where none could ever hold it
    quota_s: float = 86400.0  # suspended, for quota of a queue
    refused_s: float = 120.0  # pods that the API refuses to create
    pull_s: float = 300.0  # from the first failed pull on; a slow one is no failure
    mount_s: float = 300.0  # from the first failed mount on
    create_s: float = 3600.0  # image and volumes, from the node's choice on
    startup_s: float = 5400.0  # from the container's start to health


FOREVER = Budgets(*(inf,) * 8)  # for one that was ready: budgets are for starting


def judge(
    pod: Mapping[str, Any] | None,
    job: Mapping[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
    *,
    now: datetime,
    budgets: Budgets,
    log: str = "",
    classify: Callable[[str], LogCause | None] = lambda log: None,
    main: str = MAIN,
) -> Verdict:
    """``pod``, ``job``: as the API returns them, None if there is none. ``events``: those of both. ``log``: the last lines, if it ended.

    Raises nothing for any JSON, however partial.
    """
    seen = [read_event(event) for event in events]
    its_job = read_job(job) if job is not None else None
    clock = _Clock(now)
    if pod is None:
        return _without_pod(its_job, seen, clock, budgets)
    its_pod = read_pod(pod)
    return (
        disruption(its_pod, its_job, main)
        or ended(its_pod, main, seen, log, classify)
        or _not_scheduled(its_pod, seen, clock, budgets)
        or _waiting(its_pod, seen, clock, budgets)
        or _running(its_pod, seen, clock, budgets, main, log, classify)
    )


def after_ready(verdict: Verdict) -> Verdict:
    """The same for a server that was ready before: what then waits again has failed, and whoever measures it must stop.

    ``verdict`` is to be of :data:`FOREVER`, or a server that ran long and is not ready now would be one that never was.
    """
    if isinstance(verdict, Starting) and verdict.kind == QUOTA:  # its pod is gone already
        return SUSPENDED_AGAIN
    if isinstance(verdict, Starting) and verdict.kind in (NO_POD, REFUSED):  # seen for the first time after its pod went
        return Retryable(f"its pod is gone, and it waits for {verdict.waits_for}", "pod gone")
    if isinstance(verdict, Starting):
        return Retryable(f"was ready and is not any more: it waits for {verdict.waits_for}", "not ready any more")
    return verdict


def wants_log(pod: Mapping[str, Any] | None, *, main: str = MAIN) -> bool:
    """Whether the verdict on that pod depends on what the program wrote."""
    container = read_pod(pod).container(main) if pod is not None else None
    return container is not None and isinstance(container.state, Terminated)


class _Clock:
    """Deadlines on the cluster's time. A time that is not known starts now."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def is_over(self, since: datetime | None, budget_s: float) -> bool:
        return since is not None and (self.now - since).total_seconds() >= budget_s

    def wait(self, what: str, since: datetime | None, budget_s: float, *, kind: str, over: str) -> Starting | Terminal:
        """Starting until ``since`` + ``budget_s``, then Terminal with ``over`` as the advice."""
        if since is None:
            return Starting(what, None, None, kind)
        left_s = budget_s - (self.now - since).total_seconds()
        if left_s > 0:
            return Starting(what, since, self.now + timedelta(seconds=min(left_s, _LONGEST_S)), kind)
        return Terminal(f"waited {budget_s:.0f} s for {what}; {over}", kind)


def _without_pod(job: Job | None, events: Sequence[Event], clock: _Clock, budgets: Budgets) -> Verdict:
    if (end := job_end(job)) is not None or job is None:
        return end or Retryable("its Job is gone: somebody deleted it", "deleted")
    if job.suspended:
        return _suspended(job, clock, budgets)
    if refused := _last(events, "FailedCreate"):
        quota = "exceeded quota" in refused.message
        return clock.wait(
            f"its pod to be allowed ({refused.message})",
            refused.first or job.created,
            budgets.queue_s if quota else budgets.refused_s,
            kind=REFUSED,
            over="raise the namespace's ResourceQuota" if quota else "the API or an admission policy refuses the pod: change what it names",
        )
    return clock.wait(
        "the Job controller to create its pod",
        job.created,
        budgets.create_s,
        kind=NO_POD,
        over="look at: kubectl describe job " + job.name,
    )


def _suspended(job: Job, clock: _Clock, budgets: Budgets) -> Verdict:
    condition = job.conditions.get("Suspended")
    return clock.wait(
        "its queue's quota (the Job is suspended)",
        (condition.since if condition is not None and condition.holds else None) or job.created,
        budgets.quota_s,
        kind=QUOTA,
        over="look at the queue: kubectl get workloads,localqueues. If nobody ever resumes it, Kueue does not run here: leave the queue out",
    )


def _not_scheduled(pod: Pod, events: Sequence[Event], clock: _Clock, budgets: Budgets) -> Verdict | None:
    condition = pod.conditions.get("PodScheduled")
    if pod.node or (condition is not None and condition.holds) or pod.phase not in ("Pending", ""):
        return None
    since = condition.since if condition is not None and condition.since is not None else pod.created
    if pod.gates or (condition is not None and condition.reason == "SchedulingGated"):
        gates = ", ".join(pod.gates) or "unnamed"
        return clock.wait(
            f"its scheduling gates to be lifted ({gates})", since, budgets.quota_s, kind=QUOTA, over="whoever set them did not lift them"
        )
    failed = _last(events, "FailedScheduling")
    words = (condition.message if condition is not None else "") or (failed.message if failed else "")
    if not words:
        return clock.wait("the scheduler", since, budgets.queue_s, kind="no node", over="no scheduler looked at the pod: does it run?")
    nowhere = fits_nowhere(words, (event.reason for event in events)) and not clock.is_over(since, budgets.unfit_s + LATE_S)
    return clock.wait(
        f"a node ({words})",
        since,
        min(budgets.unfit_s, budgets.queue_s) if nowhere else budgets.queue_s,
        kind="no node",
        over=advice(words, nowhere=nowhere),
    )


def _waiting(pod: Pod, events: Sequence[Event], clock: _Clock, budgets: Budgets) -> Verdict | None:
    waiting = next((c.state for c in (*pod.init_containers, *pod.containers) if isinstance(c.state, Waiting)), None)
    if waiting is None and (pod.containers or pod.phase != "Pending"):
        return None
    reason, message = (waiting.reason, waiting.message) if waiting is not None else ("", "")
    scheduled = pod.conditions.get("PodScheduled")
    since = (scheduled.since if scheduled is not None else None) or pod.created
    where = f" on node {pod.node}" if pod.node else ""
    if reason in _FINAL_WAITS:
        kind, advice = _FINAL_WAITS[reason]
        return Terminal(f"{reason}{where}: {message or 'no message'}; {advice}", kind)
    if reason in _PULL_WAITS:
        failed = [event for event in events if event.reason in ("Failed", "BackOff", *_PULL_WAITS) and "pull" in event.message.lower()]
        words = next((event.message for event in reversed(failed) if event.message.startswith("Failed to pull")), "") or message
        return pull_end(words, where) or clock.wait(
            f"its image ({reason}{where}: {words or 'no message'})",
            min((event.first for event in failed if event.first is not None), default=since),
            budgets.pull_s,
            kind="image",
            over="look at the registry, and at the way to it from the node",
        )
    trouble = next((event for name in _MOUNT_EVENTS if (event := _last(events, name))), None)
    if reason in _CREATING and trouble is not None:
        return clock.wait(
            f"its volumes and network ({trouble.reason}{where}: {trouble.message})",
            min((event.first for event in events if event.reason in _MOUNT_EVENTS and event.first is not None), default=since),
            budgets.mount_s,
            kind="mount",
            over=_HELD_ELSEWHERE if _ONE_NODE.search(trouble.message) else "correct the claim, the ConfigMap or the Secret that it names",
        )
    what = f"its containers to be created{where}" + (f" ({reason}: {message})" if message else f" ({reason})" if reason else "")
    return clock.wait(
        what, since, budgets.create_s, kind="create", over="a node that needs that long has another trouble: kubectl describe node"
    )


def _running(
    pod: Pod,
    events: Sequence[Event],
    clock: _Clock,
    budgets: Budgets,
    main: str,
    log: str,
    classify: Callable[[str], LogCause | None],
) -> Verdict:
    container = pod.container(main)
    if container is not None and container.restarts:
        return Retryable(f"its container was restarted {container.restarts} times: what runs now is another, cold server", "restarted")
    ready = pod.conditions.get("Ready")
    if ready is not None and ready.holds and pod.ip:
        return Ready()
    since = container.state.since if container is not None and isinstance(container.state, Running) else None
    probe = _last(events, "Unhealthy")
    verdict = clock.wait(
        "its health path to answer",
        since or pod.created,
        budgets.startup_s,
        kind="never healthy",
        over=(f"the kubelet says: {probe.message}; " if probe else "")
        + "read its log; weights that load slowly need a larger startup budget",
    )
    if isinstance(verdict, Terminal) and (cause := classify(log)) is not None:
        return Terminal(f"{verdict.reason}. Its log names a cause: {cause.message}", cause.kind)
    return verdict


def _last(events: Sequence[Event], reason: str) -> Event | None:
    return next((event for event in reversed(events) if event.reason == reason), None)
