"""Table 1 of the paper: AL by domain, mean AL and mean speedup of every target and drafter, at temperature 0 and 1.

The paper's AL is the official framework's: the mean over requests, prefill update and cut last step included; mean AL is the plain mean of the
categories. Our column gives that number where it was measured, so that both sides count alike; claims compare arms with each other and use the
pooled AL, paired over prompts. What the paper's "mean speedup" averages is not said: both ratios stand in the table, and the one of user TPS
(tokens generated per second by a request, the definition of its Section on speedups) is held against the print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from specsweep.analysis.attempts import Estimate, over_sessions
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.arms import Arm, arms_of, select
from specsweep.analysis.reproduce.claims import Evidence, Experiment, NumberCheck, Outcome
from specsweep.analysis.reproduce.contrasts import categories, mean
from specsweep.analysis.reproduce.judging import al_check, left_out, speedup_check
from specsweep.analysis.reproduce.table1_claims import claims
from specsweep.analysis.speedup import Speedup, speedups
from specsweep.analysis.tabular import Column as TableColumn
from specsweep.analysis.tabular import Row, Table

UNSUPPORTED = "(–)"
TEMPERATURES = (0, 1)


@dataclass(frozen=True, slots=True)
class Arms:
    """One column of the table: a target with a drafter, at each temperature that was measured."""

    target: str
    drafter: str
    option: str = ""
    engine: str = ""
    at: Mapping[int, Arm] = field(default_factory=dict)
    speedup: Mapping[int, Speedup] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.target} {self.drafter}" + (f" ({self.option})" if self.option else "")


def acceptance_and_speedup(evidence: Evidence) -> Outcome:
    """Table 1."""
    arms = [a for a in arms_of(evidence.attempts) if a.material in ("qualitative", "other")]
    drafting = select(arms, baseline=False)
    found = {s.cell.key: s for s in speedups([a.cell for a in drafting], evidence.attempts)}
    columns = _columns(drafting, found)
    missing = [s for s in found.values() if s.user_tps is None]
    notes = [*left_out(drafting, "acceptance")]
    notes += [f"{len(missing)} speedups cannot be given: {missing[0].reason or 'no conversation decoded'}."] if missing else []
    notes.append("AL as the official framework counts it; claims use pooled AL, paired over prompts. (–): not supported by the engine.")
    return Outcome((_table(columns),), tuple(_numbers(columns)), tuple(claims(columns)), notes=tuple(notes))


def _columns(arms: Sequence[Arm], found: Mapping[str, Speedup]) -> list[Arms]:
    """The paper's ten where one of its targets was measured, and then every other arm."""
    grouped: dict[tuple[str, ...], list[Arm]] = {}
    for arm in arms:
        rest = tuple(f"{k}={v}" for k, v in sorted(arm.cell.axes.items()) if k not in ("temperature", "repeat", "engine.version"))
        grouped.setdefault((arm.target, arm.drafter, *rest), []).append(arm)
    made: list[Arms] = []
    for key, members in grouped.items():
        at: dict[int, Arm] = {}
        for arm in members:
            if arm.temperature in TEMPERATURES and (arm.temperature not in at or arm.cell.valid("acceptance")):
                at[int(arm.temperature)] = arm
        twins = sum(other[:2] == key[:2] for other in grouped)
        option = members[0].option + f" DL {members[0].draft_length} BS {members[0].batch_size}" if twins > 1 else ""
        made.append(Arms(key[0], key[1], option, members[0].engine, at, {t: found[a.cell.key] for t, a in at.items()}))
    if not any(a.paper_target for a in arms) and arms:
        return made
    order = [(row.target_model, row.drafter) for row in printed.table1() if row.metric == "mean_al" and row.temperature == 0]
    by_name = {(m.target, m.drafter): m for m in reversed(made)}
    paper = [by_name.pop(name, Arms(*name)) for name in order]
    return [*paper, *(m for m in made if m not in paper)]


def of_the_paper(arm: Arm, row: printed.DomainRow) -> bool:
    """Whether the row's number was measured as the paper says: target, drafter, engine, draft length and batch size."""
    same = (arm.target, arm.drafter, arm.engine, arm.draft_length, arm.batch_size)
    return arm.paper_target and same == (row.target_model, row.drafter, row.engine, row.draft_length, row.batch_size)


