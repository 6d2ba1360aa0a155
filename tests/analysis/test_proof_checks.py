"""Chunks that are only assumed to be steps, tokens that were only counted, answers of another length than asked: each has its check."""

from __future__ import annotations

import pytest

from specsweep.analysis import checks
from specsweep.analysis.check import Check
from specsweep.client.trace import EngineCounters


def proof(drafter: str, chunks: int, apparent: int, drafts: float | None, accepted: float | None, *, failed: int = 0) -> Check | None:
    counters = None if drafts is None else EngineCounters(drafts=drafts, accepted_tokens=accepted)
    return checks.proof_check(["assumed"] * 3 + ["exact"], {"decode_steps": chunks}, apparent, counters, failed=failed, drafter=drafter)


def test_without_any_counter_assumed_steps_are_not_believed() -> None:
    found = proof("ngram", 20, 20, None, None)
    assert found is not None
    assert (found.ok, found.affects) == (False, ("steps", "acceptance"))
    assert "3 of 4 requests are only assumed" in found.message


@pytest.mark.parametrize(
    ("drafter", "chunks", "apparent", "drafts", "accepted", "ok"),
    [
        ("eagle3", 40, 30, 40, 31, True),  # as many chunks as drafts; the last one lost a token to the cap
        ("eagle3", 38, 32, 40, 31, False),  # two merges
        ("eagle3", 41, 30, 40, 31, False),
        ("ngram", 40, 12, 10, 12, True),  # most steps had nothing to look up
        ("ngram", 20, 20, 0, 0, False),  # pairs of plain steps: they look like 20 accepted tokens
        ("ngram", 9, 12, 10, 12, False),
    ],
)
def test_counters_prove_or_refute_them(drafter: str, chunks: int, apparent: int, drafts: float, accepted: float, ok: bool) -> None:
    found = proof(drafter, chunks, apparent, drafts, accepted)
    assert found is not None
    assert found.ok is ok


def test_counters_of_failed_requests_prove_nothing() -> None:
    found = proof("eagle3", 40, 30, 40, 31, failed=1)
    assert found is not None
    assert not found.ok


def test_what_is_proved_or_drafts_nothing_needs_no_counter() -> None:
    assert proof("none", 20, 0, None, None) is None
    assert checks.proof_check(["exact"], {"decode_steps": 5}, 0, None, failed=0, drafter="ngram") is None


def test_tokens_that_never_came_count_only_if_a_counter_confirms_them() -> None:
    assert checks.count_check(0, 400, None).ok
    assert checks.count_check(7, 400, 400.0).ok
    found = checks.count_check(40, 80, None)
    assert (found.ok, found.affects) == (False, ("tps", "acceptance"))


def test_answers_of_another_length_than_asked_spoil_everything() -> None:
    assert checks.cap_check(0, 0, 10).ok
    for beyond, short in ((1, 0), (0, 1)):
        found = checks.cap_check(beyond, short, 10)
        assert (found.ok, found.affects) == (False, ("all",))


def test_a_clock_that_does_not_run_disagrees_with_everything() -> None:
    assert not checks.tpot_check(0.0, 10.0).ok
    assert not checks.tpot_check(-3.0, 10.0).ok
