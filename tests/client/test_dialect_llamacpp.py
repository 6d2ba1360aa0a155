"""llama-server's streams: every recorded request, the counters as judge, and the hard cases of step recovery made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_samples import MS, answer, refused, stretches, turns
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.dialects import dialect
from specsweep.client.trace import Exchange, Sampling, Turn

LLAMACPP = dialect("llamacpp")
FILES = [("llamacpp-none", None), ("llamacpp-draft3", 3), ("llamacpp-ngram", None), ("llamacpp-silent", 6)]
LENGTHS = {"warmup": 8, "single_0": 48, "single_1": 48, "single_2": 48, **{f"batch_{i}": 48 + 3 * i for i in range(8)}}
PROMPTS = {"warmup": 200, "single_0": 200, "single_1": 200, "single_2": 200, "batch_0": 200, "batch_1": 200, "batch_2": 200}


def read(exchange: Exchange, draft_length: int | None = 3, n_prompt: int | None = None) -> Turn:
    return LLAMACPP.read(exchange, draft_length=draft_length, n_prompt=n_prompt)


class TestRequest:
    def body(self, **sampling: Any) -> dict[str, Any]:
        return json.loads(LLAMACPP.request([1, 2, 3], Sampling(**{"max_tokens": 7, **sampling}), model="m"))

    def test_ids_go_as_they_are_and_nothing_is_left_to_a_default(self) -> None:
        body = self.body()
        assert body["prompt"] == [1, 2, 3]
        assert body["n_predict"] == 7
        assert (body["stream"], body["timings_per_token"], body["return_tokens"], body["cache_prompt"]) == (True, True, True, False)
        assert (body["min_p"], body["typical_p"], body["repeat_penalty"]) == (0, 1, 1)
        assert (body["presence_penalty"], body["frequency_penalty"]) == (0, 0)
        assert not body["ignore_eos"]
        assert "model" not in body

    def test_temperature_0_is_greedy(self) -> None:
        body = self.body(temperature=0.0, top_k=40)
        assert (body["temperature"], body["top_k"]) == (0, 1)

    def test_sampling_is_sent_in_full(self) -> None:
        body = self.body(temperature=0.7, top_p=0.9, top_k=-1, seed=11, ignore_eos=True)
        assert (body["temperature"], body["top_p"], body["top_k"], body["seed"], body["ignore_eos"]) == (0.7, 0.9, 0, 11, True)
        assert body["samplers"] == ["top_k", "top_p", "temperature"]
        assert self.body(temperature=0.7, top_k=20)["top_k"] == 20


class TestRecorded:
    @pytest.mark.parametrize(("name", "draft_length"), FILES[:3])
    def test_every_answer_is_ok_and_complete(self, name: str, draft_length: int | None) -> None:
        found = turns(name, draft_length)
        assert set(LENGTHS) <= set(found)
        for request, length in LENGTHS.items():
            turn = found[request]
            assert (turn.outcome, turn.error, turn.finish_reason, turn.status) == ("ok", "", "length", 200)
            assert turn.n_completion_server == len(turn.output_ids) == sum(turn.chunk_tokens) == sum(turn.step_tokens) == length
            assert turn.n_prompt_server == PROMPTS.get(request, turn.n_prompt_server)
            assert turn.step_state == "exact"
            assert turn.ids_complete
            assert turn.step_tokens[0] == 1
            assert turn.step_drafted[0] == turn.step_accepted[0] == 0
            assert all(n == a + 1 for n, a in zip(turn.step_tokens, turn.step_accepted, strict=True))
            assert turn.step_server_ms == sorted(set(turn.step_server_ms))
            assert turn.step_t_ns == sorted(turn.step_t_ns)
            assert len(turn.step_coalesced) == len(turn.step_t_ns)

    def test_a_baseline_takes_one_step_a_token(self) -> None:
        for request, length in LENGTHS.items():
            turn = turns("llamacpp-none", None)[request]
            assert turn.step_tokens == [1] * length
            assert (turn.srv_steps, turn.srv_accepted, turn.last_cut) == (0, 0, False)

    @pytest.mark.parametrize(
        ("request_name", "steps", "accepted", "drafted", "by_position"),
        [
            ("single_0", 29, 18, 84, (15, 3, 0)),
            ("single_1", 31, 15, 91, (11, 4, 0)),
            ("single_2", 27, 19, 81, (13, 5, 1)),
            ("batch_5", 27, 35, 79, (16, 11, 8)),
            ("batch_7", 58, 9, 171, (9, 0, 0)),
        ],
    )
    def test_verify_steps_of_draft3(self, request_name: str, steps: int, accepted: int, drafted: int, by_position: tuple[int, ...]) -> None:
        turn = turns("llamacpp-draft3", 3)[request_name]
        assert (turn.srv_steps, turn.srv_accepted, turn.srv_drafted) == (steps, accepted, drafted)
        assert tuple(sum(a >= i for a in turn.srv_accepted_per_step) for i in (1, 2, 3)) == by_position

    @pytest.mark.parametrize(("name", "draft_length"), FILES)
    def test_the_engines_counters_agree_on_every_stretch(self, name: str, draft_length: int | None) -> None:
        found = turns(name, draft_length)
        checked = 0
        for delta, requests in stretches(name):
            reads = [found[r] for r in requests if found[r].outcome == "ok"]
            if len(reads) < len([r for r in requests if found[r].chunk_tokens]):
                continue  # an aborted request: the engine counts what the stream never brought
            per_step = [(d, a) for t in reads for d, a in zip(t.step_drafted[1:], t.step_accepted[1:], strict=True) if d]
            assert len(per_step) == sum(t.srv_steps or 0 for t in reads) == delta.drafts
            assert sum(d for d, _ in per_step) == sum(t.srv_drafted or 0 for t in reads) == delta.draft_tokens
            assert sum(a for _, a in per_step) == sum(t.srv_accepted or 0 for t in reads) == delta.accepted_tokens
            for position, count in enumerate(delta.accepted_per_pos, 1):
                assert sum(a >= position for _, a in per_step) == count
            assert sum(t.n_completion_server or 0 for t in reads) == delta.generation_tokens
            assert sum(t.n_prompt_server or 0 for t in reads) == delta.prompt_tokens
            checked += len(reads)
        assert checked >= 7

    def test_ngram_drafts_of_any_size(self) -> None:
        found = turns("llamacpp-ngram", None)
        drafting = {n: (t.srv_drafted_per_step, t.srv_accepted_per_step) for n, t in found.items() if t.srv_steps}
        assert drafting == {"batch_3": ([6], [2]), "batch_5": ([12], [6]), "batch_6": ([12], [2])}

    @pytest.mark.parametrize(
        ("request_name", "kind", "words"),
        [
            ("too_long", "http_status", "n_prompt_tokens 12000, n_ctx 2048"),
            ("bad_token", "http_status", "Prompt contains invalid tokens"),
            ("negative_token", "http_status", "Prompt contains invalid tokens"),
            ("empty_prompt", "http_status", '"prompt" must not be empty'),
            ("client_abort", "aborted", "after 3 tokens"),
        ],
    )
    def test_error_cases(self, request_name: str, kind: str, words: str) -> None:
        turn = turns("llamacpp-none", None)[request_name]
        assert (turn.outcome, turn.error_kind) == ("failed", kind)
        assert words in turn.error
        assert turn.status == (400 if kind == "http_status" else 200)

    @pytest.mark.parametrize(
        ("request_name", "tokens"), [("unknown_model", 8), ("unknown_field", 16), ("one_token", 1), ("zero_tokens", 1)]
    )
    def test_what_the_server_takes_without_complaint(self, request_name: str, tokens: int) -> None:
        turn = turns("llamacpp-none", None)[request_name]
        assert (turn.outcome, turn.finish_reason, turn.n_completion_server) == ("ok", "length", tokens)

    def test_a_size_line_that_is_wrong_after_the_end_is_only_a_note(self) -> None:
        """In these files the model's path in the last event was shortened after recording: its chunk is 3 bytes short."""
        assert all(any("chunked coding is broken" in n for n in turns("llamacpp-draft3", 3)[r].notes) for r in LENGTHS)


