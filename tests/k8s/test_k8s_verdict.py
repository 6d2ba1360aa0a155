"""Every state that a server's pod is seen in has its verdict, in the words of the scheduler and the kubelet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import k8s_pods as seen
import pytest
from k8s_pods import NOW

from specsweep.k8s.ends import LogCause
from specsweep.k8s.outcomes import Ready, Retryable, Starting, Terminal, Verdict
from specsweep.k8s.verdict import Budgets, judge, wants_log

BUDGETS = Budgets()
NO_GPUS = "0/12 nodes are available: 4 node(s) didn't match Pod's node affinity/selector, 8 Insufficient nvidia.com/gpu. no new claims to deallocate"
HOPELESS = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
NOWHERE = f"0/2 nodes are available: 2 Insufficient nvidia.com/gpu. {HOPELESS}"
TAINTED = f"0/2 nodes are available: 2 node(s) had untolerated taint(s). {HOPELESS}"
TAINT_TOLD = f"0/2 nodes are available: 2 node(s) had untolerated taint {{nvidia.com/gpu: }}. {HOPELESS}"
CORDONED = f"0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable. {HOPELESS}"
NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "weights" not found. not found'
TAKEN = (
    "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s). "
    "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
)
PULL = 'Back-off pulling image "vllm/vllm-openai:nope": ErrImagePull: rpc error: code = Canceled desc = failed to pull and unpack image: context canceled'
NO_TAG = (
    'failed to pull image "vllm/vllm-openai:nope": rpc error: code = NotFound desc = failed to pull and unpack image: '
    "docker.io/vllm/vllm-openai:nope: not found"
)
NO_MANIFEST = 'Failed to pull image "registry.example/vllm:x": rpc error: code = Unknown desc = manifest unknown: manifest unknown'
NO_ACCESS = (
    'Failed to pull image "vllm/private:1": failed to resolve reference: pull access denied, repository does not exist or may require '
    "authorization: server message: insufficient_scope: authorization failed"
)
NO_ROOM = 'Failed to pull image "vllm/vllm-openai:v1": write /var/lib/containerd/ingest/data: no space left on device'
LIMITED = "429 Too Many Requests: toomanyrequests: You have reached your unauthenticated pull rate limit"
NO_SECRET = 'secret "hub" not found'
DISK = "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi. "
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 12Mi. "


def classify(log: str) -> LogCause | None:
    if "CUDA out of memory" in log:
        return LogCause("memory", "lower engine.max_batch. It wrote: CUDA out of memory")
    if "Address already in use" in log:
        return LogCause("port", "taken", retryable=True)
    return None


def verdict(
    pod: dict[str, Any] | None,
    *events: dict[str, Any],
    job: dict[str, Any] | None = None,
    log: str = "",
    budgets: Budgets = BUDGETS,
    later: float = 0,
) -> Verdict:
    now = NOW + timedelta(seconds=later)
    return judge(pod, seen.job() if job is None else job, list(events), now=now, budgets=budgets, log=log, classify=classify)


def mount(first: float) -> dict[str, Any]:
    return seen.event("FailedMount", 'MountVolume.SetUp failed for volume "claim-0" : persistentvolumeclaim "weights" not found', first)


STARTING: list[tuple[str, Verdict, list[str]]] = [
    ("no pod yet", verdict(None), ["the Job controller"]),
    (
        "a quota refuses the pod",
        verdict(None, seen.event("FailedCreate", "pods x is forbidden: exceeded quota: team", 600)),
        ["exceeded quota: team"],
    ),
    ("a policy refuses the pod, for now", verdict(None, seen.event("FailedCreate", "denied by policy", 60)), ["denied by policy"]),
    ("suspended by Kueue", verdict(None, job=seen.kueue_suspended(7200)), ["quota"]),
    ("not looked at yet", verdict(seen.pod("Pending", node=None)), ["the scheduler"]),
    ("no node", verdict(seen.unscheduled(NO_GPUS, 600)), [NO_GPUS]),
    ("no node has it, for now", verdict(seen.unscheduled(NOWHERE, 299)), [NOWHERE]),
    (
        "no node has it, but a new one is on its way",
        verdict(seen.unscheduled(NOWHERE, 301), seen.event("TriggeredScaleUp", "1->2", 9)),
        [NOWHERE],
    ),
    ("no node has it, after others had it for long", verdict(seen.unscheduled(NOWHERE, 400)), [NOWHERE]),
    ("closed for now", verdict(seen.unscheduled(CORDONED, 301)), ["were unschedulable"]),
    ("taken", verdict(seen.unscheduled(TAKEN, 3000)), [TAKEN]),
    (
        "no node, told by the event only",
        verdict(seen.pod("Pending", node=None), seen.event("FailedScheduling", NO_GPUS, 100, new_style=True)),
        [NO_GPUS],
    ),
    (
        "gated by Kueue",
        verdict(
            seen.pod(
                "Pending",
                node=None,
                conditions=[
                    seen.condition(
                        "PodScheduled", "False", 7200, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"
                    )
                ],
                spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
            )
        ),
        ["kueue.x-k8s.io/admission"],
    ),
    ("creating, for half an hour: a 20 GB image", verdict(seen.creating(seconds_ago=1800)), ["containers to be created", seen.NODE]),
    ("bound, the kubelet silent yet", verdict(seen.pod("Pending", conditions=[seen.scheduled(2)])), ["containers to be created"]),
    ("the first pull failed", verdict(seen.creating("ErrImagePull", PULL, seconds_ago=20)), ["ErrImagePull", "context canceled"]),
    ("a registry that is busy", verdict(seen.creating("ErrImagePull", LIMITED, seconds_ago=20)), ["rate limit"]),
    (
        "a slow pull that failed just now",
        verdict(seen.creating("ImagePullBackOff", PULL, seconds_ago=1500), seen.event("Failed", f"Failed to pull image: {PULL}", 30)),
        ["ImagePullBackOff", "context canceled"],
    ),
    ("a volume is not there yet", verdict(seen.creating(seconds_ago=200), mount(100)), ["FailedMount", '"weights" not found']),
    (
        "bound, its conditions not there yet",
        verdict(seen.pod("Pending")),
        ["containers to be created", seen.NODE],
    ),
    (
        "a volume that failed just now, told by the newer recorder",
        verdict(seen.creating(seconds_ago=700), seen.event("FailedMount", "timed out waiting for the condition", 100, new_style=True)),
        ["timed out waiting"],
    ),
    ("loading", verdict(seen.up(started=3000, ready=False)), ["health path"]),
]


@pytest.mark.parametrize(("found", "says"), [row[1:] for row in STARTING], ids=[row[0] for row in STARTING])
def test_it_waits_and_says_for_what(found: Verdict, says: list[str]) -> None:
    assert isinstance(found, Starting), found
    assert all(words in found.waits_for for words in says), found.waits_for
    assert found.since is not None
    assert found.until is not None
    assert found.since <= NOW < found.until


def test_a_healthy_server_is_ready() -> None:
    assert verdict(seen.up(started=30, ready=True)) == Ready()
    assert verdict(seen.up(started=86400, ready=True)) == Ready(), "budgets are for starting only"


TERMINAL: list[tuple[str, Verdict, str, list[str]]] = [
    ("queue deadline", verdict(seen.unscheduled(NO_GPUS, 3601)), "no node", [NO_GPUS, "3600 s", "kubectl get nodes"]),
    ("no node has it", verdict(seen.unscheduled(NOWHERE, 301)), "no node", [NOWHERE, "300 s", "no node offers"]),
    ("a taint", verdict(seen.unscheduled(TAINTED, 301)), "no node", [TAINTED, "no toleration", "TAINTS:.spec.taints"]),
    ("a taint, told by an older scheduler", verdict(seen.unscheduled(TAINT_TOLD, 301)), "no node", ["the taint nvidia.com/gpu is given"]),
    ("no such claim", verdict(seen.unscheduled(NO_CLAIM, 301)), "no node", [NO_CLAIM, "300 s", "correct its name"]),
    ("taken until the deadline", verdict(seen.unscheduled(TAKEN, 3601)), "no node", [TAKEN, "3600 s"]),
    ("quota deadline", verdict(None, job=seen.kueue_suspended(86401)), "quota", ["workloads", "Kueue does not run here"]),
    ("refused by a policy", verdict(None, seen.event("FailedCreate", "violates PodSecurity", 121)), "refused", ["violates PodSecurity"]),
    (
        "refused by a quota until the deadline",
        verdict(None, seen.event("FailedCreate", "exceeded quota: team", 3601)),
        "refused",
        ["exceeded quota", "ResourceQuota"],
    ),
    ("pull deadline", verdict(seen.creating("ImagePullBackOff", PULL, seconds_ago=301)), "image", ["context canceled", "300 s"]),
    ("no such tag", verdict(seen.creating("ErrImagePull", NO_TAG)), "image", [NO_TAG, "correct the image's name and tag"]),
    (
        "no such tag, in back-off",
        verdict(seen.creating("ImagePullBackOff", "Back-off pulling image"), seen.event("Failed", NO_MANIFEST, 5)),
        "image",
        ["manifest unknown"],
    ),
    ("no right to pull", verdict(seen.creating("ErrImagePull", NO_ACCESS)), "image access", ["authorization failed", "pull secret"]),
    (
        "pull deadline counts from the first failure",
        verdict(
            seen.creating("ImagePullBackOff", "Back-off pulling image", seconds_ago=900),
            seen.event("Failed", 'Failed to pull image "x": connection refused', 400, 10),
            seen.event("BackOff", "Back-off pulling image", 390, 1),
        ),
        "image",
        ["connection refused"],
    ),
    (
        "invalid image",
        verdict(seen.creating("InvalidImageName", 'couldn\'t parse image name "A:b:c"')),
        "image",
        ["couldn't parse", "correct"],
    ),
    ("never pulled", verdict(seen.creating("ErrImageNeverPull", "Container image is not present")), "image", ["not present"]),
    (
        "missing Secret",
        verdict(seen.creating("CreateContainerConfigError", NO_SECRET)),
        "container config",
        [NO_SECRET, "create what is missing"],
    ),
    ("container refused", verdict(seen.creating("CreateContainerError", "no command specified")), "container", ["no command specified"]),
    ("runtime refused", verdict(seen.creating("RunContainerError", "OCI runtime create failed")), "container", ["OCI runtime"]),
    ("mount deadline", verdict(seen.creating(seconds_ago=700), mount(301)), "mount", ['"weights" not found', "correct the claim"]),
    *(
        (
            "attach deadline",
            verdict(
                seen.creating(seconds_ago=700), seen.event("FailedAttachVolume", f"{words} Volume is already used by pod(s) other", 301)
            ),
            "mount",
            [words, "pod(s) other", "one node at a time"],
        )
        for words in ('Multi-Attach error for volume "x"', 'Waiting for detach for volume "x"')
    ),
    ("creation deadline", verdict(seen.creating(seconds_ago=3601)), "create", ["kubectl describe node"]),
    ("host memory", verdict(seen.ended(137, "OOMKilled")), "host memory", ["128Gi", "/dev/shm", "raise memory"]),
    ("CUDA memory", verdict(seen.ended(1), log="x\nCUDA out of memory\n"), "memory", ["code 1", "lower engine.max_batch"]),
    ("CUDA memory, the log gone", verdict(seen.ended(1, message="CUDA out of memory")), "memory", ["lower engine.max_batch"]),
    (
        "its Job gave up, its pod knows why",
        verdict(seen.ended(1), job=seen.job(seen.condition("Failed", "True", 1, "BackoffLimitExceeded", "m")), log="CUDA out of memory"),
        "memory",
        ["lower engine.max_batch"],
    ),
    (
        "no such command",
        verdict(seen.ended(128, "StartError", 'exec: "vllm": executable file not found in $PATH: unknown')),
        "command",
        ["executable file not found"],
    ),
    ("a shell without the command", verdict(seen.ended(127), log="sh: vllm: not found"), "command", ["vllm: not found"]),
    ("never healthy", verdict(seen.up(started=5401, ready=False)), "never healthy", ["5400 s", "startup budget"]),
    (
        "never healthy, the log says why",
        verdict(seen.up(started=5401, ready=False), log="CUDA out of memory"),
        "memory",
        ["lower engine.max_batch"],
    ),
    (
        "never healthy, the kubelet first",
        verdict(seen.ended(137), seen.event("Killing", "Container main failed startup probe, will be restarted", 15), log="loading…"),
        "never healthy",
        ["startup budget", "after 290 s", "loading…"],
    ),
    (
        "killed by its startup probe, as if by hand",
        verdict(
            seen.ended(1),
            seen.event("Unhealthy", "Startup probe failed: connection refused", 290, 15),
            seen.event("Killing", "Container main failed startup probe, will be restarted", 15),
            log="KeyboardInterrupt: terminated; CUDA out of memory",
        ),
        "never healthy",
        ["connection refused", "after 290 s", "names a cause: lower engine.max_batch"],
    ),
    ("over its own disk limit", verdict(seen.pod("Failed", reason="Evicted", message=DISK)), "own limit", [DISK, "raise that limit"]),
    (
        "an init container's failure",
        verdict(
            seen.pod(
                "Pending",
                containers=[seen.status(seen.waiting("PodInitializing"))],
                initContainerStatuses=[seen.status(seen.terminated(127, message="sh: no"), name="fetch")],
            )
        ),
        "command",
        ["container fetch"],
    ),
]


@pytest.mark.parametrize(("found", "kind", "says"), [row[1:] for row in TERMINAL], ids=[row[0] for row in TERMINAL])
def test_it_will_not_come_and_the_reason_says_what_to_do(found: Verdict, kind: str, says: list[str]) -> None:
    assert isinstance(found, Terminal), found
    assert found.kind == kind
    assert all(words in found.reason for words in says), found.reason


def disrupted(reason: str, message: str) -> dict[str, Any]:
    return seen.with_condition(seen.up(started=300, ready=True), seen.condition("DisruptionTarget", "True", 1, reason, message))


def failed(row: str, reason: str, message: str, kind: str, says: str) -> tuple[str, Verdict, str, list[str]]:
    """A row about a pod that its node ended, with the node's own reason."""
    return row, verdict(seen.pod("Failed", reason=reason, message=message)), kind, [says]


