"""A sweep's status on its way through a ConfigMap: as JSON, bounded, and back. Pure.

What runs in the cluster and what looks at it may be of different versions: what one does not know, it leaves out, and what it misses is
what nothing is known of.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from specsweep.orchestrator.sweep_status import Problem, SessionStatus, SweepStatus

SCHEMA_VERSION = 1
KEY = "status.json"
MOST_PROBLEMS = 100
LONGEST_REASON = 400

T = TypeVar("T")


def document(status: SweepStatus, at_utc: str) -> str:
    """At most some 100 kB and 300 B a session: a ConfigMap holds 1 MB."""
    problems = tuple(dataclasses.replace(p, reason=p.reason[:LONGEST_REASON]) for p in status.problems[:MOST_PROBLEMS])
    found = dataclasses.asdict(dataclasses.replace(status, problems=problems))
    return json.dumps({"schema_version": SCHEMA_VERSION, "at_utc": at_utc, "status": found}, default=str)


def same(one: SweepStatus | None, other: SweepStatus) -> bool:
    """Whether nothing is to be told of ``other`` that the reader of ``one`` cannot know by the clock."""
    return one is not None and dataclasses.replace(one, now_s=None, left_s=None) == dataclasses.replace(other, now_s=None, left_s=None)


def read(text: str) -> tuple[SweepStatus, datetime]:
    """The status, and when it was so. Raises ValueError for what is none."""
    found = json.loads(text)
    if not isinstance(found, Mapping) or not isinstance(found.get("status"), Mapping) or found.get("schema_version") != SCHEMA_VERSION:
        raise ValueError("no status of a version that is known here; both sides should be of one version")
    facts = dict(found["status"])
    try:
        for name, kind in (("sessions", SessionStatus), ("problems", Problem)):
            facts[name] = tuple(_known(kind, item) for item in facts.get(name) or ())
        for name in ("events", "damaged"):
            facts[name] = tuple(facts.get(name) or ())
        return _known(SweepStatus, {**_NOTHING, **facts}), datetime.fromisoformat(str(found["at_utc"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a status that lacks something: {error}") from error


def at(status: SweepStatus, passed_s: float) -> SweepStatus:
    """As it is ``passed_s`` later, if nothing happened."""
    return dataclasses.replace(
        status,
        now_s=None if status.now_s is None else status.now_s + passed_s,
        left_s=None if status.left_s is None else max(0.0, status.left_s - passed_s),
    )


def nothing_known(sweep: str, points: int) -> SweepStatus:
    """Of a sweep that was handed over and has said nothing yet."""
    return SweepStatus(**{**_NOTHING, "sweep": sweep, "points": points, "missing": points})


_NOTHING: dict[str, Any] = {
    "sweep": "",
    "state": "not started",
    **dict.fromkeys(("points", "measured", "invalid", "failed", "missing", "repeat", "earlier"), 0),
    **dict.fromkeys(("left_s", "writer", "now", "now_s", "mlflow_behind", "measure_invalid")),
    **dict.fromkeys(("sessions", "problems", "events", "damaged"), ()),
    "simulated": False,
}


def _known(kind: type[T], facts: Mapping[str, Any]) -> T:
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in facts.items() if name in names})
