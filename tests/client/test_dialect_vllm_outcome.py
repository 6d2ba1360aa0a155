"""How a vLLM stream ends: every way to fail has its kind, and nothing that a server can send raises."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_samples import MS, answer, refused
from hypothesis import given
from hypothesis import strategies as st
from vllm_samples import chunk, read, stream, usage

from specsweep.client.trace import Exchange


class TestOutcome:
    def test_an_error_event_then_done_in_one_of_ten_requests(self) -> None:
        good = stream([1] * 40)
        bad = answer(*(chunk(i) for i in range(40)), {"error": {"message": "CUDA error: out of memory", "code": 500}}, "[DONE]")
        found = [read(bad if i % 10 == 0 else good) for i in range(100)]
        failed = [t for t in found if t.outcome == "failed"]
        assert len(failed) == 10
        assert {t.error_kind for t in failed} == {"stream_error"}
        assert all(t.error.startswith("CUDA error: out of memory") and "after 40 tokens" in t.error for t in failed)

    def test_a_prompt_to_which_a_bos_was_added(self) -> None:
        turn = read(stream([1, 1]), n_prompt=4)
        assert (turn.outcome, turn.error_kind) == ("failed", "prompt_mismatch")

    def test_a_usage_only_stream_counts_with_unknown_steps(self) -> None:
        turn = read(answer({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}, usage(1024), "[DONE]"))
        assert (turn.outcome, turn.n_completion_server, turn.chunk_tokens, turn.step_state) == ("ok", 1024, [], "unknown")
        assert any("only the server's count of 1024" in n for n in turn.notes)

    def test_text_without_ids_is_counted_but_never_taken_for_steps(self) -> None:
        texts = [{"choices": [{"index": 0, "text": "a", "finish_reason": f}]} for f in (None, "stop")]
        turn = read(answer(*texts, usage(2), "[DONE]"))
        assert (turn.outcome, turn.finish_reason, turn.step_state, turn.ids_complete) == ("ok", "stop", "unknown", False)
        assert any("return_token_ids" in n for n in turn.notes)

    @pytest.mark.parametrize(
        ("exchange", "kind"),
        [
            (answer(chunk(1), chunk(2, finish="length"), usage(2)), "no_finish"),  # no [DONE]
            (answer(chunk(1), chunk(2), usage(2), "[DONE]"), "no_finish"),  # no finish reason
            (answer(chunk(1), chunk(2, finish="abort"), "[DONE]"), "stream_error"),
            (answer("[DONE]"), "no_finish"),
            (answer(), "empty"),
            (answer({"choices": [{"text": "", "finish_reason": "stop"}]}, usage(0), "[DONE]"), "empty"),
            (answer(chunk(1), closed=False, ended="eof"), "disconnected"),
            (answer(chunk(1), closed=False, ended="stalled"), "stalled"),
            (refused({"error": {"message": "m"}}, 500), "http_status"),
            (refused({"detail": "Not Found"}, 404), "http_status"),
        ],
    )
    def test_every_way_to_fail_has_its_kind(self, exchange: Exchange, kind: str) -> None:
        turn = read(exchange)
        assert (turn.outcome, turn.error_kind) == ("failed", kind)

    def test_a_connection_that_hangs_after_done_loses_nothing(self) -> None:
        whole = stream([1, 1])
        whole.reads.pop()
        whole.ended = "stalled"
        assert read(whole).outcome == "ok"

    def test_a_cut_event_is_told(self) -> None:
        exchange = answer(chunk(1), closed=False, ended="eof")
        exchange.reads.append((9 * MS, b'40\r\ndata: {"choi'))
        turn = read(exchange)
        assert turn.error_kind == "disconnected"
        assert any("was cut after 12 bytes" in n for n in turn.notes)

    JSON = st.recursive(
        st.none() | st.integers(-2, 5) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "usage",
                        "metrics",
                        "token_ids",
                        "finish_reason",
                        "text",
                        "speculative_decoding",
                        "num_spec_steps",
                        "per_step_accepted",
                        "acceptance_histogram",
                        "completion_tokens",
                        "prompt_tokens",
                        "error",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    )

    @given(st.lists(JSON, max_size=5))
    def test_nothing_that_a_server_can_send_raises(self, events: list[Any]) -> None:
        assert read(answer(*events, "[DONE]"), n_prompt=3).outcome in ("ok", "failed")
