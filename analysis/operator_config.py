"""A draft-length map as settings that a server understands: vLLM's draft length by batch size, with what it rests on.

vLLM takes ``num_speculative_tokens_per_batch_size``: a list of ``[first, last, tokens]``, batch sizes inclusive, the first of them 1, tokens 0 for no
draft; gaps and everything beyond the last range go on with the tokens before (read off vLLM 0.32.0; its batch size is the number of
requests that a step schedules). Fewer changes are better for a server, and ties allow fewer: consecutive batch sizes share one draft
length as long as one is in the tie of all of them. Between two measured batch sizes the change is put where the two draft lengths are
interpolated to be equal; that it may lie anywhere between the two is written beside it.

The map was measured with one draft length a server. What changing it between steps costs is not in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specsweep.analysis.attempts import Cell, env_of, is_measured
from specsweep.analysis.draft_length_map import GOALS, Choice, DraftLengthMap, length_text

CHECKED_WITH = "0.32.0"
KEY = "num_speculative_tokens_per_batch_size"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batch sizes ``first`` … ``last`` with one draft length. ``allowed``: those that the ties of all its measured batch sizes share."""

    first: int
    last: int
    tokens: int
    allowed: tuple[int, ...]
    measured_at: tuple[int, ...]
    ends_between: tuple[int, int] | None = None  # the next stretch may begin anywhere after the first of these, up to the second


def schedule(choices: Sequence[Choice]) -> list[Stretch]:
    """The fewest stretches that stay within the ties. ``choices``: of one ISL, any order. Raises ``ValueError`` for none or several ISLs."""
    ordered = sorted(choices, key=lambda c: c.batch_size)
    if len({c.isl for c in ordered}) != 1:
        raise ValueError("a schedule needs the choices of one ISL, at least one")
    runs: list[tuple[list[Choice], set[int]]] = []
    for choice in ordered:
        shared = runs[-1][1] & set(choice.ties) if runs else set()
        if shared:
            runs[-1] = ([*runs[-1][0], choice], shared)
        else:
            runs.append(([choice], set(choice.ties)))
    tokens = [max(sorted(allowed), key=lambda n, run=run: _worth(run, n)) for run, allowed in runs]  # type: ignore[misc]
    found: list[Stretch] = []
    first = 1
    for i, (run, allowed) in enumerate(runs):
        last, between = run[-1].batch_size, None
        if i + 1 < len(runs):
            after = runs[i + 1][0][0]
            between = (run[-1].batch_size, after.batch_size)
            last = _boundary(run[-1], after, tokens[i], tokens[i + 1])
        found.append(Stretch(first, last, tokens[i], tuple(sorted(allowed)), tuple(c.batch_size for c in run), between))
        first = last + 1
    return found


def _worth(run: Sequence[Choice], tokens: int) -> float:
    return math.fsum(math.log(_to_best(choice, tokens) or 1.0) for choice in run)


def _to_best(choice: Choice, tokens: int) -> float | None:
    """The goal of a draft length over that of the best one there; None where the two were not compared."""
    if tokens == choice.draft_length:
        return 1.0
    ratio = choice.ratios.get(tokens)
    return None if ratio is None else ratio.value


def _boundary(before: Choice, after: Choice, old: int, new: int) -> int:
    """The last batch size of ``old``: where it and ``new`` are interpolated to be equal, else the geometric middle."""
    logs = []
    for choice in (before, after):
        a, b = _to_best(choice, old), _to_best(choice, new)
        logs.append(math.log(b / a) if a and b else None)
    low, high = math.log(before.batch_size), math.log(after.batch_size)
    share = 0.5
    if logs[0] is not None and logs[1] is not None and logs[0] < 0 < logs[1]:
        share = logs[0] / (logs[0] - logs[1])
    return min(max(int(math.exp(low + share * (high - low)) + 1e-9), before.batch_size), after.batch_size - 1)


def vllm_config(m: DraftLengthMap, isl: int, *, sweep: str, version: str, simulated_ok: bool = False) -> dict[str, Any]:
    """``speculative_config`` for vLLM and beside it ``stretches`` and ``provenance``, all JSON-able.

    Raises ``ValueError`` where there is no such config to give: simulated numbers (unless ``simulated_ok``), another engine, an ISL without a
    choice, and a map on which no draft pays.
    """
    engine = str(m.axes.get("engine"))
    if m.simulated and not simulated_ok:
        raise ValueError(
            f"{m.label} was simulated: no server should be set up by it; --simulated-ok writes the file all the same, and marks it so"
        )
    if engine != "vllm" and not m.simulated:
        raise ValueError(
            f"{m.label} was measured on {engine}: draft lengths by batch size in vLLM's form are for what vLLM was measured to do"
        )
    choices = [c for c in m.choices if c.isl == isl]
    if not choices:
        there = ", ".join(str(i) for i in sorted({c.isl for c in m.choices})) or "none"
        raise ValueError(f"{m.label} has no choice at ISL {isl}; there are: {there}")
    contested = [c for c in choices if not c.alone]
    if not contested:
        raise ValueError(
            f"{m.label}: at ISL {isl} every batch size has one valid candidate only, so nothing was chosen; measure those that were left out"
        )
    stretches = schedule(contested)
    most = max(s.tokens for s in stretches)
    if most == 0:
        raise ValueError(f"{m.label}: at ISL {isl} no draft length is ahead of none at any batch size; serve without a drafter")
    config = {**_base(contested), "num_speculative_tokens": most}
    if len(stretches) > 1:
        config[KEY] = [[s.first, s.last, s.tokens] for s in stretches]
    marked = {"SIMULATED": "these draft lengths come from a simulator, not from a server"} if m.simulated else {}
    return {
        **marked,
        "speculative_config": config,
        "stretches": [_stretch(s) for s in stretches],
        "provenance": {
            "sweep": sweep,
            "made_by": f"specsweep {version}",
            "goal": GOALS[m.goal][1],
            **{n: v for n, v in m.axes.items() if v is not None},
            "engine_version": _engine_version(contested),
            "isl": isl,
            "batch_sizes_measured": [c.batch_size for c in contested],
            "point_ids": sorted({str(a["point"]["point_id"])[:16] for c in contested for a in c.best.attempts}),
            "notes": _notes(stretches, contested, [c.batch_size for c in choices if c.alone]),
        },
    }


