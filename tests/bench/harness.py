"""What every benchmark shares: its options, its result, and processes on a core of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Options:
    """From the command line. ``runs``: repetitions, of which the median counts; ``seconds``: length of one."""

    runs: int = 3
    seconds: float = 2.0
    profile: bool = False


@dataclass(slots=True)
class Result:
    """A table for people (``columns`` and ``rows``), what it says in words, and everything as data for machines."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)


def pin(position: int) -> int:
    """Ties this process to one core, counted round over the allowed ones; returns the core. Alone on one core: no effect."""
    cores = sorted(os.sched_getaffinity(0))
    core = cores[position % len(cores)]
    os.sched_setaffinity(0, {core})
    return core
