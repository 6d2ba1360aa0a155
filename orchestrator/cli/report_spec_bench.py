"""`specsweep report --format spec-bench.…`: a sweep in the report formats of ``llama-spec-bench``, on standard output as that program has it.

Nothing is written into the store. Prompts and answers are looked for only if details are wanted: they take the target's tokenizer.
"""

from __future__ import annotations

import sys

from specsweep.analysis.attempts import is_capture
from specsweep.analysis.report import Report
from specsweep.analysis.spec_bench_jsonl import jsonl
from specsweep.analysis.spec_bench_rows import Point, pooled
from specsweep.analysis.spec_bench_text import markdown
from specsweep.orchestrator.answers import Texts, names_of, point_of
from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.sweep_record import SweepView


def print_spec_bench(report: Report, view: SweepView, *, lines: bool, details: bool) -> None:
    """``lines``: as JSON lines, else as Markdown. How far the sweep is stands in the Markdown; with lines it is said on standard error."""
    texts = Texts(lambda line: print(f"specsweep report: {line}", file=sys.stderr)) if details else None
    found = pooled([_point(attempt, texts) for attempt in view.latest.values()])
    if lines:
        print(f"specsweep report: {view.name}: {report.status}", file=sys.stderr)
        sys.stdout.write(jsonl(found, detailed=details))
    else:
        sys.stdout.write(markdown(view.name, report.status, found, detailed=details))


def _point(attempt: Attempt, texts: Texts | None) -> Point:
    record = attempt.record()
    if is_capture(record):
        return Point(record, missing="it was captured and not timed")
    try:
        trace = attempt.trace()
    except (OSError, ValueError) as error:
        return Point(record, missing=f"its trace cannot be read: {error}")
    if trace is None:
        return Point(record, missing="it has no trace" if attempt.measured else "")
    point = point_of(attempt.point)
    main = [r for r in trace.requests if r.phase == "main"]
    return Point(record, trace.requests, names_of(point), texts.of(point, main) if texts is not None else {})
