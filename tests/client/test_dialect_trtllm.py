"""TensorRT-LLM's completions: iteration numbers out of running averages, and failures that are a cut connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_samples import answer, refused
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.dialects import dialect
from specsweep.client.trace import Exchange, Sampling, Turn

TRTLLM = dialect("trtllm")


def read(exchange: Exchange, draft_length: int | None = 3, n_prompt: int | None = None) -> Turn:
    return TRTLLM.read(exchange, draft_length=draft_length, n_prompt=n_prompt)


def stream(chunks: list[tuple[int, int]], *, usage_in_chunks: bool = True, finish: str = "length") -> list[Any]:
    """Events of ``(tokens, iterations)`` each, in the form of the server: a new id in every chunk, an odd usage chunk at the end."""
    events: list[Any] = []
    tokens = iterations = 0
    for i, (size, taken) in enumerate(chunks):
        ids = [200 + tokens + k for k in range(size)]
        tokens, iterations = tokens + size, iterations + taken
        choice = {
            "index": 0,
            "text": "",
            "token_ids": ids,
            "logprobs": None,
            "finish_reason": finish if i == len(chunks) - 1 else None,
            "stop_reason": None,
            "disaggregated_params": None,
            "avg_decoded_tokens_per_iter": tokens / iterations,
        }
        usage = {"prompt_tokens": 3, "total_tokens": 3 + tokens, "completion_tokens": tokens} if usage_in_chunks else None
        events.append({"id": f"cmpl-{i}", "object": "text_completion", "model": "m", "choices": [choice], "usage": usage})
    usage = {"prompt_tokens": 3, "total_tokens": 3 + tokens, "completion_tokens": tokens}
    return [*events, {"id": "cmpl-z", "object": "chat.completion.chunk", "choices": [], "usage": usage}, "[DONE]"]


def test_the_request_holds_only_fields_that_the_server_knows() -> None:
    body = json.loads(TRTLLM.request([5, 6], Sampling(max_tokens=9, temperature=0.0, seed=3, ignore_eos=True), model="m"))
    known = {
        "model",
        "prompt",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "ignore_eos",
        "stream",
        "stream_options",
        "detokenize",
    }
    assert set(body) == known
    assert (body["prompt"], body["max_tokens"], body["top_k"], body["detokenize"]) == ([5, 6], 9, 0, False)


class TestSteps:
    @pytest.mark.parametrize("usage_in_chunks", [True, False])
    def test_one_iteration_a_chunk_is_exact(self, usage_in_chunks: bool) -> None:
        turn = read(answer(*stream([(1, 1), (3, 1), (1, 1), (4, 1)], usage_in_chunks=usage_in_chunks)))
        assert (turn.outcome, turn.step_state, turn.finish_reason) == ("ok", "exact", "length")
        assert turn.output_ids == list(range(200, 209))
        assert (turn.step_tokens, turn.step_accepted, turn.step_drafted) == ([1, 3, 1, 4], [0, 2, 0, 3], [0, 3, -1, 3])
        assert (turn.n_prompt_server, turn.n_completion_server, turn.srv_accepted) == (3, 9, 5)

    def test_a_baseline_drafts_nothing(self) -> None:
        turn = read(answer(*stream([(1, 1)] * 4)), draft_length=0)
        assert (turn.step_state, turn.step_drafted, turn.last_cut) == ("exact", [0, 0, 0, 0], False)

    def test_iterations_that_were_merged_are_split_where_one_way_is_left(self) -> None:
        ones = read(answer(*stream([(1, 1), (2, 2), (3, 1)])))
        assert (ones.step_state, ones.step_tokens) == ("repaired", [1, 1, 1, 3])
        full = read(answer(*stream([(1, 1), (8, 2), (2, 1)])))
        assert (full.step_state, full.step_tokens, full.step_accepted) == (
            "repaired",
            [1, 4, 4, 2],
            [0, 3, 3, -1],
        )  # what the cap cut is not known
        first = read(answer(*stream([(3, 3), (2, 1)])))
        assert (first.step_state, first.step_tokens) == ("repaired", [1, 1, 1, 2])

    def test_iterations_that_were_merged_otherwise_are_refused_and_totals_stay(self) -> None:
        turn = read(answer(*stream([(1, 1), (5, 2), (4, 1)])))
        assert (turn.step_state, turn.srv_accepted) == ("merged", 6)
        assert "5 tokens of 2 iterations" in turn.notes[0]

    def test_without_the_average_chunks_are_only_assumed_to_be_steps(self) -> None:
        events = stream([(1, 1), (3, 1)])
        for event in events[:2]:
            event["choices"][0]["avg_decoded_tokens_per_iter"] = None
        assert read(answer(*events)).step_state == "assumed"

    def test_averages_that_are_no_quotient_of_iterations_prove_nothing(self) -> None:
        events = stream([(1, 1), (3, 1)])
        events[1]["choices"][0]["avg_decoded_tokens_per_iter"] = 1.5
        assert read(answer(*events)).step_state == "assumed"

    def test_a_last_step_below_the_draft_length_may_have_been_cut(self) -> None:
        assert read(answer(*stream([(1, 1), (4, 1), (2, 1)]))).last_cut
        assert not read(answer(*stream([(1, 1), (2, 1), (4, 1)]))).last_cut
        assert not read(answer(*stream([(1, 1), (4, 1), (2, 1)], finish="stop"))).last_cut

    @given(st.lists(st.integers(1, 4), min_size=1, max_size=400))
    def test_iteration_numbers_come_back_from_averages_however_long_the_answer(self, sizes: list[int]) -> None:
        turn = read(answer(*stream([(1, 1), *((n, 1) for n in sizes)])))
        assert (turn.step_state, turn.step_tokens) == ("exact", [1, *sizes])


class TestFailure:
    def test_a_cut_connection_is_a_failure_whatever_came_before(self) -> None:
        turn = read(answer(*stream([(1, 1), (3, 1)])[:2], closed=False, ended="eof"))
        assert (turn.outcome, turn.error_kind) == ("failed", "disconnected")

    def test_headers_and_nothing_more(self) -> None:
        assert read(answer(closed=False, ended="eof")).error_kind == "disconnected"

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({"object": "error", "message": "prompt too long", "type": "BadRequestError", "param": None, "code": 400}, "prompt too long"),
            ({"error": "1 validation error: return_token_ids: Extra inputs are not permitted"}, "return_token_ids"),
        ],
    )
    def test_both_forms_of_its_error_bodies(self, body: dict[str, Any], words: str) -> None:
        turn = read(refused(body))
        assert (turn.error_kind, turn.status) == ("http_status", 400)
        assert words in turn.error

    def test_an_answer_that_the_client_gave_up_is_no_success(self) -> None:
        events = stream([(1, 1), (3, 1)], finish="cancelled")
        assert read(answer(*events)).outcome == "failed"


def test_counters_of_newer_versions() -> None:
    page = "trtllm_spec_decode_num_draft_tokens_total 30\ntrtllm_spec_decode_num_accepted_tokens_total 12\n"
    counters = TRTLLM.counters(page)
    assert (counters.draft_tokens, counters.accepted_tokens, counters.drafts) == (30, 12, None)
    assert TRTLLM.counters("").draft_tokens is None
