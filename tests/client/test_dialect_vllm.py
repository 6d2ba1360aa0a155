"""vLLM's streams: every recorded request against the truth that the server sent with it, and merges made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_samples import MS, answer, recording, refused, stretches, turns
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.dialects import dialect
from specsweep.client.dialects._walk import walk
from specsweep.client.trace import Exchange, Sampling, Turn

VLLM = dialect("vllm")
DRAFTING = [("vllm-draft3", 3), ("vllm-draft3-interval4", 3), ("vllm-ngram3", 3), ("vllm-eagle3-5", 5)]
LENGTHS = {"warmup": 8, "single_0": 48, "single_1": 48, "single_2": 48, **{f"batch_{i}": 48 + 3 * i for i in range(8)}}


def read(exchange: Exchange, draft_length: int | None = 3, n_prompt: int | None = None) -> Turn:
    return VLLM.read(exchange, draft_length=draft_length, n_prompt=n_prompt)


class TestRequest:
    def test_ids_in_ids_out_and_nothing_left_to_the_models_own_config(self) -> None:
        body = json.loads(VLLM.request([5, 6], Sampling(max_tokens=9, temperature=0.0, seed=4), model="m"))
        assert (body["model"], body["prompt"], body["max_tokens"]) == ("m", [5, 6], 9)
        assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"], body["seed"]) == (0, 1, -1, 0, 4)
        assert (body["repetition_penalty"], body["presence_penalty"], body["frequency_penalty"]) == (1, 0, 0)
        assert (body["stream"], body["return_token_ids"], body["skip_special_tokens"]) == (True, True, False)
        assert body["stream_options"] == {"include_usage": True}
        assert body["ignore_eos"] is False


class TestRecorded:
    @pytest.mark.parametrize(("name", "draft_length"), [("vllm-none", None), *DRAFTING])
    def test_every_answer_is_ok_and_complete(self, name: str, draft_length: int | None) -> None:
        found = turns(name, draft_length)
        for request, length in LENGTHS.items():
            turn = found[request]
            assert (turn.outcome, turn.error, turn.finish_reason, turn.status) == ("ok", "", "length", 200)
            assert turn.n_completion_server == len(turn.output_ids) == sum(turn.chunk_tokens) == sum(turn.step_tokens) == length
            assert turn.n_prompt_server == len(next(r.body["prompt"] for r in recording(name).requests if r.name == request))
            assert turn.ids_complete
            assert len(turn.chunk_t_ns) == len(turn.chunk_tokens)
            lists = (turn.step_t_ns, turn.step_drafted, turn.step_accepted, turn.step_coalesced)
            assert {len(values) for values in lists} == {len(turn.step_tokens)}

    def test_single_tokens_prove_themselves(self) -> None:
        for request, length in LENGTHS.items():
            turn = turns("vllm-none", None)[request]
            assert (turn.step_state, turn.step_tokens, turn.last_cut) == ("exact", [1] * length, False)

    @pytest.mark.parametrize(("name", "draft_length"), DRAFTING)
    def test_steps_are_those_of_the_servers_list(self, name: str, draft_length: int) -> None:
        for request in LENGTHS:
            turn = turns(name, draft_length)[request]
            drafted = [(n, a) for n, a, d in zip(turn.step_tokens, turn.step_accepted, turn.step_drafted, strict=True) if d]
            listed = list(turn.srv_accepted_per_step)
            at = 0
            for tokens, accepted in drafted:  # in order; -1 marks a step of one token that may or may not have been drafted
                if accepted == 0:
                    continue
                at = next(i for i in range(at, len(listed)) if listed[i]) + 1
                assert listed[at - 1] == accepted
                assert tokens <= accepted + 1
            assert sum(turn.step_accepted) == turn.srv_accepted == sum(listed)
            cut = turn.srv_accepted + len(turn.step_tokens) - sum(turn.step_tokens)
            assert turn.last_cut == (cut > 0)
            assert cut <= draft_length
            if "ngram" not in name:
                assert (turn.step_accepted[1:], turn.step_drafted[1:]) == (listed, turn.srv_drafted_per_step)
                assert len(turn.step_tokens) == turn.srv_steps + 1

    @pytest.mark.parametrize("name", ["vllm-draft3", "vllm-ngram3", "vllm-eagle3-5"])
    def test_at_interval_1_every_chunk_is_a_step(self, name: str) -> None:
        for request in LENGTHS:
            turn = turns(name, 5)[request]
            assert turn.step_state == "exact"
            assert turn.step_tokens == turn.chunk_tokens
            assert turn.step_t_ns == turn.chunk_t_ns
            assert not any(turn.step_coalesced)

    def test_merged_chunks_are_split_into_the_steps_that_the_unmerged_run_took(self) -> None:
        """The same greedy requests with and without --stream-interval 4: other chunks, the same steps."""
        split, plain = turns("vllm-draft3-interval4", 3), turns("vllm-draft3", 3)
        same = [
            r
            for r in LENGTHS
            if split[r].output_ids == plain[r].output_ids and split[r].srv_accepted_per_step == plain[r].srv_accepted_per_step
        ]
        assert len(same) >= 10
        for request in same:
            assert split[request].chunk_tokens != plain[request].chunk_tokens
            assert split[request].step_tokens == plain[request].step_tokens
            assert split[request].step_accepted == plain[request].step_accepted
            assert split[request].last_cut == plain[request].last_cut

    def test_the_times_of_split_steps_are_marked(self) -> None:
        for request in LENGTHS:
            turn = turns("vllm-draft3-interval4", 3)[request]
            assert turn.step_state == "repaired"
            assert sum(turn.step_coalesced) == len(turn.step_tokens) - len(turn.chunk_tokens)
            assert set(turn.step_t_ns) == set(turn.chunk_t_ns)
            assert any("held several steps" in n for n in turn.notes)

    @pytest.mark.parametrize(
        ("name", "request_name", "steps", "verify", "accepted", "drafted"),
        [
            ("vllm-draft3", "single_0", 30, 29, 18, 87),
            ("vllm-draft3-interval4", "single_0", 30, 29, 18, 87),
            ("vllm-draft3", "batch_5", 30, 29, 33, 87),
            ("vllm-ngram3", "single_0", 29, 11, 19, 33),
            ("vllm-ngram3", "batch_7", 31, 17, 41, 47),
            ("vllm-eagle3-5", "batch_6", 25, 24, 43, 120),
        ],
    )
    def test_known_answers(self, name: str, request_name: str, steps: int, verify: int, accepted: int, drafted: int) -> None:
        turn = turns(name, 5 if "eagle" in name else 3)[request_name]
        assert (len(turn.step_tokens), turn.srv_steps, turn.srv_accepted, turn.srv_drafted) == (steps, verify, accepted, drafted)

    @pytest.mark.parametrize(("name", "draft_length"), DRAFTING)
    def test_the_engines_counters_agree(self, name: str, draft_length: int) -> None:
        found = turns(name, draft_length)
        checked = 0
        for delta, requests in stretches(name):
            reads = [found[r] for r in requests]
            if any(t.error_kind == "aborted" for t in reads):
                continue
            assert sum(t.srv_steps or 0 for t in reads) == delta.drafts
            assert sum(sum(t.step_accepted) for t in reads) == delta.accepted_tokens
            for position, count in enumerate(delta.accepted_per_pos, 1):
                assert sum(a >= position for t in reads for a in t.step_accepted) == count
            assert sum(t.n_completion_server or 0 for t in reads) == delta.generation_tokens
            checked += len(reads)
        assert checked == 12

    def test_without_the_servers_truth_merged_chunks_are_not_split(self) -> None:
        found = recording("vllm-draft3-interval4")
        request = next(r for r in found.requests if r.name == "single_0")
        reads = [(t, d.replace(b'"speculative_decoding"', b'"speculative_decodinG"')) for t, d in request.exchange.reads]
        turn = read(Exchange(0, 200, request.exchange.headers, reads, "eof"))
        assert (turn.outcome, turn.step_state) == ("ok", "merged")
        assert any("a chunk holds 5 tokens at draft length 3" in n for n in turn.notes)
        assert turn.step_accepted[1:] == [-1] * (len(turn.chunk_tokens) - 1)

    @pytest.mark.parametrize(
        ("request_name", "kind", "status", "words"),
        [
            ("too_long", "http_status", 400, "maximum context length is 2048 tokens"),
            ("bad_token", "stream_error", 200, "Token id 9999999 is out of vocabulary"),
            ("negative_token", "http_status", 400, "greater than or equal to 0"),
            ("empty_prompt", "http_status", 400, "at least one prompt"),
            ("unknown_model", "http_status", 404, "`nope` does not exist"),
            ("zero_tokens", "http_status", 400, "max_tokens must be at least 1"),
            ("client_abort", "aborted", 200, "after"),
        ],
    )
    @pytest.mark.parametrize("name", ["vllm-none", "vllm-eagle3-5"])
    def test_error_cases(self, name: str, request_name: str, kind: str, status: int, words: str) -> None:
        turn = turns(name, None)[request_name]
        assert (turn.outcome, turn.error_kind, turn.status) == ("failed", kind, status)
        assert words in turn.error

    def test_one_token(self) -> None:
        for name in ("vllm-none", "vllm-eagle3-5"):
            turn = turns(name, 5)["one_token"]
            assert (turn.outcome, turn.step_tokens, turn.step_state, turn.last_cut) == ("ok", [1], "exact", False)

    @pytest.mark.parametrize(
        ("name", "kind", "tokens", "words"),
        [
            ("engine_killed", "stream_error", [348, 348, 347], "EngineCore encountered an issue"),
            ("server_killed", "disconnected", [437, 436, 436], "without the end of the stream"),
            ("server_terminated", "stalled", [382, 381, 381], "silence"),
        ],
    )
    def test_a_dying_engine(self, name: str, kind: str, tokens: list[int], words: str) -> None:
        found = turns(f"vllm-{name}", None, "vllm")
        for i, count in enumerate(tokens):
            turn = found[f"{name}_{i}"]
            assert (turn.outcome, turn.error_kind, turn.finish_reason) == ("failed", kind, "")
            assert words in turn.error
            assert len(turn.output_ids) == count
        after = found[f"{name}_after"]
        assert after.error_kind == ("http_status" if name == "engine_killed" else "connect")


# --- streams made by hand ------------------------------------------------------------------------------------------------------


def chunk(*ids: int, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": "x", "finish_reason": finish, "token_ids": list(ids)}]}


def usage(tokens: int, *, prompt: int = 5, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens}}
    return found if spec is None else found | {"metrics": {"speculative_decoding": spec}}


def stream(sizes: list[int], *, spec: dict[str, Any] | None = None, finish: str = "length") -> Exchange:
    chunks = [chunk(*range(n), finish=finish if i == len(sizes) - 1 else None) for i, n in enumerate(sizes)]
    return answer(*chunks, usage(sum(sizes), spec=spec), "[DONE]")


def summary(accepted: list[int], length: int = 3, *, detailed: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "acceptance_histogram": [accepted.count(k) for k in range(length + 1)],
        "num_spec_steps": len(accepted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": length * len(accepted),
        "num_spec_tokens": length,
    }
    return found | ({"per_step_accepted": accepted, "per_step_drafted": [length] * len(accepted)} if detailed else {})


ACCEPTED = st.lists(st.integers(0, 3), min_size=1, max_size=25)


@st.composite
def merged(draw: st.DrawFn, steps: st.SearchStrategy[list[int]]) -> tuple[list[int], list[int], int]:
    """Accepted counts of drafted steps, chunks that hold one or several of them (cut at the end), and the tokens lost to the cut."""
    accepted = draw(steps)
    cut = draw(st.integers(0, accepted[-1]))
    sizes = [1]
    for i, a in enumerate(accepted):
        size = a + 1 - (cut if i == len(accepted) - 1 else 0)
        if i and draw(st.booleans()):
            sizes[-1] += size
        else:
            sizes.append(size)
    return accepted, sizes, cut


class TestWalk:
    @given(merged(ACCEPTED))
    def test_every_split_of_drafted_steps_is_found(self, made: tuple[list[int], list[int], int]) -> None:
        accepted, sizes, cut = made
        found = walk(sizes, accepted, [3] * len(accepted))
        assert found.state == ("exact" if len(sizes) == len(accepted) + 1 else "repaired")
        assert [s.accepted for s in found.steps] == accepted
        assert [s.tokens for s in found.steps] == [*(a + 1 for a in accepted[:-1]), accepted[-1] + 1 - cut]
        for i, size in enumerate(sizes[1:], 1):
            assert sum(s.tokens for s in found.steps if s.chunk == i) == size

    @given(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=25), st.booleans())
    def test_undrafted_steps_between_are_recognised(self, steps: list[int | None], cut: bool) -> None:
        """None: an n-gram miss, one token and not in the server's list."""
        accepted = [a for a in steps if a is not None]
        sizes = [1, *((a or 0) + 1 for a in steps)]
        if cut and steps[-1]:
            sizes[-1] -= 1
        found = walk(sizes, accepted, [3] * len(accepted))
        assert found.state == "exact"
        assert [s.tokens for s in found.steps] == sizes[1:]
        assert sum(s.accepted for s in found.steps) == sum(accepted) or (cut and steps[-1])
        for step, truth in zip(found.steps[:-1], steps[:-1], strict=True):
            assert step.accepted == (truth or 0)
            assert step.drafted in ((3, -1) if truth is not None else (0, -1))  # never claimed wrongly

    @given(merged(ACCEPTED), st.lists(st.integers(0, 24), max_size=3))
    def test_merges_among_undrafted_steps_are_split_rightly_or_refused(
        self, made: tuple[list[int], list[int], int], misses: list[int]
    ) -> None:
        accepted, sizes, _ = made
        for place in misses:
            sizes.insert(1 + place % len(sizes), 1)
        found = walk(sizes, accepted, [3] * len(accepted))
        assert found.state in ("exact", "repaired", "merged")
        if found.state != "merged":
            per_chunk = [sum(s.tokens for s in found.steps if s.chunk == i) for i in range(len(sizes))]
            assert per_chunk == [sizes[0] - 1, *sizes[1:]]
            assert sum(s.accepted for s in found.steps) <= sum(accepted)
        else:
            assert found.why

    def test_a_merge_into_the_first_chunk(self) -> None:
        found = walk([3, 2], [1, 1], [3, 3])
        assert (found.state, [(s.chunk, s.tokens) for s in found.steps]) == ("repaired", [(0, 2), (1, 2)])

    def test_an_ambiguous_merge_is_refused(self) -> None:
        found = walk([1, 2, 2, 1], [0], [3])  # 2 = drafted + undrafted, or twice undrafted: three places for the one drafted step
        assert (found.state, found.steps) == ("merged", [])

    def test_a_unique_merge_among_undrafted_steps_is_split(self) -> None:
        found = walk([1, 5, 4], [3, 3], [3, 3])  # the second chunk can hold nothing else, so the first is 4 + 1
        assert found.state == "repaired"
        assert sorted((s.chunk, s.tokens, s.drafted) for s in found.steps) == [(1, 1, 0), (1, 4, 3), (2, 4, 3)]

    def test_lists_that_contradict_the_chunks_are_refused(self) -> None:
        assert walk([1, 2, 3], [3, 0], [3, 3]).state == "merged"
        assert walk([1, 1], [3, 3], [3, 3]).state == "merged"