def _stretch(s: Stretch) -> dict[str, Any]:
    made: dict[str, Any] = {
        "batch_sizes": [s.first, s.last],
        "num_speculative_tokens": s.tokens,
        "tied_draft_lengths": list(s.allowed),
        "measured_at": list(s.measured_at),
    }
    return made | ({"change_may_lie_between": list(s.ends_between)} if s.ends_between else {})


def _notes(stretches: Sequence[Stretch], choices: Sequence[Choice], uncontested: Sequence[int]) -> list[str]:
    sizes = [c.batch_size for c in choices]
    notes = [f"above batch size {max(sizes)} nothing was measured; vLLM goes on with the last number"]
    notes += [f"below batch size {min(sizes)} nothing was measured"] if min(sizes) > 1 else []
    if len(stretches) > 1:
        notes.append(
            f"{KEY} was checked with vLLM {CHECKED_WITH}; a version without it refuses it at its start, and data parallelism switches it off"
        )
        notes.append("measured with one draft length a server: what changing it between steps costs is not in the numbers")
    else:
        notes.append("one draft length serves all batch sizes that were measured, so no schedule is needed")
    if any(len(s.allowed) > 1 for s in stretches):
        notes.append("tied draft lengths are not shown to be worse: any of them may be taken")
    if uncontested:
        notes.append(f"batch size {', '.join(map(str, uncontested))} left out: one candidate only was valid there")
    return notes


def _drafting(choices: Sequence[Choice]) -> list[Cell]:
    """The cells with a drafter, the best ones first: whose settings the server gets."""
    return [c.best for c in choices if not c.best.baseline]


def _base(choices: Sequence[Choice]) -> dict[str, Any]:
    """The speculative config that was measured, without its draft length, with the drafter's weights as the sweep names them."""
    attempt = next(a for cell in _drafting(choices) for a in cell.attempts if is_measured(a))
    drafter = dict((attempt["point"].get("config") or {}).get("drafter") or {})
    measured = (env_of(attempt).get("drafter") or {}).get("speculative-config") or {}
    base = {k: v for k, v in dict(measured).items() if k not in ("num_speculative_tokens", KEY)}
    base.setdefault("method", str(drafter.get("method") or attempt["point"]["axes"].get("drafter")))
    weights = drafter.get("model")
    if isinstance(weights, Mapping):
        base["model"] = str(weights.get("repo") or weights.get("path") or weights.get("file"))
        if weights.get("source") == "hub" and weights.get("revision"):
            base["revision"] = str(weights["revision"])
    return base


def _engine_version(choices: Sequence[Choice]) -> str | None:
    found = {str((env_of(a).get("engine") or {}).get("version")) for c in choices for a in c.best.attempts if is_measured(a)} - {"None"}
    return ", ".join(sorted(found)) or None


def as_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def as_yaml(document: Mapping[str, Any]) -> str:
    """A file for ``vllm serve MODEL --config FILE``: ``speculative-config`` alone is content, all else stands in comments."""
    import yaml

    provenance = document["provenance"]
    lines = ["vllm serve MODEL --config THIS_FILE", ""]
    if "SIMULATED" in document:
        lines = [f"SIMULATED: {document['SIMULATED']}.", "", *lines]
    lines += [f"{n}: {v}" for n, v in provenance.items() if n not in ("notes", "point_ids") and v is not None]
    lines += ["points: " + " ".join(provenance["point_ids"]), ""]
    for s in document["stretches"]:
        tied = ", ".join(length_text(n) for n in s["tied_draft_lengths"])
        between = s.get("change_may_lie_between")
        lines.append(
            f"BS {s['batch_sizes'][0]} to {s['batch_sizes'][1]}: {length_text(s['num_speculative_tokens'])}"
            + (f" (tied: {tied})" if len(s["tied_draft_lengths"]) > 1 else "")
            + (f"; the change may lie anywhere between BS {between[0]} and {between[1]}" if between else "")
        )
    lines += ["", *provenance["notes"]]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    config = dict(document["speculative_config"])
    ranges = config.pop(KEY, None)
    body = yaml.safe_dump({"speculative-config": config}, sort_keys=False, allow_unicode=True)
    if ranges:
        body += f"  {KEY}: {json.dumps(ranges)}\n"
    return comments + body
