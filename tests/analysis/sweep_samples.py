"""Made-up attempts in the layout of point.json and measurement.json: known speeds, a little noise, no engine."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

BASE = {"engine": "llamacpp", "target": "smollm2-135m", "isl": 256, "temperature": 0.0, "repeat": 1}
ENV = {
    "engine": {"name": "llamacpp", "version": "2026.10.11549"},
    "flags": {"n_parallel": 8, "n_ctx": 8192, "threads": 2},
    "model_sha256": "ab" * 32,
    "host_class": "x86_64 2 cores",
    "cpu": "Example CPU",
}


def point_id(axes: dict[str, Any]) -> str:
    return hashlib.sha256(repr(sorted(axes.items())).encode()).hexdigest()


def axes(drafter: str = "none", dl: int | None = None, bs: int = 1, workload: str = "low_entropy", **more: Any) -> dict[str, Any]:
    return {**BASE, "drafter": drafter, "draft_length": dl, "batch_size": bs, "workload": workload, **more}


def attempt(
    the_axes: dict[str, Any],
    *,
    rate: float = 100.0,
    al: float = 1.0,
    conversations: int = 24,
    noise: float = 0.02,
    prompt_spread: float = 0.3,
    seed: int = 0,
    lengths: dict[str, float] | float = 1.0,
    share_cut: float = 0.5,
    invalid: str = "",
    env: dict[str, Any] | None = None,
    baseline: bool = True,
    simulated: bool = False,
    failed: bool = False,
    overhead: float = 0.97,
) -> dict[str, Any]:
    """One attempt whose users decode at ``rate`` tokens/s on average over prompts; ``invalid`` names a failing TPS check."""
    base_axes = {k: v for k, v in the_axes.items() if not k.startswith("drafter")} | {"drafter": "none", "draft_length": None}
    is_base = the_axes["drafter"] == "none"
    dl = the_axes["draft_length"]
    point = {
        "schema_version": 1,
        "point_id": point_id(the_axes),
        "env_id": hashlib.sha256(repr(env).encode() + str(dl).encode()).hexdigest(),
        "status": "failed" if failed else "measured",
        "axes": dict(the_axes),
        "declared": {
            "workload": f"content-of-{the_axes['workload']}",
            "sampling": {
                "temperature": the_axes["temperature"],
                "top_p": 1.0,
                "top_k": -1,
                "seed": 0,
                "ignore_eos": False,
                "max_tokens": 128,
            },
        },
        "config": {},
        "env": {
            **(env or ENV),
            "drafter": {"types": the_axes["drafter"], "n_max": dl},
            "unstable": {"port": 40000 + the_axes["batch_size"] + (dl or 0)},
        },
        "baseline_id": point_id(base_axes) if baseline and not is_base else None,
        "session_id": f"s-{the_axes['drafter']}-{dl}",
        "error": {"kind": "engine", "message": "the engine died:\nsignal 9"} if failed else None,
        "started_utc": "2026-11-30T08:00:00Z",
        "finished_utc": "2026-11-30T08:01:00Z",
        "git_commit": "0" * 40,
        "host": "box",
    }
    if failed:
        return {"point": point, "measurement": None}
    prompts = np.random.default_rng(7)  # the same prompts, and so the same difficulty, in every arm
    rng = np.random.default_rng([seed, int(point["point_id"][:8], 16)])
    ease = np.exp(prompt_spread * prompts.standard_normal(conversations))
    ease /= ease.mean()
    rates = rate * ease * np.exp(noise * rng.standard_normal(conversations))
    categories = ["code" if i % 2 else "fiction" for i in range(conversations)]
    long = [lengths if isinstance(lengths, float) else lengths.get(c, 1.0) for c in categories]
    tokens = np.array([int(127 * x) for x in long])
    steps = tokens / al
    per_conversation = [
        {
            "conversation_id": f"c{i:03d}",
            "category": categories[i],
            "requests": 2,
            "steps": int(2 * steps[i]),
            "step_tokens": int(2 * tokens[i]),
            "verify_steps": int(2 * steps[i]),
            "accepted": int(2 * (tokens[i] - steps[i])),
            "decode_tokens": int(2 * tokens[i]),
            "decode_s": float(2 * tokens[i] / rates[i]),
            "rate_requests": 2,
            "rate_sum": float(2 * rates[i]),
            "output_tokens": int(2 * tokens[i] + 2),
            "latency_s": float(2 * tokens[i] / rates[i] + 0.1),
        }
        for i in range(conversations)
    ]
    total = rate * the_axes["batch_size"] * overhead
    blocks = rng.normal(total, 0.05 * total, 40)
    metrics: dict[str, float] = {}

    def put(name: str, value: float, half: float) -> None:
        metrics.update({name: value, f"{name}_ci_low": value - half, f"{name}_ci_high": value + half})

    put("user_tps_mean", float(rates.mean()), float(2 * rates.std() / conversations**0.5))
    put("output_tps", total, 0.02 * total)
    put("output_tps_steady", float(blocks.mean()), 0.02 * total)
    put("al_decode", al, 0.08 * (al > 1))
    put("ttft_ms_p50", 40.0 * the_axes["batch_size"] ** 0.5, 2.0)
    put("step_ms_mean", 1000 * al / rate, 0.1)
    put("step_ms_decode_mean", 980 * al / rate, 0.1)
    put("share_cut", share_cut, 0.05)
    if dl:
        put("al_verify", al + 0.02, 0.09)
    checks = [
        {"name": "lag_p99_share", "value": 0.002, "limit": 0.01, "ok": True, "affects": ["tps"], "message": "client lag is small"},
        {"name": "requests_per_slot", "value": 4.0, "limit": 4.0, "ok": True, "affects": ["all"], "message": ""},
    ]
    if invalid:
        checks.append(
            {"name": invalid, "value": 0.034, "limit": 0.01, "ok": False, "affects": ["tps"], "message": "the client was the bottleneck"}
        )
    p = 1 - 1 / al if al > 1 else 0.0
    measurement = {
        "schema_version": 1,
        "simulated": simulated,
        "metrics": metrics,
        "absent": {} if dl else {"al_verify": "no drafter"},
        "ci": {
            n: {"method": "jackknife-t", "level": 0.95, "clusters": conversations, "scope": "within-session"} for n in ("user_tps_mean",)
        },
        "ar_cond": [
            {
                "position": k,
                "value": p**k + 0.1 if reached else None,
                "ci_low": p**k + 0.05 if reached else None,
                "ci_high": min(1.0, p**k + 0.15) if reached else None,
                "reached": reached,
                "accepted": int(reached * (p**k + 0.1)),
            }
            for k in range(1, (dl or 0) + 1)
            for reached in [int(2000 * p ** (k - 1)) if k < 8 else 0]
        ],
        "accept_hist": {"1": 100, "2": 50},
        "by_category": {
            c: {"al_decode": al * f, "al_decode_ci_low": al * f - 0.1, "al_decode_ci_high": al * f + 0.1}
            for c, f in (("code", 1.1), ("fiction", 0.9))
        },
        "checks": checks,
        "validity": {"tps": not invalid, "steps": True, "acceptance": True, "valid": not invalid},
        "window": {"seconds": 20.0},
        "counts": {"requests": 48, "ok": 48, "failed": 0},
        "per_conversation": per_conversation,
        "tps_blocks": {"block_s": 0.5, "tokens": [float(b * 0.5) for b in blocks]},
        "official": {},
    }
    return {"point": point, "measurement": measurement}


# user rate of the arm relative to no drafter, and AL, by (workload, drafter, DL) at BS 1, 4, 8
_SPEED = {
    ("low_entropy", "ngram", 4): ((1.31, 1.08, 0.90), 2.4),
    ("low_entropy", "ngram", 8): ((1.22, 1.00, 0.78), 2.9),
    ("high_entropy", "ngram", 4): ((0.99, 0.93, 0.86), 1.12),
    ("high_entropy", "ngram", 8): ((0.95, 0.88, 0.80), 1.14),
}
_BASE_RATE = {1: 44.0, 4: 21.0, 8: 12.5}


def quickstart(**more: Any) -> list[dict[str, Any]]:
    """A sweep in the shape of the first one that a user runs: 2 workloads × (none, ngram 4, ngram 8) × BS 1, 4, 8."""
    made = []
    for workload in ("low_entropy", "high_entropy"):
        for i, (bs, rate) in enumerate(_BASE_RATE.items()):
            made.append(attempt(axes("none", None, bs, workload), rate=rate, **more))
            for (name, drafter, dl), (factors, al) in _SPEED.items():
                if name == workload:
                    made.append(attempt(axes(drafter, dl, bs, workload), rate=rate * factors[i], al=al, **more))
    return made
