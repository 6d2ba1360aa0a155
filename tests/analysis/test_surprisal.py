"""Surprisal of answers: sums by prompt, what they are called, and a capture that is whole or none."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.surprisal import PromptSurprisal, by_prompt, meaning, read_rows, summary
from specsweep.client.trace import PointTrace, RequestTrace, Turn


def request(prompt_id: str, surprisal: list[float], *, ids: int | None = None, notes: tuple[str, ...] = ()) -> RequestTrace:
    turn = Turn(outcome="ok", output_ids=[7] * (len(surprisal) if ids is None else ids), token_surprisal=surprisal, notes=list(notes))
    return RequestTrace(0, prompt_id, prompt_id, 0, "coding", "main", 0, 5, 3, 0, 0, 0, 9, 0, 1, "complete", turn)


def trace(*requests: RequestTrace) -> PointTrace:
    return PointTrace(2, list(requests), [])


def test_sums_are_by_prompt_over_all_its_answers() -> None:
    found = by_prompt(trace(request("a", [1.0, 3.0]), request("b", [0.5]), request("a", [2.0])))
    assert found == [PromptSurprisal("a", "coding", 3, 6.0, 14.0), PromptSurprisal("b", "coding", 1, 0.5, 0.25)]


def test_the_mean_is_over_tokens_and_rows_come_back() -> None:
    rows = by_prompt(trace(request("a", [1.0, 3.0]), request("b", [0.5])))
    numbers = summary(rows, 0.0)
    assert (numbers["tokens"], numbers["mean"]) == (3, 1.5)
    assert read_rows(json.loads(json.dumps({"logprobs": numbers}, allow_nan=False))) == rows
    assert read_rows({"per_conversation": []}) == []


def test_greedy_is_a_lower_bound_and_says_so() -> None:
    assert "lower bound" in meaning(0.0)
    assert "unbiased estimate of the entropy" in meaning(1.0)


@given(st.lists(st.floats(1e-6, 1), min_size=2, max_size=20))
def test_the_surprisal_of_the_likeliest_token_is_never_above_the_entropy(weights: list[float]) -> None:
    p = [w / sum(weights) for w in weights]
    assert -math.log(max(p)) <= -sum(x * math.log(x) for x in p) + 1e-9


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (request("b", []), "the engine sent none"),
        (request("b", [], ids=2, notes=("other", "1 log-probabilities came for 2 tokens: whose")), "came for 2 tokens"),
        (request("b", [0.5], ids=2), "the engine sent none"),
    ],
)
def test_an_answer_without_them_is_named_with_its_reason(bad: RequestTrace, why: str) -> None:
    with pytest.raises(ValueError, match=rf"prompt b has no log-probabilities: .*{why}"):
        by_prompt(trace(request("a", [1.0]), bad))
