"""``aiperf profile``: a family of services over ZeroMQ, of which workers send and record processors read.

Its inter-chunk latency is the time from chunk to chunk, its inter-token latency the time per token of a request, TPS per user one over that.
AL comes from the truth that vLLM sends with each request; the token-weighted one is pooled over steps. Token counts are the
server's, as of every other client here; by itself it would encode the answers again, which the simulator's words do not survive.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers import figures
from bench.peers.figures import Pair, Reported
from bench.peers.work import MODEL, MODEL_FOLDER, Job, items
from specsweep.client.sim.truth import TrueRequest

NAME = "aiperf"
ENVIRONMENT = "aiperf-0.13.0"
DISTRIBUTION = "aiperf"
ENV: dict[str, str] = {}  # with HF_HUB_OFFLINE it takes a folder's path for the name of a repository


def commands(job: Job, python: Path) -> list[list[str]]:
    work = items(job.rung)
    data = job.folder / "prompts.jsonl"
    data.write_text("".join(json.dumps({"text": i.text, "output_length": i.cap}) + "\n" for i in work), "utf-8")
    return [
        [
            *(str(python), "-m", "aiperf", "profile", "--url", job.base_url, "--endpoint-type", "completions", "--streaming"),
            *("--model", MODEL, "--tokenizer", str(MODEL_FOLDER)),
            *("--input-file", str(data), "--custom-dataset-type", "single_turn", "--dataset-sampling-strategy", "sequential"),
            *("--concurrency", str(job.rung.batch_size), "--request-count", str(len(work)), "--workers-max", str(job.rung.processes)),
            *("--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0", "--use-server-token-count"),
            *("--no-gpu-telemetry", "--ui", "none", "--artifact-dir", str(job.folder / "artifacts")),
        ]
    ]


def read(job: Job, truth: Sequence[TrueRequest]) -> Reported:
    return reported(json.loads((job.folder / "artifacts" / "profile_export_aiperf.json").read_text("utf-8")), truth)


def reported(result: dict[str, Any], truth: Sequence[TrueRequest]) -> Reported:
    """Raises ``ValueError`` if a request failed, ``KeyError`` for a file of another form."""
    if result["error_summary"]:
        raise ValueError(f"requests failed: {result['error_summary']}")
    found = figures.centre("ttft_ms", "time to first token", _centre(result["time_to_first_token"]), figures.ttft_ms(truth))
    found |= figures.centre("step_ms", "inter-chunk latency", _centre(result["inter_chunk_latency"]), figures.step_ms(truth))
    found["token_ms_mean"] = Pair(
        "inter-token latency, mean", result["inter_token_latency"]["avg"], float(figures.token_ms(truth)[0].mean())
    )
    speed = result["output_token_throughput_per_user"]["avg"]
    found["user_tps"] = Pair("output token throughput per user, mean", speed, figures.user_tps(truth))
    if (al := result.get("spec_decode_token_weighted_acceptance_length")) is not None:
        found["al"] = Pair("token-weighted acceptance length", al["avg"], figures.al_pooled(truth))
    return found


def _centre(metric: dict[str, float]) -> tuple[float, float]:
    return metric["avg"], metric["p50"]
