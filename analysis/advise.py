"""What to run: measured arms against a service goal, ranked, with what is certain kept apart from what is not.

A goal is a set of bounds (user TPS at least x, TTFT p95 at most y) and an order (most output TPS, most user TPS, or the least cost per million
output tokens). An arm *misses* if the whole interval of a bounded metric lies on the wrong side, *meets* if all of it lies on the right side of
every bound, and *may miss* in between. Intervals hold together over all arms and bounds of a service (Bonferroni), so an arm that truly
meets the goal is thrown out in at most 5 % of such questions. The first is the best that meets; others are *tied* with it unless their ratio
to it is clearly below 1, over all pairs, because the first was picked for looking best.

Services are apart: one target on one workload at one ISL and temperature, since the best arm for one says nothing of another. Arms come from
measured points, or are *projected* from acceptance and step times: user TPS = AL / t_sd, output TPS = BS times that, which leaves out the time
of prefills and so is a ceiling. Cost is price · GPUs / output TPS of the steady window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from specsweep.analysis.attempts import AXIS_LABELS, Attempt, Cell, Estimate, cells, is_simulated, latest, panel_axes
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.draft_length_map import arm_label, inverse
from specsweep.analysis.log_scale import product, together
from specsweep.analysis.metrics import BY_NAME
from specsweep.analysis.projection import Projection
from specsweep.analysis.speedup import arm_ratios, same_work

Standing = Literal["meets", "may miss", "misses"]
Order = Literal["output_tps", "user_tps", "cost"]
ORDERS: Mapping[Order, str] = {"output_tps": "output_tps_steady", "user_tps": "user_tps_mean", "cost": "cost_per_million"}
SERVICE_AXES = ("target",)
TOKENS, SECONDS = 1e6, 3600.0
BOUNDABLE = tuple(n for n, m in BY_NAME.items() if m.unit in ("tokens/s", "ms") and not n.startswith("client_"))


@dataclass(frozen=True, slots=True)
class Bound:
    """``metric`` (a name of the registry) must be at least, or at most, ``limit``, in the metric's unit."""

    metric: str
    limit: float
    at_least: bool

    def __post_init__(self) -> None:
        if self.metric not in BOUNDABLE:
            raise ValueError(f"metric {self.metric!r} cannot be bounded; those that can: {', '.join(BOUNDABLE)}")
        if not self.limit > 0:
            raise ValueError(f"{self.metric}: the limit {self.limit} must be above 0")

    def standing(self, value: Estimate | None, comparisons: int) -> Standing:
        """Of one value, whose interval holds together with ``comparisons`` - 1 others."""
        if value is None or not value.has_interval:
            return "may miss"
        held = together(value, comparisons)
        low, high = held.low or 0.0, held.high or 0.0
        inside, outside = (low >= self.limit, high < self.limit) if self.at_least else (high <= self.limit, low > self.limit)
        return "meets" if inside else "misses" if outside else "may miss"

    def __str__(self) -> str:
        unit = BY_NAME[self.metric].unit
        return f"{self.metric} {'at least' if self.at_least else 'at most'} {self.limit:g}{' ' + unit if unit else ''}"


@dataclass(frozen=True, slots=True)
class Goal:
    """``gpu_price``: of one GPU for an hour, in any currency. ``gpus``: of each server, where the points do not say."""

    bounds: tuple[Bound, ...] = ()
    order: Order = "output_tps"
    gpu_price: float | None = None
    gpus: int | None = None

    def __post_init__(self) -> None:
        if self.order == "cost" and self.gpu_price is None:
            raise ValueError("an order by cost needs the price of a GPU hour")
        if self.gpu_price is not None and not self.gpu_price > 0:
            raise ValueError(f"the price of a GPU hour is {self.gpu_price}; it must be above 0")
        if self.gpus is not None and self.gpus < 1:
            raise ValueError(f"the number of GPUs is {self.gpus}; it must be at least 1")

    @property
    def lower_is_better(self) -> bool:
        return self.order == "cost"


@dataclass(frozen=True, slots=True)
class Arm:
    """One engine × drafter × draft length × batch size of a service. ``values`` by metric name."""

    service: Mapping[str, Any]
    engine: str
    name: str  # the drafter and its draft length
    batch_size: int
    values: Mapping[str, Estimate]
    gpus: int = 0  # 0: not known, or none
    cell: Cell | None = None
    projected: bool = False
    simulated: bool = False
    invalid: str = ""  # why its rates are not to be believed

    @property
    def label(self) -> str:
        return f"{self.engine}, {self.name}, BS {self.batch_size}"


