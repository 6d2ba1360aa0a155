"""The official framework's numbers: the worked example of its documentation, and the histogram that its announcement shows."""

from __future__ import annotations

import pytest

from specsweep.analysis import official
from specsweep.analysis.official import OfficialTurn

# Printed in the announcement: Llama 3.3 70B with EAGLE3 at draft length 3, 880 prompts.
PRINTED_HISTOGRAM = {1: 57385, 2: 36968, 3: 24441, 4: 61182}
PRINTED_CONDITIONAL = {1: 1.0, 2: 0.681151931368627, 3: 0.6984444208791836, 4: 0.7145509968116043}


def turn(*sizes: int, question: str = "q", category: str = "math", times: tuple[float, ...] | None = None) -> OfficialTurn:
    return OfficialTurn(question, category, sizes, times or tuple(float(i) for i in range(len(sizes) + 1)))


def test_conditional_rates_of_the_announcement() -> None:
    rates = official.conditional_rates(PRINTED_HISTOGRAM)
    assert rates == pytest.approx(PRINTED_CONDITIONAL, rel=0, abs=1e-12)


def test_joint_rates_and_the_pooled_length_agree() -> None:
    joint = official.joint_rates(PRINTED_HISTOGRAM)
    pooled = sum(k * n for k, n in PRINTED_HISTOGRAM.items()) / sum(PRINTED_HISTOGRAM.values())
    assert sum(joint.values()) == pytest.approx(pooled, abs=1e-12)
    assert pooled == pytest.approx(2.4968440236475975, abs=1e-12)


def test_the_small_example() -> None:
    found = official.acceptance([turn(1, 3, 2), turn(1, 4)])
    assert found["Acceptance_Length_Histogram"] == {"1": 2, "2": 1, "3": 1, "4": 1}
    assert found["Conditional_Acceptance_Rate"] == pytest.approx({"1": 1.0, "2": 0.6, "3": 2 / 3, "4": 0.5})
    assert found["Joint_Acceptance_Rate"] == pytest.approx({"1": 1.0, "2": 0.6, "3": 0.4, "4": 0.2})
    assert found["Request_AL"] == {"q": pytest.approx(2.2)}


def test_lengths_are_means_of_request_means_not_pooled() -> None:
    found = official.acceptance([turn(1, 1, question="a"), turn(4, 4, 4, 4, question="b"), turn(3, question="c", category="qa")])
    assert found["Category_AL"] == {"math": 2.5, "qa": 3.0}
    assert found["Average_AL"] == pytest.approx((1 + 4 + 3) / 3)


def test_a_size_that_never_occurs_has_no_entry_and_empty_steps_count() -> None:
    assert official.conditional_rates({1: 2, 4: 2}) == {1: 1.0, 4: 0.5}
    assert official.conditional_rates({0: 1, 1: 3}) == {0: 1.0, 1: 0.75}


def test_the_announced_definition_drops_first_and_last() -> None:
    assert official.trimmed((1, 3, 2, 4)) == (3, 2)
    assert official.trimmed((2, 3, 4)) == (2, 3)  # a first update of more than one token stays
    assert official.trimmed((1, 4)) == (1,)
    found = official.acceptance([turn(1, 3, 2, 4)], official.NEXT)
    assert found["Request_AL"] == {"q": 2.5}
    # products 1, 0.5 for sizes 2, 3; the announced key holds running means of the products after the first
    assert found["Joint_Acceptance_Rate"] == {"2": 1.0, "3": 0.5}


def test_an_unknown_definition_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown definition"):
        official.acceptance([turn(1)], "latest")


def test_timing_keys_numbers_and_strings() -> None:
    turns = [turn(1, 3, times=(0.0, 0.5, 0.6)), turn(1, 2, 2, times=(0.5, 0.7, 0.9, 1.5)), turn(1, times=(0.1, 0.3))]
    found = official.timing(turns, gpus=2)
    assert found["Output TPS"] == pytest.approx(10 / 1.5)
    assert found["Output TPS/gpu"] == pytest.approx(10 / 1.5 / 2)
    assert found["TTFT Time"]["max"] == "0.5000"
    # The first step of every turn is its TTFT; the turn with one update has no steps.
    assert found["Request Generation Step Time"] == official.statistics([0.5, 0.1, 0.2, 0.2, 0.6])
    assert found["Request Generation Tokens Per Second"] == official.statistics([3 / 0.1, 4 / 0.8])
    assert found["Number of Output Tokens"] == official.statistics([4, 5, 1])


def test_statistics_are_strings_with_the_population_deviation() -> None:
    assert official.statistics([1, 2, 3, 4]) == {
        "min": "1.0000",
        "max": "4.0000",
        "mean": "2.5000",
        "std": "1.1180",
        "quantiles": {"0.25": "1.7500", "0.5": "2.5000", "0.75": "3.2500"},
    }
    assert official.statistics([]) == {}


def test_no_gpu_count_no_rate_per_gpu_and_no_turns_no_timing() -> None:
    assert "Output TPS/gpu" not in official.timing([turn(1, 2)])
    assert official.timing([]) == {}
    assert "Average_AL" not in official.acceptance([])


def test_a_final_eos_is_taken_out_with_the_update_that_it_leaves_empty() -> None:
    assert official.without_final_eos(turn(1, 3)) == OfficialTurn("q", "math", (1, 2), (0.0, 1.0, 2.0))
    assert official.without_final_eos(turn(1, 3, 1)) == OfficialTurn("q", "math", (1, 3), (0.0, 1.0, 2.0))
