"""Our own client: what ``specsweep run`` does for one point, from Ray's start to the measurement.

Its figures are those of a measurement, of requests in the steady window, and the truth that they are compared with is the same measurement of
the same trace with every time and every step replaced by the server's own.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.figures import Pair, Reported
from bench.peers.work import DRAFTER, MODEL_FOLDER, Job, Rung, planned
from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.sim.truth import TrueRequest, prompt_key
from specsweep.client.trace import PointTrace, RequestTrace, read_trace
from specsweep.client.workload.tokenizer import load_tokenizer

NAME = "specsweep"
ENVIRONMENT = ""  # the project's own
DISTRIBUTION = "specsweep"
ENV = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}

_METRICS = {  # ours, by the figures of the comparison
    "ttft_ms_mean": "ttft_ms_mean",
    "ttft_ms_p50": "ttft_ms_p50",
    "step_ms_mean": "step_ms_mean",
    "step_ms_p50": "step_ms_p50",
    "token_ms_mean": "tpot_ms_mean",
    "al": "al_verify",
    "user_tps": "user_tps_mean",
}


def facts(rung: Rung) -> PointFacts:
    return PointFacts(batch_size=rung.batch_size, draft_length=rung.draft_length or None, drafter=DRAFTER if rung.draft_length else "none")


def commands(job: Job, python: Path) -> list[list[str]]:
    file = job.folder / "job.json"
    file.write_text(json.dumps(job.as_json()), "utf-8")
    return [[sys.executable, "-m", "bench.peers.ours_process", str(file)]]


def read(job: Job, truth: Sequence[TrueRequest]) -> Reported:
    trace = read_trace(job.folder / "trace.parquet")
    keys = {r.prompt_id: prompt_key(json.loads(r.body)["prompt"]) for r in planned(job.rung, load_tokenizer(MODEL_FOLDER))}
    mine = json.loads((job.folder / "measurement.json").read_text("utf-8"))
    return reported(mine, measure(as_it_was(trace, keys, truth), facts(job.rung)))


def reported(mine: Mapping[str, Any], true: Mapping[str, Any]) -> Reported:
    """From two measurements of one point."""
    both = mine["metrics"].keys() & true["metrics"].keys()
    return {key: Pair(name, mine["metrics"][name], true["metrics"][name]) for key, name in _METRICS.items() if name in both}


def as_it_was(trace: PointTrace, keys: Mapping[str, str], truth: Sequence[TrueRequest]) -> PointTrace:
    """``trace`` with the server's times and steps in the place of the client's. ``keys``: of each prompt id.

    Raises ``ValueError`` for a request that failed, or that the log does not have with as many chunks.
    """
    by_key = {t.key: t for t in truth}
    return dataclasses.replace(trace, requests=[_true_row(row, by_key.get(keys[row.prompt_id])) for row in trace.requests])


def _true_row(row: RequestTrace, true: TrueRequest | None) -> RequestTrace:
    if row.read.outcome != "ok":
        raise ValueError(f"request {row.index} failed: {row.read.error_kind}: {row.read.error}")
    if true is None or len(true.chunks) != len(row.read.chunk_t_ns):
        raise ValueError(
            f"request {row.index} has {len(row.read.chunk_t_ns)} chunks, in the truth log {len(true.chunks) if true else 'none'}"
        )
    stamps = [chunk.t_ns for chunk in true.chunks]
    read = dataclasses.replace(
        row.read,
        chunk_t_ns=stamps,
        chunk_tokens=[chunk.tokens for chunk in true.chunks],
        step_t_ns=stamps,
        step_tokens=[step.tokens for step in true.steps],
        step_drafted=[step.drafted for step in true.steps],
        step_accepted=[step.accepted for step in true.steps],
        step_coalesced=[False] * len(stamps),
    )
    return dataclasses.replace(row, t_send_ns=true.t_arrived_ns, t_end_ns=stamps[-1], read=read)
