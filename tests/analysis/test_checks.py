from __future__ import annotations

from dataclasses import replace

import pytest
from fake_engine import FakeEngine, FakePrompt, report, run

from specsweep.analysis import checks
from specsweep.analysis.check import Check
from specsweep.analysis.checks import validity
from specsweep.analysis.window import InFlight, Window
from specsweep.client.trace import EngineCounters

ACTOR = report(4, 0, 10, 10.0)
WINDOW = Window(0, 20_000_000_000, True, "")
LOAD = {
    "batch_size": 4,
    "window": WINDOW,
    "flight": InFlight(4, 4, 5.0, 0.1, 0.0),
    "measured": 16,
    "failure": "",
    "failed": 0,
    "max_batch": 4,
}


def failed(found: list[Check]) -> list[str]:
    return [c.name for c in found if not c.ok]


def test_a_good_load_passes() -> None:
    assert failed(checks.load_checks(**LOAD)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"flight": InFlight(3, 4, 5.0, 9.0, 0.1)}, "in_flight"),
        ({"flight": InFlight(4, 5, 5.0, 0.1, 0.0)}, "in_flight"),
        ({"measured": 15}, "requests"),
        ({"failed": 1}, "failed_share"),
        ({"max_batch": 3}, "engine_batch_limit"),
    ],
)
def test_each_fault_of_the_load_has_its_check(change: dict[str, object], name: str) -> None:
    assert failed(checks.load_checks(**(LOAD | change))) == [name]  # type: ignore[arg-type]


def test_a_missing_window_says_why() -> None:
    broken = Window(0, 1, False, "3 requests are too few for batch size 4")
    found = {c.name: c for c in checks.load_checks(**(LOAD | {"window": broken}))}  # type: ignore[arg-type]
    assert found["steady_window"].message == broken.reason
    assert not found["in_flight"].ok


@pytest.mark.parametrize(
    ("lag", "names"),
    [
        ({"lag_ms_p99": 9.9}, ["client_lag_step_p99"]),
        ({"lag_ms_p99": 10.1}, ["client_lag_request", "client_lag_step_p99"]),
        ({"lag_ms_p50": 1.1}, ["client_lag_step_p50"]),
        ({"lag_ms_p50": 0.9, "lag_ms_p99": 3.9}, []),
        ({"cpu_s": 7.1}, ["client_core"]),
    ],
)
def test_the_client_certifies_itself(lag: dict[str, float], names: list[str]) -> None:
    """Requests of 1 s and steps of 20 ms: the limits are 10 ms, 1 ms and 4 ms of lag, and 70 % of a core."""
    found = checks.client_checks([ACTOR, replace(ACTOR, **lag)], request_ms=1000, step_ms=20, server_clock=False)
    assert failed(found) == names


def test_lag_does_not_touch_step_times_of_the_engines_clock() -> None:
    late = replace(ACTOR, lag_ms_p50=5.0, lag_ms_p99=9.0)
    assert failed(checks.client_checks([late], request_ms=1000, step_ms=20, server_clock=True)) == []


def test_a_client_that_did_not_report_certifies_nothing() -> None:
    for actors in ([], [replace(ACTOR, lag_samples=0)]):
        found = checks.client_checks(actors, request_ms=1000, step_ms=20, server_clock=False)
        assert failed(found) == ["client_lag_request"]
        assert found[0].value is None


def test_a_bos_that_the_server_added_is_found() -> None:
    trace = run(FakeEngine(batch_size=1), [FakePrompt("p")])
    assert checks.prompt_check(trace.requests, ids_sent=True).ok
    trace.requests[2].read.n_prompt_server = 101
    found = checks.prompt_check(trace.requests, ids_sent=True)
    assert not found.ok
    assert "100 sent, 101 counted" in found.message
    assert checks.prompt_check(trace.requests, ids_sent=False).ok


def test_cached_prompts_must_be_zero_where_they_are_counted() -> None:
    assert checks.cache_check(EngineCounters(cached_prompt_tokens=0.0)).ok
    assert not checks.cache_check(EngineCounters(cached_prompt_tokens=16.0)).ok
    for unknown in (None, EngineCounters()):
        found = checks.cache_check(unknown)
        assert found.ok
        assert found.value is None
        assert "not decided" in found.message


TOTALS = {"drafts": 10, "draft_tokens": 30, "accepted_tokens": 12, "generation_tokens": 25, "decode_steps": 11}
COUNTED = EngineCounters(drafts=10.0, draft_tokens=30.0, accepted_tokens=12.0, generation_tokens=25.0)


def test_streams_agree_with_counters_to_the_token() -> None:
    assert failed(checks.counter_checks(TOTALS, COUNTED, failed=0, drafter="ngram")) == []
    other = replace(COUNTED, accepted_tokens=13.0)
    found = [c for c in checks.counter_checks(TOTALS, other, failed=0, drafter="ngram") if not c.ok]
    assert [(c.name, c.value) for c in found] == [("counter_accepted_tokens", -1.0)]
    assert "acceptance" in found[0].affects


