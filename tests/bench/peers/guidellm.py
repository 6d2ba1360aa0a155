"""``guidellm run``: worker processes with httpx, one event loop each.

It keeps the times of the first and the last chunk of a request and how many there were, and none between. So its inter-token latency is
the time per token of a request, and it reports no time from chunk to chunk. AL is its tokens per iteration, first chunks left out; its
output tokens per second are the server's, not a user's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import figures
from bench.peers.figures import Pair, Reported
from bench.peers.work import MODEL, MODEL_FOLDER, Job, items
from specsweep.client.sim.truth import TrueRequest

NAME = "guidellm"
ENVIRONMENT = "guidellm-0.8.1"
DISTRIBUTION = "guidellm"
ENV = {"HF_HUB_OFFLINE": "1"}


def commands(job: Job, python: Path) -> list[list[str]]:
    work = items(job.rung)
    data = job.folder / "prompts.jsonl"
    data.write_text("".join(json.dumps({"prompt": i.text, "output_tokens_count": i.cap}) + "\n" for i in work), "utf-8")
    backend = f"kind=openai_http,target={job.base_url},model={MODEL},request_format=/v1/completions"
    return [
        [
            *("env", f"GUIDELLM__MAX_WORKER_PROCESSES={job.rung.processes}", str(python), "-m", "guidellm", "run", "--backend", backend),
            *("--profile", f"kind=concurrent,streams={job.rung.batch_size}", "--constraint", f"kind=max_requests,count={len(work)}"),
            *("--tokenizer", f"kind=hf_auto,model={MODEL_FOLDER}", "--data", f"kind=json_file,path={data}"),
            *("--output", f"kind=json,path={job.folder / 'result.json'}", "--disable-console"),
        ]
    ]


def read(job: Job, truth: Sequence[TrueRequest]) -> Reported:
    return reported(json.loads((job.folder / "result.json").read_text("utf-8")), truth)


def reported(result: dict[str, Any], truth: Sequence[TrueRequest]) -> Reported:
    """Raises ``ValueError`` if a request failed, ``KeyError`` for a file of another form."""
    metrics = result["benchmarks"][0]["metrics"]
    totals = metrics["request_totals"]
    if failed := totals["errored"] + totals["incomplete"]:
        raise ValueError(f"{failed} requests failed or did not end")
    found = figures.centre("ttft_ms", "time to first token", _centre(metrics["time_to_first_token_ms"]), figures.ttft_ms(truth))
    per_request, tokens = figures.token_ms(truth)
    true = float(np.average(per_request, weights=tokens))  # it weighs each request by its tokens
    found["token_ms_mean"] = Pair("inter-token latency, mean", _centre(metrics["inter_token_latency_ms"])[0], true)
    al = _centre(metrics["iter_tokens_per_iteration"])[0]
    if al > 1.0:  # without drafting it is 1 by definition
        found["al"] = Pair("tokens per iteration, mean", al, figures.al_chunks(truth))
    return found


def _centre(metric: dict[str, Any]) -> tuple[float, float]:
    successful = metric["successful"]
    return successful["mean"], successful["median"]