class TestSilentTokens:
    """Real answers in which tokens end inside a character: the server counts them and sends no event."""

    @pytest.mark.parametrize(
        ("request_name", "streamed", "steps"),
        [("emoji", 16, 46), ("chinese", 24, 8), ("arrows", 47, 47), ("devanagari", 41, 8)],
    )
    def test_steps_follow_from_the_counts(self, request_name: str, streamed: int, steps: int) -> None:
        turn = turns("llamacpp-silent", 6)[request_name]
        assert turn.outcome == "ok"
        assert (len(turn.output_ids), turn.n_completion_server, sum(turn.step_tokens)) == (streamed, 48, 48)
        assert len(turn.step_tokens) == steps == 48 - (turn.srv_accepted or 0)
        assert turn.step_state == "repaired"
        assert not turn.ids_complete
        assert any(f"{48 - streamed} tokens ended inside a character" in n for n in turn.notes)
        assert turn.step_tokens[0] == 1

    def test_eos_cuts_the_last_step(self) -> None:
        turn = turns("llamacpp-silent", 6)["eos_copy"]
        assert (turn.finish_reason, turn.n_completion_server) == ("stop", 11)
        assert (turn.step_tokens[-1], turn.step_accepted[-1]) == (6, 6)
        assert turn.last_cut
        assert turns("llamacpp-silent", 6)["eos"].step_tokens == [1, 1, 1]

    def test_a_full_context_is_told(self) -> None:
        turn = turns("llamacpp-silent", 6)["context_full"]
        assert (turn.outcome, turn.n_completion_server) == ("ok", 72)
        assert any("truncated" in n for n in turn.notes)
        assert any("after 72 of 200 tokens" in n for n in turn.notes)