RETRYABLE: list[tuple[str, Verdict, str, list[str]]] = [
    ("no room for the image", verdict(seen.creating("ErrImagePull", NO_ROOM)), "node disk", [NO_ROOM, seen.NODE]),
    ("evicted", verdict(seen.pod("Failed", reason="Evicted", message=LOW)), "evicted", [LOW, seen.NODE]),
    ("evicted by the API", verdict(disrupted("EvictionByEvictionAPI", "Eviction API: evicting")), "evicted", ["evicting"]),
    (
        "preempted by the scheduler",
        verdict(disrupted("PreemptionByScheduler", "default-scheduler: preempting")),
        "preempted",
        ["preempting"],
    ),
    ("taken from a lost node", verdict(disrupted("DeletionByTaintManager", "Taint manager: deleting")), "node lost", ["Taint manager"]),
    ("its node is gone", verdict(seen.pod("Failed", reason="NodeLost", message="Node gpu-node-7 is lost")), "node lost", ["is lost"]),
    ("its node is silent", verdict(seen.pod("Unknown")), "node lost", [seen.NODE]),
    failed("node shut down", "NodeShutdown", "imminent node shutdown.", "node shut down", "shutdown"),
    failed("node shut down, newer word", "Terminated", "imminent node shutdown.", "node shut down", "shutdown"),
    failed(
        "the device plugin refused",
        "UnexpectedAdmissionError",
        "Allocate failed due to requested number of devices unavailable",
        "refused by the node",
        "devices unavailable",
    ),
    failed("taken meanwhile", "OutOfnvidia.com/gpu", "Node didn't have enough", "refused by the node", "enough"),
    failed("the pod's deadline", "DeadlineExceeded", "active on the node longer", "deadline", "longer"),
    (
        "the Job's deadline",
        verdict(
            None, job=seen.job(seen.condition("Failed", "True", 1, "DeadlineExceeded", "Job was active longer than specified deadline"))
        ),
        "deadline",
        ["longer than specified", "raise the active deadline"],
    ),
    ("deleted by hand", verdict(seen.up(started=300, ready=True, deleting=True)), "deleted", ["being deleted"]),
    ("deleted and ended by that", verdict(seen.ended(137, deleting=True)), "deleted", ["being deleted"]),
    (
        "deleted and gone",
        verdict(None, job=seen.job(seen.condition("Failed", "True", 1, "BackoffLimitExceeded", "m"))),
        "pod gone",
        ["Backoff"],
    ),
    ("its Job deleted", verdict(None, job=seen.job(deleting=True)), "deleted", ["Job is being deleted"]),
    ("its Job gone", judge(None, None, [], now=NOW, budgets=BUDGETS), "deleted", ["Job is gone"]),
    ("preempted by Kueue", verdict(seen.up(started=300, ready=True), job=seen.kueue_suspended(1)), "preempted", ["suspended again"]),
    ("unknown end", verdict(seen.ended(1), log="Traceback\nKeyError: 'x'"), "unknown", ["code 1", "KeyError: 'x'"]),
    ("ended well: a server must not", verdict(seen.ended(0, "Completed"), log="bye"), "unknown", ["code 0", "bye"]),
    ("killed from outside", verdict(seen.ended(137), log="step 7"), "killed", ["SIGKILL", "step 7"]),
    ("crashed", verdict(seen.ended(139), log="step 7"), "unknown", ["SIGSEGV"]),
    (
        "lost by its runtime",
        verdict(seen.ended(137, "ContainerStatusUnknown", "could not be located")),
        "node lost",
        ["could not be located"],
    ),
    ("a cause that heals", verdict(seen.ended(1), log="Address already in use"), "port", ["taken"]),
    (
        "restarted",
        verdict(seen.up(started=5, ready=True, containers=[seen.status(seen.running(5), ready=True, restarts=1)])),
        "restarted",
        ["1 times", "cold"],
    ),
    ("failed, nothing known", verdict(seen.pod("Failed", node=None)), "unknown", ["Failed"]),
]