class TestStates:
    def test_summary_histogram_proves_one_step_a_chunk(self) -> None:
        turn = read(stream([1, 2, 4, 1, 2], spec=summary([1, 3, 0, 3])))
        assert (turn.step_state, turn.step_accepted, turn.last_cut) == ("exact", [0, 1, 3, 0, 3], True)
        assert turn.step_drafted == [0, 3, 3, 3, 3]
        assert (turn.srv_steps, turn.srv_accepted, turn.srv_accepted_per_step) == (4, 7, [])

    def test_summary_histogram_finds_a_merge_that_sizes_do_not_show(self) -> None:
        turn = read(stream([1, 2, 4, 2], spec=summary([1, 3, 0, 0])))
        assert turn.step_state == "merged"

    def test_summary_with_undrafted_steps(self) -> None:
        turn = read(stream([1, 1, 4, 1], spec=summary([3, 0])))
        assert (turn.step_state, turn.step_drafted) == ("exact", [0, -1, 3, -1])

    @given(merged(ACCEPTED))
    def test_a_merge_is_never_called_exact_by_a_histogram(self, made: tuple[list[int], list[int], int]) -> None:
        accepted, sizes, cut = made
        turn = read(stream(sizes, spec=summary(accepted)))
        if len(sizes) == len(accepted) + 1:
            assert turn.step_state == "exact"
            assert turn.step_accepted[1:] == accepted
            assert turn.last_cut == (cut > 0)
        else:
            assert turn.step_state == "merged"

    def test_sizes_without_truth_are_only_assumed(self) -> None:
        turn = read(stream([1, 3, 2, 2]))
        assert (turn.step_state, turn.step_tokens, turn.step_accepted, turn.last_cut) == ("assumed", [1, 3, 2, 2], [0, 2, 1, 1], True)

    @pytest.mark.parametrize("sizes", [[2, 3], [1, 5, 1]])
    def test_certain_merges_without_truth(self, sizes: list[int]) -> None:
        assert read(stream(sizes)).step_state == "merged"

    def test_a_merge_in_a_baseline_is_split_because_nothing_is_drafted(self) -> None:
        turn = read(stream([1, 2, 1]), draft_length=0)
        assert (turn.step_state, turn.step_tokens, turn.step_coalesced) == ("repaired", [1, 1, 1, 1], [False, False, True, False])

    def test_larger_chunks_of_who_knows_what_are_unknown(self) -> None:
        turn = read(stream([1, 2, 1]), draft_length=None)
        assert turn.step_state == "unknown"
        assert any("give the draft length" in n for n in turn.notes)

    def test_single_tokens_at_a_draft_length_are_steps_of_which_it_is_not_known_whether_they_were_drafted(self) -> None:
        turn = read(stream([1, 1, 1]))
        assert (turn.step_state, turn.step_drafted, turn.step_accepted) == ("exact", [0, -1, -1], [0, 0, 0])

    def test_detailed_truth_beats_a_wrong_draft_length(self) -> None:
        turn = read(stream([1, 6], spec=summary([5], 5, detailed=True)), draft_length=1)
        assert (turn.step_state, turn.step_accepted) == ("exact", [0, 5])

    def test_ids_that_never_came(self) -> None:
        turn = read(answer(chunk(1), chunk(2, finish="length"), usage(3), "[DONE]"))
        assert (turn.outcome, turn.ids_complete, turn.step_state) == ("ok", False, "unknown")
        assert any("counted 3 tokens and streamed 2 ids" in n for n in turn.notes)


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