# --- streams made by hand ------------------------------------------------------------------------------------------------------


def event(n: int, ms: float, drafted: int = 0, accepted: int = 0, **more: Any) -> dict[str, Any]:
    timings: dict[str, Any] = {"cache_n": 0, "prompt_n": 5, "predicted_n": n, "predicted_ms": ms}
    if drafted:
        timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
    return {"content": "x", "tokens": [n], "stop": False, "tokens_predicted": n, "tokens_evaluated": 5, "timings": timings, **more}


def stop(n: int, ms: float, drafted: int = 0, accepted: int = 0, stop_type: str = "limit", **more: Any) -> dict[str, Any]:
    return event(n, ms, drafted, accepted) | {"tokens": [], "stop": True, "stop_type": stop_type} | more


def stream(steps: list[tuple[int, int]], *, silent: set[int] = frozenset(), cut: int = 0, stop_type: str = "limit") -> Exchange:  # type: ignore[assignment]
    """What llama-server would send for ``(drafted, accepted)`` steps; ``silent``: numbers of the tokens that send no event."""
    events = [] if 1 in silent else [event(1, 0.001)]
    n, ms, drafted, accepted = 1, 0.001, 0, 0
    for index, (d, a) in enumerate(steps):
        ms, drafted, accepted = ms + 2.0, drafted + d, accepted + a
        for _ in range(a + 1 - (cut if index == len(steps) - 1 else 0)):
            n += 1
            if n not in silent:
                events.append(event(n, ms, drafted, accepted))
    return answer(*events, stop(n, ms, drafted, accepted, stop_type))


STEPS = st.lists(st.one_of(st.just((0, 0)), st.tuples(st.just(3), st.integers(0, 3))), min_size=1, max_size=30)


