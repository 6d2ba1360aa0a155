"""What experiments look at beside attempts (statistics of data sets, choices, vocabularies, captures): one collector for each name.

A collector is called only when an experiment that names it is asked for, and imports what it needs only then. None, or no collector: it was not
collected, and everything that needs it is not decidable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """``attempts``: the records of the experiment's points. ``options``: files that the user named (``specbench`` → path)."""

    attempts: Sequence[Mapping[str, Any]] = ()
    store: Path = Path("results")
    options: Mapping[str, str] = field(default_factory=dict)


COLLECTORS: dict[str, Callable[[Request], object | None]] = {}


def collected(names: Sequence[str], request: Request) -> dict[str, object]:
    """The records of these names that there are."""
    made = {name: COLLECTORS[name](request) for name in names if name in COLLECTORS}
    return {name: record for name, record in made.items() if record is not None}
