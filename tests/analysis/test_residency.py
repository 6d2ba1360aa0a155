"""A batch that the engine did not run at once is told from its gauges and counters, with the numbers and what to do."""

from __future__ import annotations

import pytest

from specsweep.analysis.check import Check
from specsweep.analysis.residency import residency_checks
from specsweep.client.trace import EngineCounters, GaugeSample

LONG = 20.0  # seconds of steady window


def looks(*pairs: tuple[float, float | None]) -> list[GaugeSample]:
    return [GaugeSample(float(t), running, waiting) for t, (running, waiting) in enumerate(pairs, 1)]


def checked(
    gauges: list[GaugeSample], *, running_max: float | None = None, window_s: float = LONG, counters: EngineCounters | None = None
) -> dict[str, Check]:
    highest = max((g.running for g in gauges), default=None) if running_max is None else running_max
    return {c.name: c for c in residency_checks(8, gauges, highest, window_s, counters)}


def failed(found: dict[str, Check]) -> set[str]:
    return {name for name, c in found.items() if not c.ok}


def test_a_full_batch_passes_with_the_drain_and_a_look_in_the_middle_of_a_step() -> None:
    gauges = looks((3, 5), *[(8, 0)] * 8, (7, 1), (7, 0), (4, 0), (1, 0))
    found = checked(gauges, counters=EngineCounters(preemptions=0.0))
    assert not failed(found)
    assert found["running_requests"].value == 8
    assert found["queued_in_engine"].value == pytest.approx(2 / 10)


def test_a_cache_that_never_holds_the_batch_is_told_by_both_gauges() -> None:
    found = checked(looks(*[(5, 3), (4, 4)] * 6))
    assert failed(found) == {"running_requests", "queued_in_engine"}
    for words in ("up to 5 requests at once, fewer than 8", "up to 4 waited", "KV cache or its batch limit", "lower batch_size, isl or"):
        assert words in found["running_requests"].message
    assert "in 12 of 12 looks" in found["queued_in_engine"].message
    assert set(found["queued_in_engine"].affects) == {"tps", "steps"}


def test_a_batch_that_is_whole_only_now_and_then_is_another_batch() -> None:
    """The highest gauge says 8 here: short answers, for a moment. Most of the time the cache held six."""
    found = checked(looks(*[(6, 2)] * 7, *[(8, 0)] * 3))
    assert failed(found) == {"queued_in_engine"}
    assert "6 ran and 2 waited (medians)" in found["queued_in_engine"].message


def test_requests_that_wait_before_the_engine_are_not_its_caches_fault() -> None:
    found = checked(looks(*[(5, 0)] * 9))
    assert failed(found) == {"running_requests"}
    assert "a proxy or a router" in found["running_requests"].message
    assert "KV" not in found["running_requests"].message


def test_more_running_requests_than_were_sent_are_somebody_elses() -> None:
    found = checked(looks(*[(11, 0)] * 9))
    assert failed(found) == {"running_requests"}
    assert "another client" in found["running_requests"].message


@pytest.mark.parametrize(
    ("gauges", "window_s"),
    [
        (looks((5, 3), (5, 3), (5, 3)), 3.0),  # a short point
        ([], LONG),  # an engine without gauges
    ],
)
def test_gauges_that_were_hardly_read_decide_nothing(gauges: list[GaugeSample], window_s: float) -> None:
    found = checked(gauges, window_s=window_s)
    assert not failed(found)
    assert all("not decided" in found[name].message for name in ("running_requests", "queued_in_engine"))


def test_looks_that_all_missed_a_short_load_decide_nothing() -> None:
    assert not failed(checked(looks((0, 0), (0, 0), (0, 0))))
    assert failed(checked(looks((0, 8), (0, 8)))) == {"running_requests"}


def test_a_maximum_of_an_earlier_version_without_its_looks_still_decides() -> None:
    assert failed(checked([], running_max=3.0)) == {"running_requests"}


def test_an_engine_without_a_gauge_of_waiting_requests_decides_by_the_other() -> None:
    found = checked(looks(*[(5, None)] * 9))
    assert failed(found) == {"running_requests"}


def test_preemptions_must_be_zero_where_they_are_counted() -> None:
    found = checked([], counters=EngineCounters(preemptions=12.0))["preemptions"]
    assert not found.ok
    assert "12 times the KV cache was full" in found.message
    assert checked([], counters=EngineCounters(preemptions=0.0))["preemptions"].ok
    for unknown in (None, EngineCounters()):
        found = checked([], counters=unknown)["preemptions"]
        assert found.ok
        assert found.value is None
        assert "not decided" in found.message
