"""SGLang's ``/generate``: every recorded answer, and speculation by the fields that its two versions report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_samples import answer, recording, refused, stretches, turns
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.dialects import dialect
from specsweep.client.trace import Exchange, Sampling, Turn

SGLANG = dialect("sglang")
NAMES = {"0.5.7": ("spec_accept_token_num", "spec_draft_token_num"), "0.5.23": ("spec_num_correct_drafts", "spec_num_proposed_drafts")}


def read(exchange: Exchange, draft_length: int | None = 3, n_prompt: int | None = None) -> Turn:
    return SGLANG.read(exchange, draft_length=draft_length, n_prompt=n_prompt)


def stream(
    sizes: list[int], *, cumulative: bool = True, verify: int | None = None, accepted: int = 0, drafts: int = 3, **last: Any
) -> list[Any]:
    """Events of ``sizes`` new ids each; ``verify`` and ``accepted`` are the server's totals over them."""
    events = []
    sent: list[int] = []
    for i, size in enumerate(sizes):
        new = [100 + len(sent) + k for k in range(size)]
        sent += new
        meta: dict[str, Any] = {"id": "r", "finish_reason": None, "prompt_tokens": 3, "completion_tokens": len(sent), "cached_tokens": 0}
        if i == len(sizes) - 1:
            meta["finish_reason"] = {"type": "length", "length": len(sent)}
            if verify is not None:
                correct, proposed = NAMES["0.5.23"]
                meta |= {"spec_verify_ct": verify, correct: accepted, proposed: verify * drafts}
            meta |= last
        events.append({"text": "x", "output_ids": list(sent) if cumulative else new, "meta_info": meta})
    return [*events, "[DONE]"]


class TestRequest:
    def test_ids_in_and_nothing_left_to_the_server(self) -> None:
        body = json.loads(SGLANG.request([5, 6], Sampling(max_tokens=9, temperature=0.0, ignore_eos=True), model="m"))
        sampling = body["sampling_params"]
        assert (body["input_ids"], sampling["max_new_tokens"], sampling["temperature"]) == ([5, 6], 9, 0)
        assert (sampling["top_p"], sampling["top_k"], sampling["min_p"], sampling["ignore_eos"]) == (1, -1, 0, True)
        assert body["stream"] is True
        assert "model" not in body
        assert "text" not in body


class TestRecorded:
    def test_every_answer_is_ok_and_complete(self) -> None:
        found = turns("sglang-none", 0)
        for request in recording("sglang-none").requests:
            turn = found[request.name]
            if request.name == "bad_token":
                continue
            assert (turn.outcome, turn.error, turn.finish_reason) == ("ok", "", "length"), request.name
            assert (
                turn.n_completion_server
                == len(turn.output_ids)
                == sum(turn.step_tokens)
                == request.body["sampling_params"]["max_new_tokens"]
            )
            assert turn.n_prompt_server == len(request.body["input_ids"])

    def test_a_merged_chunk_of_a_baseline_is_split_into_single_tokens(self) -> None:
        turn = turns("sglang-none", 0)["single_1"]
        assert (turn.step_state, max(turn.chunk_tokens), turn.step_tokens) == ("repaired", 2, [1] * 48)
        assert turn.step_coalesced.count(True) == 1
        assert "1 of 47 chunks" in turn.notes[0]

    def test_where_something_may_be_drafted_the_same_chunk_proves_nothing(self) -> None:
        assert turns("sglang-none", None)["single_1"].step_state == "unknown"

    def test_a_bad_token_id_kills_the_server_and_the_stream_never_begins(self) -> None:
        turn = turns("sglang-none", 0)["bad_token"]
        assert (turn.outcome, turn.error_kind) == ("failed", "disconnected")

    def test_counters_hold_what_the_streams_held(self) -> None:
        found = turns("sglang-none", 0)
        seen = 0
        for delta, names in stretches("sglang-none"):
            if "bad_token" in names or "too_long" in names:
                continue
            seen += 1
            assert delta.generation_tokens == sum(len(found[n].output_ids) for n in names)
            assert delta.prompt_tokens == sum(found[n].n_prompt_server or 0 for n in names)
            assert (delta.running, delta.waiting) == (0, 0)
            assert delta.accepted_tokens is None
        assert seen >= 2