def paper_al(arm: Arm, category: str = "") -> Estimate | None:
    """AL as the paper counts it, of a category or the mean over all of them. The interval is that of our mean over requests, scaled."""
    if not category:
        each = [e for c in categories(arm.cell) if (e := paper_al(arm, c)) is not None]
        return mean(each) if each else None
    if not arm.cell.valid("acceptance"):
        return None
    found = []
    for attempt in arm.cell.counted("acceptance"):
        ours = (attempt["measurement"].get("by_category") or {}).get(category) or {}
        stem = next((s for s in ("al_decode_request_mean", "al_decode") if ours.get(s)), "")
        if not stem:
            continue
        theirs = (((attempt["measurement"].get("official") or {}).get("acceptance") or {}).get("Category_AL") or {}).get(category)
        scale = theirs / ours[stem] if theirs else 1.0
        low, high = ours.get(f"{stem}_ci_low"), ours.get(f"{stem}_ci_high")
        clusters = sum(1 for c in attempt["measurement"].get("per_conversation") or () if c.get("category") == category)
        found.append(
            Estimate(
                ours[stem] * scale,
                None if low is None else low * scale,
                None if high is None else high * scale,
                method="official definition" if theirs else stem,
                clusters=clusters,
            )
        )
    return over_sessions(found) if found else None


# -- ours beside the paper's


def _numbers(columns: Sequence[Arms]) -> list[NumberCheck]:
    made = []
    by_name = {(c.target, c.drafter): c for c in columns if any(a.paper_target for a in c.at.values())}
    for row in printed.table1():
        column = by_name.get((row.target_model, row.drafter))
        if row.value is None:
            continue
        arm = column.at.get(row.temperature) if column else None
        arm = arm if arm and of_the_paper(arm, row) else None
        what = {"al": f"AL, {row.domain}", "mean_al": "mean AL", "mean_speedup": "mean speedup"}[row.metric]
        name = f"{row.target_model} {row.drafter}, {what}, T={row.temperature}"
        if row.metric == "mean_speedup":
            ratio = column.speedup[row.temperature].user_tps if column and arm else None
            made.append(speedup_check(name, float(row.value), row.value.rounding, ratio))
        else:
            made.append(al_check(name, float(row.value), paper_al(arm, row.domain or "") if arm else None))
    return made


def _table(columns: Sequence[Arms]) -> Table:
    paper = {(r.temperature, r.metric, r.domain or "", r.target_model, r.drafter): r for r in printed.table1()}
    domains = list(dict.fromkeys(r.domain for r in printed.table1() if r.domain))
    more = sorted({c for column in columns for a in column.at.values() for c in categories(a.cell)} - set(domains))
    Value = Callable[[Arms], Estimate | None]
    rows: list[tuple[str, int, str, str, Value]] = [(f"AL, {d}", 0, "al", d, _al(0, d)) for d in [*domains, *more]]
    for t in TEMPERATURES:
        rows.append((f"mean AL, T={t}", t, "mean_al", "", _al(t, "")))
        rows.append((f"mean speedup (user TPS), T={t}", t, "mean_speedup", "", _ratio(t, "user_tps")))
        rows.append((f"mean speedup (output TPS), T={t}", t, "", "", _ratio(t, "output_tps")))
    made = []
    for title, t, metric, domain, value in rows:
        cells, record = [title], {"row": title, "temperature": t, "metric": metric or "mean_speedup_output_tps", "domain": domain or None}
        for column in columns:
            print_ = paper.get((t, metric, domain, column.target, column.drafter))
            ours = value(column)
            cells.append(beside(ours, print_.value if print_ else None, supported=print_ is None or print_.supported))
            record[column.name] = ours.value if ours else None
            record[f"{column.name} low"], record[f"{column.name} high"] = (ours.low, ours.high) if ours else (None, None)
            record[f"{column.name} paper"] = float(print_.value) if print_ and print_.value is not None else None
        made.append(Row(tuple(cells), record))
    heads = [TableColumn("row", "ours / paper")] + [TableColumn(c.name, c.name, True) for c in columns]
    title = "Table 1: acceptance length by domain, and mean speedup"
    return Table("table1", title, tuple(heads), tuple(made), ("Each cell: ours / the paper's. · where it was not measured.",))


def beside(ours: Estimate | None, paper: float | None, *, supported: bool = True, decimals: int = 2) -> str:
    """``2.70 / 2.72``; a point for what was not measured, (–) for what the engine does not support."""
    left = f"{ours.value:.{decimals}f}" if ours else ("·" if supported else UNSUPPORTED)
    right = f"{paper:.{decimals}f}" if paper is not None else ("" if supported else UNSUPPORTED)
    return f"{left} / {right}" if right else left


def _al(temperature: int, category: str) -> Callable[[Arms], Estimate | None]:
    return lambda column: paper_al(column.at[temperature], category) if temperature in column.at else None


def _ratio(temperature: int, which: str) -> Callable[[Arms], Estimate | None]:
    return lambda column: getattr(column.speedup[temperature], which) if temperature in column.speedup else None


EXPERIMENTS = (Experiment("table1", "Acceptance length by domain and mean speedup", "table1", acceptance_and_speedup),)
