"""How a pod ended, and whether another start may heal it. The second half of the verdict, by who brought the end about:

* the kernel, for its memory: before all else, since whatever follows is a consequence;
* the cluster (eviction, preemption, a lost node, a deletion): an exit code then says nothing, a program that is told to end may
  return anything;
* the program itself: its log names the cause, or nothing does. Code 0 is an end too: a server has no reason to stop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from signal import Signals

from specsweep.k8s.outcomes import Retryable, Terminal
from specsweep.k8s.pods import Container, Event, Job, Pod, Terminated


@dataclass(frozen=True, slots=True)
class LogCause:
    """What a log's words mean. ``kind``: a word or two for counting; ``message``: the words and what to do."""

    kind: str
    message: str
    retryable: bool = False


# ``status.reason`` of a pod that its node took away or refused: another node, or the same one later, may take it.
_REASONS = {
    "Evicted": "evicted",
    "NodeLost": "node lost",
    "Preempted": "preempted",
    "Preempting": "preempted",
    "DeadlineExceeded": "deadline",
    "NodeShutdown": "node shut down",
    "Shutdown": "node shut down",
    "Terminated": "node shut down",
    "NodeAffinity": "refused by the node",
    "TopologyAffinityError": "refused by the node",
    "UnexpectedAdmissionError": "refused by the node",
}
# Reasons of the condition DisruptionTarget.
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted",
    "DeletionByTaintManager": "node lost",
    "DeletionByPodGC": "node lost",
    "EvictionByEvictionAPI": "evicted",
    "TerminationByKubelet": "evicted",
}
SUSPENDED_AGAIN = Retryable("its Job was suspended again: its queue gave the quota to another one", "preempted")
_OWN_LIMIT = re.compile(r"exceed(?:s|ed) (?:the |its )?(?:total |local |ephemeral |storage )*limit", re.IGNORECASE)
_CANNOT_RUN = ("StartError", "ContainerCannotRun")
_CANNOT_RUN_CODES = (126, 127)
_SHOWN_LINES = 12


def disruption(pod: Pod, job: Job | None, main: str) -> Retryable | Terminal | None:
    """The end that the kernel or the cluster brought about, or None."""
    for container in (*pod.init_containers, *pod.containers):
        if isinstance(container.state, Terminated) and container.state.reason == "OOMKilled":
            limit = pod.memory_limits.get(container.name) or "none"
            return Terminal(
                f"container {container.name} was killed for using more host memory than its limit (memory={limit}, of which /dev/shm is a part); "
                f"raise memory, or let the server load its weights in a way that needs less",
                "host memory",
            )
    where = f" on node {pod.node}" if pod.node else ""
    words = f": {pod.message}" if pod.message else ""
    if pod.reason == "Evicted" and _OWN_LIMIT.search(pod.message):
        return Terminal(f"was evicted{where} for going over a limit of its own{words}; raise that limit", "own limit")
    if pod.reason in _REASONS or pod.reason.startswith("OutOf"):
        return Retryable(f"{pod.reason}{where}{words}", _REASONS.get(pod.reason, "refused by the node"))
    target = pod.conditions.get("DisruptionTarget")
    if target is not None and target.holds:
        return Retryable(f"was taken away{where} ({target.reason}): {target.message}", _DISRUPTIONS.get(target.reason, "disrupted"))
    if pod.phase == "Unknown":
        return Retryable(f"its state is not known{where}: the node does not answer{words}", "node lost")
    if job is not None and job.suspended:
        return SUSPENDED_AGAIN
    if (end := job_end(job)) is not None and end.kind != "pod gone":
        return end
    if pod.deleted:
        return Retryable(f"its pod is being deleted{where}: by somebody, or with its node", "deleted")
    return None


