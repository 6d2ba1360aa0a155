"""Which sessions run at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specsweep.orchestrator.admission import Admission, Need

NEEDS = st.lists(st.builds(Need, st.sampled_from(["", "B200", "H100"]), st.integers(0, 8)), min_size=1, max_size=12)


def test_later_sessions_pass_one_that_waits_for_other_gpus_and_none_that_waits_for_the_same() -> None:
    admission = Admission(4, {"B200": 8})
    waiting = {"big": Need("B200", 8), "next": Need("B200", 8), "small": Need("B200", 1), "other": Need("H100", 8)}
    assert admission.admit(waiting) == ["big", "other"]
    assert admission.admit({"next": waiting["next"], "small": waiting["small"]}) == []
    admission.ended("big")
    assert admission.admit({"next": waiting["next"], "small": waiting["small"]}) == ["next"]


def test_what_is_more_than_the_limit_runs_alone() -> None:
    admission = Admission(9, {"B200": 4})
    assert admission.admit({"a": Need("B200", 8), "b": Need("B200", 1)}) == ["a"]
    admission.ended("a")
    assert admission.admit({"b": Need("B200", 1)}) == ["b"]


@given(NEEDS, st.integers(1, 4), st.integers(1, 8))
def test_all_come_to_run_within_the_limits_and_in_order_by_product(needs: list[Need], sessions: int, gpus: int) -> None:
    waiting = {str(i): need for i, need in enumerate(needs)}
    admission = Admission(sessions, {"B200": gpus})
    running: dict[str, Need] = {}
    order: list[str] = []
    while waiting or running:
        for name in admission.admit(waiting):
            running[name] = waiting.pop(name)
            order.append(name)
        assert running, "somebody always runs"
        assert len(running) <= sessions
        used = [need.gpus for need in running.values() if need.product == "B200"]
        assert sum(used) <= gpus or len([g for g in used if g]) == 1
        first = next(iter(running))
        del running[first]
        admission.ended(first)
    for product in ("", "B200", "H100"):
        same = [int(name) for name in order if needs[int(name)].product == product]
        assert same == sorted(same)