@dataclass(frozen=True, slots=True)
class Ranked:
    arm: Arm
    standing: Standing
    value: Estimate | None  # what the order goes by
    tied: bool = False  # not shown to be worse than the first
    to_first: Estimate | None = None  # of the order's value over the first's, above 1 is better
    reason: str = ""  # the bounds that are missed or may be, with the values
    metrics: tuple[str, ...] = ()  # of those bounds


@dataclass(frozen=True, slots=True)
class Advice:
    """``ranked``: best first, those that miss left out. ``first``: the best that meets the goal, else the best that may."""

    service: Mapping[str, Any]
    goal: Goal
    ranked: tuple[Ranked, ...]
    out: tuple[Ranked, ...]
    invalid: tuple[Arm, ...]
    unpriced: int = 0

    @property
    def first(self) -> Ranked | None:
        return next((r for r in self.ranked if r.standing == "meets"), self.ranked[0] if self.ranked else None)

    @property
    def label(self) -> str:
        bare = ("target", "workload")
        parts = (
            format_axis(v, n) if n in bare else f"{AXIS_LABELS.get(n, n)} {format_axis(v, n)}"
            for n, v in self.service.items()
            if v is not None
        )
        return " · ".join(parts)


def measured_arms(attempts: Iterable[Attempt]) -> list[Arm]:
    """An arm for each cell. ``attempts``: any number a point; the last measured one counts."""
    return [_of_cell(cell) for cell in cells(latest(attempts))]


def _of_cell(cell: Cell) -> Arm:
    values = {n: e for n in BOUNDABLE if (e := cell.estimate(n, "tps")) is not None and e.value > 0}
    return Arm(
        service_of(cell.axes),
        str(cell.axes.get("engine")),
        arm_label(cell),
        cell.batch_size,
        values,
        gpus=max((_gpus(a) for a in cell.attempts), default=0),
        cell=cell,
        simulated=any(is_simulated(a) for a in cell.attempts),
        invalid=cell.why_invalid("tps"),
    )


def service_of(axes: Mapping[str, Any]) -> dict[str, Any]:
    """The axes that one service has in common: arms of different ones are never ranked together."""
    own = [n for n in axes if not n.startswith("drafter") and n not in ("engine", "draft_length", "batch_size", "repeat")]
    first = [*SERVICE_AXES, *panel_axes(axes)]
    return {n: axes[n] for n in [*(n for n in first if n in axes), *(n for n in own if n not in first)]}


def _gpus(attempt: Attempt) -> int:
    target = (attempt["point"].get("config") or {}).get("target") or {}
    return int(target.get("gpus") or 0)


def projected_arms(found: Iterable[Projection]) -> list[Arm]:
    """Arms of prompts whose speed was not measured, from acceptance and step times, and the arms without a drafter that go with them."""
    arms: dict[tuple[str, str, str, int], Arm] = {}
    for p in found:
        t_ar, t_sd = (p.t_ar or {}).get("all"), (p.t_sd or {}).get("all")
        if p.al is None or t_sd is None or t_ar is None or p.domain:
            continue
        service, engine, batch_size = service_of(p.cell.axes), str(p.cell.axes.get("engine")), p.cell.batch_size
        simulated = any(is_simulated(a) for c in (p.cell, p.steps) if c for a in c.attempts)
        gpus = max((_gpus(a) for a in p.cell.attempts), default=0)
        for name, al, step_ms in ((arm_label(p.cell), p.al, t_sd), ("none", None, t_ar)):
            arm = projected_arm(service, engine, name, batch_size, al, step_ms, gpus=gpus, simulated=simulated)
            arms.setdefault((repr(service), engine, name, batch_size), arm)
    return list(arms.values())


def projected_arm(
    service: Mapping[str, Any],
    engine: str,
    name: str,
    batch_size: int,
    al: Estimate | None,
    step_ms: Estimate,
    *,
    gpus: int = 0,
    simulated: bool = False,
) -> Arm:
    """``al``: None without a drafter. Raises ``ValueError`` for numbers that are not above 0."""
    exact = Estimate(1.0, 1.0, 1.0)
    user = product([(_exactly(1000.0), 1), (al or exact, 1), (step_ms, -1)])
    values = {"user_tps_mean": user, "output_tps_steady": product([(user, 1), (_exactly(batch_size), 1)]), "step_ms_mean": step_ms}
    return Arm(service, engine, name, batch_size, values, gpus=gpus, projected=True, simulated=simulated)


def _exactly(value: float) -> Estimate:
    return Estimate(float(value), float(value), float(value))