class TestRecovery:
    @given(STEPS)
    def test_every_stream_without_silent_tokens_is_exact(self, steps: list[tuple[int, int]]) -> None:
        turn = read(stream(steps))
        assert turn.outcome == "ok"
        assert turn.step_state == "exact"
        assert list(zip(turn.step_drafted, turn.step_accepted, strict=True)) == [(0, 0), *steps]
        assert turn.step_tokens == [1, *(a + 1 for _, a in steps)]

    @given(STEPS, st.sets(st.integers(1, 60), max_size=20))
    def test_silent_tokens_never_change_the_totals(self, steps: list[tuple[int, int]], silent: set[int]) -> None:
        total = 1 + sum(a + 1 for _, a in steps)
        silent &= set(range(1, total))  # the last token always completes its character here
        turn = read(stream(steps, silent=silent))
        assert turn.outcome == "ok"
        assert sum(turn.step_tokens) == turn.n_completion_server == total
        assert len(turn.step_tokens) == len(steps) + 1
        assert sum(turn.step_accepted) == turn.srv_accepted == sum(a for _, a in steps)
        assert turn.srv_drafted == sum(d for d, _ in steps)
        assert turn.ids_complete == (not silent)
        assert turn.step_state == ("repaired" if silent else "exact")
        if all(d for d, _ in steps):  # a drafter that always drafts: the number of verify steps is certain too
            assert turn.srv_steps == len(steps)

    def test_two_steps_under_one_predicted_ms_are_split_by_the_counters(self) -> None:
        turn = read(answer(event(1, 0.001), event(2, 2.0, 3, 1), event(3, 2.0, 3, 1), event(4, 2.0, 3, 1), stop(4, 2.0, 3, 1)))
        assert turn.step_tokens == [1, 2, 1]
        assert (turn.step_state, turn.srv_steps) == ("repaired", 1)
        assert any("share one predicted_ms" in n for n in turn.notes)

    def test_equal_predicted_ms_with_another_draft_is_another_step(self) -> None:
        turn = read(answer(event(1, 0.001), event(2, 2.0, 3, 0), event(3, 2.0, 6, 0), stop(3, 2.0, 6, 0)))
        assert (turn.step_tokens, turn.step_state) == ([1, 1, 1], "exact")

    def test_a_last_step_cut_by_eos(self) -> None:
        turn = read(stream([(3, 1), (3, 3)], cut=2, stop_type="eos"))
        assert (turn.finish_reason, turn.step_tokens, turn.step_accepted, turn.last_cut) == ("stop", [1, 2, 2], [0, 1, 3], True)

    @pytest.mark.parametrize(("last", "cut"), [((3, 3), False), ((2, 2), True), ((0, 0), True)])
    def test_a_draft_trimmed_by_the_cap_counts_as_cut(self, last: tuple[int, int], cut: bool) -> None:
        assert read(stream([(3, 0), last])).last_cut is cut

    def test_timings_that_do_not_fit_are_refused(self) -> None:
        turn = read(answer(event(1, 0.001), event(2, 2.0, 3, 2), event(3, 4.0, 6, 2), stop(3, 4.0, 6, 2)))
        assert turn.step_state == "unknown"
        assert any("do not hold accepted + 1 tokens" in n for n in turn.notes)

    def test_a_server_without_timings_has_no_steps(self) -> None:
        bare = [{"content": "x", "tokens": [n], "stop": False} for n in (1, 2)]
        turn = read(answer(*bare, {"tokens": [], "stop": True, "stop_type": "limit", "tokens_predicted": 2, "tokens_evaluated": 5}))
        assert (turn.outcome, turn.step_state, turn.step_tokens, turn.chunk_tokens) == ("ok", "unknown", [], [1, 1])
        assert any("timings" in n for n in turn.notes)

    def test_times(self) -> None:
        turn = read(stream([(3, 1), (3, 0)]))
        assert turn.chunk_t_ns == [1 * MS, 2 * MS, 3 * MS, 4 * MS]
        assert turn.step_t_ns == [1 * MS, 3 * MS, 4 * MS]  # of the read that completed the step's last event
        assert turn.step_server_ms == pytest.approx([0.001, 2.001, 4.001])

    def test_steps_completed_by_one_read_are_marked(self) -> None:
        exchange = stream([(3, 0), (3, 0)])
        exchange.reads = [(9, b"".join(d for _, d in exchange.reads))]
        assert read(exchange).step_coalesced == [False, True, True]


