"""The report of a sweep: findings in words, figures, tables, what is not valid and why, and how to make it again.

:func:`build` turns attempts into a :class:`Report` (data only); :func:`html` and :func:`markdown` render it. Every sentence is
computed from the same rows that the tables show, so that a headline cannot say more than its interval does. The HTML is one
file: styles and figures are inside, nothing is fetched, so it can be mailed, printed and read in ten years.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.analysis import breakdown, details, figures, hover, noise
from specsweep.analysis.attempts import (
    Attempt,
    Cell,
    axes_of,
    cells,
    is_capture,
    is_measured,
    is_simulated,
    is_valid,
    latest,
    panel_label,
    series_label,
    varying,
)
from specsweep.analysis.axis_words import capture_words
from specsweep.analysis.pareto import ParetoPoint, pareto
from specsweep.analysis.reasons import in_one_sentence
from specsweep.analysis.routing_table import routing_table
from specsweep.analysis.speedup import Speedup, crossover, ratio_text, speedups
from specsweep.analysis.tables import pareto_table, speedup_table
from specsweep.analysis.tabular import Table, text_width

if TYPE_CHECKING:
    from markupsafe import Markup

_TEMPLATE = Path(__file__).with_name("report.html.j2")


@dataclass(frozen=True)
class Report:
    """Everything that is rendered. ``planned``: points of the plan that count; fewer may have been attempted."""

    name: str
    attempts: list[Attempt]  # one a point
    cells: list[Cell]
    points: list[ParetoPoint]
    speedups: list[Speedup]
    planned: int
    dropped: Sequence[Mapping[str, Any]]
    warnings: Sequence[str]
    command: str
    written_utc: str
    command_invalid: str = ""  # measures the points again that are not valid
    sources: str = ""  # names what it was made from; the page carries it, so that its maker can tell whether it is out of date

    @property
    def simulated(self) -> bool:
        return any(is_simulated(a) for a in self.attempts)

    @cached_property
    def varying(self) -> set[str]:
        """The axes that take more than one value: only they are named in labels."""
        return varying(self.cells)

    @cached_property
    def panel_of(self) -> dict[str, str]:
        return {c.key: panel_label(c.axes, self.varying) for c in self.cells}

    @cached_property
    def series_of(self) -> dict[str, str]:
        return {c.key: series_label(c.axes, self.varying) for c in self.cells}

    def family_of(self, cell: Cell) -> str:
        """The series without its draft length: what shares a colour where there are many series."""
        return series_label({k: v for k, v in cell.axes.items() if k != "draft_length"}, self.varying)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """By name: pareto, speedup, acceptance_by_position, acceptance_by_category, acceptance_by_… for each finer label that prompts have,
        routing, validity, dropped, environment."""
        drafting = details.acceptance_cells(self.cells)
        made = [
            pareto_table(self.cells, self.points),
            speedup_table(self.speedups),
            details.position_table(drafting),
            details.category_table(drafting),
            *details.label_tables(drafting),
            routing_table(self.attempts),
            details.validity_table(self.attempts),
            details.dropped_table(self.dropped),
            details.environment_table(self.attempts),
        ]
        return {t.name: t.simulated() if self.simulated else t for t in made}

    @cached_property
    def notes(self) -> dict[str, tuple[str, ...]]:
        """Of each table the notes that no table before it has said already."""
        said: set[str] = set()
        fresh: dict[str, tuple[str, ...]] = {}
        for name, table in self.tables.items():
            fresh[name] = tuple(n for n in table.notes if n not in said) if table.rows else ()
            said |= set(fresh[name])
        return fresh

    @property
    def invalid(self) -> int:
        """Points that were measured and are not valid."""
        return sum(is_measured(a) and not is_valid(a) for a in self.attempts)

    @property
    def status(self) -> str:
        """How far the sweep is, in one line."""
        measured = sum(is_measured(a) for a in self.attempts)
        invalid = self.invalid
        failed = len(self.attempts) - measured
        parts = [f"{measured} of {self.planned} points measured"]
        captured = sum(is_measured(a) and is_capture(a) for a in self.attempts)
        parts += [f"{captured} of them untimed {_captures(self.attempts)}"] if captured else []
        parts += [f"{invalid} of them not valid"] if invalid else []
        parts += [f"{failed} failed"] if failed else []
        missing = self.planned - len(self.attempts)
        parts += [f"{missing} not measured yet"] if missing > 0 else []
        return ", ".join(parts) + "."


def build(
    name: str,
    attempts: Iterable[Attempt],
    *,
    planned: int | None = None,
    dropped: Sequence[Mapping[str, Any]] = (),
    warnings: Sequence[str] = (),
    command: str = "",
    command_invalid: str = "",
    written_utc: str = "",
    sources: str = "",
) -> Report:
    """``attempts``: any number a point; the last measured one stands for it. ``planned``: the number of points of the plan."""
    chosen = latest(attempts)
    grouped = cells(chosen)
    points = pareto(grouped, varying(grouped))
    total = len(chosen) if planned is None else planned
    rows = speedups(grouped, chosen)
    return Report(name, chosen, grouped, points, rows, total, dropped, warnings, command, written_utc, command_invalid, sources)


def _captures(attempts: Iterable[Attempt]) -> str:
    found = [capture_words(axes_of(a)) for a in attempts if is_measured(a) and is_capture(a)]
    return " and ".join(f"{words}s" for words in dict.fromkeys(found))


def headlines(report: Report) -> list[str]:
    """The findings, most important first: best speedup, then per workload and series where it pays; each with its interval."""
    found = []
    if report.simulated:
        found.append("SIMULATED: these numbers come from the simulator. They hold by construction and show nothing about an engine.")
    known = [r for r in report.speedups if r.user_tps is not None]
    faster = [r for r in known if r.verdict == "faster"]
    if faster:
        best = max(faster, key=lambda r: (r.user_tps.low or 0.0) if r.user_tps else 0.0)  # not the noisiest
        found.append(
            f"Surest speedup of tokens/s per user: {ratio_text(best.user_tps)} with {report.series_of[best.cell.key]} "
            f"on {report.panel_of[best.cell.key]} at BS {best.cell.batch_size}; output TPS there: {ratio_text(best.output_tps)}."
        )
    elif known:
        found.append("No drafter is shown to be faster than none at any point that was measured.")
    elif report.speedups:
        where = f" at any of {len(report.speedups)} points" if len(report.speedups) > 1 else ""
        reasons = (r.reason or "no conversation decoded" for r in report.speedups)
        found.append(f"No speedup can be given{where}: {in_one_sentence(reasons)}.")
    elif any(is_measured(a) for a in report.attempts):
        timed = any(is_measured(a) and not is_capture(a) for a in report.attempts)
        lack = (
            "no point with a drafter was measured" if timed else f"only {_captures(report.attempts)} were measured, and they are not timed"
        )
        found.append(f"No speedup can be given: {lack}.")
    count = {word: sum(r.verdict == word for r in known) for word in ("faster", "slower", "not shown")}
    if known:
        without = len(report.speedups) - len(known)
        found.append(
            f"{len(known)} comparison{'s' if len(known) != 1 else ''}: {count['faster']} faster, {count['slower']} slower, "
            f"{count['not shown']} not shown to differ" + (f"; {without} could not be made." if without else ".")
        )
    flagged = [r for r in known if r.warnings]
    if flagged:
        row = flagged[0]
        where = f"{report.series_of[row.cell.key]} on {report.panel_of[row.cell.key]} at BS {row.cell.batch_size}"
        more = f", and {len(flagged) - 1} more" if len(flagged) > 1 else ""
        found.append(f"Take with care: {where}: {row.warnings[0]}{more} (remarks of the speedup table).")
    return [*found, *breakdown.cautions(report.attempts), *noise.findings(report.attempts)]


def crossovers(report: Report) -> list[tuple[str, str, str]]:
    """(workload, series, statement) for each series with a drafter; none where no speedup is known at all, which the findings say once."""
    if not any(r.user_tps for r in report.speedups):
        return []
    groups: dict[tuple[str, str], list[Speedup]] = {}
    for row in report.speedups:
        groups.setdefault((report.panel_of[row.cell.key], report.series_of[row.cell.key]), []).append(row)
    return [(panel, series, crossover(rows)) for (panel, series), rows in groups.items()]


def draw(report: Report) -> dict[str, Any]:
    """The figures that the sweep has data for, by name: pareto, speedup, acceptance."""
    style = figures.styles([(report.series_of[c.key], report.family_of(c), c.baseline) for c in report.cells])
    labels: dict[str, Any] = {"panel_of": report.panel_of, "series_of": report.series_of, "simulated": report.simulated}
    made: dict[str, Any] = {}
    if report.points:
        made["pareto"] = figures.pareto_figure(report.points, style, simulated=report.simulated)
    if any(r.user_tps for r in report.speedups):
        made["speedup"] = figures.speedup_figure(report.speedups, style, **labels)
    drafting = details.acceptance_cells(report.cells)
    if drafting:
        made["acceptance"] = figures.acceptance_figure(drafting, style, **labels)
    return made


FIGURE_TITLES = {
    "pareto": "Output tokens per second against tokens per second of one user, one line a series, batch size rising to the left",
    "speedup": "Speedup over no drafter by batch size, with 95 % intervals",
    "acceptance": "Acceptance rate by draft position, with 95 % intervals",
}


def html(report: Report, drawn: Mapping[str, Any] | None = None) -> str:
    """The whole report as one HTML document. ``drawn``: what :func:`draw` made, if the caller has it already."""
    import jinja2

    drawn = draw(report) if drawn is None else drawn
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    pictures = {name: figures.svg(figure, name, FIGURE_TITLES[name]) for name, figure in drawn.items()}
    if "pareto" in pictures:
        pictures["pareto"] = hover.with_targets(pictures["pareto"], drawn["pareto"], report.points)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        report=report,
        headlines=[_unbroken(line) for line in headlines(report)],
        crossovers=[(panel, series, _unbroken(text)) for panel, series, text in crossovers(report)],
        tables=report.tables,
        figures=pictures,
        titles=FIGURE_TITLES,
        width=text_width,
        breakable=_breakable,
    )


def _breakable(text: str) -> Markup:
    """The text with the places named where a line may end: after the joints of a dotted name or a path, and within a long hash."""
    import markupsafe

    joints = re.sub(r"([._/,:=-])(?=\w)", "\\1\0", text)
    joints = re.sub(r"[0-9a-f]{16}(?=[0-9a-f])", "\\g<0>\0", joints)
    return markupsafe.Markup("<wbr>").join(joints.split("\0"))


def _unbroken(text: str) -> str:
    """No line ends inside ``1.18 [1.12, 1.24]`` or between BS and its number."""
    text = re.sub(r" \[([\d.]+), ([\d.]+)\]", "\N{NO-BREAK SPACE}[\\1,\N{NO-BREAK SPACE}\\2]", text)
    return re.sub(r"\b(BS|DL) (\d)", "\\1\N{NO-BREAK SPACE}\\2", text)


def markdown(report: Report) -> str:
    """Findings and all tables that have rows, as Markdown."""
    lines = [f"# Sweep {report.name}", "", report.status, ""]
    lines += [f"* {line}" for line in headlines(report)]
    lines += [f"* {panel}, {series}: {text}." for panel, series, text in crossovers(report)]
    return (
        "\n".join(lines)
        + "\n\n"
        + "\n".join(replace(t, notes=report.notes[t.name]).to_markdown() for t in report.tables.values() if t.rows)
    )
