"""Made-up attempts of the paper's arms: what an experiment reads, with AL by domain and speed as given, and nothing measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sweep_samples import attempt, axes

from specsweep.analysis.reproduce.claims import Evidence, Outcome


def point(
    drafter: str = "eagle3",
    dl: int | None = 3,
    bs: int = 32,
    *,
    al: float | Mapping[str, float] = 2.0,
    rate: float = 100.0,
    conversations: int = 60,
    wide: bool = False,
    invalid: str = "",
    simulated: bool = False,
    bad_acceptance: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """One attempt. ``al`` by domain makes as many conversations of each. ``wide``: intervals that decide nothing."""
    base = {"engine": "trtllm", "target": "llama-3.3-70b", "isl": 0, "workload": "speed_qualitative", **more}
    where = axes(drafter, None if drafter == "none" else dl, bs, **base)
    by_domain = al if isinstance(al, Mapping) else {"all": al}
    overall = float(np.mean(list(by_domain.values())))
    made = attempt(where, rate=rate, al=overall, conversations=4, invalid=invalid, simulated=simulated)
    measurement = made["measurement"]
    # The same prompts are easy in every arm, unless nothing is to be decided.
    rng = np.random.default_rng(int(made["point"]["point_id"][:8], 16) if wide else 3)
    spread = 0.8 if wide else 0.05
    rows, found = [], {}
    for domain, value in by_domain.items():
        ease = np.exp(spread * rng.standard_normal(6 if wide else conversations))
        ease /= ease.mean()
        for i, e in enumerate(ease):
            tokens = 300.0
            steps = tokens / max(value * e, 1.0)
            rows.append(
                {
                    "conversation_id": f"{domain}{i}", "category": domain, "requests": 1, "steps": steps, "step_tokens": tokens,
                    "accepted": tokens - steps, "rate_requests": 1, "rate_sum": rate * e, "decode_tokens": tokens, "decode_s": tokens / rate / e,
                    "output_tokens": tokens, "latency_s": 1.0,
                }
            )  # fmt: skip
        half = value * (0.9 if wide else 0.01)
        found[domain] = {"al_decode": value, "al_decode_ci_low": value - half, "al_decode_ci_high": value + half}
    half = overall * (0.9 if wide else 0.01)
    measurement["metrics"] |= {"al_decode": overall, "al_decode_ci_low": overall - half, "al_decode_ci_high": overall + half}
    tps = measurement["metrics"]["output_tps"]
    reach = tps * (0.9 if wide else 0.01)
    measurement["metrics"] |= {"output_tps_ci_low": tps - reach, "output_tps_ci_high": tps + reach}
    measurement["per_conversation"] = rows
    measurement["by_category"] = found if isinstance(al, Mapping) else {}
    if bad_acceptance:
        measurement["validity"]["acceptance"] = False
    return made


def verdicts(outcome: Outcome) -> dict[str, str]:
    return {c.key: c.verdict for c in outcome.claims}


def evidence(attempts: Sequence[dict[str, Any]], **more: Any) -> Evidence:
    return Evidence(attempts, **more)
