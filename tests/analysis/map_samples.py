"""A made-up sweep over draft length, batch size and ISL whose best draft lengths are known, and stores that hold sweeps of attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sweep_samples as samples

from specsweep.orchestrator.points import Plan, Point, Session
from specsweep.orchestrator.store import Store

BATCH_SIZES = (1, 4, 16, 64)
LENGTHS = (None, 1, 3, 5)


def rate(batch_size: int, length: int) -> float:
    """Tokens/s of one user: drafting pays less the fuller the batch, the more so the longer the draft."""
    base = 100 / (1 + batch_size / 20)
    acceptance = 1 + 1.5 * (1 - 0.75**length)
    return base * acceptance / (1 + 0.04 * length + 0.006 * length * batch_size) if length else base


def sweep(
    *,
    engine: str = "vllm",
    drafter: str = "eagle3",
    batch_sizes: Iterable[int] = BATCH_SIZES,
    lengths: Sequence[int | None] = LENGTHS,
    isls: Iterable[int] = (1000,),
    workloads: Iterable[str] = ("low_entropy",),
    noise: float = 0.01,
    **more: Any,
) -> list[dict[str, Any]]:
    found = []
    for workload in workloads:
        for isl in isls:
            for batch_size in batch_sizes:
                for length in lengths:
                    axes = samples.axes(
                        "none" if length is None else drafter, length, batch_size, workload, isl=isl, engine=engine, target="llama"
                    )
                    al = 1 + 1.5 * (1 - 0.75**length) if length else 1.0
                    found.append(samples.attempt(axes, rate=rate(batch_size, length or 0), al=al, noise=noise, conversations=32, **more))
    return found


def stored(root: Path, **sweeps: Sequence[dict[str, Any]]) -> Store:
    """A store with a sweep of each name."""
    made = Store(root)
    done: set[str] = set()
    with made.lock():
        for name, attempts in sweeps.items():
            points = tuple(Point(a["point"]["point_id"], a["point"]["axes"], {}, {}, a["point"]["baseline_id"]) for a in attempts)
            made.write_plan(Plan(name, (Session("s", points, 1.0, tuple(1.0 for _ in points)),)))
            for a in attempts:
                if a["point"]["point_id"] not in done:
                    made.commit(a["point"], a["measurement"])
                    done.add(a["point"]["point_id"])
    return made
