"""What becomes of random prompts stands beside their numbers, and in the findings."""

from __future__ import annotations

from typing import Any

from specsweep.analysis.noise import findings
from specsweep.client.trace import PointTrace, RequestTrace, Turn
from specsweep.client.workload import Prompt, PromptSet
from specsweep.orchestrator.measuring import Measured
from specsweep.orchestrator.random_answers import tell_modes

STOCK = [7, 8, 9] * 5


def request(name: str, ids: list[int], phase: Any = "main", pass_index: int = 0) -> RequestTrace:
    read = Turn(outcome="ok", output_ids=ids)
    return RequestTrace(0, name, name, 0, "random", phase, pass_index, 4, 16, 0, 0, 0, 0, 0, 1, "complete", read)


def test_answers_to_noise_are_told_apart_and_have_their_own_acceptance() -> None:
    prompts = PromptSet(tuple(Prompt(f"p{i}", "random", tuple(range(100 * i, 100 * i + 50)), "", 50) for i in range(1, 4)), ())
    requests = [
        request("p1", STOCK),
        request("p2", [*STOCK, 1]),
        request("p3", [1, 2, 3, 300, 301, 302, 4, 5, 6, 1, 2, 3]),
        request("p3", STOCK, pass_index=1),
        request("r1", STOCK, phase="ramp"),
    ]
    rows = [{"conversation_id": f"p{i}", "steps": 10, "step_tokens": 10 * al} for i, al in ((1, 3), (2, 4), (3, 2))]
    measured = Measured(PointTrace(1, requests, []), {"per_conversation": rows}, {})
    tell_modes(measured, prompts)
    told = measured.measurement["random_answers"]
    assert told["by_prompt"] == {"p1": "stock", "p2": "stock", "p3": "latched"}
    assert told["by_mode"]["stock"]["al_decode"] == 3.5
    axes = {"engine": "sim", "drafter": "eagle3", "draft_length": 3, "workload": "random", "isl": 50, "batch_size": 4}
    (sentence,) = findings([{"point": {"axes": axes}, "measurement": measured.measurement}])
    assert "67% stock replies (AL 3.50), 33% about a topic found in the noise (AL 2.00) of the answers" in sentence