@pytest.mark.parametrize(("found", "kind", "says"), [row[1:] for row in RETRYABLE], ids=[row[0] for row in RETRYABLE])
def test_another_start_may_heal_it(found: Verdict, kind: str, says: list[str]) -> None:
    assert isinstance(found, Retryable), found
    assert found.kind == kind
    assert all(words in found.reason for words in says), found.reason
    assert found.once == (kind in ("unknown", "killed"))


def test_the_oom_killer_explains_what_came_after_it() -> None:
    found = verdict(seen.ended(137, "OOMKilled", deleting=True), log="CUDA out of memory")
    assert isinstance(found, Terminal)
    assert found.kind == "host memory"


def test_deadlines_follow_the_budgets() -> None:
    pod = seen.unscheduled(NO_GPUS, 600)
    assert isinstance(verdict(pod, budgets=Budgets(queue_s=599)), Terminal)
    starting = verdict(pod, budgets=Budgets(queue_s=700))
    assert isinstance(starting, Starting)
    assert starting.until == NOW + timedelta(seconds=100)
    assert isinstance(verdict(pod, budgets=Budgets(queue_s=700), later=100), Terminal)


def test_the_log_is_wanted_of_what_ended_only() -> None:
    assert wants_log(seen.ended(1))
    assert not wants_log(seen.up(started=1, ready=True))
    assert not wants_log(seen.creating())
    assert not wants_log(None)
