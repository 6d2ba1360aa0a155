"""What can go wrong with an engine, on demand: each trouble is a field, a share of the requests or a count, and nothing by default.

Which requests are hit follows from the seed and the order of arrival alone, so a run can be repeated. A share of 0.1 hits one request in
ten by the draw, not exactly every tenth.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specsweep.client.sim.settings import Section

SHARES = ("stall_share", "cut_share", "error_share", "merge_share", "lost_id_share", "wrong_prompt_share", "cached_prompt_share")
CACHED = 0.5  # of a prompt that is said to come from the prefix cache


@dataclass(frozen=True, slots=True)
class Troubles:
    """Shares are of requests, from 0 to 1, but for ``merge_share``: of chunks. Steps are the engine's."""

    slow_start_s: float = 0.0  # so long it is not healthy (llama.cpp answers 503 meanwhile, the others refuse connections)
    never_healthy: bool = False
    dies_at_start: str = ""  # the last words on stderr; exit code 1
    dies_after_steps: int = 0  # the process is killed; 0: never
    fails_after_steps: int = 0  # the engine behind the server dies: running streams fail, then everything is refused; 0: never
    overload_limit: int = 0  # more requests in flight are refused with 503; 0: no limit
    stall_share: float = 0.0  # half of the answer's limit or all but its end, then silence without end
    cut_share: float = 0.0  # likewise, then the connection is reset
    error_share: float = 0.0  # likewise, then the engine's own form of an error
    merge_share: float = 0.0  # chunks that wait for the next one, as under a lagging server
    stream_interval: int = 1  # merged by the server's setting, in that engine's unit
    lost_id_share: float = 0.0  # one token of the answer is counted and never streamed
    wrong_counters: float = 0.0  # so much too many accepted tokens on the metrics page: 0.1 is a tenth
    wrong_prompt_share: float = 0.0  # the server counts one prompt token more (it added a BOS)
    cached_prompt_share: float = 0.0  # half of the prompt comes from a prefix cache

    def plan(self, ordinal: int, max_tokens: int, seed: int) -> Plan:
        """What happens to request number ``ordinal``."""
        rng = random.Random(f"{seed}:trouble:{ordinal}")
        hit = {name: rng.random() < getattr(self, name) for name in SHARES}
        half = max(1, max_tokens // 2)
        ending = next((name.removesuffix("_share") for name in ("stall_share", "cut_share", "error_share") if hit[name]), "")
        return Plan(
            ending=ending,
            ends_after=half if ending else None,
            lost_at=half if hit["lost_id_share"] and max_tokens > 1 else -1,
            extra_prompt=int(hit["wrong_prompt_share"]),
            cached=CACHED if hit["cached_prompt_share"] else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The troubles of one request. ``ending``: stall, cut, error or ""; ``ends_after``: it comes before so many tokens have left, or before the end."""

    ending: str = ""
    ends_after: int | None = None
    lost_at: int = -1
    extra_prompt: int = 0
    cached: float = 0.0  # share of the prompt


def read_troubles(value: Mapping[str, Any] | None, path: str = "troubles") -> Troubles:
    """Raises :class:`~specsweep.client.sim.settings.ModelError` naming the field for anything that is not a trouble."""
    section = Section(value or {}, path)
    death = section.raw("dies_at_start", "")
    shares = {name: section.number(name, 0.0, high=1.0) for name in SHARES}
    found = Troubles(
        slow_start_s=section.number("slow_start_s", 0.0),
        never_healthy=bool(section.raw("never_healthy", False)),
        dies_at_start=("the simulated engine was told to die" if death is True else str(death or "")),
        dies_after_steps=section.integer("dies_after_steps", 0),
        fails_after_steps=section.integer("fails_after_steps", 0),
        overload_limit=section.integer("overload_limit", 0),
        stream_interval=section.integer("stream_interval", 1, low=1),
        wrong_counters=section.number("wrong_counters", 0.0),
        **shares,
    )
    section.finish()
    return found
