"""What experiments look at beside attempts (statistics of data sets, choices, vocabularies, captures): one collector for each name.

A collector is called only when an experiment that names it is asked for, and imports what it needs only then. None, or no collector: it was not
collected, and everything that needs it is not decidable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """``attempts``: the records of the experiment's points. ``options``: what the user said, by the names of :data:`OPTIONS`."""

    attempts: Sequence[Mapping[str, Any]] = ()
    store: Path = Path("results")
    options: Mapping[str, str] = field(default_factory=dict)


OPTIONS: Mapping[str, str] = {
    "specbench": "SpecBench's question file (question.jsonl), to stand beside the benchmark",
    "pool": "rows in Parquet that choices are made from and stability is asked of (default: the split that was measured, or the offline one)",
    "embedder": "what similarities are of, as in `specsweep data select` (default: hashed)",
    "embeddings": "a folder that keeps embeddings, so that no text is embedded twice",
    "k": "prompts a category of a choice (default: half of the smallest category, 80 at most)",
    "data": "where data sets were prepared (default: data/speed)",
    "routing-real": "a routing capture of real prompts, as `specsweep inspect` reads it, beside those of the sweep",
    "routing-random": "and one of random tokens",
    "vocabulary": "a text whose most frequent tokens are the vocabulary (default: the texts of the offline set)",
}


def _made_by(module: str, function: str) -> Callable[[Request], object | None]:
    def collect(request: Request) -> object | None:
        made: object | None = getattr(import_module(f"specsweep.orchestrator.{module}"), function)(request)
        return made

    return collect


COLLECTORS: dict[str, Callable[[Request], object | None]] = {
    "data_sets": _made_by("reproduction_data", "data_sets"),
    "choices": _made_by("reproduction_data", "choices"),
    "stability": _made_by("reproduction_data", "stability"),
    "vocabularies": _made_by("reproduction_traces", "vocabularies"),
    "captures": _made_by("reproduction_traces", "captures"),
}


def collected(names: Sequence[str], request: Request) -> dict[str, object]:
    """The records of these names that there are."""
    made = {name: COLLECTORS[name](request) for name in names if name in COLLECTORS}
    return {name: record for name, record in made.items() if record is not None}
