"""One point as the product measures it, in a process of its own: the pool's Ray actors, counters before and after, the measurement.

python -m bench.peers.ours_process JOB.json   → trace.parquet and measurement.json in the job's folder
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from bench.peers.ours import facts
from bench.peers.work import DIALECT, MODEL_FOLDER, Rung, planned
from specsweep.analysis.measure import measure
from specsweep.client.actors import ClientPool, Endpoint, PointLoad
from specsweep.client.dialects import dialect
from specsweep.client.scrape import fetch_text
from specsweep.client.trace import EngineCounters, PointTrace, write_trace
from specsweep.client.workload.tokenizer import load_tokenizer


def counters(base_url: str) -> EngineCounters:
    wire = dialect(DIALECT)
    page = asyncio.run(fetch_text(f"{base_url}{wire.metrics_path}"))
    if page is None:
        raise RuntimeError(f"{base_url}{wire.metrics_path} does not answer")
    return wire.counters(page)


def point(rung: Rung, base_url: str) -> PointTrace:
    wire = dialect(DIALECT)
    requests = planned(rung, load_tokenizer(MODEL_FOLDER))
    with contextlib.closing(ClientPool()) as pool, pool.team() as team:
        team.start(rung.processes)
        before = counters(base_url)
        load = PointLoad(
            endpoint=Endpoint(base_url),
            path=wire.path,
            dialect=wire.name,
            batch_size=rung.batch_size,
            requests=requests,
            draft_length=rung.draft_length,
            processes=rung.processes,
        )
        trace = team.measure(load).trace
        trace.counters = counters(base_url) - before
    trace.simulated = True
    return trace


def main(file: Path) -> None:
    job: dict[str, Any] = json.loads(file.read_text("utf-8"))
    rung, folder = Rung(**job["rung"]), Path(job["folder"])
    trace = point(rung, job["base_url"])
    write_trace(trace, folder / "trace.parquet")
    (folder / "measurement.json").write_text(json.dumps(measure(trace, facts(rung))), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
