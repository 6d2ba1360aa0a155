"""Client CPU per million chunks, and how late its stamps are, next to a plain aiohttp client in the same run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

from bench.harness import Options, Result

RATES = (6_000, 12_000, 25_000)
STREAMS = 256
CLIENTS = ("ours", "aiohttp")
_MEASURED = ("cpu_s_per_million", "lag_ms_p50", "lag_ms_p99")
_CONTEXT = ("wakes_per_chunk", "chunks_per_read", "rate")
_COLUMNS = ("chunks/s", "client", "CPU s / 10⁶ chunks", "lag p50 ms", "lag p99 ms", "wake-ups / chunk", "chunks / read", "sent/s")


def one(client: str, rate: float, seconds: float, *, profile: bool = False) -> dict[str, Any]:
    """One run of one client against one server, each on its own core."""
    command = [sys.executable, "-m", "bench.stream_server", "--streams", str(STREAMS), "--rate", str(rate), "--seconds", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = json.loads(server.stdout.readline())["port"]
            command = [sys.executable, "-m", "bench.stream_client", client, str(port), str(STREAMS), *(["--profile"] if profile else [])]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60 + 10 * seconds)
            seen = json.loads(done.stdout)
            sent = json.loads(server.stdout.readline())
        finally:
            server.kill()
    if seen["chunks"] != sent["chunks"]:
        raise RuntimeError(f"{client} at {rate}/s saw {seen['chunks']} of {sent['chunks']} chunks")
    return {
        **seen,
        "cpu_s_per_million": seen["cpu_s"] / seen["chunks"] * 1e6,
        "wakes_per_chunk": seen["wakes"] / seen["chunks"],
        "chunks_per_read": seen["chunks"] / seen["reads"],
        "rate": sent["rate"],
        "server_late_ms_max": sent["late_ms_max"],
    }


def run(options: Options) -> Result:
    result = Result(
        f"Streaming client: {STREAMS} streams, one core, medians of {options.runs} runs of {options.seconds:g} s",
        _COLUMNS,
    )
    for rate in RATES:
        runs: dict[str, list[dict[str, Any]]] = {c: [] for c in CLIENTS}
        for _ in range(options.runs):  # by turns, so that both see the same machine
            for client in CLIENTS:
                runs[client].append(one(client, rate, options.seconds))
        medians = {c: {k: statistics.median(r[k] for r in runs[c]) for k in _MEASURED + _CONTEXT} for c in CLIENTS}
        for client, m in medians.items():
            cost, p50, p99 = (m[k] for k in _MEASURED)
            context = (f"{m['wakes_per_chunk']:.2f}", f"{m['chunks_per_read']:.2f}", f"{m['rate']:,.0f}")
            result.rows.append((f"{rate:,}", client, f"{cost:.1f}", f"{p50:.3f}", f"{p99:.3f}", *context))
        ratios = {k: medians["ours"][k] / medians["aiohttp"][k] for k in _MEASURED}
        result.rows.append((f"{rate:,}", "ours / aiohttp", *(f"{ratios[k]:.2f}" for k in _MEASURED), "", "", ""))
        result.data[str(rate)] = {"median": medians, "ratio": ratios, "runs": runs}
    top = result.data[str(RATES[-1])]
    p50, ratio = top["median"]["ours"]["lag_ms_p50"], top["ratio"]["cpu_s_per_million"]
    aims = ((p50 < 0.5, f"median lag {p50:.3f} ms (aim: below 0.5)"), (ratio < 0.5, f"CPU {ratio:.2f} of aiohttp's (aim: below 0.5)"))
    result.notes += [f"{'reached' if met else 'NOT reached'} at {RATES[-1]:,}/s: {words}" for met, words in aims]
    if options.profile:
        one("ours", RATES[-1], options.seconds, profile=True)
    return result
