"""What experiments about data sets, selections, vocabularies and experts look at beside attempts: the types of ``Evidence.extras``.

Such numbers come from files (prompts, captures, heads), not from points of a sweep. Whoever reads the files makes these records; the
experiments are pure functions of them. A record that was not collected is None, and then everything that needs it is not decidable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.data_stats import DataStats
from specsweep.analysis.reproduce.claims import Evidence, Verdict, ordering

SPEED_BENCH, SPEC_BENCH = "SPEED-Bench", "SpecBench"  # as the paper's tables call them
STAND_IN = "; of a stand-in that was written in the benchmark's shape, which shows nothing about the benchmark itself"
PAPER_EMBEDDER = "text-embedding-3-large"

Role = Literal["benchmark", "specbench"]
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class DataSet:
    """A set of prompts. ``role``: the benchmark itself or a stand-in for it, or SpecBench; ``published``: it is the very set of the paper.

    ``matrices``: category → cosine similarities of its prompts, in the order of the data set.
    """

    role: Role
    published: bool
    stats: DataStats
    matrices: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)

    @property
    def paper_name(self) -> str:
        """The column of the paper's tables that its numbers are held against; empty for a stand-in."""
        return (SPEC_BENCH if self.role == "specbench" else SPEED_BENCH) if self.published else ""


@dataclass(frozen=True, slots=True)
class DataSets:
    """At most one data set of each role."""

    sets: tuple[DataSet, ...]


@dataclass(frozen=True, slots=True)
class CategoryChoice:
    """Average pairwise similarities of choices of ``k`` prompts from one category of a pool, as the judging embedder sees them.

    ``random``: mean over random choices, with the range of 95 % of them. ``reached`` and ``bound``: of greedy + swap, and what no choice can go
    below, both as the choosing embedder sees them.
    """

    category: str
    candidates: int
    random: Estimate
    greedy: float
    greedy_swap: float
    qp: float
    reached: float
    bound: float


@dataclass(frozen=True, slots=True)
class Choices:
    """``pool``: what was chosen from; ``stand_in``: the offline split, for want of another.

    ``embedder`` chose, ``judge`` gives the similarities (a choice exploits the errors of who chose)."""

    pool: str
    k: int
    embedder: str
    judge: str
    categories: tuple[CategoryChoice, ...]
    stand_in: bool = False

    @property
    def of_the_paper(self) -> bool:
        """Whether its numbers can be held against the paper's: same embedder and size. Its candidates are not published."""
        return PAPER_EMBEDDER in self.judge and self.k == 80


def extra(evidence: Evidence, name: str, kind: type[Record]) -> Record | None:
    """The record of that name, None if it was not collected. Raises ``TypeError`` for one of another type: a fault of the collector."""
    found = evidence.extras.get(name)
    if found is None or isinstance(found, kind):
        return found
    raise TypeError(f"extras[{name!r}] is {type(found).__name__}, not {kind.__name__}")


def named(sets: DataSets | None, role: Role) -> DataSet | None:
    return next((s for s in sets.sets if s.role == role), None) if sets else None


def below(smaller: Estimate | float | None, larger: Estimate | float | None) -> Verdict:
    """Whether the first is below the second; plain numbers are exact, as an average over all pairs of a fixed set is."""
    return ordering(_estimate(larger), _estimate(smaller))


def worded(parts: Mapping[str, Verdict], least: int = 6) -> str:
    """Which parts hold, which do not and which are open, as one sentence; long lists are counted."""
    words = []
    for verdict, name in (("holds", "holds in"), ("failed", "not in"), ("not decidable", "open in")):
        members = [part for part, v in parts.items() if v == verdict]
        if members:
            words.append(f"{name} {len(members)} of {len(parts)}" + (f" ({', '.join(members)})" if len(members) <= least else ""))
    return "; ".join(words) or "nothing was measured"


def with_range(value: Estimate | None) -> str:
    if value is None:
        return "–"
    return f"{value.value:.3f}" + (f" [{value.low:.3f}, {value.high:.3f}]" if value.low is not None and value.high is not None else "")


def embedders(sets: DataSets | None, choices: Choices | None) -> tuple[str, ...]:
    names = dict.fromkeys(s.stats.embedder for s in (sets.sets if sets else ()) if s.stats.embedder)
    notes = [f"Similarities are those of the embedder {name}; the paper's are of {PAPER_EMBEDDER}." for name in names]
    if choices:
        notes.append(f"{choices.k} prompts a category of {choices.pool}, chosen by {choices.embedder} and judged by {choices.judge}.")
    return tuple(notes)


def _estimate(value: Estimate | float | None) -> Estimate | None:
    return value if value is None or isinstance(value, Estimate) else Estimate(value)
