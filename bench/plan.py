"""Planning time: a grid of 104,000 points, composed, checked against every rule, hashed, grouped and ordered.

Models and workloads are hashed by stand-ins: what is timed is the planning, not the reading of model files, which is done once
per file whatever the size of the grid. ``cold_start_s`` is a whole ``python -c`` that plans the quickstart, imports included.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

OVERRIDES = ["sweep=quickstart", "batch_size=range(1,101)", "draft_length=range(1,26)", "isl=range(100,2100,100)"]
COLD = """
from specsweep.orchestrator.identity import Contents
from specsweep.orchestrator.plan import make_plan
make_plan(["sweep=quickstart"], contents=Contents(lambda spec: "m", lambda recipe, isl: "w"))
"""


def run() -> dict[str, Any]:
    """``points``, ``wall_s``, ``cpu_s`` of one plan, ``us_per_point`` (CPU), ``peak_rss_mb``, ``cold_start_s``."""
    import resource

    from specsweep.orchestrator.identity import Contents
    from specsweep.orchestrator.plan import make_plan

    def model(spec: Mapping[str, Any]) -> str:
        return repr(sorted(spec.items()))

    def workload(recipe: Mapping[str, Any], isl: int) -> str:
        return f"{sorted(recipe.items())} {isl}"

    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", COLD], check=True)
    cold = time.perf_counter() - start
    make_plan(["sweep=quickstart"], contents=Contents(model, workload))  # imports
    wall, cpu = time.perf_counter(), time.process_time()
    plan = make_plan(OVERRIDES, contents=Contents(model, workload))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    points = len(plan.points)
    return {
        "points": points,
        "sessions": len(plan.sessions),
        "wall_s": wall,
        "cpu_s": cpu,
        "us_per_point": cpu / points * 1e6,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cold_start_s": cold,
    }


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:14} {value:.3f}" if isinstance(value, float) else f"{name:14} {value}")
