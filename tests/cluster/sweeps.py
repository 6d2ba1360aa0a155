"""A whole sweep in the cluster: its Job, as `specsweep submit` makes it, its store on a volume, and what a user would see of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.harness import POOL, Tenant, until
from cluster.images import LOCAL
from specsweep.orchestrator.store import Store

RESULTS = "/results"
SWEEP_S = 400.0  # a hang guard
OVER = ("Complete", "Failed")


@dataclass
class Sweep:
    tenant: Tenant
    name: str
    folder: Path  # what the sweep's pod sees at RESULTS

    @property
    def store(self) -> Store:
        return Store(self.folder / self.name)

    async def jobs(self) -> list[Mapping[str, Any]]:
        async with self.tenant.cluster.admin() as admin:
            return await admin.find(f"/apis/batch/v1/namespaces/{self.tenant.namespace}/jobs")

    async def job(self) -> Mapping[str, Any] | None:
        found = [job for job in await self.jobs() if job["metadata"]["labels"].get("app.kubernetes.io/component") == "sweep"]
        return found[0] if found else None

    async def finished(self, within_s: float = SWEEP_S) -> str:
        """``Complete`` or ``Failed``."""
        how: list[str] = []

        async def over() -> bool:
            job = await self.job()
            conditions = ((job or {}).get("status") or {}).get("conditions") or ()
            how[:] = [c["type"] for c in conditions if c["type"] in OVER and c["status"] == "True"]
            return bool(how)

        try:
            await until(over, f"the end of sweep {self.name}", within_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its pods wrote:\n{await self.logs()}") from None
        return how[0]

    async def logs(self) -> str:
        """What the sweep's pods wrote, and where all pods stand: for whoever reads why a test failed."""
        lines = []
        for pod in await self.tenant.pods():
            name, states = pod["metadata"]["name"], [c["state"] for c in pod["status"].get("containerStatuses") or ()]
            lines.append(f"── {name}: {pod['status'].get('phase')} {states}")
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "sweep":
                lines.append(await self.tenant.log(name))
        return "\n".join(lines)

    async def until_measured(self, points: int, within_s: float = SWEEP_S) -> None:
        async def there() -> bool:
            return await asyncio.to_thread(self.measured) >= points

        await until(there, f"{points} measured points", within_s)

    def measured(self) -> int:
        place = self.folder / self.name / "points"
        return len(list(place.glob("*/*/measurement.json")))

    def documents(self) -> list[dict[str, Any]]:
        """Every measured point: point.json with its measurement."""
        return self.store.sweep(self.name).records() if self.measured() else []

    def events(self, kind: str) -> list[dict[str, Any]]:
        path = self.folder / self.name / "sweeps" / self.name / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for line in lines if (event := json.loads(line))["kind"] == kind]


def settings(tenant: Tenant) -> list[str]:
    """What every sweep of these tests says of its cluster."""
    pool = [f"cluster.{part}.node_selector={{{POOL}: {tenant.namespace}}}" for part in ("pod", "sweep")]
    tolerated = f"[{{key: {POOL}, operator: Equal, value: {tenant.namespace}, effect: NoSchedule}}]"
    return [
        "cluster=kubernetes",
        f"cluster.namespace={tenant.namespace}",
        f"cluster.image={LOCAL}",
        "cluster.service_account=specsweep",
        "cluster.results.claim=results",
        *pool,
        *(f"cluster.{part}.tolerations={tolerated}" for part in ("pod", "sweep")),
        *(
            "cluster.pod.cpu=1",
            "cluster.pod.memory=1Gi",
            "cluster.pod.shm=null",
            "cluster.sweep.cpu=2",
            "cluster.sweep.memory=8Gi",
            "cluster.sweep.run_as_user=null",
        ),
        "cluster.deadlines.startup_s=120",
        "cluster.deadlines.queue_s=120",
    ]


async def submitted(tenant: Tenant, folder: Path, name: str, overrides: Sequence[str], *, user: Path | None = None) -> Sweep:
    """Through the command, with the rights of a sweep. ``user``: a kubeconfig with other rights; its results claim is there already."""
    if user is None:
        await tenant.claim("results", folder)
    await specsweep("submit", *settings(tenant), f"name={name}", *overrides, kubeconfig=user or tenant.kubeconfig)
    return Sweep(tenant, name, folder)


async def specsweep(*words: str, kubeconfig: Path, code: int | None = 0) -> str:
    """Runs the command as a user would. Returns what it wrote, standard error after standard output. ``code`` None: any."""
    done = await asyncio.to_thread(
        subprocess.run,
        [str(Path(sys.executable).with_name("specsweep")), *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={"KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
    )
    assert code is None or done.returncode == code, f"{words}: code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
