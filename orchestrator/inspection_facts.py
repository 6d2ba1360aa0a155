"""One request, and all requests of a file, as JSON-able facts with the unit in the key. ``None``: cannot be known from this stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from specsweep.analysis import acceptance
from specsweep.client.trace import RequestTrace, ok
from specsweep.orchestrator.inspection import accepted, accepted_by_position


def request_facts(request: RequestTrace) -> dict[str, Any]:
    read = request.read
    steps = acceptance.decode_steps([request]) if acceptance.has_steps(read) and read.step_tokens else None
    whole = steps.tokens[~steps.cut] if steps is not None else None
    streamed = sum(max(n, 0) for n in read.chunk_tokens)
    counted = read.n_completion_server if read.n_completion_server is not None else streamed
    first = (read.chunk_t_ns[0] - request.t_send_ns) / 1e6 if read.chunk_t_ns and request.t_send_ns else None
    return {
        "outcome": read.outcome,
        "error_kind": read.error_kind,
        "error": read.error,
        "http_status": read.status,
        "ended": request.ended,
        "attempts": request.attempts,
        "retried_after": list(request.retried),
        "finish_reason": read.finish_reason,
        "prompt_tokens_sent": request.n_prompt if request.n_prompt >= 0 else None,
        "prompt_tokens": read.n_prompt_server,
        "output_tokens": counted if counted or read.chunk_tokens else None,
        "ids_complete": read.ids_complete,
        "chunks": len(read.chunk_tokens),
        "decode_steps": None if steps is None else int(steps.tokens.size),
        "verify_steps": read.srv_steps if read.srv_steps is not None else _verified(request),
        "drafted_tokens": read.srv_drafted if read.srv_drafted is not None else _drafted(request),
        "accepted_tokens": read.srv_accepted if read.srv_accepted is not None else sum(accepted(request)),
        "accepted_per_position": list(accepted_by_position(accepted(request))),
        "al_decode": float(whole.mean()) if whole is not None and whole.size else None,
        "ttft_ms": first,
        "step_ms_mean": _step_ms(request),
        "step_clock": "server" if read.step_server_ms else "client",
        "coalesced_steps": sum(read.step_coalesced),
        "step_state": read.step_state,
        "last_cut": read.last_cut,
        "notes": list(read.notes),
    }


def _verified(request: RequestTrace) -> int | None:
    drafted = request.read.step_drafted[1:]
    return None if acceptance.UNKNOWN in drafted else sum(d > 0 for d in drafted)


def _drafted(request: RequestTrace) -> int | None:
    drafted = request.read.step_drafted[1:]
    return None if acceptance.UNKNOWN in drafted else sum(drafted)


def _step_ms(request: RequestTrace) -> float | None:
    """Mean time of a step after the first token, by the engine's clock where the stream carries it."""
    read = request.read
    if not acceptance.has_steps(read) or len(read.step_t_ns) < 2:
        return None
    if read.step_server_ms:
        return float(np.diff(read.step_server_ms).mean())
    return (read.step_t_ns[-1] - read.step_t_ns[0]) / 1e6 / (len(read.step_t_ns) - 1)


def total_facts(requests: Sequence[RequestTrace], draft_length: int | None) -> dict[str, Any]:
    """Over all successful requests of a file, the warm-up included: this is a look at streams, not a measurement of a point."""
    good = ok(requests)
    failed = [r for r in requests if r.read.outcome == "failed"]
    reason = acceptance.why_no_steps(good)
    steps = acceptance.decode_steps(good) if not reason else None
    drafting = bool(draft_length) or any(r.read.srv_steps or any(d > 0 for d in r.read.step_drafted) for r in good)
    none = acceptance.Found(None, reason=reason)
    undrafted = acceptance.Found(None)
    positions = acceptance.conditional(acceptance.verified_steps(good), draft_length)[0] if steps is not None and drafting else []
    tokens = acceptance.stream_totals(good)["generation_tokens"]
    return {
        "requests": len(requests),
        "ok": len(good),
        "failed": len(failed),
        "failed_by_kind": dict(Counter(r.read.error_kind for r in failed)),
        "step_states": dict(Counter(r.read.step_state for r in good)),
        "output_tokens": tokens,
        "decode_steps": int(steps.tokens.size) if steps is not None else None,
        "coalesced_steps": sum(sum(r.read.step_coalesced) for r in good),
        "step_clock": "server" if good and all(r.read.step_server_ms for r in good) else "client",
        "al_decode": _found(acceptance.al_decode(steps) if steps is not None else none),
        "al_decode_request_mean": _found(acceptance.al_decode_request_mean(steps) if steps is not None else none),
        "al_verify": _found(acceptance.al_verify(good, steps, None) if drafting else undrafted),
        "acceptance_rate": _found(acceptance.acceptance_rate(good, steps, None) if drafting else undrafted),
        "ar_cond": positions,
        "accept_hist": {str(k): n for k, n in acceptance.histogram(steps).items()} if steps is not None else {},
    }


def _found(found: acceptance.Found) -> dict[str, Any]:
    interval = found.interval
    if interval is None:
        return {"value": None, "ci_low": None, "ci_high": None, "source": "", "reason": found.reason}
    return {"value": interval.value, "ci_low": interval.low, "ci_high": interval.high, "source": found.source, "reason": ""}
