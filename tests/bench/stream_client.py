"""One client under test, in a process of its own on one core: reads all streams of one server, reports cost and lag.

``ours`` is the closed loop as the actors run it, lag probe and all. ``aiohttp`` is what a plain benchmark client does: iterate
``resp.content`` and take the time of each piece; ``iter_any`` is the cheapest way that aiohttp offers (no splitting into lines).
Both take only time stamps and bytes in the window; the events are found afterwards, by the same code, to learn their lag.

    python -m bench.stream_client ours|aiohttp PORT STREAMS [--profile]
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import re
import resource
import sys
from collections.abc import Iterable
from time import monotonic_ns
from typing import Any

import numpy as np

from bench.harness import pin
from specsweep.client.event_loop import new_loop
from specsweep.client.load import LoadSpec, run_load
from specsweep.client.trace import PlannedRequest
from specsweep.client.wire import dechunk, sse_events

Reads = list[tuple[int, bytes]]
_STAMP = re.compile(rb'"t_ns":(\d{20})')
_PATH = "/v1/completions"


def spent() -> tuple[float, int]:
    """CPU seconds of this process, and how often it went to sleep and was woken again."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw


async def ours(port: int, streams: int) -> tuple[list[Reads], float, int]:
    requests = [PlannedRequest(i, "p", "p", 0, "c", "main", 0, 1, 1, b"{}") for i in range(streams)]
    _, before = spent()
    sent, report = await run_load(LoadSpec(f"http://127.0.0.1:{port}", _PATH, (), streams, requests, stall_s=30))
    assert all(s.exchange.ended == "complete" for s in sent), sent[0].exchange.ended
    _, after = spent()
    return [dechunk(s.exchange.reads, s.exchange.headers).pieces for s in sent], report.cpu_s, after - before


async def plain_aiohttp(port: int, streams: int) -> tuple[list[Reads], float, int]:
    import aiohttp

    async def read(response: aiohttp.ClientResponse) -> Reads:
        reads: Reads = []
        async for data in response.content.iter_any():
            reads.append((monotonic_ns(), data))
        return reads

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        responses = await asyncio.gather(*(session.post(f"http://127.0.0.1:{port}{_PATH}", data=b"{}") for _ in range(streams)))
        cost_s, wakes = spent()
        streams_read = await asyncio.gather(*(read(r) for r in responses))
        cost_after_s, wakes_after = spent()
        return list(streams_read), cost_after_s - cost_s, wakes_after - wakes


def lags_ms(streams: Iterable[Reads]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Time of the read that completed each event, minus the time at which the server sent it."""
    found = [(t - int(match[1])) for reads in streams for t, data in sse_events(reads) if (match := _STAMP.search(data))]
    return np.asarray(found, dtype=np.float64) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=("ours", "aiohttp"))
    parser.add_argument("port", type=int)
    parser.add_argument("streams", type=int)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    pin(1)
    client, loop_factory = (ours, new_loop) if args.client == "ours" else (plain_aiohttp, asyncio.SelectorEventLoop)
    profiler = cProfile.Profile()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        if args.profile:
            profiler.enable()
        streams, cost_s, wakes = runner.run(client(args.port, args.streams))
        profiler.disable()
    lag = lags_ms(streams)
    p50, p99 = np.quantile(lag, (0.5, 0.99))
    seen = {"chunks": len(lag), "reads": sum(map(len, streams)), "wakes": wakes, "cpu_s": cost_s}
    print(json.dumps({**seen, "lag_ms_p50": p50, "lag_ms_p99": p99, "lag_ms_max": lag.max()}))
    if args.profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
