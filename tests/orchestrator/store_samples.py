"""Attempts, traces and plans in the shape that the runner writes, made from a few numbers."""

from __future__ import annotations

import hashlib
from typing import Any

from specsweep.client.trace import PointTrace, RequestTrace, Turn
from specsweep.orchestrator.points import Dropped, Plan, Point, Session


def hex_id(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()


def axes(
    drafter: str = "ngram", draft_length: int | None = 4, batch_size: int = 8, workload: str = "low_entropy", **more: Any
) -> dict[str, Any]:
    return {
        "engine": "llamacpp",
        "target": "smollm2-135m",
        "drafter": drafter,
        "draft_length": None if drafter == "none" else draft_length,
        "batch_size": batch_size,
        "isl": 256,
        "workload": "low_entropy",
        "temperature": 0.0,
        "repeat": 1,
        **more,
    }


def record(values: dict[str, Any], *, status: str = "measured", env: str = "env", minute: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "point_id": hex_id(sorted(values.items(), key=str)),
        "env_id": hex_id(env),
        "status": status,
        "axes": values,
        "declared": {"engine": "llamacpp", "engine_version": "0.10"},
        "config": {
            "engine": {"name": "llamacpp", "version": "0.10", "max_batch": 8, "args": {"flash_attn": True}},
            "target": {"revision": "12e4567"},
        },
        "env": {
            "engine": {"name": "llamacpp", "version": "b8000-12e4567"},
            "flags": {"n_ctx": 4096, "target_sha256": "ab" * 32},
            "drafter": {"type": "ngram_simple", "size_m": 4},
            "host": {"cpu": "some CPU"},
        },
        "baseline_id": None,
        "session_id": "s1",
        "error": None if status == "measured" else {"kind": "EngineTerminal", "message": "engine ended with code 1"},
        "started_utc": f"2099-11-30T10:{minute:02d}:00.000Z",
        "finished_utc": f"2099-11-30T10:{minute:02d}:20.000Z",
        "git_commit": "0" * 40,
        "host": "bench-1",
        **more,
    }


def measurement(
    *, drafter: str = "ngram", tps: float = 120.0, al: float = 2.5, valid: bool = True, simulated: bool = False
) -> dict[str, Any]:
    metrics = {
        "output_tps": tps,
        "output_tps_ci_low": tps * 0.97,
        "output_tps_ci_high": tps * 1.03,
        "output_tps_steady": tps * 1.1,
        "user_tps_mean": tps / 8,
        "user_tps_mean_ci_low": tps / 8 * 0.97,
        "user_tps_mean_ci_high": tps / 8 * 1.03,
        "ttft_ms_p50": 31.0,
        "al_decode": al if drafter != "none" else 1.0,
    }
    drafted = drafter != "none"
    return {
        "schema_version": 1,
        "simulated": simulated,
        "metrics": metrics,
        "absent": {"step_ms_p99": "99 values; a p99 needs 1000"} | ({} if drafted else {"al_verify": "drafter none verifies nothing"}),
        "ci": {"output_tps": {"method": "block bootstrap", "level": 0.95, "clusters": 20, "scope": "within-session"}},
        "ar_cond": [
            {"position": 1, "value": 0.8, "ci_low": 0.7, "ci_high": 0.9, "reached": 100, "accepted": 80},
            {"position": 2, "value": None, "ci_low": None, "ci_high": None, "reached": 0, "accepted": 0},
        ]
        if drafted
        else [],
        "accept_hist": {"1": 20, "2": 30, "3": 50} if drafted else {"1": 100},
        "by_category": {"coding & math": {"al_decode": al}} if drafted else {"coding & math": {"al_decode": 1.0}},
        "checks": [
            {"name": "client_core", "value": 0.9, "limit": 0.7, "ok": valid, "affects": "tps", "message": "a client core was 90 % busy"}
        ],
        "validity": {"tps": valid, "steps": True, "acceptance": True, "valid": valid},
        "window": {"start_s": 1.0, "end_s": 9.0},
        "counts": {"requests": 40, "ok": 40, "failed": 0, "retried": 0, "cut": 3},
        "per_conversation": [],
        "official": {},
    }


def trace(requests: int = 3, *, simulated: bool = False) -> PointTrace:
    rows = [
        RequestTrace(
            index=i,
            prompt_id=f"p{i}",
            conversation_id=f"p{i}",
            turn=0,
            category="coding",
            phase="main",
            pass_index=0,
            n_prompt=9,
            max_tokens=16,
            actor=0,
            slot=0,
            t_send_ns=i,
            t_end_ns=i + 9,
            connect_ns=0,
            attempts=1,
            ended="complete",
            read=Turn(outcome="ok", step_t_ns=[i + 1, i + 2], step_tokens=[1, 3], output_ids=[5, 6, 7, 8]),
        )
        for i in range(requests)
    ]
    return PointTrace(batch_size=1, requests=rows, actors=[], simulated=simulated)


def plan(name: str, values: list[dict[str, Any]], *, est_s: float = 20.0, salt: str = "") -> Plan:
    """One session a drafter; ``salt`` changes every point_id, as a changed model file does."""
    points = [
        Point(hex_id(sorted(v.items(), key=str), *filter(None, [salt])), axes=v, config={}, declared={}, baseline_id=None) for v in values
    ]
    drafters = dict.fromkeys(str(p.axes["drafter"]) for p in points)
    sessions = []
    for drafter in drafters:
        own = tuple(p for p in points if p.axes["drafter"] == drafter)
        sessions.append(Session(session_id=f"s-{drafter}", points=own, est_start_s=5.0, est_points_s=(est_s,) * len(own)))
    dropped = (Dropped(axes={"drafter": "mtp"}, rule="drafter", reason="target has no MTP head"),)
    return Plan(name=name, sessions=tuple(sessions), dropped=dropped)
