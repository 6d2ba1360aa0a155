"""vLLM's streams: every recorded request against the truth that the server sent with it."""

from __future__ import annotations

import json

import pytest
from dialect_samples import recording, stretches, turns
from vllm_samples import VLLM, read

from specsweep.client.trace import Exchange, Sampling

DRAFTING = [("vllm-draft3", 3), ("vllm-draft3-interval4", 3), ("vllm-ngram3", 3), ("vllm-eagle3-5", 5)]
LENGTHS = {"warmup": 8, "single_0": 48, "single_1": 48, "single_2": 48, **{f"batch_{i}": 48 + 3 * i for i in range(8)}}


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
