"""One self-contained HTML page, and Markdown, of what was reproduced: verdicts first, then each table and figure with its evidence."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specsweep.analysis.reproduce.claims import Experiment, Outcome, verdict_words
from specsweep.analysis.tabular import Column, Row, Table, with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBER_WORDS = {"holds": "agrees", "failed": "differs", "not decidable": "undecided"}


@dataclass(frozen=True, slots=True)
class Result:
    """One experiment with what it gave. ``missing``: points that its sweep lacks; ``command`` makes them; ``failed`` says why there is nothing."""

    experiment: Experiment
    outcome: Outcome
    simulated: bool = False
    needed: int = 0
    there: int = 0
    command: str = ""
    failed: str = ""
    drawn: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return not self.failed and self.there >= self.needed

    @property
    def title(self) -> str:
        words = f"{self.experiment.id}: {self.experiment.title}"
        return f"SIMULATED – {words}" if self.simulated else words

    def tables(self) -> list[Table]:
        found = [t.simulated() if self.simulated else t for t in self.outcome.tables]
        return [t for t in (*found, claims_table(self), numbers_table(self)) if t.rows]


def claims_table(result: Result) -> Table:
    rows = []
    for c in result.outcome.claims:
        word = verdict_words(c.verdict, simulated=result.simulated)
        record = {"key": c.key, "claim": c.text, "source": c.source, "verdict": word, "evidence": c.evidence, "simulated": result.simulated}
        rows.append(Row((c.text, word, c.evidence), record))
    columns = (Column("claim", "claim of the paper", wraps=40), Column("verdict", "verdict"), Column("evidence", "evidence", wraps=60))
    return Table(f"{result.experiment.id}_claims", f"{_marked(result)}Claims of {result.experiment.id}", columns, tuple(rows))


def numbers_table(result: Result) -> Table:
    rows = []
    for n in result.outcome.numbers:
        ours = n.ours
        record: dict[str, Any] = {
            "name": n.name,
            "paper": n.paper,
            "ours": ours.value if ours else None,
            "verdict": NUMBER_WORDS[n.verdict],
        }
        record |= {"ours_ci_low": ours.low if ours else None, "ours_ci_high": ours.high if ours else None, "tolerance": n.tolerance}
        record |= {"tolerance_reason": n.tolerance_reason, "simulated": result.simulated}
        rows.append(
            Row((n.name, f"{n.paper:g}", with_interval(ours), f"±{n.tolerance:.3g}", NUMBER_WORDS[n.verdict]), record, muted=ours is None)
        )
    heads = (("name", "number"), ("paper", "paper"), ("ours", "ours"), ("tolerance", "tolerance"), ("verdict", "verdict"))
    columns = tuple(Column(k, h, k in ("paper", "ours", "tolerance")) for k, h in heads)
    notes = tuple(dict.fromkeys(f"Tolerance: {n.tolerance_reason}." for n in result.outcome.numbers))
    return Table(f"{result.experiment.id}_numbers", f"{_marked(result)}Numbers of {result.experiment.id}", columns, tuple(rows), notes)


def _marked(result: Result) -> str:
    return "SIMULATED – " if result.simulated else ""


def summary(results: Sequence[Result]) -> Table:
    rows = []
    for r in results:
        numbers = Counter(NUMBER_WORDS[n.verdict] for n in r.outcome.numbers)
        claims = Counter(verdict_words(c.verdict, simulated=r.simulated) for c in r.outcome.claims)
        points = f"{r.there}/{r.needed}" if r.needed else "–"
        counted = ", ".join(f"{v} {k}" for k, v in claims.items()) or "–"
        cells = (r.experiment.id, points, *(str(numbers[w]) for w in NUMBER_WORDS.values()), r.failed or counted)
        record = {
            "id": r.experiment.id,
            "points_there": r.there,
            "points_needed": r.needed,
            "simulated": r.simulated,
            "failed": r.failed or None,
        }
        rows.append(Row(cells, {**record, "numbers": dict(numbers), "claims": dict(claims)}, muted=not r.complete))
    heads = ("id", "points", "numbers agree", "differ", "undecided", "claims")
    columns = tuple(Column(h, h, 0 < i < 5, wraps=40 if i == 5 else 0) for i, h in enumerate(heads))
    simulated = [r.experiment.id for r in results if r.simulated]
    notes = (f"SIMULATED, so nothing is reproduced by it: {', '.join(simulated)}.",) if simulated else ()
    return Table("summary", "What was reproduced of the paper", columns, tuple(rows), notes)


def markdown(results: Sequence[Result]) -> str:
    parts = ["# Tables and figures of the paper", "", summary(results).to_markdown()]
    for r in results:
        parts += [f"# {r.title}", "", *_remarks(r), *(t.to_markdown() for t in r.tables())]
    return "\n".join(parts)


def _remarks(result: Result) -> list[str]:
    lines = [f"* {note}" for note in result.outcome.notes]
    if result.failed:
        lines.append(f"* Not made: {result.failed}")
    if result.there < result.needed:
        lines.append(f"* {result.needed - result.there} of {result.needed} points are missing; this measures them: `{result.command}`")
    return [*lines, ""] if lines else []


_STYLE = """
:root{color-scheme:light dark;--ink:#222;--page:#fff;--grid:#e6e6e6;--axis:#9a9a9a;--tick:#555;--faint:#8a8a8a;--warn:#b00020}
@media (prefers-color-scheme:dark){:root{--ink:#e8e8e8;--page:#16181b;--grid:#33373c;--tick:#b5b5b5;--baseline:#b0b0b0;--warn:#ff7a8a}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1180px;margin:2rem auto;padding:0 1rem;color:var(--ink);background:var(--page)}
h2{margin-top:2.5rem;border-bottom:1px solid var(--grid)}.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:.5rem 0}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--grid);text-align:left;vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}
tr.muted{color:var(--faint)}.sim{color:var(--warn)}code{font-size:12px;overflow-wrap:anywhere}svg{width:100%;height:auto}
.notes{font-size:13px;color:var(--tick)}.failed{color:var(--warn);font-weight:600}
@media print{body{max-width:none;margin:0;font-size:11px}h2{break-after:avoid}tr,svg{break-inside:avoid}.scroll{overflow:visible}table{font-size:8px}}
"""


def page(results: Sequence[Result], written_utc: str) -> str:
    """The whole as one file: styles and figures inside, nothing is fetched."""
    from specsweep.analysis.figures import svg

    body = [f"<h1>Tables and figures of the paper</h1><p class=notes>{html.escape(written_utc)}</p>", _html_table(summary(results))]
    for r in results:
        heading = f' class="{"sim" if r.simulated else ""}" id="{r.experiment.id}"'
        body.append(f"<h2{heading}>{html.escape(r.title)}</h2>")
        if r.failed:
            body.append(f"<p class=failed>Not made: {html.escape(r.failed)}</p>")
        if r.there < r.needed:
            words = f"{r.needed - r.there} of {r.needed} points are missing. This measures them:"
            body.append(f"<p>{words}<br><code>{html.escape(r.command)}</code></p>")
        body += [f"<figure>{svg(figure, f'{r.experiment.id}-{name}', r.title)}</figure>" for name, figure in r.drawn.items()]
        body += [_html_table(t) for t in r.tables()]
        body += [f"<p class=notes>{html.escape(note)}</p>" for note in r.outcome.notes]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>specsweep reproduce</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _html_table(table: Table) -> str:
    right = set(table.right)

    def row(tag: str, cells: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=n' if i in right else ''}>{html.escape(c)}</{tag}>" for i, c in enumerate(cells))

    rows = "".join(f"<tr{' class=muted' if r.muted else ''}>{row('td', r.cells)}</tr>" for r in table.rows)
    head = row("th", [c.header for c in table.columns])
    notes = "".join(f"<p class=notes>{html.escape(n)}</p>" for n in table.notes)
    return f"<h3>{html.escape(table.title)}</h3><div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{notes}"