class TestOutcome:
    GOOD = (event(1, 0.001), event(2, 2.0), stop(2, 2.0))

    def test_stop_types(self) -> None:
        for stop_type, finish in (("limit", "length"), ("eos", "stop"), ("word", "stop")):
            turn = read(answer(event(1, 0.001), stop(1, 0.001, stop_type=stop_type)))
            assert (turn.outcome, turn.finish_reason) == ("ok", finish)

    def test_a_prompt_that_the_server_changed(self) -> None:
        turn = read(answer(*self.GOOD), n_prompt=4)
        assert (turn.outcome, turn.error_kind) == ("failed", "prompt_mismatch")
        assert turn.error.startswith("sent 4 prompt tokens, the server counted 5")

    def test_a_cached_prompt_is_told(self) -> None:
        final = stop(2, 2.0)
        final["timings"] |= {"cache_n": 3}
        turn = read(answer(event(1, 0.001), event(2, 2.0), final), n_prompt=5)
        assert turn.outcome == "ok"
        assert any(n.startswith("3 prompt tokens came from the prompt cache") for n in turn.notes)

    def test_an_error_in_the_stream_has_the_servers_words(self) -> None:
        turn = read(answer(event(1, 0.001), {"error": {"code": 500, "message": "context shift failed", "type": "server_error"}}))
        assert (turn.outcome, turn.error_kind, turn.output_ids) == ("failed", "stream_error", [1])
        assert turn.error == "context shift failed (type server_error) (after 1 tokens)"

    @pytest.mark.parametrize(
        ("exchange", "kind"),
        [
            (answer(*GOOD[:2], closed=False, ended="eof"), "disconnected"),
            (answer(*GOOD[:2], closed=False, ended="reset"), "disconnected"),
            (answer(*GOOD[:2], closed=False, ended="stalled"), "stalled"),
            (answer(*GOOD[:2], closed=False, ended="client_abort"), "aborted"),
            (answer(*GOOD[:2]), "no_finish"),
            (answer(), "empty"),
            (answer("{not json", *GOOD), "protocol"),
            (answer(stop(0, 0.0)), "empty"),
            (Exchange(0, 0, [], [], "connect: ConnectionRefusedError"), "connect"),
            (Exchange(0, 0, [], [], "eof"), "disconnected"),
            (Exchange(0, 0, [], [], "stalled"), "stalled"),
            (Exchange(0, 200, [], [], "eof"), "empty"),
            (Exchange(0, 200, [("Transfer-Encoding", "chunked")], [], "eof"), "disconnected"),
            (Exchange(0, 200, [("Transfer-Encoding", "chunked")], [(1, b"zz\r\n")], "eof"), "protocol"),
            (refused({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, 503), "http_status"),
            (refused(b"<html>busy</html>", 502), "http_status"),
        ],
    )
    def test_every_way_to_fail_has_its_kind(self, exchange: Exchange, kind: str) -> None:
        turn = read(exchange)
        assert (turn.outcome, turn.error_kind) == ("failed", kind)
        assert turn.error

    def test_whatever_came_is_kept_when_the_connection_ends(self) -> None:
        turn = read(answer(*self.GOOD[:2], closed=False, ended="eof"))
        assert (turn.output_ids, turn.step_tokens, turn.n_completion_server) == ([1, 2], [1, 1], None)

    @given(
        st.lists(
            st.one_of(
                st.none(),
                st.integers(),
                st.text(max_size=5),
                st.dictionaries(
                    st.sampled_from(["tokens", "timings", "stop", "error", "stop_type", "tokens_predicted", "generation_settings"]),
                    st.one_of(st.none(), st.integers(-3, 3), st.text(max_size=3), st.lists(st.integers(), max_size=2), st.just({})),
                    max_size=4,
                ),
            ),
            max_size=6,
        )
    )
    def test_nothing_that_a_server_can_send_raises(self, events: list[Any]) -> None:
        turn = read(answer(*events), n_prompt=3)
        assert turn.outcome in ("ok", "failed")
