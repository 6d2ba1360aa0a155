"""Rows as tables for people: what ``make bench-peers`` prints, and the page ``docs/peers.md``. Pure, so that a page can be made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.peers.run import ERROR_MAX, LAG_MAX, OTHERS_MAX, Row
from bench.peers.work import Rung

OURS = "ours"
Names = dict[str, str]  # of the clients, by module

LOAD_COLUMNS = (
    "BS",
    "client",
    "chunks/s",
    "CPU s / 10⁶ chunks: load",
    "… to the result",
    "start-up CPU s",
    "processes",
    "TTFT error",
    "step error",
)
DRAFT_COLUMNS = ("BS", "client", "AL", "AL error", "step error", "error per token", "TPS per user error", "TTFT error")


def load_table(rows: Sequence[Row], names: Names) -> list[list[str]]:
    """Without drafting: cost and errors."""
    return [_load_row(row, names) for row in rows if not row.rung.draft_length]


def _load_row(row: Row, names: Names) -> list[str]:
    cells = [f"{row.rung.batch_size:,}", _marked(row, names), "" if row.server is None else f"{row.server.chunks_per_s:,.0f}"]
    if row.cpu is None:
        return [*cells, "", "", "", "", *_errors(row, row.ttft_error, row.step_error)]
    cost = (_number(row.cpu_load_per_million), _number(row.cpu_per_million), f"{row.cpu.start_s:.1f}", str(row.cpu.processes))
    return [*cells, *cost, *_errors(row, row.ttft_error, row.step_error)]


def _marked(row: Row, names: Names) -> str:
    return names[row.client] + (" \\*" if row.disturbed else "")


def draft_table(rows: Sequence[Row], names: Names) -> list[list[str]]:
    """With drafting: what is said of acceptance and speed."""
    found = []
    for row in rows:
        if row.rung.draft_length:
            al = row.reported.get("al")
            errors = [row.worst(key) for key in ("al", "step_ms", "token_ms", "user_tps", "ttft_ms")]
            cells = (f"{row.rung.batch_size:,}", _marked(row, names), f"{al.reported:.3f}" if al else "")
            found.append([*cells, *_errors(row, *errors)])
    return found


def _errors(row: Row, *errors: float | None) -> list[str]:
    """In per cent; in a row that does not count, the word for that instead of the first (:func:`problems` says why)."""
    if row.problem:
        return ["void" if row.problem.startswith("void") else "failed", *[""] * (len(errors) - 1)]
    return ["does not report" if error is None else f"{error:+.1%}" for error in errors]


def problems(rows: Sequence[Row], names: Names) -> list[str]:
    """Why rows do not count, one line each."""
    return [f"{_rung(row.rung)}, {names[row.client]}: {row.problem}." for row in rows if row.problem]


def largest_rates(rows: Sequence[Row], clients: Sequence[str]) -> dict[str, Row | None]:
    """By client: its row with the most chunks a second of those in which TTFT and step time were true."""
    found: dict[str, Row | None] = {}
    for client in clients:
        true = [row for row in rows if row.client == client and row.accurate and not row.rung.draft_length]
        found[client] = max(true, key=_rate, default=None)
    return found


def _rate(row: Row) -> float:
    return 0.0 if row.server is None else row.server.chunks_per_s


def rate_table(rows: Sequence[Row], names: Names) -> list[list[str]]:
    found = []
    for client, row in largest_rates(rows, list(names)).items():
        failed = ", ".join(f"{r.rung.batch_size:,}" for r in rows if r.client == client and not r.rung.draft_length and not r.accurate)
        rate = "none" if row is None or row.server is None else f"{row.server.chunks_per_s:,.0f} (BS {row.rung.batch_size:,})"
        found.append([names[client], rate, failed or "none"])
    return found


_Figure = tuple[str, Callable[[Row], float | None], Callable[[float], str]]
_FIGURES: tuple[_Figure, ...] = (
    ("CPU s per million chunks in the load", lambda r: r.cpu_load_per_million, lambda v: f"{v:,.0f}"),
    ("CPU s per million chunks to the result", lambda r: r.cpu_per_million, lambda v: f"{v:,.0f}"),
    ("start-up CPU s", lambda r: None if r.cpu is None else r.cpu.start_s, lambda v: f"{v:.1f}"),
    ("size of the TTFT error", lambda r: _size(r.ttft_error), lambda v: f"{v:.2%}"),
    ("size of the step error", lambda r: _size(r.step_error), lambda v: f"{v:.2%}"),
    ("size of the AL error", lambda r: _size(r.worst("al")), lambda v: f"{v:.2%}"),
    ("size of the TPS per user error", lambda r: _size(r.worst("user_tps")), lambda v: f"{v:.2%}"),
)
_SAME_ERROR = 0.0005  # errors that differ by less than half a thousandth are alike


def where_peers_are_better(rows: Sequence[Row], names: Names) -> list[str]:
    """One line for each figure and load in which a peer did better than our client, as measured."""
    found = []
    for rung in dict.fromkeys(row.rung for row in rows):
        at = {row.client: row for row in rows if row.rung == rung and not row.problem}
        if OURS not in at:
            continue
        for words, value, shown in _FIGURES:
            mine = value(at[OURS])
            least = 0.0 if mine is None or "error" not in words else _SAME_ERROR
            for client, row in at.items():
                theirs = value(row)
                if client != OURS and mine is not None and theirs is not None and theirs < mine - least:
                    found.append(f"{_rung(rung)}: {words}: {names[client]} {shown(theirs)}, {names[OURS]} {shown(mine)}.")
    return found


def _rung(rung: Rung) -> str:
    return f"BS {rung.batch_size:,}" + (f", DL {rung.draft_length}" if rung.draft_length else "")


def _size(error: float | None) -> float | None:
    return None if error is None else abs(error)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * 2 + ["---:"] * (len(columns) - 2), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def names_of_figures(rows: Sequence[Row], names: Names) -> list[list[str]]:
    """What each client calls the figures that it was compared by."""
    found: dict[str, dict[str, str]] = {client: {} for client in names}
    for row in rows:
        found[row.client] |= {key: pair.name for key, pair in row.reported.items()}
    keys = ("ttft_ms_mean", "step_ms_mean", "token_ms_mean", "al", "user_tps")
    return [[names[c], *(own.get(key, "does not report").removesuffix(", mean") for key in keys)] for c, own in found.items()]


def _disturbed(rows: Sequence[Row]) -> list[str]:
    count = sum(row.disturbed for row in rows)
    if not count:
        return []
    return [
        f"**{count} of {len(rows)} rows were measured on a busy machine (\\*): run it again on a quiet one before their numbers are used.**",
        "",
    ]


def page(rows: Sequence[Row], facts: dict[str, Any], names: Names) -> str:
    better = where_peers_are_better(rows, names)
    versions = ", ".join(f"{names[c]} {version}" for c, version in facts["versions"].items())
    lines = [
        "# Our client beside others",
        "",
        "Made by `make bench-peers`; every number is as measured in one run, on a **simulated** server. Do not edit.",
        "",
        f"* Clients: {versions}; each in an environment of its own, by its defaults, but for the number of sending processes and for token "
        "counts, which all take from the server.",
        f"* Machine: {facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, Python {facts['python']}; {facts['utc']}.",
        "",
        *_disturbed(rows),
        "## How",
        "",
        "The server is the simulator with vLLM's wire (`/v1/completions`), started afresh for each client, with steps of one length. All clients get",
        "the same prompts and output caps in the same order and keep the same number in flight: first one wave with staggered caps, then full",
        "ones. Answers end by their cap only; a row in which a client did other work is thrown out. The server logs when it read each request and",
        "when it wrote each chunk; errors are relative to that log, each figure by the definition of the client that reports it, and of mean",
        "and median the worse one is shown. Without drafting a token is a step, so a time per token stands in where a client has no time from chunk to chunk.",
        "What a request waits in the server's socket before it is read counts against all clients as an error of TTFT: with ours, in the",
        "median, 0.2 ms at BS 1, 1 ms at BS 512 and 3 ms at BS 2,048.",
        "",
        f"A row is void where the server's steps were more than {LAG_MAX:.0%} longer than they were to be, and marked by \\* where other work used",
        f"more than {OTHERS_MAX:.0%} of the machine. Up to BS 512 each client has one sending process, above that two. **Client and server share the cores**,",
        "which is the same handicap for all; the server is scheduled before them (real time), and they before other work. CPU is that of all processes",
        "of a client (Ray's among ours): *load* from the first request's arrival to the last chunk, *to the result* until its last process has",
        "ended, *start-up* what came before. Our client reads its streams after the load, others in it, so *to the result* is the one to compare.",
        "At small BS it is mostly the fixed cost of ending a program, divided by few chunks (ours ends Ray, which in a sweep is done once).",
        "",
        f"## Largest chunk rate with less than {ERROR_MAX:.0%} error in TTFT and in step time",
        "",
        *markdown_table(("client", "chunks/s", "BS at which it was not so"), rate_table(rows, names)),
        "",
        "## Cost and error, nothing drafted",
        "",
        *markdown_table(LOAD_COLUMNS, load_table(rows, names)),
        "",
        "## With draft length 3",
        "",
        "A chunk holds one to four tokens. *Step* is the time from chunk to chunk, *per token* the time of a request after its first token by its",
        "tokens: two figures that go by one name (see below), of which only the first says how long a step takes.",
        "",
        *markdown_table(DRAFT_COLUMNS, draft_table(rows, names)),
        "",
        *([*("## Rows that do not count", ""), *(f"* {line}" for line in problems(rows, names)), ""] if problems(rows, names) else []),
        "## What the clients call these figures",
        "",
        *markdown_table(("client", "TTFT", "step", "per token", "AL", "TPS per user"), names_of_figures(rows, names)),
        "",
        "## Where a peer is better",
        "",
        *([f"* {line}" for line in better] or ["In no figure of this run."]),
        "",
    ]
    return "\n".join(lines)
