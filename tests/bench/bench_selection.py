"""Choosing unlike prompts: Algorithm 1 as it is built here against the same steps taken plainly, and at the size that it is meant for.

The plain one forms the whole matrix of similarities and looks at every pair (out, in) with sums that it makes anew: what the paper's
formula says, word for word. Both must come to the same choice. The large case is random directions, as many as a large source has rows,
as long as a common embedding; the plain one would need 3 GB for it and is not run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.harness import Options, Result

SMALL = (600, 128, 20)  # candidates, dimensions, chosen
LARGE = (20_000, 1_536, 80)
AIM_S = 10.0  # CPU seconds for the large one


def plain(x: Any, k: int, start: int) -> list[int]:
    gram = x @ x.T
    chosen = [start]
    while len(chosen) < k:
        chosen.append(min((i for i in range(len(x)) if i not in chosen), key=lambda i: float(gram[i, chosen].sum())))
    while True:
        best, pair = -1e-4, None
        for place, out in enumerate(chosen):
            rest = chosen[:place] + chosen[place + 1 :]
            leaves = float(gram[out, rest].sum())
            for new in range(len(x)):
                if new not in chosen and (delta := float(gram[new, rest].sum()) - leaves) < best:
                    best, pair = delta, (place, new)
        if pair is None:
            return chosen
        chosen[pair[0]] = pair[1]


def candidates(n: int, d: int) -> Any:
    """Unit rows in 50 clusters with a common part, single precision, as embeddings of prompts are."""
    from specsweep.analysis.selection import normalised

    draws = np.random.default_rng(0)
    centres = draws.standard_normal((50, d), dtype=np.float32)
    return normalised(centres[draws.integers(50, size=n)] + draws.standard_normal((n, d), dtype=np.float32) + centres[0])


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    value = work()
    return value, time.perf_counter() - wall, time.process_time() - cpu


def run(options: Options) -> Result:
    from specsweep.analysis.relaxation import relax
    from specsweep.analysis.selection import greedy_swap, uniform

    columns = ("work", "candidates", "d", "chosen", "wall s", "CPU s", "swaps", "similarity")
    result = Result(f"Selection of unlike prompts, medians of {options.runs} runs", columns)

    def row(name: str, size: tuple[int, int, int], times: list[tuple[float, float]], swaps: str, similarity: float) -> float:
        wall, cpu = (statistics.median(t[i] for t in times) for i in (0, 1))
        n, d, k = size
        result.rows.append((name, f"{n:,}", f"{d:,}", str(k), f"{wall:.3f}", f"{cpu:.3f}", swaps, f"{similarity:.4f}"))
        result.data[name] = {"candidates": n, "d": d, "chosen": k, "wall_s": wall, "cpu_s": cpu, "similarity": similarity}
        return cpu

    small, k = candidates(*SMALL[:2]), SMALL[2]
    ours = [timed(lambda: greedy_swap(small, k, start=0)) for _ in range(options.runs)]
    theirs, wall, cpu = timed(lambda: plain(small, k, 0))
    found = ours[0][0]
    if sorted(theirs) != sorted(found.indices):
        raise AssertionError("the two do not choose the same rows")
    row("plain", SMALL, [(wall, cpu)], "", found.average_similarity)
    fast = row("ours", SMALL, [t[1:] for t in ours], str(found.rounds), found.average_similarity)
    result.data["ratio"] = cpu / fast
    result.notes.append(f"the same choice with {cpu / fast:,.0f} times less CPU than plainly written, at {SMALL[0]} candidates")

    large, k = candidates(*LARGE[:2]), LARGE[2]
    many = [timed(lambda: greedy_swap(large, k, start=0)) for _ in range(options.runs)]
    whole = row("ours, large", LARGE, [t[1:] for t in many], str(many[0][0].rounds), many[0][0].average_similarity)
    relaxed, wall, cpu = timed(lambda: relax(large, k))
    row("relaxation, large", LARGE, [(wall, cpu)], "", relaxed.similarity_bound)
    row("uniform, large", LARGE, [timed(lambda: uniform(large, k))[1:]], "", uniform(large, k).average_similarity)
    result.notes.append(
        f"{'reached' if whole < AIM_S else 'NOT reached'}: {LARGE[0]:,} candidates in {whole:.1f} s of CPU (aim: below {AIM_S:g})"
    )
    result.notes.append("similarity of the relaxation: the bound that no choice can be below")
    return result
