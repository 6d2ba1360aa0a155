"""Speedups of prompts whose speed was never measured, from step times of one workload and the acceptance of another, and how true they are.

What must be the same on both sides is everything that a step's time or a draft's acceptance depends on apart from the text: engine, target,
drafter, draft length, batch size, temperature, and every extra axis. Prompts may differ, and their length (a longer context makes steps
longer, so then the row says so). Where the prompts' own speedup *was* measured it stands beside the projection with the difference:
that is the validation, in the layout of the paper's Table 10.

An average of AL goes with the same average of the measured rates: AL pooled over all steps predicts the ratio of all tokens over all time, the
mean of the requests' own AL predicts the ratio of the mean rates. On prompts that differ much in acceptance the two are far apart
(easy prompts make few steps and so weigh little in the pool), and a projection held against the other kind would look wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from specsweep.analysis.attempts import Attempt, Cell, Estimate, cells, estimate, is_measured, latest, over_sessions
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.proxy import STEP_METRICS, proxy_speedup
from specsweep.analysis.speedup import Speedup, speedups, unlike_arms

PROMPT_AXES = ("workload", "isl")
FIRST_AXES = ("engine", "target", "drafter", "draft_length", "batch_size", "temperature")  # what a refusal names first
ACCEPTANCE_SAMPLING = ("temperature", "top_p", "top_k")
Average = Literal["pooled", "request"]
AL_METRICS: Mapping[Average, str] = {"pooled": "al_decode", "request": "al_decode_request_mean"}
DRAFTING_MAY_DIFFER = 0.05  # absolute difference of the shares of steps that verified a draft


@dataclass(frozen=True, slots=True)
class Projection:
    """One set of prompts (``domain``: the category, or empty for all of a workload) at one setting. Times in ms, speedups dimensionless."""

    cell: Cell  # whose acceptance it is
    domain: str = ""
    average: Average = "pooled"
    steps: Cell | None = None  # whose step times, with the drafter; at the same setting
    al: Estimate | None = None
    t_ar: Mapping[str, Estimate | None] | None = None  # by "all" and "clean", see proxy.STEP_METRICS
    t_sd: Mapping[str, Estimate | None] | None = None
    projected: Mapping[str, Estimate | None] | None = None
    actual: Speedup | None = None  # measured on these prompts, where it was
    reason: str = ""  # why there is no projection
    warnings: tuple[str, ...] = ()

    def value(self, gaps: str = "all") -> Estimate | None:
        """The projected speedup, from ``all`` gaps or the ``clean`` ones."""
        return (self.projected or {}).get(gaps)

    @property
    def measured(self) -> Estimate | None:
        """The measured speedup of these prompts: of the users' token generation speeds, averaged as AL is."""
        if self.actual is None:
            return None
        return self.actual.user_tps_pooled if self.average == "pooled" else self.actual.user_tps

    def difference(self, gaps: str = "all") -> float | None:
        """Projected less measured."""
        value, measured = self.value(gaps), self.measured
        return None if value is None or measured is None else value.value - measured.value

    def agrees(self, gaps: str = "all") -> bool | None:
        """Whether the intervals of projection and measurement share a value; None where one of them has none."""
        value, measured = self.value(gaps), self.measured
        if value is None or measured is None or not (value.has_interval and measured.has_interval):
            return None
        return value.overlaps(measured)

    @property
    def own_steps(self) -> bool:
        """Step times and acceptance are of the same run."""
        return self.steps is not None and self.steps.key == self.cell.key


def projections(
    steps: Iterable[Attempt],
    acceptance: Iterable[Attempt] | None = None,
    *,
    categories: bool = False,
    average: Average = "pooled",
) -> list[Projection]:
    """A projection (or the reason why there is none) for every cell with a drafter of ``acceptance``, from the step times of ``steps``.

    ``acceptance``: None for the same attempts. Step times of the same prompts are taken where ``steps`` has them, else those of every
    workload of the same ISL, else of the same workload at every ISL, else all: pass only the attempts of one workload to have its step times for all.
    ``categories``: one row a category of prompts, too. ``average``: of AL, over all steps or over requests.

    Attempts are of any number a point; the last measured one stands for it.
    """
    clocks = latest(steps)
    texts = clocks if acceptance is None else latest(acceptance)
    clocks_by_id, texts_by_id = ({a["point"]["point_id"]: a for a in attempts} for attempts in (clocks, texts))
    timed: dict[str, list[Cell]] = {}
    for clock in (c for c in cells(clocks) if not c.baseline):
        timed.setdefault(_setting(clock), []).append(clock)
    found: list[Projection] = []
    for cell in (c for c in cells(texts) if not c.baseline):
        fitting = timed.get(_setting(cell), [])
        chosen, refused = _step_cells(cell, fitting) if fitting else ([], _no_steps(cell, [c for group in timed.values() for c in group]))
        for domain in ["", *(_categories(cell) if categories else ())]:
            actual = _actual(cell, texts_by_id, domain)
            if refused:
                found.append(Projection(cell, domain, average, actual=actual, reason=refused))
            found += [_projection(Projection(cell, domain, average, clock, actual=actual), clock, clocks_by_id) for clock in chosen]
    return found


