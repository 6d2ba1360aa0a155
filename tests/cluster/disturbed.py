"""Sweeps that a test disturbs, and the one that nobody disturbs: in the end they must be the same.

All tests measure points of one small grid, so that one run at home says what each of them has to come out as. What a simulated drafter
is accepted of does not depend on time: acceptance lengths are compared, and speeds, on a machine where things are just being killed, are not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cluster.harness import Tenant, until
from cluster.rest import Json
from cluster.sweeps import Sweep, specsweep
from specsweep.orchestrator.store import Store

GPUS = 8
ONE_SESSION = ("drafter=ngram", "batch_size=1,2")
TWO_SESSIONS = ("drafter=ngram,draft_model", "batch_size=1,2")
COMMON = (
    "sweep=smoke",
    "engine=sim",
    f"target.pod={{gpus: {GPUS}}}",
    "engine.max_batch=4",
    "workload.osl=64",
    "engine.speedup=0.2",  # a point takes seconds, of which one is its middle
    "measure.stall_seconds=5",
)
HASTY = (
    "cluster.deadlines.silence_s=15",
    "cluster.deadlines.removal_s=2",
    # Not ready after seconds instead of a minute.
    "cluster.pod.template={spec: {containers: [{name: main, readinessProbe: {periodSeconds: 1, failureThreshold: 2, timeoutSeconds: 2}}]}}",
)
QUICK = ("tracking.enabled=false", *HASTY)
MIDDLE_S = 0.7  # of a point, after its start


async def undisturbed(home: Path, kubeconfig: Path, grid: Sequence[str] = TWO_SESSIONS) -> dict[str, float]:
    """The acceptance length of each point of the grid, by point_id, measured on this machine without a cluster."""
    words = [*COMMON, *grid, "cluster=local", "name=home", f"store={home}", "tracking.enabled=false"]
    await specsweep("run", *words, kubeconfig=kubeconfig, code=None)
    return _acceptance(Store(home), "home")


def assert_complete(sweep: Sweep, expected: Mapping[str, float], points: int) -> None:
    """All its points are measured, as an undisturbed run has them, and every file of its store is as it was written."""
    found = _acceptance(sweep.store, sweep.name)
    assert len(found) == points
    assert found == pytest.approx({point_id: expected[point_id] for point_id in found}, rel=0.1)
    assert sweep.store.damaged == []
    attempts = [path.parent for path in sweep.store.root.glob("points/*/*/point.json")]
    for folder in attempts:
        for name, facts in json.loads((folder / "point.json").read_text())["files"].items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"], f"{folder / name}"


async def assert_only_the_sweep_is_left(sweep: Sweep) -> None:
    """Its Job, with what that made: its pods, and how far it is."""
    assert {name for _, name in await sweep.tenant.objects() if not name.startswith(("sweep-", "status-"))} == set()


async def in_a_point(sweep: Sweep, nth: int = 1) -> None:
    """Returns in the middle of the ``nth`` start of a point, counted over all lives of the sweep."""

    async def begun() -> bool:
        return len(await asyncio.to_thread(sweep.events, "point_started")) >= nth

    try:
        await until(begun, f"the start of point {nth}", 120)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; the sweep's pods wrote:\n{await sweep.logs()}") from None
    await asyncio.sleep(MIDDLE_S)


async def pods(tenant: Tenant, component: str) -> list[Json]:
    """Those that run, the oldest first."""
    found = [pod for pod in await tenant.pods() if pod["metadata"]["labels"].get("app.kubernetes.io/component") == component]
    alive = [pod for pod in found if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")]
    return sorted(alive, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


async def the_pod(tenant: Tenant, component: str) -> Json:
    """The one that runs; it is waited for."""
    found: list[Json] = []

    async def there() -> bool:
        found[:] = await pods(tenant, component)
        return len(found) == 1

    await until(there, f"one running pod of the {component}")
    return found[0]


async def evict(tenant: Tenant, pod: str) -> None:
    """As `kubectl drain` does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": tenant.namespace}}
    async with tenant.cluster.admin() as admin:
        await admin.create(f"/api/v1/namespaces/{tenant.namespace}/pods/{pod}/eviction", eviction)


def interruptions(sweep: Sweep) -> Sequence[str]:
    """Why sessions were interrupted, in the words that the user reads."""
    return [event["reason"] for event in sweep.events("session_interrupted")]


def _acceptance(store: Store, sweep: str) -> dict[str, float]:
    records = store.sweep(sweep).records()
    assert [r["point"].get("error") for r in records if r["point"]["status"] != "measured"] == []
    return {r["point"]["point_id"]: r["measurement"]["metrics"]["al_decode"] for r in records}
