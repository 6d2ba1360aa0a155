"""Planning time: grids of growing size, composed, checked against every rule, hashed, grouped and ordered.

Models and workloads are hashed by stand-ins: what is timed is the planning, not the reading of model files, which is done once
per file whatever the size of the grid. The cold start is a whole process that plans the quickstart, imports included.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from bench.harness import Options, Result

AIM_S = 5.0  # for the largest grid
DRAFT_LENGTHS = (1, 5, 25)  # 8,000, 24,000 and 104,000 points
COLD = """
from specsweep.orchestrator.identity import Contents
from specsweep.orchestrator.plan import make_plan
make_plan(["sweep=quickstart"], contents=Contents(lambda spec: "m", lambda recipe, isl: "w"))
"""


def one(draft_lengths: int) -> dict[str, float]:
    """One plan of 2 workloads × 100 batch sizes × 20 ISLs × (none and ``draft_lengths`` arms of ngram)."""
    from specsweep.orchestrator.identity import Contents
    from specsweep.orchestrator.plan import make_plan

    def model(spec: Mapping[str, Any]) -> str:
        return repr(sorted(spec.items()))

    def workload(recipe: Mapping[str, Any], isl: int) -> str:
        return f"{sorted(recipe.items())} {isl}"

    overrides = ["sweep=quickstart", "batch_size=range(1,101)", f"draft_length=range(1,{draft_lengths + 1})", "isl=range(100,2100,100)"]
    wall, cpu = time.perf_counter(), time.process_time()
    plan = make_plan(overrides, contents=Contents(model, workload))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"points": len(plan.points), "sessions": len(plan.sessions), "wall_s": wall, "cpu_s": cpu}


def cold_start_s() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", COLD], check=True)
    return time.perf_counter() - start


def run(options: Options) -> Result:
    result = Result(f"Planning, medians of {options.runs} runs", ("points", "sessions", "wall s", "CPU s", "CPU µs per point"))
    cold = [cold_start_s() for _ in range(options.runs)]
    one(DRAFT_LENGTHS[0])  # imports
    for draft_lengths in DRAFT_LENGTHS:
        runs = [one(draft_lengths) for _ in range(options.runs)]
        median = {k: statistics.median(r[k] for r in runs) for k in runs[0]}
        each = median["cpu_s"] / median["points"] * 1e6
        row = (f"{median['points']:,.0f}", f"{median['sessions']:.0f}", f"{median['wall_s']:.2f}", f"{median['cpu_s']:.2f}", f"{each:.0f}")
        result.rows.append(row)
        result.data[f"{median['points']:.0f} points"] = {"median": median, "runs": runs}
    result.data["cold_start_s"] = cold
    met = median["wall_s"] < AIM_S
    result.notes.append(
        f"{'reached' if met else 'NOT reached'}: {median['points']:,.0f} points in {median['wall_s']:.1f} s (aim: below {AIM_S:g})"
    )
    result.notes.append(f"cold start of a process that plans the quickstart: {statistics.median(cold):.2f} s")
    return result
