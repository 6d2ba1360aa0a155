"""`specsweep inspect`: request by request what a recorded stream or a stored trace says, and over all what follows from it.

One line a request, in the order of the file; what was repaired or refused stands below, numbered, once for all requests that it
concerns; the totals come last, next to the engine's own counters. It is how a stream that misleads is reported, and how a new
engine version is checked.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specsweep.analysis.tabular import Column, Row, Table, fit, text_width
from specsweep.client.dialects import DIALECTS
from specsweep.client.trace import RequestTrace
from specsweep.orchestrator.cli.inspect_routing import inspect_capture, print_capture
from specsweep.orchestrator.cli.output import PIPE_WIDTH, add_json, emit_json, print_table, terminal_width
from specsweep.orchestrator.errors import EXIT_INCOMPLETE, EXIT_OK, ConfigError
from specsweep.orchestrator.inspection import MOST_DRAFT_LENGTH, CounterCheck, Inspection, inspect_file
from specsweep.orchestrator.inspection_facts import request_facts, total_facts
from specsweep.orchestrator.routing_files import capture_at

_COUNTERS = (
    ("drafts", "verify steps"),
    ("draft_tokens", "drafted"),
    ("accepted_tokens", "accepted"),
    ("generation_tokens", "output tokens"),
)
_POSITIONS_SHOWN = 8
# Columns that a narrow terminal goes without, the least important first.
_EXPENDABLE = ("drafted", "finish", "≥1 ≥2 ≥3 …", "prompt", "accepted", "TTFT ms", "chunks", "tokens", "step ms", "steps")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a recording (.jsonl, .jsonl.gz), a trace.parquet, a routing capture, or its folder",
    )
    parser.add_argument("--dialect", metavar="NAME", help=f"read a recording as {', '.join(DIALECTS)}; default: what the recording says")
    parser.add_argument("--draft-length", type=int, metavar="N", help="draft tokens per step; 0: nothing is drafted. Default: by the file")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="print only the first N requests of a file (totals are over all)")
    parser.add_argument(
        "--layers", type=int, metavar="N", help="layers of the model whose routing is in SGLang's answers, which do not say"
    )
    parser.add_argument("--top-k", type=int, metavar="N", help="and its experts a token; also of SGLang's recorder files")
    add_json(parser)
    parser.epilog = "Exit code 5: the streams of a file disagree with the engine's own counters."


def run(args: argparse.Namespace) -> int:
    if args.dialect is not None and args.dialect not in DIALECTS:
        raise ConfigError(f"--dialect {args.dialect}: not a dialect; known: {', '.join(DIALECTS)}")
    if any(value is not None and value < 1 for value in (args.layers, args.top_k)):
        raise ConfigError("--layers and --top-k must be 1 or more")
    for name, value in (("--draft-length", args.draft_length), ("--limit", args.limit)):
        if value is not None and value < 0:
            raise ConfigError(f"{name} {value}: must be 0 or more")
    if args.draft_length is not None and args.draft_length > MOST_DRAFT_LENGTH:
        raise ConfigError(
            f"--draft-length {args.draft_length}: no engine drafts more than {MOST_DRAFT_LENGTH} tokens a step; give the real one"
        )
    found = [_inspected(path, args) for path in args.files]
    if args.json:
        emit_json([_as_json(one) if isinstance(one, Inspection) else one for one in found])
    else:
        for number, one in enumerate(found):
            if number:
                print()
            if isinstance(one, Inspection):
                _print(one, args.limit)
            else:
                print_capture(one)
    return EXIT_INCOMPLETE if any(check.differs for one in found if isinstance(one, Inspection) for check in one.checks) else EXIT_OK


def _inspected(path: Path, args: argparse.Namespace) -> Inspection | dict[str, Any]:
    capture = capture_at(path)
    if capture is not None:
        return inspect_capture(capture, layers=args.layers, top_k=args.top_k)
    return inspect_file(path, dialect_name=args.dialect, draft_length=args.draft_length)


def _as_json(inspection: Inspection) -> dict[str, Any]:
    return {
        "file": str(inspection.path),
        "kind": inspection.kind,
        "label": inspection.label,
        "engine_version": inspection.version,
        "dialect": inspection.dialect,
        "draft_length": inspection.draft_length,
        "requests": [{"name": n, **request_facts(r)} for n, r in zip(inspection.names, inspection.requests, strict=True)],
        "totals": total_facts(inspection.requests, inspection.draft_length),
        "counters": [
            {
                "stretch": c.stretch,
                "engine": dict(c.engine),
                "streams": dict(c.streams),
                "engine_accepted_per_position": list(c.engine_per_position),
                "streams_accepted_per_position": list(c.streams_per_position),
                "unfinished_requests": c.unfinished,
                "differs": list(c.differs),
            }
            for c in inspection.checks
        ],
        "measurement": inspection.measurement,
    }


# --- for people ----------------------------------------------------------------------------------------------------------------


def _print(inspection: Inspection, limit: int) -> None:
    print(inspection.path)
    length = "none, or not known" if inspection.draft_length is None else f"{inspection.draft_length} (from {inspection.draft_length_from})"
    words = [inspection.kind, inspection.label, inspection.version and f"version {inspection.version}"]
    _say("  " + " · ".join(w for w in words if w))
    _say(f"  dialect {inspection.dialect or 'not recorded'} · draft length {length}")
    print()
    shown = len(inspection.requests) if not limit else min(limit, len(inspection.requests))
    notes: dict[str, list[str]] = {}
    rows = [_row(n, r, notes) for n, r in zip(inspection.names, inspection.requests, strict=True)]
    columns = ("request", "outcome", "finish", "prompt", "tokens", "chunks", "steps", "AL", "drafted", "accepted", "≥1 ≥2 ≥3 …", "TTFT ms")
    numbers = (3, 4, 5, 6, 7, 8, 9, 11, 12)
    _table((*columns, "step ms", "steps are", "notes"), rows[:shown], right=numbers, expendable=_EXPENDABLE)
    if shown < len(rows):
        _say(f"… {len(rows) - shown} more requests (--limit 0 prints all)")
    if notes:
        print("\nnotes")
        for number, (note, names) in enumerate(notes.items(), 1):
            _say(f"  {number}  {_who(names, len(rows))}: {note}")
    print()
    _print_totals(total_facts(inspection.requests, inspection.draft_length))
    if inspection.checks:
        print()
        _print_counters(inspection.checks)
    if inspection.measurement is not None:
        print()
        _print_measurement(inspection.measurement)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int], expendable: Sequence[str]) -> None:
    """Without the columns in which no row has anything to say, and those (the least important first) that the terminal has no room for."""
    kept = [i for i, _ in enumerate(columns) if i == 0 or any(row[i] not in ("", "–") for row in rows)]
    described = tuple(Column(columns[i], columns[i], i in right) for i in kept)
    shown, left_out = fit(
        Table("", "", described, tuple(Row(tuple(row[i] for i in kept), {}) for row in rows)), terminal_width(), expendable
    )
    wraps = [0, len(shown.columns) - 1] if text_width(shown) > terminal_width() else []  # names and words fold, no number does
    print_table("", [c.header for c in shown.columns], [row.cells for row in shown.rows], right=shown.right, wraps=wraps)
    if left_out:
        _say(f"No room for: {', '.join(left_out)} (--json has all)")


def _say(line: str, indent: int = 4) -> None:
    """One line, folded between words where a terminal is narrower; never in a pipe."""
    width = terminal_width()
    print(line if width >= PIPE_WIDTH else textwrap.fill(line, width, subsequent_indent=" " * indent, break_on_hyphens=False))


def _row(name: str, request: RequestTrace, notes: dict[str, list[str]]) -> list[str]:
    facts = request_facts(request)
    numbers = []
    for note in [facts["error"], *facts["notes"]]:
        words = " ".join(note.split())  # servers quote validation errors over several lines
        if words:
            notes.setdefault(words, []).append(name)
            numbers.append(str(list(notes).index(words) + 1))
    by_position = facts["accepted_per_position"]
    shown = " ".join(map(str, by_position[:_POSITIONS_SHOWN])) + (" …" if len(by_position) > _POSITIONS_SHOWN else "")
    drafted = facts["drafted_tokens"]
    state = facts["step_state"] if facts["chunks"] else ""
    return [
        name,
        facts["error_kind"] or "ok",
        facts["finish_reason"] or "–",
        _number(facts["prompt_tokens"]),
        _number(facts["output_tokens"]),
        str(facts["chunks"] or "–"),
        _number(facts["decode_steps"]),
        _number(facts["al_decode"], 2),
        _number(drafted or None),
        _number(facts["accepted_tokens"] if drafted else None),
        shown if drafted else "–",
        _number(facts["ttft_ms"], 1),
        _number(facts["step_ms_mean"], 2),
        state + (", last cut" if facts["last_cut"] else ""),
        ",".join(numbers),
    ]


def _number(value: float | None, decimals: int = 0) -> str:
    return "–" if value is None else f"{value:.{decimals}f}"


def _who(names: Sequence[str], total: int) -> str:
    if len(names) > 3:
        return f"{len(names)} of {total} requests"
    return ", ".join(names)


def _print_totals(totals: Mapping[str, Any]) -> None:
    failed = ", ".join(f"{n} {kind}" for kind, n in totals["failed_by_kind"].items())
    states = ", ".join(f"{n} {state}" for state, n in totals["step_states"].items())
    _say(f"over all: {totals['requests']} requests, {totals['ok']} ok" + (f", {totals['failed']} failed ({failed})" if failed else ""))
    if not totals["ok"]:
        return
    _say(f"  output tokens {totals['output_tokens']}" + (f" · steps: {states}" if states else ""))
    for name, words in (
        ("al_decode", "AL_decode (steps of the stream, last cut step left out)"),
        ("al_decode_request_mean", "  mean of the requests' own"),
        ("al_verify", "AL_verify (verify steps, before any cut)"),
        ("acceptance_rate", "acceptance rate (accepted / drafted)"),
    ):
        found = totals[name]
        if found["value"] is not None:
            _say(f"  {words:<54} {found['value']:.3f}{_interval(found)}")
        elif found["reason"]:
            _say(f"  {words:<54} –      {found['reason']}")
    for row in totals["ar_cond"][:_POSITIONS_SHOWN]:
        value = "–    " if row["value"] is None else f"{row['value']:.3f}{_interval(row)}"
        _say(f"  AR at position {row['position']:<39} {value}  {row['accepted']} of {row['reached']} steps that reached it")
    if len(totals["ar_cond"]) > _POSITIONS_SHOWN:
        _say(f"  … {len(totals['ar_cond']) - _POSITIONS_SHOWN} more positions (--json has them)")
    if totals["accept_hist"]:
        _say(f"  {'tokens a step':<54} " + ", ".join(f"{size}: {n}" for size, n in totals["accept_hist"].items()))
    if totals["coalesced_steps"] and totals["decode_steps"]:
        share = 100 * totals["coalesced_steps"] / totals["decode_steps"]
        what = "the engine's own times are used" if totals["step_clock"] == "server" else "no arrival time of their own"
        _say(f"  {'steps that shared a read with the step before':<54} {totals['coalesced_steps']} ({share:.1f} %): {what}")


def _interval(found: Mapping[str, Any], *, decimals: int = 3) -> str:
    return "" if found.get("ci_low") is None else f" [{found['ci_low']:.{decimals}f}, {found['ci_high']:.{decimals}f}]"


def _print_counters(checks: Sequence[CounterCheck]) -> None:
    rows = []
    for check in checks:
        cells = [_pair(check.streams[name], check.engine[name]) for name, _ in _COUNTERS]
        verdict = f"differ: {', '.join(check.differs)}" if check.differs else "agree"
        if check.unfinished:
            verdict = f"{check.unfinished} unfinished: the engine counts what no stream brought"
        rows.append([check.stretch, *cells, _positions(check), verdict])
    print("streams / engine's own counters")
    columns = ("stretch", *(words for _, words in _COUNTERS), "accepted by position", "they")
    _table(columns, rows, right=(1, 2, 3, 4), expendable=("accepted by position", *(words for _, words in _COUNTERS)))


def _pair(streams: int | None, engine: float | None) -> str:
    return "–" if engine is None else f"{_number(streams)} / {engine:.0f}"


def _positions(check: CounterCheck) -> str:
    streams, engine = check.streams_per_position, [int(n) for n in check.engine_per_position]
    while engine and not engine[-1]:
        engine.pop()
    if not engine and not streams:
        return "–"
    return " ".join(map(str, streams)) + " / " + " ".join(map(str, engine))


def _print_measurement(measurement: Mapping[str, Any]) -> None:
    _say("stored measurement (ramp-up left out)")
    metrics = measurement.get("metrics") or {}
    for name, value in metrics.items():
        if not name.endswith(("_ci_low", "_ci_high")):
            found = {"ci_low": metrics.get(f"{name}_ci_low"), "ci_high": metrics.get(f"{name}_ci_high")}
            _say(f"  {name:<30} {value:.4g}{_interval(found, decimals=1 if abs(value) >= 10 else 3)}")
    for check in measurement.get("checks") or ():
        if not check.get("ok"):
            _say(f"  not valid: {check.get('message')} (affects {', '.join(check.get('affects') or ())})")