def advise(arms: Iterable[Arm], goal: Goal) -> list[Advice]:
    """One :class:`Advice` a service, in the order of the arms."""
    services: dict[str, list[Arm]] = {}
    for arm in arms:
        services.setdefault(repr(sorted(arm.service.items(), key=lambda kv: kv[0])), []).append(arm)
    return [_advise(members, goal) for members in services.values()]


def _advise(arms: Sequence[Arm], goal: Goal) -> Advice:
    usable = [a for a in arms if not a.invalid]
    comparisons = max(len(usable) * len(goal.bounds), 1)
    judged = [_judge(arm, goal, comparisons) for arm in usable]
    out = [r for r in judged if r.standing == "misses"]
    kept = [r for r in judged if r.standing != "misses" and r.value is not None]
    kept.sort(key=lambda r: r.value.value if r.value else 0.0, reverse=not goal.lower_is_better)
    first = next((r for r in kept if r.standing == "meets"), kept[0] if kept else None)
    ranked = [r if first is None or r is first else _beside(r, first, goal, len(kept)) for r in kept]
    unpriced = sum(r.value is None and r.standing != "misses" for r in judged)
    return Advice(arms[0].service, goal, tuple(ranked), tuple(out), tuple(a for a in arms if a.invalid), unpriced)


def _judge(arm: Arm, goal: Goal, comparisons: int) -> Ranked:
    found = [(bound, bound.standing(arm.values.get(bound.metric), comparisons)) for bound in goal.bounds]
    words: tuple[Standing, ...] = ("misses", "may miss")
    for word in words:
        concerned = [b for b, standing in found if standing == word]
        if concerned:
            reason = "; ".join(_why(b, arm.values.get(b.metric)) for b in concerned)
            return Ranked(arm, word, order_value(arm, goal), reason=reason, metrics=tuple(b.metric for b in concerned))
    return Ranked(arm, "meets", order_value(arm, goal))


def _why(bound: Bound, value: Estimate | None) -> str:
    if value is None:
        return f"{bound.metric} is not known"
    interval = f" [{value.low:.4g}, {value.high:.4g}]" if value.low is not None and value.high is not None else " without an interval"
    return f"{bound}: {value.value:.4g}{interval}"


def order_value(arm: Arm, goal: Goal) -> Estimate | None:
    """What the goal orders by: tokens/s, or the price of a million output tokens. None where it is not known."""
    if goal.order != "cost":
        return arm.values.get(ORDERS[goal.order])
    return cost_per_million(arm, goal)


def cost_per_million(arm: Arm, goal: Goal) -> Estimate | None:
    """Price of a million output tokens, in the currency of ``gpu_price``; None without a price, a number of GPUs or output TPS."""
    output, gpus = arm.values.get(ORDERS["output_tps"]), goal.gpus or arm.gpus
    if goal.gpu_price is None or not gpus or output is None:
        return None
    per_token = inverse(output)
    scale = goal.gpu_price * gpus / SECONDS * TOKENS
    low, high = (None if bound is None else bound * scale for bound in (per_token.low, per_token.high))
    return Estimate(per_token.value * scale, low, high, output.scope, output.sessions, output.method, output.clusters)


def _beside(row: Ranked, first: Ranked, goal: Goal, arms: int) -> Ranked:
    ratio = _over(row.arm, first.arm, goal)
    if ratio is None:
        return replace(row, tied=True)
    if (
        row.arm.cell is not None
        and first.arm.cell is not None
        and row.arm.batch_size == first.arm.batch_size
        and same_work(row.arm.cell, first.arm.cell)
    ):
        return replace(row, tied=True, to_first=ratio)
    held = together(ratio, max(arms * (arms - 1) // 2, 1))
    return replace(row, tied=held.high is None or held.low is None or held.low <= 1 <= held.high, to_first=held)


def _over(arm: Arm, first: Arm, goal: Goal) -> Estimate | None:
    """How much better ``arm`` is by the goal's order: paired where both ran on one server, else as independent sessions."""
    if goal.order == "cost":
        mine, theirs = cost_per_million(first, goal), cost_per_million(arm, goal)  # cheaper is better
    else:
        mine, theirs = order_value(arm, goal), order_value(first, goal)
    if arm.cell is not None and first.cell is not None and arm.batch_size == first.batch_size and arm.gpus == first.gpus:
        found, _ = arm_ratios(arm.cell, first.cell)
        if (paired := found.get("user_tps" if goal.order == "user_tps" else "output_tps")) is not None:
            return paired
    return product([(mine, 1), (theirs, -1)]) if mine is not None and theirs is not None else None