def test_failed_requests_make_the_comparison_impossible_and_it_says_so() -> None:
    found = checks.counter_checks(TOTALS, replace(COUNTED, drafts=14.0), failed=2, drafter="ngram")
    assert failed(found) == []
    assert all("2 failed requests" in c.message for c in found)


def test_more_drafts_than_chunks_means_merging_even_where_drafts_are_not_known() -> None:
    blind = TOTALS | {"drafts": None, "draft_tokens": None, "accepted_tokens": None}
    assert failed(checks.counter_checks(blind, replace(COUNTED, drafts=11.0), failed=0, drafter="mtp")) == []
    assert failed(checks.counter_checks(blind, replace(COUNTED, drafts=12.0), failed=0, drafter="mtp")) == ["counter_drafts"]


def test_a_baseline_has_no_draft_counters() -> None:
    assert [c.name for c in checks.counter_checks(TOTALS, COUNTED, failed=0, drafter="none")] == ["counter_generation_tokens"]


def test_step_sizes_and_merges() -> None:
    oversized = checks.step_size_check(7, 1, 500, draft_length=3, drafter="eagle3")
    assert oversized is not None
    assert not oversized.ok
    assert set(oversized.affects) == {"steps", "acceptance"}
    assert checks.step_size_check(7, 0, 500, draft_length=None, drafter="ngram") is None
    few, many = (checks.step_size_check(2, n, 1000, draft_length=0, drafter="none") for n in (10, 11))
    assert few is not None
    assert many is not None
    assert (few.ok, many.ok) == (True, False)
    assert not checks.merge_check(["exact", "merged"]).ok


def test_coalesced_reads_spoil_step_times_by_the_clients_clock_and_many_of_them_the_rates() -> None:
    assert checks.coalesced_check(0.01, server_clock=False).ok
    assert not checks.coalesced_check(0.0101, server_clock=False).ok
    assert checks.coalesced_check(0.2, server_clock=True).ok
    late = checks.coalesced_check(0.5, server_clock=True)
    assert (late.ok, late.affects) == (False, ("tps",))


def test_time_per_token_and_user_tps_must_agree_within_a_percent() -> None:
    assert checks.tpot_check(3.02, 3.0).ok
    wrong = checks.tpot_check(9.0, 3.0)  # the time between chunks passed off as time per token
    assert not wrong.ok
    assert "111.11 tokens/s" in wrong.message


@pytest.mark.parametrize(
    ("accepted", "drafts", "steps", "drafter", "ok"),
    [
        (0.0, 900.0, 900, "eagle3", False),  # a head loaded under the wrong algorithm
        (1.0, 900.0, 900, "eagle3", True),
        (0.0, 900.0, 900, "ngram", False),
        (0.0, 12.0, 900, "ngram", True),  # hardly drafted: too few to judge
        (0.0, 0.0, 900, "ngram", True),  # found nothing to look up
        (0.0, 0.0, 900, "draft_model", False),  # a model always has something to propose
        (0.0, None, 900, "mtp", False),
    ],
)
def test_a_drafter_that_contributes_nothing_is_marked(accepted: float, drafts: float | None, steps: int, drafter: str, ok: bool) -> None:
    found = checks.contribution_check(accepted, drafts, steps, drafter)
    assert found is not None
    assert found.ok is ok
    assert ok or found.affects == ("all",)


def test_few_steps_and_baselines_are_not_judged() -> None:
    assert checks.contribution_check(0.0, 150.0, 150, "eagle3") is None
    assert checks.contribution_check(0.0, 900.0, 900, "none") is None


def bad(*affects: str) -> list[Check]:
    return [Check("x", 1, 0, False, affects, "")]  # type: ignore[arg-type]


def test_validity_follows_what_checks_affect() -> None:
    every = {"tps": True, "steps": True, "acceptance": True, "valid": True}
    assert validity([], has_steps=True, has_acceptance=True) == every
    assert validity(bad("tps"), has_steps=True, has_acceptance=True) == every | {"tps": False, "valid": False}
    assert validity(bad("steps"), has_steps=True, has_acceptance=True) == every | {"steps": False}
    assert validity(bad("acceptance"), has_steps=True, has_acceptance=True) == every | {"acceptance": False, "valid": False}
    assert not any(validity(bad("all"), has_steps=True, has_acceptance=True).values())


def test_a_point_without_a_step_series_is_not_invalid_for_it() -> None:
    found = validity([], has_steps=False, has_acceptance=True)
    assert (found["steps"], found["valid"]) == (False, True)


@pytest.mark.parametrize(("share", "ok"), [(0.0, True), (0.15, True), (0.151, False), (0.9, False)])
def test_other_work_on_the_engines_host_is_found(share: float, ok: bool) -> None:
    check = checks.other_work_check(share)
    assert check is not None
    assert check.ok is ok
    assert "tps" in check.affects
    assert checks.other_work_check(None) is None
