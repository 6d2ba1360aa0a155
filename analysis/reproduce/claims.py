"""What the paper says, and whether what was measured says so too.

A *claim* is a sentence of the paper (an ordering, a crossing, a percentage); a *number* is a printed value with the tolerance that its kind
gets. Both end in one of three verdicts, and a claim in the third one is no failure: intervals that share a value decide nothing, and a
measurement that the claim needs may be missing. Simulated numbers reproduce nothing, because somebody chose them: what agrees with the
paper then *holds by construction*. Verdicts are kept apart from their words so that no caller can print "reproduced" over a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from specsweep.analysis.attempts import Attempt, Estimate
from specsweep.analysis.tabular import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["holds", "failed", "not decidable"]

REPRODUCED = "reproduced"
BY_CONSTRUCTION = "holds by construction"


def verdict_words(verdict: Verdict, *, simulated: bool) -> str:
    """As it is printed: ``reproduced`` only of something measured."""
    if verdict != "holds":
        return verdict
    return BY_CONSTRUCTION if simulated else REPRODUCED


@dataclass(frozen=True, slots=True)
class Claim:
    """``text``: what the paper says, in our words; ``source``: where (``Figure 7``). ``evidence``: the numbers with their intervals, or what
    is missing, as one sentence."""

    key: str  # unique in its experiment, e.g. "curves-cross"
    text: str
    source: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True, slots=True)
class NumberCheck:
    """One printed number against ours. ``tolerance`` is absolute, in the unit of the number; ``tolerance_reason`` says where it comes from
    (rounding of the print, run-to-run spread, …). ``ours`` is None where nothing was measured."""

    name: str  # e.g. "AL, coding, EAGLE3"
    paper: float
    ours: Estimate | None
    tolerance: float
    tolerance_reason: str

    @property
    def verdict(self) -> Verdict:
        """Holds if our value lies within the tolerance; failed only if the whole interval lies outside."""
        if self.ours is None:
            return "not decidable"
        if abs(self.ours.value - self.paper) <= self.tolerance:
            return "holds"
        nearest = self.ours.value
        if self.ours.low is not None and self.ours.high is not None:
            nearest = min(max(self.paper, self.ours.low), self.ours.high)
        return "not decidable" if abs(nearest - self.paper) <= self.tolerance else "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one experiment gave. ``tables``: ours beside the paper's. ``figures``: by name, each drawn when it is asked for."""

    tables: tuple[Table, ...] = ()
    numbers: tuple[NumberCheck, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an experiment may look at: the attempts of its sweep (one a point, as ``attempts.latest`` gives them), and what else was
    collected for it by name (statistics of data sets, selections, vocabularies, …: JSON-able, described by each experiment)."""

    attempts: Sequence[Attempt] = ()
    extras: Mapping[str, object] = field(default_factory=dict)
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or figure of the paper. ``sweep`` names the sweep config that measures it; empty if it needs no engine."""

    id: str  # fig7, table10, …
    title: str
    sweep: str
    examine: Callable[[Evidence], Outcome]
    extras: tuple[str, ...] = ()  # names of what Evidence.extras must hold for it


def ordering(larger: Estimate | None, smaller: Estimate | None) -> Verdict:
    """Whether the first is shown to be above the second: decided only where the intervals are apart."""
    if larger is None or smaller is None or larger.overlaps(smaller):
        return "not decidable"
    return "holds" if larger.value > smaller.value else "failed"


def about_equal(a: Estimate | None, b: Estimate | None, relative: float) -> Verdict:
    """Whether the two differ by at most ``relative`` of the second, given their intervals (worst case of both ends)."""
    if a is None or b is None:
        return "not decidable"
    a_low, a_high = (a.value if a.low is None else a.low), (a.value if a.high is None else a.high)
    b_low, b_high = (b.value if b.low is None else b.low), (b.value if b.high is None else b.high)
    if max(a_high - b_low, b_high - a_low) <= relative * abs(b.value):
        return "holds"
    return "failed" if max(a_low - b_high, b_low - a_high) > relative * abs(b.value) else "not decidable"


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """One failed part fails the whole; it holds only if every part does. Of nothing, nothing can be decided."""
    found = list(verdicts)
    if "failed" in found:
        return "failed"
    return "holds" if found and all(v == "holds" for v in found) else "not decidable"