def job_end(job: Job | None) -> Retryable | None:
    """The end that only the Job tells. ``kind`` is "pod gone" where its pod, if it is still there, knows more."""
    if job is None:
        return None
    if job.deleted:
        return Retryable("its Job is being deleted: by somebody, or with the sweep that owns it", "deleted")
    for name in ("Failed", "FailureTarget"):
        failed = job.conditions.get(name)
        if failed is not None and failed.holds:
            if failed.reason == "DeadlineExceeded":
                return Retryable(
                    f"its Job came to its deadline ({failed.message}); raise the active deadline if that was too short", "deadline"
                )
            return Retryable(f"its pod is gone, and its Job says {failed.reason}: {failed.message}", "pod gone")
    complete = job.conditions.get("Complete")
    if complete is not None and complete.holds:
        # A pod that ended by itself stays with its Job: somebody deleted this one, and the program took that for a good end.
        return Retryable("its pod is gone: somebody deleted it, and it ended as it was told", "pod gone")
    return None


def ended(
    pod: Pod, main: str, events: Sequence[Event], log: str, classify: Callable[[str], LogCause | None]
) -> Retryable | Terminal | None:
    """The end that a program brought about itself, or None while all run. ``log``: the last lines of the container ``main``."""
    for container in pod.init_containers:
        if isinstance(container.state, Terminated) and container.state.exit_code not in (0, None):
            return _program_end(container, container.state, events, container.state.message, classify)
    program = pod.container(main)
    if program is not None and isinstance(program.state, Terminated):
        return _program_end(program, program.state, events, log or program.state.message, classify)
    if pod.phase in ("Failed", "Succeeded"):
        return Retryable(f"its pod is {pod.phase} ({pod.reason or 'no reason given'}): {pod.message or 'no message'}", "unknown", once=True)
    return None


def _program_end(
    container: Container, state: Terminated, events: Sequence[Event], log: str, classify: Callable[[str], LogCause | None]
) -> Retryable | Terminal:
    how = f"container {container.name} {_in_words(state)}"
    if state.reason in _CANNOT_RUN or (state.exit_code in _CANNOT_RUN_CODES and state.reason != "Completed"):
        return Terminal(f"{how}: {state.message or _tail(log)}; the image does not have that command, or may not run it", "command")
    if state.reason == "ContainerStatusUnknown":
        return Retryable(f"{how}: {state.message}", "node lost")
    if any("failed startup probe" in event.message for event in events):
        return _too_slow(state, events, log, classify)
    if (cause := classify(log)) is not None:
        kind = Retryable if cause.retryable else Terminal
        return kind(f"{how}: {cause.kind}: {cause.message}", cause.kind)
    killed = state.exit_code in (137, 143)
    return Retryable(f"{how}; no known cause. Its last lines: {_tail(log)}", "killed" if killed else "unknown", once=True)


def _too_slow(state: Terminated, events: Sequence[Event], log: str, classify: Callable[[str], LogCause | None]) -> Terminal:
    """The kubelet's doing, whatever a program that is told to end writes last: often that somebody had pressed a key."""
    ran = f" after {state.ran_s:.0f} s" if state.ran_s is not None else ""
    probe = next((event.message for event in reversed(events) if event.message.startswith("Startup probe failed")), "")
    words = f" ({probe})" if probe else ""
    cause = classify(log)
    known = f"Its log names a cause: {cause.message}" if cause is not None else f"It wrote: {_tail(log)}"
    return Terminal(
        f"its startup probe had it killed{ran}, before it was healthy{words}; a load that is merely slow needs a larger startup budget. {known}",
        "never healthy",
    )


def _in_words(state: Terminated) -> str:
    code = state.exit_code
    number = state.signal or (code - 128 if code is not None and 128 < code < 160 else 0)
    try:
        name = Signals(number).name
    except ValueError:
        return f"ended with code {code}" if code is not None else "ended"
    return f"was ended by {name} (code {code})"


def _tail(log: str) -> str:
    return "\n".join(log.rstrip().splitlines()[-_SHOWN_LINES:]) or "(nothing)"
