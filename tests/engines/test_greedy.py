"""The proof that outputs part at near ties only can itself fail: each kind of difference that is no tie is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from greedy import Parting, faults, logits_of, partings

from specsweep.orchestrator.engines import hf_env

TARGET = Path(__file__).parents[1] / "tiny_pair" / "target"
PROMPTS = {"a": (1, 2), "b": (3,)}
PARTED = [Parting("a", 1, (1, 2, 7), (8, 9))]


def answer(best: list[list[float]], eos: tuple[int, ...] = (0,)) -> Any:
    return lambda texts: [{"best": best, "eos": list(eos)} for _ in texts]


def test_the_first_difference_is_found_with_the_text_before_it() -> None:
    one, other = {"a": [7, 8, 5], "b": [4]}, {"a": [7, 9, 6], "b": [4]}
    assert partings(PROMPTS, one, other) == PARTED
    assert partings(PROMPTS, one, one) == []


def test_an_output_that_ended_before_the_other_parts_at_its_end() -> None:
    assert partings(PROMPTS, {"a": [7]}, {"a": [7, 9]}) == [Parting("a", 1, (1, 2, 7), (None, 9))]


def test_outputs_of_other_prompts_are_no_comparison() -> None:
    with pytest.raises(AssertionError, match="b"):
        partings(PROMPTS, {"a": [1], "b": [1]}, {"a": [1]})


@pytest.mark.parametrize(
    ("parting", "best"),
    [
        ((8, 9), [[9, 5.0002], [8, 5.0001], [3, 1.0]]),
        ((8, 9), [[8, 5.0], [9, 5.0], [3, 5.0]]),
        ((None, 9), [[0, 5.0002], [9, 5.0001], [3, 1.0]]),  # 0 ends a text
    ],
)
def test_the_two_best_nearly_tied_explain_a_parting(parting: tuple[int | None, int], best: list[list[float]]) -> None:
    assert faults([Parting("a", 1, (1, 2, 7), parting)], answer(best)) == []


@pytest.mark.parametrize(
    ("parting", "best"),
    [
        ((8, 9), [[9, 5.2], [8, 5.1], [3, 1.0]]),  # no tie
        ((8, 9), [[9, 5.0], [3, 5.0], [8, 4.9]]),  # a tie, but not of these two
        ((None, 9), [[9, 5.0], [3, 5.0], [0, 1.0]]),  # ended where nothing ends
    ],
)
def test_any_other_parting_is_told_with_the_logits(parting: tuple[int | None, int], best: list[list[float]]) -> None:
    (line,) = faults([Parting("a", 1, (1, 2, 7), parting)], answer(best))
    assert "a parts at output token 1 into" in line
    assert f"{best[0][0]}: {best[0][1]:.6f}" in line


def test_without_a_parting_nothing_is_computed() -> None:
    def never(texts: Any) -> Any:
        raise AssertionError("started a model for nothing")

    assert faults([], never) == []


@pytest.mark.own_env
@pytest.mark.skipif(hf_env.problem({}) is not None, reason=hf_env.problem({}) or "")
def test_a_token_that_is_not_the_targets_choice_is_a_fault_of_the_real_model() -> None:
    """The tiny target after a text: its own best token beside the third best is told, with the logits."""
    logits = logits_of(TARGET, hf_env.interpreter({}))
    text = (5, 6, 7, 8)
    (there,) = logits([text])
    (best, high), (_, low), (third, _) = there["best"]
    assert high >= low
    (line,) = faults([Parting("a", 0, text, (best, third))], logits)
    assert f"token {best} and token {third}" in line