class TestSpeculation:
    @pytest.mark.parametrize("cumulative", [True, False])
    def test_chunks_are_steps_when_there_are_as_many_as_verify_steps(self, cumulative: bool) -> None:
        turn = read(answer(*stream([1, 3, 1, 4], cumulative=cumulative, verify=3, accepted=5)))
        assert (turn.outcome, turn.step_state) == ("ok", "exact")
        assert turn.output_ids == list(range(100, 109))
        assert (turn.step_tokens, turn.step_accepted, turn.step_drafted) == ([1, 3, 1, 4], [0, 2, 0, 3], [0, 3, 3, 3])
        assert (turn.srv_steps, turn.srv_accepted, turn.srv_drafted, turn.last_cut) == (3, 5, 9, False)

    def test_the_last_step_is_given_back_what_the_cap_cut(self) -> None:
        turn = read(answer(*stream([1, 3, 2], verify=2, accepted=5)))
        assert (turn.step_state, turn.step_tokens, turn.step_accepted, turn.last_cut) == ("exact", [1, 3, 2], [0, 2, 3], True)

    def test_the_older_names_mean_the_same(self) -> None:
        events = stream([1, 3, 1], verify=2, accepted=2)
        text = json.dumps(events)
        for old, new in zip(NAMES["0.5.7"], NAMES["0.5.23"], strict=True):
            text = text.replace(new, old)
        old_turn, new_turn = read(answer(*json.loads(text))), read(answer(*events))
        assert old_turn == new_turn
        assert old_turn.srv_accepted == 2

    def test_fewer_chunks_than_verify_steps_are_merged_and_never_split(self) -> None:
        turn = read(answer(*stream([1, 4, 2], verify=3, accepted=3)))
        assert (turn.step_state, turn.srv_steps, turn.srv_accepted) == ("merged", 3, 3)
        assert "3 verify steps" in turn.notes[0]

    def test_a_first_chunk_of_two_is_merged_whatever_the_count(self) -> None:
        assert read(answer(*stream([2, 2], verify=1, accepted=1))).step_state == "merged"

    def test_a_histogram_that_contradicts_the_chunks_refuses_the_steps(self) -> None:
        fits = stream([1, 3, 1], verify=2, accepted=2, spec_correct_drafts_histogram=[1, 0, 1, 0])
        assert read(answer(*fits)).step_state == "exact"
        other = stream([1, 3, 1], verify=2, accepted=2, spec_correct_drafts_histogram=[0, 2, 0, 0])
        assert read(answer(*other)).step_state == "unknown"

    @pytest.mark.parametrize("key", ["num_retractions", "total_retractions"])
    def test_a_retraction_is_one_more_step_that_nobody_can_place(self, key: str) -> None:
        turn = read(answer(*stream([1, 3, 1, 1], verify=2, accepted=2, **{key: 1})))
        assert (turn.step_state, turn.step_accepted) == ("exact", [0, 2, 0, 0])
        assert turn.step_drafted == [0, 3, -1, -1]
        assert "retracted" in turn.notes[0]

    def test_lost_ids_of_an_incremental_stream_are_counted_and_nothing_is_said_of_steps(self) -> None:
        events = stream([1, 3, 3, 1], cumulative=False, verify=3, accepted=4)
        del events[1]
        turn = read(answer(*events))
        assert (turn.ids_complete, turn.step_state, turn.n_completion_server, len(turn.output_ids)) == (False, "unknown", 8, 5)
        assert "3 tokens that it never streamed" in turn.notes[0]

    @given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.booleans(), st.integers(0, 3))
    def test_any_unmerged_stream_gives_its_steps_back(self, sizes: list[int], cumulative: bool, cut: int) -> None:
        cut = min(cut, 4 - sizes[-1])
        accepted = [n - 1 for n in sizes]
        accepted[-1] += cut
        histogram = [accepted.count(k) for k in range(4)]
        events = stream(
            [1, *sizes], cumulative=cumulative, verify=len(sizes), accepted=sum(accepted), spec_correct_drafts_histogram=histogram
        )
        turn = read(answer(*events))
        assert (turn.step_state, turn.step_tokens, turn.step_accepted) == ("exact", [1, *sizes], [0, *accepted])
        assert turn.last_cut == (cut > 0)


class TestFailure:
    def test_a_refused_request_is_200_an_error_event_and_done(self) -> None:
        turn = read(answer({"error": {"message": "The input (9000 tokens) is longer than the model's context length"}}, "[DONE]"))
        assert (turn.outcome, turn.error_kind) == ("failed", "stream_error")
        assert "9000 tokens" in turn.error

    def test_an_abort_says_why_and_its_ids_do_not_count(self) -> None:
        events = stream([1, 2], verify=1, accepted=1)
        reason = {"type": "abort", "message": "The request queue is full.", "status_code": 503, "err_type": "ServiceUnavailable"}
        events[1]["meta_info"]["finish_reason"] = reason
        events[1]["output_ids"] = [7]
        turn = read(answer(*events))
        assert (turn.outcome, turn.error_kind, turn.output_ids) == ("failed", "stream_error", [100])
        assert "queue is full" in turn.error
        assert "503" in turn.error

    def test_a_crash_cuts_the_connection(self) -> None:
        turn = read(answer(*stream([1, 2], verify=1, accepted=1)[:1], closed=False, ended="eof"))
        assert (turn.outcome, turn.error_kind) == ("failed", "disconnected")

    def test_an_http_error_keeps_the_servers_words(self) -> None:
        assert "503" in read(refused({"error": {"message": "starting"}}, 503)).error

    def test_another_prompt_than_the_one_that_was_sent(self) -> None:
        assert read(answer(*stream([1, 1], verify=1)), n_prompt=4).error_kind == "prompt_mismatch"

    def test_cached_prompt_tokens_are_told(self) -> None:
        turn = read(answer(*stream([1, 1], verify=1, cached_tokens=2)))
        assert turn.outcome == "ok"
        assert "2 prompt tokens came from the prefix cache" in turn.notes[-1]
