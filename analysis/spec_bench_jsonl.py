"""``llama-spec-bench``'s JSON lines: rows ``attempt`` (a request) and ``summary`` (a point), compact or with every detail.

Its field names are kept, so that a program that reads its files reads these. What it has no name for is added under names of our own:
``point``, ``axes``, ``chat_template``, ``learned``, ``absent`` and a few more. ``absent`` maps a field that is null to the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from specsweep.analysis.attempts import is_simulated, is_valid
from specsweep.analysis.spec_bench import Stage
from specsweep.analysis.spec_bench_rows import NO_STAGE_TIMES, Point, Pooled, Said, Tried, measured

BUILTIN = "builtin"  # the source of the built-in tasks' prompts


def jsonl(found: Sequence[Pooled], *, detailed: bool = False) -> str:
    """One line a request, and one a point behind those of its requests. ASCII: a shell's encoding cannot spoil it."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows(found, detailed=detailed))


def rows(found: Sequence[Pooled], *, detailed: bool = False) -> Iterator[dict[str, Any]]:
    for point in found:
        for tried in point.tried:
            yield _attempt(tried) if detailed else _compact_attempt(tried)
        yield _summary(point) if detailed else _compact_summary(point)


# --- compact -------------------------------------------------------------------------------------------------------------------


def _compact_attempt(t: Tried) -> dict[str, Any]:
    return {
        "row_type": "attempt",
        "task": t.task,
        "run": t.run,
        "ok": t.ok,
        "stop": t.stop,
        "generated": t.generated,
        "decode_s": t.decode_s,
        "decode_tps": t.decode_tps,
        "stages": [_raw(s) for s in t.stages],
        "error": _error(t),
        **_marks(t),
        **_place(t.point),
    }


def _compact_summary(p: Pooled) -> dict[str, Any]:
    return {
        "row_type": "summary",
        **_tally(p),
        "generated": p.generated,
        "decode_s": p.seconds("decode_s"),
        "decode_tps": p.decode_tps,
        "speculative": _speculative(p.stages, detailed=False),
        **_place(p.point),
        "chat_template": p.point.chat_template,
        **_standing(p.point),
    }


def _raw(s: Stage) -> dict[str, Any]:
    rate = s.acceptance_rate
    return {
        "type": s.type,
        "drafts": s.num_drafts,
        "draft_tokens": s.draft_tokens,
        "accepted": s.accepted_tokens,
        "accept_percent": None if rate is None else 100.0 * rate,
        "accept_length": s.acceptance_length,
        "drafted_by_position": _list(s.drafted_by_position),
        "accepted_by_position": _list(s.accepted_by_position),
        "counts_from": s.counts_from,
        **({"absent": absent} if (absent := _absent(s, "drafts", "draft_tokens", "accepted")) else {}),
    }


# --- detailed ------------------------------------------------------------------------------------------------------------------


def _attempt(t: Tried) -> dict[str, Any]:
    r, said = t.request, t.point.texts.get(t.request.index, Said(None, None, "texts were not asked for"))
    return {
        "row_type": "attempt",
        "task_id": r.prompt_id,
        "task_name": t.point.names.get(r.prompt_id, r.prompt_id),
        "task_category": r.category,
        "turn": r.turn,
        "max_tokens": r.max_tokens,
        "repeat_index": t.run - 1,
        "builtin": r.source == BUILTIN,
        "prompts": _prompts(t.point),
        "runtime": _runtime(t.point),
        "variant": _variant(t.point),
        "sampler": _sampler(t.point),
        "chat_template": t.point.chat_template,
        "timing": {
            "clock": "client",
            "prompt_s": t.prompt_s,
            "decode_s": t.decode_s,
            "total_s": t.total_s,
            "decode_tps": t.decode_tps,
            "overall_tps": t.overall_tps,
        },
        "tokens": {"prompt": r.n_prompt if r.n_prompt >= 0 else None, "generated": t.generated},
        "speculative": _speculative(t.stages),
        "quality": {"ok": t.ok, "stop": t.stop, "error": _error(t), "hit_eog": t.stop == "eog", **_marks(t)},
        "prompt": said.prompt,
        "output": said.response,
        **(
            {"absent": {n: said.reason for n, v in (("prompt", said.prompt), ("output", said.response)) if v is None}}
            if said.reason
            else {}
        ),
        **_place(t.point),
    }


def _summary(p: Pooled) -> dict[str, Any]:
    workload = p.point.config.get("workload") or {}
    return {
        "row_type": "summary",
        "prompts": _prompts(p.point),
        "selected_tasks": list(dict.fromkeys(t.task for t in p.tried)),
        "repeat": max((t.run for t in p.tried), default=0),
        "default_max_tokens": workload.get("osl"),
        "runtime": _runtime(p.point),
        "variant": _variant(p.point),
        "sampler": _sampler(p.point),
        "chat_template": p.point.chat_template,
        **_tally(p),
        "timing": {
            "clock": "client",
            **{name: p.seconds(name) for name in ("prompt_s", "decode_s", "total_s")},
            "decode_tps": p.decode_tps,
            "overall_tps": p.overall_tps,
        },
        "tokens": {"prompt": sum(max(t.request.n_prompt, 0) for t in p.good), "generated": p.generated},
        "speculative": _speculative(p.stages),
        **_place(p.point),
        **_standing(p.point),
    }