def _of_prompts(axis: str) -> bool:
    return axis in PROMPT_AXES or axis.startswith("workload.")


def _setting(cell: Cell) -> str:
    """Everything that both sides must have in common, as a key."""
    return repr(sorted((n, format_axis(v, n)) for n, v in cell.axes.items() if v is not None and not _of_prompts(n)))


def _no_steps(cell: Cell, timed: Sequence[Cell]) -> str:
    """The first axis by which no step times fit."""
    if not timed:
        return "there are no step times with a drafter to project from"
    fitting = timed
    names = {n for c in (cell, *timed) for n in c.axes if not _of_prompts(n)}
    for name in sorted(names, key=lambda n: (FIRST_AXES.index(n) if n in FIRST_AXES else len(FIRST_AXES), n)):
        kept = [c for c in fitting if format_axis(c.axes.get(name), name) == format_axis(cell.axes.get(name), name)]
        if not kept:
            there = ", ".join(dict.fromkeys(format_axis(c.axes.get(name), name) for c in fitting))
            return f"no step times with {name} {format_axis(cell.axes.get(name), name)} (there: {there})"
        fitting = kept
    return "no step times at this setting"


def _step_cells(cell: Cell, fitting: Sequence[Cell]) -> tuple[list[Cell], str]:
    """Of the cells at the same setting those whose step times are taken, or none and why."""
    unlike = {c.key: _unlike_declared(c, cell) for c in fitting}
    if all(unlike.values()):
        return [], next(iter(unlike.values()))
    like = [c for c in fitting if not unlike[c.key]]
    own = {n: v for n, v in cell.axes.items() if _of_prompts(n)}
    others = {n: v for n, v in own.items() if n != "isl"}
    for same in (own, {"isl": cell.axes.get("isl")}, others):
        if nearest := [c for c in like if all(c.axes.get(n) == v for n, v in same.items())]:
            return nearest, ""
    return like, ""


def _unlike_declared(steps: Cell, acceptance: Cell) -> str:
    """What of the declared engine, target, drafter or sampling is another, though it has the same name; empty if nothing is."""
    mine, theirs = (_settings(c.attempts[0]) for c in (steps, acceptance))
    differing = [n for n in mine.keys() | theirs.keys() if mine.get(n) != theirs.get(n)]
    if not differing:
        return ""
    name = min(differing)
    return (
        f"{name} is {mine.get(name, 'not there')} where steps were timed and {theirs.get(name, 'not there')} where acceptance was measured"
    )


def _settings(attempt: Attempt) -> dict[str, Any]:
    declared = attempt["point"].get("declared") or {}
    flat: dict[str, Any] = {}
    for group in ("engine", "target", "drafter"):
        content = declared.get(group)
        if isinstance(content, Mapping):
            flat |= {f"{group}.{k}": v for k, v in content.items() if k != "max_batch"}
        elif content is not None:
            flat[group] = content
    sampling = declared.get("sampling") or {}
    return flat | {f"sampling.{n}": sampling[n] for n in ACCEPTANCE_SAMPLING if n in sampling}


def _projection(asked: Projection, steps: Cell, by_id: Mapping[str, Attempt]) -> Projection:
    """``asked`` with its numbers, or with the reason why it has none."""
    arms, refused = _timed_arms(steps, by_id)
    if not arms:
        return replace(asked, reason=refused)
    al, why = _acceptance(asked.cell, asked.domain, AL_METRICS[asked.average])
    if al is None:
        return replace(asked, reason=why)
    t_sd = {gaps: _step_ms([a for a, _ in arms], metric) for gaps, metric in STEP_METRICS.items()}
    t_ar = {gaps: _step_ms([b for _, b in arms], metric) for gaps, metric in STEP_METRICS.items()}
    projected = {gaps: _project(t_ar[gaps], t_sd[gaps], al) for gaps in STEP_METRICS}
    reason = "" if any(projected.values()) else "step times are not known where they were to be timed"
    warnings = []
    timed_at, wanted_at = (format_axis(c.axes.get("isl"), "isl") for c in (steps, asked.cell))
    if timed_at != wanted_at:
        warnings.append(f"steps were timed at ISL {timed_at}, acceptance measured at {wanted_at}")
    shares = [_drafting_share(c) for c in (asked.cell, steps)]
    if shares[0] is not None and shares[1] is not None and abs(shares[0] - shares[1]) > DRAFTING_MAY_DIFFER:
        warnings.append(
            f"{shares[0]:.0%} of the steps had a draft here, {shares[1]:.0%} where steps were timed: with such a drafter the time of a step depends on the text"
        )
    if refused:
        warnings.append(f"{len(steps.attempts) - len(arms)} of {len(steps.attempts)} repeats of the step times left out: {refused}")
    return replace(asked, al=al, t_ar=t_ar, t_sd=t_sd, projected=projected, reason=reason, warnings=tuple(warnings))


