"""CPU of what is not on the clock of a measurement: reading streams after the window, hashing workloads, listing a store, drawing a report.

Each row does the same work twice, at a small and at a large size, in one process: the figure to look at is the last column, cost per
item at the large size over cost per item at the small one. Near 1 is linear; a quadratic step would show as the ratio of the sizes.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import store_samples
import sweep_samples

from bench.harness import Options, Result

EVENTS = (20_000, 200_000)
WORKLOADS = (100, 1_000)
ATTEMPTS = (300, 3_000)
POINTS = (57, 285)


def events(count: int) -> Callable[[], object]:
    """Chunked transfer coding and server-sent events, one read an event as a decoding step sends them; see client/wire.py."""
    from specsweep.client.wire import dechunk, sse_events

    event = (
        b"data: " + json.dumps({"choices": [{"index": 0, "text": " the", "token_ids": [545], "finish_reason": None}]}).encode() + b"\n\n"
    )
    framed = b"%x\r\n%s\r\n" % (len(event), event)
    reads = [(i, framed) for i in range(count)]
    return lambda: sse_events(dechunk(reads, [("Transfer-Encoding", "chunked")]).pieces)


def hashes(count: int) -> Callable[[], object]:
    from specsweep.client.workload import workload_hash

    recipe = {"corpus": "mixed", "prompts": 8, "ramp_prompts": 8, "osl": 64}
    return lambda: [workload_hash(recipe, isl) for isl in range(16, 16 + count)]


def listing(count: int, folder: Path) -> Callable[[], object]:
    """A first look at a store, every attempt read and checked."""
    from specsweep.orchestrator.store import Store

    store = Store(folder / str(count))
    values = [store_samples.axes(batch_size=b, isl=i) for b in range(1, 11) for i in range(1, count // 10 + 1)]
    heavy = store_samples.measurement() | {
        "per_conversation": [{"conversation_id": str(i), "steps": 9, "latency_s": 1.5} for i in range(300)]
    }
    with mock.patch.object(os, "fsync"), store.lock():  # the disk is not what is timed
        store.write_plan(store_samples.plan("big", values))
        for v in values:
            store.commit(store_samples.record(v), heavy, None)
    return lambda: Store(store.root).sweep("big")


def report(count: int) -> Callable[[], object]:
    """Tables, statistics, figures and page of a sweep with ``count`` points, 64 conversations each."""
    from specsweep.analysis.report import build, html

    attempts = []
    for workload in ("low", "mixed", "high"):
        for bs in (1, 2, 4, 8, 16):
            attempts.append(sweep_samples.attempt(sweep_samples.axes("none", None, bs, workload), rate=100 / bs**0.5, conversations=64))
            for drafter in ("ngram", "eagle3", "draft_model"):
                for dl in (1, 2, 3, 4, 5, 7):
                    axes = sweep_samples.axes(drafter, dl, bs, workload)
                    attempts.append(sweep_samples.attempt(axes, rate=110 / bs**0.5, al=1 + dl / 4, conversations=64))
    chosen = attempts[:count]
    html(build("warm", attempts[:2]))  # matplotlib's import and font cache
    return lambda: html(build("large", chosen))


def cpu_s(work: Callable[[], object], runs: int) -> float:
    taken = []
    for _ in range(runs):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def run(options: Options) -> Result:
    columns = ("work", "items", "CPU s", "CPU µs per item", "growth")
    result = Result(f"What is not on the clock of a measurement, medians of {options.runs} runs", columns)
    with tempfile.TemporaryDirectory() as folder:
        rows: list[tuple[str, tuple[int, int], Callable[[int], Callable[[], object]]]] = [
            ("events of a stream", EVENTS, events),
            ("workload hashes", WORKLOADS, hashes),
            ("attempts of a store", ATTEMPTS, lambda n: listing(n, Path(folder))),
            ("points of a report", POINTS, report),
        ]
        for name, sizes, make in rows:
            costs = [cpu_s(make(size), options.runs) for size in sizes]
            small, large = (cost / size * 1e6 for cost, size in zip(costs, sizes, strict=True))
            result.rows.append(
                (name, f"{sizes[1]:,}", f"{costs[1]:.2f}", f"{large:,.0f}" if large > 10 else f"{large:.1f}", f"{large / small:.2f}")
            )
            result.data[name] = {"items": sizes, "cpu_s": costs, "growth": large / small}
    return result
