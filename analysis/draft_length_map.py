"""Which draft length is best at which batch size and input length, with ties as ties, and where two arms change places.

One map holds an engine, a target, a drafter and a workload; its cells are batch size × ISL, its candidates the draft lengths that were measured there
and *none*, which is draft length 0. The winner of a cell is the candidate with the highest goal: output TPS (what a server gives in all) or user TPS
(what one user gets). A candidate is left out of the *tie* only if its ratio to the winner is clearly below 1.

The winner was picked because it looked best, so plain 95 % intervals would leave out too much. All pairs of a cell's candidates are therefore
taken as looked at together (Bonferroni, Student's t): the truly best candidate is in the tie of a cell in at least 95 % of cases, whichever it
is. That holds cell by cell; of a map with a hundred cells some ties may lack their best.

Ratios are those of :mod:`specsweep.analysis.speedup`: user TPS paired over the prompts that both arms ran, output TPS by blocks of time.
Candidates that are not valid, or that ran in another environment, stand apart with the reason. Two arms of which neither had a draft
accepted did the same work: a difference between them is one between sessions, and never makes either the better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

from specsweep.analysis.attempts import Attempt, Cell, Estimate, cells, is_simulated, latest
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.crossings import Crossing, Spot, crossings, statement
from specsweep.analysis.log_scale import together
from specsweep.analysis.reasons import merged
from specsweep.analysis.speedup import arm_ratios, same_work

Goal = Literal["output_tps", "user_tps"]
GOALS: Mapping[Goal, tuple[str, str]] = {"output_tps": ("output_tps_steady", "output TPS"), "user_tps": ("user_tps_mean", "user TPS")}
WHERE = ("batch_size", "isl", "repeat")  # the axes of a map's cells


def draft_length(cell: Cell) -> int:
    """0 for drafter ``none``."""
    return 0 if cell.baseline else int(cell.axes.get("draft_length") or 0)


def length_text(length: int) -> str:
    return str(length) if length else "none"


def arm_label(cell: Cell) -> str:
    """``none`` or ``eagle3 DL 3``, with the drafter's own axes where it has any."""
    if cell.baseline:
        return "none"
    own = [f"{n.removeprefix('drafter.')} {format_axis(v, n)}" for n, v in cell.axes.items() if n.startswith("drafter.") and v is not None]
    return " ".join([str(cell.axes.get("drafter")), f"DL {format_axis(cell.axes.get('draft_length'))}", *own])


@dataclass(frozen=True)
class Choice:
    """One cell of a map. ``ties``: draft lengths that are not shown to be worse than the best, itself included, ascending."""

    batch_size: int
    isl: int
    best: Cell
    value: Estimate  # the goal there, tokens/s
    ties: tuple[int, ...]
    ratios: Mapping[int, Estimate | None]  # candidate over best by draft length, intervals that hold together; without the best itself
    over_none: Estimate | None  # best over drafter none, with its own interval
    left_out: tuple[tuple[int, str], ...] = ()  # (draft length, why)

    @property
    def draft_length(self) -> int:
        return draft_length(self.best)

    @property
    def tied(self) -> bool:
        return len(self.ties) > 1

    @property
    def alone(self) -> bool:
        """Nothing was there to be better than."""
        return not self.ratios

    @property
    def ties_text(self) -> str:
        """``none, 1, 3``"""
        return ", ".join(length_text(n) for n in self.ties)


@dataclass(frozen=True)
class DraftLengthMap:
    """The map of one engine × target × drafter × workload. ``axes``: all that its cells have in common."""

    axes: Mapping[str, Any]
    goal: Goal
    choices: tuple[Choice, ...]  # by ISL, then batch size
    missing: tuple[tuple[int, int, str], ...] = ()  # (batch size, ISL, why there is no choice)
    simulated: bool = False

    @property
    def label(self) -> str:
        names = ("engine", "target", "drafter", "workload")
        more = [n for n in self.axes if n not in names and self.axes[n] is not None]
        return " · ".join([*(str(self.axes.get(n)) for n in names), *(f"{n} {format_axis(self.axes[n], n)}" for n in more)])

    @cached_property
    def at(self) -> Mapping[tuple[int, int], Choice]:
        """By (batch size, ISL)."""
        return {(c.batch_size, c.isl): c for c in self.choices}

    @property
    def isls(self) -> list[int]:
        return sorted({c.isl for c in self.choices} | {isl for _, isl, _ in self.missing})

    @property
    def batch_sizes(self) -> list[int]:
        return sorted({c.batch_size for c in self.choices} | {bs for bs, _, _ in self.missing})


def draft_length_maps(attempts: Iterable[Attempt], goal: Goal = "output_tps") -> list[DraftLengthMap]:
    """A map for each drafter with its setting, in the order of the cells. ``attempts``: any number a point; the last measured one counts."""
    grouped = cells(latest(attempts))
    baselines = [c for c in grouped if c.baseline]
    families: dict[str, list[Cell]] = {}
    for cell in grouped:
        if not cell.baseline:
            families.setdefault(_key(cell.axes, without=("draft_length",)), []).append(cell)
    found = []
    for members in families.values():
        plain = _key(_server_axes(members[0]))
        own = [b for b in baselines if _key(_server_axes(b)) == plain]
        found.append(_map([*own, *members], goal))
    return found


def _key(axes: Mapping[str, Any], without: Sequence[str] = ()) -> str:
    return repr(sorted((n, repr(v)) for n, v in axes.items() if n not in WHERE and n not in without))


