"""What the cluster costs a sweep: 64 nodes of 8 GPUs, up to 1,000 points in 100 sessions, on a real control plane with hollow nodes.

Engines are ready as soon as they are scheduled and answer as fast as a simulator can, so what is seen is the orchestrator's own: how long
GPUs are held without a measuring window open on them, how often the API server is asked, how much memory a sweep takes. Three sizes show
what grows with what: a figure per point that grows with the number of points would be a square.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.harness import Options, Result
from bench.hollow import Hollow
from cluster.build import CONTROL_PLANE, missing
from cluster.control_plane import ControlPlane
from cluster.rest import Rest

NODES = 64
SIZES = ((10, 100), (30, 300), (100, 1000))  # sessions, points
AT_ONCE = 8
PORT = 8000
NAMESPACE = "default"
ENGINE = {"model": "tiny", "model_name": "tiny", "dialect": "vllm", "speedup": 1000.0, "max_batch": 16}


def run(options: Options) -> Result:
    columns = (
        "sessions",
        "points",
        "wall s",
        "s/point",
        "engine s outside windows/point",
        "API calls/point",
        "of them writes",
        "peak MB",
        "MB/1000 points",
    )
    result = Result("A sweep on 64 hollow nodes × 8 GPUs (real control plane)", columns)
    if absent := missing(*CONTROL_PLANE):
        result.notes.append(f"not run: {' and '.join(absent)} not built; `make control-plane` builds them")
        return result
    folder = Path(tempfile.mkdtemp(prefix="specsweep-bench-"))
    try:
        with ControlPlane(folder, "127.0.0.1") as plane, simulator(folder):
            found = asyncio.run(sizes(plane, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    first = found[0]
    for row in found:
        result.rows.append(
            (
                str(row["sessions"]),
                str(row["points"]),
                f"{row['wall_s']:.0f}",
                f"{row['wall_s'] / row['points']:.2f}",
                f"{row['outside_s_per_point']:.2f}",
                f"{row['calls'] / row['points']:.2f}",
                f"{row['writes'] / row['points']:.2f}",
                f"{row['peak_mb']:.0f}",
                f"{1000 * (row['peak_mb'] - first['peak_mb']) / max(1, row['points'] - first['points']):.0f}",
            )
        )
    last = found[-1]
    growth = (last["calls"] / last["points"]) / (first["calls"] / first["points"])
    result.notes.append(
        f"API calls per point, largest against smallest sweep: × {growth:.2f} (1: they grow with the points and not with their square)"
    )
    result.notes.append(f"calls of the largest by kind: {dict(Counter(last['kinds']).most_common(8))}")
    result.data = {"sizes": found}
    return result


async def sizes(plane: ControlPlane, folder: Path) -> list[dict[str, Any]]:
    found = []
    async with Rest(plane.credentials(), patient=True) as rest:
        hollow = Hollow(rest)
        async with hollow.nodes(NODES):
            for sessions, points in SIZES:
                found.append(await one(plane, folder, hollow, sessions, points))
    return found


async def one(plane: ControlPlane, folder: Path, hollow: Hollow, sessions: int, points: int) -> dict[str, Any]:
    from specsweep.orchestrator.clusters.kubernetes import KubernetesCluster
    from specsweep.orchestrator.config import compose
    from specsweep.orchestrator.plan import plan_sweep
    from specsweep.orchestrator.preparation import Preparation
    from specsweep.orchestrator.progress import Progress, Tally
    from specsweep.orchestrator.runner import Runner
    from specsweep.orchestrator.store import Store

    os.environ["KUBERNETES_SERVICE_HOST"] = "127.0.0.1"  # pods of this cluster are on our own loopback
    sweep = compose(
        [
            "sweep=smoke",
            "engine=sim",
            "target=tiny",
            "drafter=none",
            "cluster=kubernetes",
            "cluster.image=local/engine:1",
            f"cluster.kubeconfig={plane.kubeconfig()}",
            f"cluster.max_parallel_sessions={AT_ONCE}",
            "cluster.pod.gpus=8",
            "cluster.pod.gpu_product=NVIDIA-B200",
            f"batch_size=range(1,{points // sessions + 1})",
            f"repeats={sessions}",
            "engine.max_batch=16",
            "workload.prompts=2",
            "workload.osl=4",
            "measure.requests_per_slot=1",
            f"name=scale{points}",
        ]
    )
    plan = plan_sweep(sweep)
    assert (len(plan.sessions), len(plan.points)) == (sessions, points)
    store = Store(folder / f"store-{points}")
    tally = Tally(sessions=sessions, points=points, requests=0, est_left_s=0)
    said: list[str] = []
    quiet = Progress(tally)
    quiet.say = said.append  # type: ignore[method-assign]
    place = KubernetesCluster.from_config(sweep.base)
    held = hollow.held_gpu_s
    began = time.monotonic()
    with store.lock(), counted() as calls:
        store.write_plan(plan)
        runner = Runner(plan, place, store, None, quiet, Preparation(Path("~/.cache/specsweep").expanduser(), said.append), tally)
        async with peak() as memory:
            outcome = await runner.run()
    wall_s = time.monotonic() - began
    await asyncio.sleep(1.0)  # the last pods' ends
    assert outcome.measured == points, f"{outcome}: {said[-3:]}"
    windows = await asyncio.to_thread(window_seconds, store, plan.name)
    gpu_s = hollow.held_gpu_s - held
    return {
        "sessions": sessions,
        "points": points,
        "wall_s": wall_s,
        "gpu_s": gpu_s,
        "window_gpu_s": hollow.gpus * windows,
        "outside_s_per_point": (gpu_s / hollow.gpus - windows) / points,
        "calls": sum(calls.values()),
        "writes": sum(n for kind, n in calls.items() if kind.split()[0] not in ("get", "list", "watch")),
        "kinds": dict(calls),
        "peak_mb": memory[0],
    }


def window_seconds(store: Any, sweep: str) -> float:
    """From the first request to the last answer, over all points."""
    total = 0.0
    for attempt in store.sweep(sweep).latest.values():
        trace = attempt.trace()
        total += (max(r.t_end_ns for r in trace.requests) - min(r.t_send_ns for r in trace.requests)) / 1e9
    return total


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Every call to the API server: verb and resource."""
    from specsweep.k8s.transport import Transport

    calls: Counter[str] = Counter()
    send = Transport._send

    async def counting(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        calls[f"{request.verb} {request.resource.plural}"] += 1
        return await send(self, request, *args, **kwargs)

    Transport._send = counting  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        Transport._send = send  # type: ignore[method-assign]


@asynccontextmanager
async def peak() -> AsyncIterator[list[float]]:
    """MB of this process, the most that was seen."""
    most = [0.0]

    async def look() -> None:
        while True:
            most[0] = max(most[0], psutil.Process().memory_info().rss / 1e6)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(look())
    try:
        yield most
    finally:
        task.cancel()


@contextmanager
def simulator(folder: Path) -> Iterator[None]:
    (folder / "engine.json").write_text(json.dumps(ENGINE))
    command = [sys.executable, "-m", "specsweep.client.sim.server", str(folder / "engine.json"), str(PORT), "0.0.0.0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
