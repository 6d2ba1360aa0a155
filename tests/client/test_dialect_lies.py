"""Numbers that a server can send and that cannot be true: each is a failed request with the number in its words, never a figure."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from dialect_samples import answer
from vllm_samples import chunk, usage

from specsweep.client.dialects import DIALECTS, dialect
from specsweep.client.trace import SCHEMA, Turn

HUGE = "1" + "0" * 400  # JSON integers have no limit; this one fits no float
DEEP = "[" * 100_000 + "]" * 100_000


def read(name: str, *events: Any, draft_length: int | None = None) -> Turn:
    return dialect(name).read(answer(*events), draft_length=draft_length, n_prompt=None)


def refused(turn: Turn, *words: str) -> None:
    assert (turn.outcome, turn.error_kind) == ("failed", "protocol")
    for word in words:
        assert word in turn.error


def raw(event: Any, old: str, new: str) -> str:
    """The event as JSON text in which a number is replaced, for numbers that ``json.dumps`` would not write."""
    text = json.dumps(event)
    assert old in text
    return text.replace(old, new)


def llama(n: int, ms: float, *, drafted: int = 0, accepted: int = 0, stop: bool = False) -> dict[str, Any]:
    timings = {"predicted_n": n, "predicted_ms": ms, "draft_n": drafted, "draft_n_accepted": accepted}
    event = {"tokens": [] if stop else [n], "stop": stop, "timings": timings}
    return event | ({"stop_type": "limit", "tokens_predicted": n} if stop else {})


def sglang(ids: list[int], counted: int, *, finish: str = "", **last: Any) -> dict[str, Any]:
    return {"output_ids": ids, "meta_info": {"completion_tokens": counted, "finish_reason": {"type": finish} if finish else None, **last}}


class TestAnyDialect:
    @pytest.mark.parametrize("name", DIALECTS)
    def test_json_nested_beyond_the_stack(self, name: str) -> None:
        refused(read(name, DEEP, "[DONE]"), "not JSON")

    @pytest.mark.parametrize("name", DIALECTS)
    def test_words_that_utf_8_cannot_hold_can_still_be_stored(self, name: str) -> None:
        turn = read(name, r'{"error": {"message": "half a \ud83d pair"}}', "[DONE]")
        assert turn.error_kind == "stream_error"
        assert pa.array([turn.error], SCHEMA.field("error").type).to_pylist()[0].startswith("half a ")

    @pytest.mark.parametrize("name", ["vllm", "trtllm"])
    @pytest.mark.parametrize("counted", [0, 1, 3, 4, 1_000_000_000])
    def test_a_count_that_is_not_the_ids_of_a_wire_that_streams_all(self, name: str, counted: int) -> None:
        turn = read(name, chunk(7), chunk(8, finish="length"), usage(counted), "[DONE]")
        refused(turn, f"counted {counted} output tokens", "streamed 2 ids")

    @pytest.mark.parametrize("name", ["vllm", "trtllm", "openai_chat"])
    @pytest.mark.parametrize("number", ["-5", "true", "2.0", "1e400", "NaN", '"2"', HUGE, "1" + "0" * 30])
    def test_a_count_that_is_none(self, name: str, number: str) -> None:
        text = {"choices": [{"delta": {"content": "x"}, "text": "", "token_ids": [7, 8], "finish_reason": "length"}]}
        refused(read(name, text, raw(usage(998), "998", number), "[DONE]"))

    @pytest.mark.parametrize("name", ["vllm", "trtllm"])
    @pytest.mark.parametrize("token", ["-1", "true", "1.0", "null", str(2**70), HUGE])
    def test_a_token_id_that_is_none(self, name: str, token: str) -> None:
        refused(read(name, raw(chunk(998, 999, finish="length"), "998", token), usage(2), "[DONE]"))


class TestLlamaCpp:
    GOOD = (llama(1, 0.001), llama(2, 5.0), llama(3, 9.0))

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "-3", "true", "null", '"5"', HUGE])
    @pytest.mark.parametrize("at_the_end", [False, True])
    def test_a_time_that_is_none(self, number: str, at_the_end: bool) -> None:
        end = llama(4, 998.0, stop=True)
        events = [raw(end, "998.0", number)] if at_the_end else [raw(llama(4, 998.0), "998.0", number), end]
        refused(read("llamacpp", *self.GOOD, *events), "predicted_ms")

    def test_a_time_that_runs_back(self) -> None:
        refused(read("llamacpp", *self.GOOD, llama(4, 7.0), llama(4, 9.0, stop=True)), "predicted_ms fell from 9.0 to 7.0")

    def test_a_clock_that_stands_still(self) -> None:
        events = [llama(n, 0.0) for n in range(1, 9)]
        refused(read("llamacpp", *events, llama(8, 0.0, stop=True)), "predicted_ms is 0 at token 1", "token 8")

    @pytest.mark.parametrize("number", ["30000000", "1000000000000", HUGE, "2", "-4", "4.0", "true"])
    def test_a_token_number_that_cannot_follow(self, number: str) -> None:
        refused(read("llamacpp", *self.GOOD, raw(llama(998, 12.0), "998", number), llama(4, 12.0, stop=True)), "predicted_n")

    @pytest.mark.parametrize(("drafted", "accepted"), [(-3, 0), (3, 5), (2, -1), (10**9, 1)])
    @pytest.mark.parametrize("draft_length", [None, 1, 3])
    def test_draft_counters_that_cannot_be(self, drafted: int, accepted: int, draft_length: int | None) -> None:
        events = [
            *self.GOOD,
            llama(4, 12.0, drafted=drafted, accepted=accepted),
            llama(4, 12.0, drafted=drafted, accepted=accepted, stop=True),
        ]
        refused(read("llamacpp", *events, draft_length=draft_length), "draft_n")

    @pytest.mark.parametrize("counted", [2, 0, -4, 100_000_000])
    def test_an_end_that_counts_what_the_stream_excludes(self, counted: int) -> None:
        refused(read("llamacpp", *self.GOOD, llama(counted, 9.0, stop=True)), str(counted))

    def test_an_end_that_contradicts_itself(self) -> None:
        end = llama(3, 9.0, stop=True) | {"tokens_predicted": 6}
        refused(read("llamacpp", *self.GOOD, end), "tokens_predicted is 6", "predicted_n 3")

    def test_the_same_stream_without_a_lie_is_ok(self) -> None:
        turn = read("llamacpp", *self.GOOD, llama(3, 9.0, stop=True))
        assert (turn.outcome, turn.step_server_ms) == ("ok", [0.001, 5.0, 9.0])


class TestSglang:
    def test_more_than_was_streamed_is_lost_ids_and_less_a_contradiction(self) -> None:
        lost = read("sglang", sglang([5], 1), sglang([8], 4, finish="length"), "[DONE]")
        assert (lost.outcome, lost.ids_complete, lost.n_completion_server) == ("ok", False, 4)
        twice = read("sglang", sglang([5], 1), sglang([6], 2), sglang([5, 6, 7], 2, finish="length"), "[DONE]")
        refused(twice, "counted 2 output tokens", "streamed")

    def test_a_last_step_beyond_the_draft_length_is_believed_by_nobody(self) -> None:
        totals = {"spec_verify_ct": 1, "spec_num_correct_drafts": 1_000_000, "spec_num_proposed_drafts": 3}
        turn = read("sglang", sglang([5], 1), sglang([5, 6], 2, finish="length", **totals), "[DONE]", draft_length=3)
        assert (turn.step_state, turn.step_accepted) == ("unknown", [0, -1])
        assert any("1000000 tokens at draft length 3" in note for note in turn.notes)


class TestTruth:
    @pytest.mark.parametrize(("accepted", "drafted"), [(4, 3), (-1, 3), (10**9, 10**9), (1, True)])
    def test_vllm_steps_that_accepted_what_was_not_drafted(self, accepted: int, drafted: int) -> None:
        spec = {"num_spec_steps": 1, "per_step_accepted": [accepted], "per_step_drafted": [drafted]}
        refused(read("vllm", chunk(1), chunk(2, 3, finish="length"), usage(3, spec=spec), "[DONE]"))

    def test_running_usage_that_falls(self) -> None:
        def delta(counted: int, **more: Any) -> dict[str, Any]:
            return {"choices": [{"delta": {"content": "x"}, **more}], "usage": {"completion_tokens": counted}}

        refused(read("openai_chat", delta(1), delta(5), delta(3, finish_reason="length"), "[DONE]"), "fell from 5 to 3")