def _detail(s: Stage) -> dict[str, Any]:
    return {
        "type": s.type,
        "num_drafts": s.num_drafts,
        "accepted_drafts": s.accepted_drafts,
        "draft_tokens": s.draft_tokens,
        "accepted_tokens": s.accepted_tokens,
        "acceptance_rate": s.acceptance_rate,
        "acceptance_length": s.acceptance_length,
        "drafted_by_position": _list(s.drafted_by_position),
        "accepted_by_position": _list(s.accepted_by_position),
        "acceptance_rate_by_position": s.acceptance_rate_by_position,
        "conditional_acceptance_rate": s.conditional_acceptance_rate,
        "t_begin_s": None,
        "t_draft_s": None,
        "t_accept_s": None,
        "counts_from": s.counts_from,
        "absent": {
            **_absent(s, "num_drafts", "draft_tokens", "accepted_tokens"),
            **dict.fromkeys(("t_begin_s", "t_draft_s", "t_accept_s"), NO_STAGE_TIMES),
        },
    }


def _speculative(stages: Sequence[Stage], *, detailed: bool = True) -> dict[str, Any]:
    """The sums over all stages. An engine that is served has one drafter, so that they are those of one stage, or of none."""
    only = stages[0] if stages else Stage("", 0, 0, 0, 0, (), ())
    return {
        "num_drafts": only.num_drafts,
        "accepted_drafts": only.accepted_drafts,
        "draft_tokens": only.draft_tokens,
        "accepted_tokens": only.accepted_tokens,
        "acceptance_rate": only.acceptance_rate,
        "acceptance_length": only.acceptance_length,
        "draft_tokens_per_step": only.draft_tokens_per_step,
        "stages": [_detail(s) if detailed else _raw(s) for s in stages],
    }


def _absent(s: Stage, drafts: str, drafted: str, accepted: str) -> dict[str, str]:
    """Why each null of a stage is one."""
    why = {
        name: s.reason
        for name, value in (
            (drafts, s.num_drafts),
            (drafted, s.draft_tokens),
            (accepted, s.accepted_tokens),
            ("drafted_by_position", s.drafted_by_position),
            ("accepted_by_position", s.accepted_by_position),
        )
        if value is None
    }
    if s.num_drafts == 0:
        why["acceptance_rate"] = why["acceptance_length"] = "nothing was drafted"
    return why


# --- both ----------------------------------------------------------------------------------------------------------------------


def _marks(t: Tried) -> dict[str, Any]:
    """What sets a request apart from a plain first one."""
    r = t.request
    return {
        "retries_used": len(r.retried),
        **({"retried_after": list(r.retried)} if r.retried else {}),
        **({"learned": t.learned} if t.learned else {}),
    }


def _error(t: Tried) -> str | None:
    read = t.request.read
    return None if t.ok else ": ".join(filter(None, (read.error_kind, read.error))) or "failed"


def _tally(p: Pooled) -> dict[str, int]:
    return {
        "attempts": len(p.tried),
        "successes": len(p.good),
        "failures": len(p.tried) - len(p.good),
        "retries_used": sum(len(t.request.retried) for t in p.tried),
    }


def _place(point: Point) -> dict[str, Any]:
    simulated = is_simulated(point.record)
    return {"point": str(point.record["point"]["point_id"])[:16], "axes": point.axes, **({"simulated": True} if simulated else {})}


def _standing(point: Point) -> dict[str, Any]:
    """Whether the point's numbers may be believed, and why there are none."""
    if not measured(point):
        error = point.record["point"].get("error") or {}
        return {"valid": False, "error": str(error.get("message") or "the point failed")}
    return {"valid": is_valid(point.record), **({"error": point.missing} if point.missing else {})}


def _prompts(point: Point) -> str:
    workload = point.config.get("workload") or {}
    if workload.get("prompt"):
        return "inline"
    return "builtin-default" if workload.get("corpus") == "tasks" else str(workload.get("corpus") or "")


def _runtime(point: Point) -> dict[str, Any]:
    """Of what ran: the engine and its flags as they were recorded."""
    env, declared, axes = point.record["point"].get("env") or {}, point.record["point"].get("declared") or {}, point.axes
    return {
        "model": axes.get("target"),
        "model_identity": (declared.get("target") or {}).get("model"),
        "engine": env.get("engine"),
        "flags": env.get("flags"),
        "batch_size": axes.get("batch_size"),
        "n_predict": (point.config.get("workload") or {}).get("osl"),
    }


def _variant(point: Point) -> dict[str, Any]:
    stages = [] if point.is_baseline else [point.method]
    return {
        "is_baseline": point.is_baseline,
        "spec_types": stages,
        "stage_chain": ",".join(stages),
        "draft_length": point.axes.get("draft_length"),
        "stateful": point.learns,
    }


def _sampler(point: Point) -> dict[str, Any]:
    """All sampling fields that were sent with every request, the seed among them; ``temp`` as that program names it."""
    sent = dict((point.record["point"].get("declared") or {}).get("sampling") or {})
    return {("temp" if name == "temperature" else name): value for name, value in sent.items()}


def _list(values: tuple[int, ...] | None) -> list[int] | None:
    return None if values is None else list(values)
