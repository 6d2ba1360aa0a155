"""``llama-spec-bench``'s report as Markdown: one table a configuration, runs of a task side by side, and with details the texts first.

Its columns are kept, with the counts by position beside the percentages, so that the compact form holds the raw counts too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev

from specsweep.analysis.attempts import is_simulated, is_valid
from specsweep.analysis.spec_bench import Stage
from specsweep.analysis.spec_bench_rows import NO_STAGE_TIMES, Pooled, Said, Tried, measured, repeated
from specsweep.analysis.tabular import Column, Row, Table

DEFINITIONS = (
    "a.len is 1 + accepted tokens / rounds, where a round is a step for which something was drafted: the definition of llama-spec-bench, "
    "used in these formats only.",
    "Times are the client's: time(s) runs from the first token to the last, tok/s are the tokens after the first ones in that time, and "
    "prompt s is the time to the first token.",
    "– is not known, or nothing to divide by. Sums are pooled over requests; ramp-up requests are left out.",
)
_ATTEMPT = (
    *(Column("task", "task"), Column("run", "run", True), Column("stage", "stage"), Column("tokens", "tokens", True)),
    *(Column("stop", "stop"), Column("time", "time(s)", True), Column("tps", "tok/s", True), Column("rounds", "rounds", True)),
    *(Column("accepted", "accepted", True), Column("rate", "rate", True), Column("length", "a.len", True)),
    *(Column("share", "pos accept"), Column("positions", "accepted/drafted by position")),
)
_DETAIL = (
    *(Column("task", "task"), Column("run", "run", True), Column("prompt", "prompt tok", True), Column("prompt_s", "prompt s", True)),
    *(
        Column("total_s", "total s", True),
        Column("stage", "stage"),
        Column("draft_s", "draft s", True),
        Column("accept_s", "accept s", True),
    ),
    *(Column("positions", "accepted/drafted by position"), Column("rates", "rate by position")),
    *(Column("conditional", "conditional rate"), Column("retries", "retries", True)),
)
_REPEATS = (
    *(Column("task", "task"), Column("stage", "stage"), Column("runs", "runs", True), Column("n", "metric n", True)),
    *(Column("tps", "tok/s mean/std", True), Column("rate", "rate mean/std", True), Column("length", "a.len mean/std", True)),
)
UNKNOWN = "–"


def markdown(name: str, status: str, found: Sequence[Pooled], *, detailed: bool = False) -> str:
    """``status``: how far the sweep is, in one line."""
    parts = [f"# llama-spec-bench report of sweep {name}\n", f"{status}\n"]
    if any(is_simulated(p.point.record) for p in found):
        parts.append("**SIMULATED**: these numbers come from the simulator and show nothing about an engine.\n")
    parts += ["\n".join(f"* {line}" for line in DEFINITIONS) + "\n"]
    if detailed:
        parts += [_texts(found)]
    for group in dict.fromkeys(p.point.group for p in found):
        parts += list(_configuration(group, [p for p in found if p.point.group == group], detailed))
    errors = [f"* {t.task} run {t.run} ({t.point.group}): {_one_line(t)}" for p in found for t in p.tried if not t.ok]
    errors += [f"* {p.point.group}: {_no_numbers(p)}" for p in found if not p.tried]
    if errors:
        parts.append("## Errors\n\n" + "\n".join(errors) + "\n")
    return "\n".join(parts)


def _configuration(group: str, found: Sequence[Pooled], detailed: bool) -> Iterator[str]:
    first, tried = found[0].point, [t for p in found for t in p.tried]
    yield f"## {group}\n"
    yield f"Chat template: {first.chat_template['words']}.\n"
    if invalid := [p for p in found if measured(p.point) and not is_valid(p.point.record)]:
        yield f"**Not valid**: {len(invalid)} of {len(found)} points of this configuration; `specsweep report` says why.\n"
    if first.learns:
        yield f"**The drafter learns from earlier answers**, so runs are not independent of what came before. Each {_learning(tried)}.\n"
    retried = [t for t in tried if t.request.retried]
    if retried:
        yield f"**Sent again**: {len(retried)} of {len(tried)} requests, after a failure before their first token.\n"
    if not tried:
        yield f"No requests: {_no_numbers(found[0])}\n"
        return
    yield _bare(_ATTEMPT, [cells for t in tried for cells in _attempt_cells(t)])
    for pooled in found:
        if lines := _pooled_line(pooled):
            yield lines
    if reasons := list(dict.fromkeys(s.reason for t in tried for s in t.stages if s.reason)):
        yield "\n".join(f"* {UNKNOWN}: {reason}." for reason in reasons) + "\n"
    if detailed:
        yield "### Detailed metrics\n\n" + _bare(_DETAIL, [cells for t in tried for cells in _detail_cells(t)])
        yield f"* draft s, accept s {UNKNOWN}: {NO_STAGE_TIMES}.\n"
    if repeated(found):
        yield f"### Repeat summary ({max(t.run for t in tried)} runs/task)\n\n" + _bare(_REPEATS, list(_repeat_cells(tried)))


def _learning(tried: Sequence[Tried]) -> str:
    return (
        re.sub(r"the \d+ requests before", "the requests before", re.sub(r" \(\d+ of this point\)", "", tried[0].learned)) if tried else ""
    )


def _pooled_line(p: Pooled) -> str:
    """What the point comes to as a whole; "" of one without a drafter, whose table says it all."""
    if not p.stages or not p.tried:
        return ""
    s = p.stages[0]
    repeat = p.point.axes.get("repeat")
    which = f"repeat {repeat}, " if repeat not in (None, 1) else ""
    return (
        f"All {len(p.good)} requests together ({which}point {str(p.point.record['point']['point_id'])[:16]}): {_count(s.num_drafts)} rounds, "
        f"accepted {_of(s.accepted_tokens, s.draft_tokens)}, rate {_percent(s.acceptance_rate)}, a.len {_number(s.acceptance_length, 2)}, "
        f"by position {_positions(s)}.\n"
    )


def _attempt_cells(t: Tried) -> Iterator[tuple[str, ...]]:
    head = t.task, str(t.run)
    seen = str(t.generated) if t.ok else UNKNOWN, t.stop, _number(t.decode_s if t.ok else None, 3), _number(t.decode_tps, 2)
    if not t.stages:
        yield *head, "base" if t.ok else "error", *seen, *([UNKNOWN] * 6)
    for s in t.stages:
        shares = s.acceptance_rate_by_position
        share = " ".join(_percent(x, 1) for x in shares) if shares else UNKNOWN
        counts = _count(s.num_drafts), _of(s.accepted_tokens, s.draft_tokens), _percent(s.acceptance_rate)
        yield *head, s.type, *seen, *counts, _number(s.acceptance_length, 2), share, _positions(s)


def _detail_cells(t: Tried) -> Iterator[tuple[str, ...]]:
    prompt = t.request.n_prompt
    head = t.task, str(t.run), str(prompt) if prompt >= 0 else UNKNOWN, _number(t.prompt_s, 3), _number(t.total_s, 3)
    retries = str(len(t.request.retried))
    if not t.stages:
        yield *head, "base" if t.ok else "error", *([UNKNOWN] * 5), retries
    for s in t.stages:
        rates = [" ".join(_number(x, 3) for x in found) or UNKNOWN if found is not None else UNKNOWN for found in _rates(s)]
        yield *head, s.type, UNKNOWN, UNKNOWN, _positions(s), *rates, retries


def _rates(s: Stage) -> tuple[list[float | None] | None, list[float | None] | None]:
    return s.acceptance_rate_by_position, s.conditional_acceptance_rate


def _repeat_cells(tried: Sequence[Tried]) -> Iterator[tuple[str, ...]]:
    """Mean and population deviation over the runs of each task that succeeded."""
    for task in dict.fromkeys(t.task for t in tried):
        good = [t for t in tried if t.task == task and t.ok]
        stages = [s for t in good for s in t.stages]
        rates = [r for s in stages if (r := s.acceptance_rate) is not None]
        lengths = [n for s in stages if (n := s.acceptance_length) is not None]
        speeds = [v for t in good if (v := t.decode_tps) is not None]
        percent = _spread([100 * r for r in rates], "%")
        yield task, stages[0].type if stages else "base", str(len(good)), str(len(rates)), _spread(speeds), percent, _spread(lengths)


def _spread(values: Sequence[float], unit: str = "") -> str:
    return f"{fmean(values):.2f}{unit}/{pstdev(values):.2f}{unit}" if values else UNKNOWN


def _texts(found: Sequence[Pooled]) -> str:
    parts = ["## Prompt and response details\n"]
    for p in found:
        for t in p.tried:
            said = p.point.texts.get(t.request.index, Said(None, None))
            parts.append(f"### {t.task} / run {t.run} ({p.point.group})\n")
            for title, text in (("Prompt", said.prompt), ("Response", said.response)):
                parts.append(
                    f"{title}: not known: {said.reason or 'it was not asked for'}.\n" if text is None else f"{title}:\n\n{_fenced(text)}\n"
                )
            if t.learned:
                parts.append(f"The drafter {t.learned}.\n")
    return "\n".join(parts)


def _fenced(text: str) -> str:
    """Between more backticks than the text has in a row: no text ends its own block."""
    fence = "`" * max(4, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _bare(columns: Sequence[Column], cells: Sequence[tuple[str, ...]]) -> str:
    """The table without a title of its own."""
    table = Table("", "", tuple(columns), tuple(Row(c, {}) for c in cells)).to_markdown()
    return table.partition("\n\n")[2]


def _one_line(t: Tried) -> str:
    read = t.request.read
    return " ".join(f"{read.error_kind}: {read.error}".split())[:120]


def _no_numbers(p: Pooled) -> str:
    error = p.point.record["point"].get("error") or {}
    return " ".join(str(p.point.missing or error.get("message") or "the point has no measured requests").split())


def _positions(s: Stage) -> str:
    if s.drafted_by_position is None or s.accepted_by_position is None:
        return UNKNOWN
    return ", ".join(f"{a}/{d}" for a, d in zip(s.accepted_by_position, s.drafted_by_position, strict=True)) or UNKNOWN


def _of(above: int | None, below: int | None) -> str:
    return f"{_count(above)}/{_count(below)}"


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def _percent(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{100 * value:.{digits}f}%"