def _server_axes(cell: Cell) -> dict[str, Any]:
    """The axes that a baseline shares with the arms that are held against it."""
    return {n: v for n, v in cell.axes.items() if not n.startswith("drafter") and n != "draft_length"}


def _map(members: Sequence[Cell], goal: Goal) -> DraftLengthMap:
    drafting = next(c for c in members if not c.baseline)
    axes = {n: v for n, v in drafting.axes.items() if n not in WHERE and n != "draft_length"}
    places: dict[tuple[int, int], list[Cell]] = {}
    for cell in members:
        places.setdefault((int(cell.axes.get("isl") or 0), cell.batch_size), []).append(cell)
    choices, missing = [], []
    for (isl, batch_size), candidates in sorted(places.items()):
        if all(c.baseline for c in candidates):
            continue
        found = _choice(batch_size, isl, candidates, goal)
        if isinstance(found, str):
            missing.append((batch_size, isl, found))
        else:
            choices.append(found)
    return DraftLengthMap(axes, goal, tuple(choices), tuple(missing), any(is_simulated(a) for c in members for a in c.attempts))


def _choice(batch_size: int, isl: int, candidates: Sequence[Cell], goal: Goal) -> Choice | str:
    """The choice at one place, or why there is none."""
    metric = GOALS[goal][0]
    left_out = [(draft_length(c), c.why_invalid("tps") or f"{metric} is not known") for c in candidates if _goal_of(c, metric) is None]
    usable = [(c, value) for c in candidates if (value := _goal_of(c, metric)) is not None]
    if not usable:
        return left_out[0][1]
    best, value = max(usable, key=lambda pair: pair[1].value)
    pairs = len(usable) * (len(usable) - 1) // 2
    ties, ratios = [draft_length(best)], {}
    over_none: Estimate | None = None
    for cell, _ in usable:
        if cell is best:
            continue
        found, why = arm_ratios(cell, best)
        ratio = found.get(goal)
        if ratio is None:
            left_out.append((draft_length(cell), why or "the two have no rate in common"))
            continue
        ratios[draft_length(cell)] = held = together(ratio, pairs)
        if held.high is None or held.high >= 1 or same_work(cell, best):
            ties.append(draft_length(cell))
        if cell.baseline:
            over_none = None if same_work(best, cell) else inverse(ratio)
    return Choice(batch_size, isl, best, value, tuple(sorted(ties)), ratios, over_none, tuple(sorted(left_out)))


def _goal_of(cell: Cell, metric: str) -> Estimate | None:
    return cell.estimate(metric, "tps") if cell.valid("tps") else None


def inverse(ratio: Estimate) -> Estimate:
    """1 / ratio."""
    low, high = (None if bound is None or bound <= 0 else 1 / bound for bound in (ratio.high, ratio.low))
    return Estimate(1 / ratio.value, low, high, ratio.scope, ratio.sessions, ratio.method, ratio.clusters)


@dataclass(frozen=True)
class PairCrossover:
    """Two arms of one server along the batch size. ``spots``: ``a`` over ``b``, intervals that hold together over the batch sizes."""

    axes: Mapping[str, Any]  # the server, the workload, the ISL
    a: str
    b: str
    goal: Goal
    spots: tuple[Spot, ...]
    not_compared: tuple[tuple[int, str], ...] = ()  # (batch size, why)

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        return tuple(crossings(self.spots))

    @property
    def statement(self) -> str:
        left_out = []
        for reason in merged(why for _, why in self.not_compared):
            at = ", ".join(str(bs) for bs, why in self.not_compared if why in reason.texts)
            left_out.append(f"not compared at BS {at}: {reason.text}")
        text = statement(self.spots, self.a, self.b) if self.spots or not left_out else f"{self.a} and {self.b} cannot be compared"
        return "; ".join([text, *left_out])

    @property
    def against_none(self) -> bool:
        return "none" in (self.a, self.b)


def pair_crossovers(attempts: Iterable[Attempt], goal: Goal = "output_tps") -> list[PairCrossover]:
    """Every pair of arms that share a server, a workload and an ISL, drafters of all kinds and none, in the order of the cells."""
    servers: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells(latest(attempts)):
        server = repr(sorted((n, repr(v)) for n, v in _server_axes(cell).items() if n not in ("batch_size", "repeat")))
        servers.setdefault(server, {}).setdefault(arm_label(cell), []).append(cell)
    return [_pair(a, b, goal) for arms in servers.values() for b, a in combinations(arms.values(), 2)]


def _pair(a: Sequence[Cell], b: Sequence[Cell], goal: Goal) -> PairCrossover:
    theirs = {c.batch_size: c for c in b}
    raw: list[Spot] = []
    refused = []
    for cell in sorted(a, key=lambda c: c.batch_size):
        if (other := theirs.get(cell.batch_size)) is None:
            continue
        found, why = arm_ratios(cell, other)
        ratio = found.get(goal)
        if ratio is None:
            refused.append((cell.batch_size, why or "the two have no rate in common"))
        elif same_work(cell, other):
            refused.append((cell.batch_size, "no draft was accepted, so both did the same work"))
        else:
            raw.append((cell.batch_size, ratio))
    spots = tuple((bs, together(ratio, len(raw))) for bs, ratio in raw)
    axes = {n: v for n, v in _server_axes(a[0]).items() if n not in ("batch_size", "repeat")}
    return PairCrossover(axes, arm_label(a[0]), arm_label(b[0]), goal, spots, tuple(refused))