def _timed_arms(steps: Cell, by_id: Mapping[str, Attempt]) -> tuple[list[tuple[Attempt, Attempt]], str]:
    """(with drafter, without) of each repeat whose step times can be set against each other, and why others cannot."""
    arms, refused = [], ""
    for attempt in steps.attempts:
        baseline = by_id.get(attempt["point"].get("baseline_id") or "")
        why = unlike_arms(attempt, baseline, "steps")
        if why or baseline is None:
            refused = refused or f"step times: {why}"
        else:
            arms.append((attempt, baseline))
    return arms, refused


def _step_ms(attempts: Sequence[Attempt], metric: str) -> Estimate | None:
    values = [e for a in attempts if (e := estimate(a, metric)) is not None and e.value > 0]
    return over_sessions(values) if values else None


def _project(t_ar: Estimate | None, t_sd: Estimate | None, al: Estimate) -> Estimate | None:
    return None if t_ar is None or t_sd is None else proxy_speedup(t_ar, t_sd, al)


def _acceptance(cell: Cell, domain: str, metric: str) -> tuple[Estimate | None, str]:
    """AL of the whole workload or of one category, over the repeats whose acceptance is valid; or none and why."""
    if not cell.valid("acceptance"):
        return None, f"acceptance: {cell.why_invalid('acceptance')}"
    counted = cell.counted("acceptance")
    found = [e for a in counted if (e := _category_al(a, domain, metric) if domain else estimate(a, metric)) is not None]
    if found:
        return over_sessions(found), ""
    absent = (counted[0]["measurement"].get("absent") or {}).get(metric, "no step was counted")
    return None, f"AL is not known: {absent}"


def _category_al(attempt: Attempt, category: str, metric: str) -> Estimate | None:
    numbers = (attempt["measurement"].get("by_category") or {}).get(category) or {}
    if not numbers.get(metric):
        return None
    clusters = sum(1 for r in _conversations(attempt) if r.get("category") == category and r.get("steps"))
    return Estimate(numbers[metric], numbers.get(f"{metric}_ci_low"), numbers.get(f"{metric}_ci_high"), clusters=clusters)


def _drafting_share(cell: Cell) -> float | None:
    """Of all decode steps those that verified a draft: a drafter that looks its tokens up finds none in many steps, which are then short."""
    rows = [r for a in cell.counted("acceptance") for r in _conversations(a) if r.get("steps") and r.get("verify_steps") is not None]
    return sum(r["verify_steps"] for r in rows) / sum(r["steps"] for r in rows) if rows else None


def _conversations(attempt: Attempt) -> Sequence[Mapping[str, Any]]:
    return attempt["measurement"].get("per_conversation") or () if is_measured(attempt) else ()


def _categories(cell: Cell) -> list[str]:
    """The categories of the cell's prompts where there is more than one."""
    names = {str(r.get("category") or "") for a in cell.attempts for r in _conversations(a)} - {""}
    return sorted(names) if len(names) > 1 else []


def _actual(cell: Cell, by_id: Mapping[str, Attempt], domain: str) -> Speedup | None:
    """The measured speedup, of the prompts of one category alone where ``domain`` names it; None where its baseline was not measured."""
    wanted = dict.fromkeys(str(a["point"].get("baseline_id") or "") for a in cell.attempts)
    arms = [by_id[i] for i in wanted if i in by_id]
    if domain:
        arms = [_of_category(a, domain) for a in arms]
        cell = Cell(cell.axes, tuple(_of_category(a, domain) for a in cell.attempts))
    found = speedups([cell], arms)[0]
    return found if found.user_tps is not None else None


def _of_category(attempt: Attempt, category: str) -> Attempt:
    """The attempt with the conversations of one category alone. Blocks of time are of all prompts together, so they go."""
    if not is_measured(attempt):
        return attempt
    rows = [r for r in _conversations(attempt) if r.get("category") == category]
    return {**attempt, "measurement": {**attempt["measurement"], "per_conversation": rows, "tps_blocks": {}}}
