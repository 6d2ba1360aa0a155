"""From vLLM's chunks to steps: merges are split where only one way fits what the server told of its steps, and refused elsewhere."""

from __future__ import annotations

import pytest
from dialect_samples import answer
from hypothesis import given
from hypothesis import strategies as st
from vllm_samples import ACCEPTED, chunk, merged, read, stream, summary, usage

from specsweep.client.dialects._walk import walk


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
        assert (turn.outcome, turn.error_kind) == ("failed", "protocol")
        assert "counted 3 output tokens and streamed 2 ids" in turn.error
