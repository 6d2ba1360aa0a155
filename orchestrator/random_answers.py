"""Of points whose prompts are random tokens: what the target made of them, beside their numbers (:mod:`specsweep.analysis.noise`)."""

from __future__ import annotations

from specsweep.analysis import noise
from specsweep.client.workload import PromptSet
from specsweep.client.workload.random_tokens import NAME
from specsweep.orchestrator.measuring import Measured
from specsweep.orchestrator.points import Point


def sends_noise(point: Point) -> bool:
    return bool(point.config["workload"].get("corpus") == NAME)


def tell_modes(measured: Measured, prompts: PromptSet) -> None:
    """Adds to the numbers of a point with random prompts what the target made of them, which takes the prompts' ids: traces hold none."""
    if measured.trace is None:
        return
    ids = {prompt.prompt_id: prompt.ids for prompt in prompts.main if prompt.ids}
    first = [
        r for r in measured.trace.requests if r.phase == "main" and r.pass_index == 0 and r.read.outcome == "ok" and r.prompt_id in ids
    ]
    found = noise.modes({r.prompt_id: r.read.output_ids for r in first}, ids)
    sums = {
        row["conversation_id"]: (float(row["steps"]), float(row["step_tokens"]))
        for row in measured.measurement["per_conversation"]
        if row.get("steps")
    }
    measured.measurement["random_answers"] = {"rule": noise.RULE, "by_prompt": found, "by_mode": noise.summary(found, sums)}
