"""What a measurement is made of and written onto: the facts of a point, and the sheet that takes one number at a time.

The sheet keeps the promise of ``measurement.json``: a number is there, finite and with its interval, or its name is in ``absent`` with the
reason. There is no third case, so no NaN ever reaches a file, a table or MLflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from specsweep.analysis.metrics import BY_NAME, ci_names
from specsweep.analysis.stats import LEVEL, Interval

SCOPE = "within-session"


@dataclass(frozen=True, slots=True)
class PointFacts:
    """What a measurement needs to know of a point beside its trace."""

    batch_size: int
    draft_length: int | None  # None: no drafter, or one whose draft length is not fixed or not known
    drafter: str  # "none" is the baseline
    stateful: bool = False
    gpus: int = 0  # of the engine; 0 on a CPU or where it is not known
    step_clock: Literal["client", "server"] = "client"
    max_batch: int | None = None  # the engine's batch limit; None where it is not known
    other_cpu_share: float | None = None  # of the engine's host, used by neither engine nor client while it was measured; None: not known

    @property
    def baseline(self) -> bool:
        return self.drafter == "none"


@dataclass(slots=True)
class Sheet:
    metrics: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    ci: dict[str, dict[str, Any]] = field(default_factory=dict)

    def put(self, name: str, found: Interval | float | None, *, reason: str = "", source: str = "") -> None:
        """``reason``: why there is nothing, used if ``found`` is None or not finite. Raises ``KeyError`` for an unregistered name."""
        metric = BY_NAME[name]
        interval = found if isinstance(found, Interval) else None
        value = interval.value if interval is not None else found
        if value is None or not math.isfinite(float(value)):  # type: ignore[arg-type]
            self.absent[metric.name] = reason or "it could not be computed from this trace"
            return
        self.metrics[name] = float(value)  # type: ignore[arg-type]
        if interval is None:
            return
        self.ci[name] = {"method": interval.method, "level": LEVEL, "clusters": interval.n, "scope": SCOPE}
        if source:
            self.ci[name]["source"] = source
        if interval.low is not None and interval.high is not None and math.isfinite(interval.low) and math.isfinite(interval.high):
            low, high = ci_names(name)
            self.metrics |= {low: float(interval.low), high: float(interval.high)}
