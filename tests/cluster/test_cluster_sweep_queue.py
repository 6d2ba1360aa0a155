"""A sweep whose engines wait in a queue of Kueue: for quota, and again when somebody more important took it away."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.disturbed import (
    COMMON,
    GPUS,
    ONE_SESSION,
    QUICK,
    TWO_SESSIONS,
    assert_complete,
    assert_only_the_sweep_is_left,
    in_a_point,
    interruptions,
)
from cluster.harness import Cluster, Tenant, until
from cluster.images import LOCAL
from cluster.kueue import priority, queue
from cluster.node import NodeSpec
from cluster.rest import Json
from cluster.sweeps import Sweep, specsweep, submitted

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]
NODES = (NodeSpec("a"), NodeSpec("b"))  # room for two sessions, of which the queue gives one
QUEUE = "gpus"
QUEUED = (f"cluster.queue={QUEUE}", "cluster.max_parallel_sessions=2")
WAITS = "waits for its queue's quota"
URGENT_S = 4


async def with_queue(cluster: Cluster) -> tuple[Tenant, str, str]:
    """The names of a low and of a high priority, too."""
    tenant = await cluster.tenant(*NODES)
    low, high = f"{tenant.namespace}-low", f"{tenant.namespace}-high"
    async with cluster.admin() as admin:
        for path, obj in (*queue(QUEUE, tenant.namespace, gpus=GPUS), priority(low, 1), priority(high, 100)):
            await admin.create(path, obj)
    return tenant, low, high


def urgent(tenant: Tenant, high: str) -> Json:
    """Somebody else's Job that takes all GPUs of the quota for a while."""
    amounts = {"cpu": "1", "memory": "256Mi", "nvidia.com/gpu": str(GPUS)}
    container = {"name": "main", "image": LOCAL, "command": ["sleep", str(URGENT_S)], "resources": {"requests": amounts, "limits": amounts}}
    place = tenant.placement
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "nodeSelector": place["node_selector"],
        "tolerations": list(place["tolerations"]),
    }
    labels = {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": high}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "urgent", "namespace": tenant.namespace, "labels": labels},
        "spec": {"suspend": True, "backoffLimit": 0, "template": {"spec": spec}},
    }


async def test_a_quota_for_one_session_at_a_time_is_waited_for(queued_cluster: Cluster, tmp_path: Path, expected: dict[str, float]) -> None:
    tenant, *_ = await with_queue(queued_cluster)
    (tmp_path / "results").mkdir()
    sweep = await submitted(tenant, tmp_path / "results", "queued", [*COMMON, *TWO_SESSIONS, *QUICK, *QUEUED])
    assert await sweep.finished() in ("Complete", "Failed")
    said = await sweep.logs()
    for session in ("sim-ngram-dl3", "sim-draft-model-dl3"):
        assert session in said
    assert WAITS in said
    assert_complete(sweep, expected, 4)
    assert interruptions(sweep) == [], "waiting is no trouble"
    first, second = (event["session_id"] for event in sweep.events("session_started"))
    started = [event["session_id"] for event in _points_in_order(sweep)]
    assert started in ([first] * 2 + [second] * 2, [second] * 2 + [first] * 2), "never both at once"
    await assert_only_the_sweep_is_left(sweep)


async def test_a_preemption_in_the_middle_of_a_point_costs_no_point(
    queued_cluster: Cluster, tmp_path: Path, expected: dict[str, float]
) -> None:
    tenant, low, high = await with_queue(queued_cluster)
    (tmp_path / "results").mkdir()
    words = [*COMMON, *ONE_SESSION, *QUICK, *QUEUED, f"cluster.queue_priority={low}"]
    sweep = await submitted(tenant, tmp_path / "results", "preempted", words)
    await in_a_point(sweep)
    async with queued_cluster.admin() as admin:
        await admin.create(f"/apis/batch/v1/namespaces/{tenant.namespace}/jobs", urgent(tenant, high))

    async def interrupted() -> bool:
        return bool(interruptions(sweep))

    await until(interrupted, "the session to be interrupted")
    assert await sweep.finished() in ("Complete", "Failed")
    (reason,) = interruptions(sweep)
    assert "its queue gave the quota to another one" in reason
    assert WAITS in await sweep.logs()
    assert_complete(sweep, expected, 2)
    async with queued_cluster.admin() as admin:
        job = await admin.get(f"/apis/batch/v1/namespaces/{tenant.namespace}/jobs/urgent")
        assert job["status"].get("succeeded") == 1, "it had the GPUs meanwhile"
        await admin.delete(f"/apis/batch/v1/namespaces/{tenant.namespace}/jobs/urgent", {"propagationPolicy": "Foreground"})
    await specsweep("cancel", "preempted", "cluster=kubernetes", f"cluster.namespace={tenant.namespace}", kubeconfig=tenant.kubeconfig)

    async def gone() -> bool:
        return await tenant.objects() == set()

    await until(gone, "the end of everything")


def _points_in_order(sweep: Sweep) -> list[dict[str, str]]:
    """Of each start of a point, its session."""
    sessions = {d["point"]["point_id"]: d["point"]["session_id"] for d in sweep.documents()}
    return [{"session_id": sessions[event["point_id"]]} for event in sweep.events("point_started")]
