"""Chat streams: the first token of any channel, what counts as one, and what cannot be known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_samples import MS, answer
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.dialects import DIALECTS, dialect
from specsweep.client.trace import Exchange, Sampling, Turn

CHAT = dialect("openai_chat")
ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(tokens: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": tokens}}


def read(exchange: Exchange) -> Turn:
    return CHAT.read(exchange, draft_length=None, n_prompt=None)


class TestRequest:
    def test_text_goes_as_a_user_message(self) -> None:
        body = json.loads(CHAT.request("hello", Sampling(max_tokens=5), model="m"))
        assert body["messages"] == [{"role": "user", "content": "hello"}]
        assert (body["model"], body["max_tokens"], body["temperature"], body["top_p"], body["seed"]) == ("m", 5, 0, 1, 0)
        assert body["stream_options"]["include_usage"]
        assert "top_k" not in body
        assert "ignore_eos" not in body

    def test_what_openai_does_not_know_is_sent_only_when_wanted(self) -> None:
        body = json.loads(CHAT.request("x", Sampling(max_tokens=5, top_k=20, ignore_eos=True), model="m"))
        assert (body["top_k"], body["ignore_eos"]) == (20, True)

    def test_ids_are_refused(self) -> None:
        assert not CHAT.takes_ids
        with pytest.raises(TypeError, match="as text"):
            CHAT.request([1, 2], Sampling(max_tokens=5), model="m")


class TestFirstToken:
    def test_the_role_chunk_is_no_token_and_reasoning_is(self) -> None:
        thoughts = [delta(reasoning="t", content=None)] * 500
        turn = read(answer(ROLE, *thoughts, *[delta(content="c")] * 20, delta("stop"), usage(520), "[DONE]"))
        assert (turn.outcome, turn.finish_reason, turn.n_completion_server, turn.n_prompt_server) == ("ok", "stop", 520, 12)
        assert turn.chunk_t_ns[0] == 2 * MS  # the first thought, one read after the role
        assert len(turn.chunk_tokens) == 520
        assert (turn.step_state, turn.step_tokens, turn.output_ids, turn.ids_complete) == ("unknown", [], [], False)
        assert turn.notes == []  # deltas and usage agree: every delta was one token

    @pytest.mark.parametrize("channel", ["content", "reasoning_content", "reasoning", "refusal"])
    def test_any_channel_carries_tokens(self, channel: str) -> None:
        turn = read(answer(ROLE, delta(**{channel: "x"}), delta("length"), usage(1), "[DONE]"))
        assert (turn.outcome, turn.chunk_t_ns, turn.finish_reason) == ("ok", [2 * MS], "length")

    def test_tool_calls_carry_tokens(self) -> None:
        call = [{"index": 0, "function": {"arguments": "{}"}}]
        turn = read(answer(ROLE, delta(tool_calls=call), delta("tool_calls"), usage(1), "[DONE]"))
        assert (turn.outcome, turn.finish_reason, turn.chunk_tokens) == ("ok", "stop", [1])

    def test_a_role_chunk_with_text_is_a_token(self) -> None:
        turn = read(answer(delta(role="assistant", content="Hi"), delta("stop"), usage(1), "[DONE]"))
        assert turn.chunk_t_ns == [1 * MS]


class TestTokensOfADelta:
    def test_running_usage_tells_them(self) -> None:
        def counted(n: int, **fields: Any) -> dict[str, Any]:
            return delta(**fields) | {"usage": {"prompt_tokens": 12, "completion_tokens": n}}

        events = [counted(1, content="a"), counted(4, content="bcd"), counted(5, content=""), counted(5, content="tail")]
        turn = read(answer(counted(0, role="assistant", content=""), *events, delta("stop"), usage(5), "[DONE]"))
        assert turn.chunk_tokens == [1, 3, 1]
        assert turn.n_completion_server == 5
        assert turn.outcome == "ok"

    def test_logprobs_tell_them(self) -> None:
        event = {
            "choices": [{"delta": {"content": "abc"}, "finish_reason": None, "logprobs": {"content": [{"token": "a"}, {"token": "bc"}]}}]
        }
        assert read(answer(event, delta("stop"), usage(2), "[DONE]")).chunk_tokens == [2]

    def test_otherwise_a_delta_counts_one_and_a_note_says_so(self) -> None:
        turn = read(answer(ROLE, delta(content="abc"), delta(content="def"), delta("stop"), usage(7), "[DONE]"))
        assert (turn.chunk_tokens, turn.n_completion_server) == ([1, 1], 7)
        assert any(
            "2 deltas, the server counted 7 tokens" in n or "2 deltas count as one each, the server counted 7" in n for n in turn.notes
        )

    def test_a_server_without_usage(self) -> None:
        turn = read(answer(ROLE, delta(content="abc"), delta("stop"), "[DONE]"))
        assert (turn.outcome, turn.n_completion_server) == ("ok", None)
        assert any("no usage" in n for n in turn.notes)


class TestNoTokenEvents:
    def test_a_usage_only_stream_is_a_success_whose_steps_are_unknown(self) -> None:
        turn = read(answer(ROLE, delta("length"), usage(1024), "[DONE]"))
        assert (turn.outcome, turn.n_completion_server, turn.chunk_t_ns, turn.step_state) == ("ok", 1024, [], "unknown")
        assert any("no first token" in n for n in turn.notes)

    @pytest.mark.parametrize(
        "exchange", [Exchange(0, 200, [], [], "eof"), Exchange(0, 200, [("Content-Length", "0")], [], "complete"), answer()]
    )
    def test_an_empty_200_is_a_failure(self, exchange: Exchange) -> None:
        turn = read(exchange)
        assert (turn.outcome, turn.error_kind) == ("failed", "empty")

    def test_text_on_a_channel_that_nobody_knows_is_an_error_and_not_a_row_of_zeros(self) -> None:
        turn = read(answer(ROLE, *[delta(thinking="hm")] * 30, delta("stop"), usage(30), "[DONE]"))
        assert (turn.outcome, turn.error_kind) == ("failed", "protocol")
        assert "counted 30 tokens" in turn.error
        assert "thinking" in turn.error

    def test_nothing_at_all_is_empty(self) -> None:
        assert read(answer(ROLE, delta("stop"), usage(0), "[DONE]")).error_kind == "empty"


NAMES = st.sampled_from(["choices", "usage", "delta", "content", "finish_reason", "logprobs", "completion_tokens", "error"])
JSON = st.recursive(
    st.none() | st.integers(-2, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


class TestOutcome:
    def test_an_error_event_then_done(self) -> None:
        turn = read(answer(ROLE, delta(content="a"), {"error": {"message": "engine is dead"}}, "[DONE]"))
        assert (turn.outcome, turn.error_kind) == ("failed", "stream_error")
        assert "engine is dead" in turn.error

    def test_done_without_a_finish_reason_is_no_success(self) -> None:
        assert read(answer(ROLE, delta(content="a"), usage(1), "[DONE]")).error_kind == "no_finish"

    def test_filtered_content_is_no_success(self) -> None:
        assert read(answer(delta(content="a"), delta("content_filter"), usage(1), "[DONE]")).error_kind == "stream_error"

    @given(st.lists(JSON, max_size=5))
    def test_nothing_that_a_server_can_send_raises(self, events: list[Any]) -> None:
        assert read(answer(*events, "[DONE]")).outcome in ("ok", "failed")


def test_every_dialect_is_there_and_an_unknown_one_names_them() -> None:
    assert [dialect(name).name for name in DIALECTS] == list(DIALECTS)
    with pytest.raises(KeyError, match="unknown dialect 'tgi'; known: llamacpp, vllm, sglang, trtllm, openai_chat"):
        dialect("tgi")
