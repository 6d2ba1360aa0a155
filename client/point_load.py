"""What the client is asked to measure, and what it hands back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from specsweep.client.trace import Exchange, PlannedRequest, PointTrace

if TYPE_CHECKING:
    from specsweep.client.conversation import ChatRecipe

SLOTS_PER_PROCESS = 64


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server. ``headers`` go with every request (``Authorization`` …)."""

    base_url: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PointLoad:
    """Everything that the client needs to measure one point."""

    endpoint: Endpoint
    path: str
    dialect: str
    batch_size: int
    requests: Sequence[PlannedRequest]
    draft_length: int | None = None
    stall_s: float = 60.0
    record_raw: bool = False
    processes: int | None = None  # None: default_processes
    chat: ChatRecipe | None = None  # how later turns are made; needed if a request has any
    retries: int = 0  # of a request that fails before its first token


@dataclass(slots=True)
class PointResult:
    """``raw``: (index, planned request, exchange) in the order of the index, or None if it was not asked for."""

    trace: PointTrace
    raw: list[tuple[int, PlannedRequest, Exchange]] | None = None


def default_processes(batch_size: int, max_processes: int = 8) -> int:
    """One process up to batch size 64, then one for each further 64, up to ``max_processes``."""
    return max(1, min(max_processes, ceil(batch_size / SLOTS_PER_PROCESS)))
