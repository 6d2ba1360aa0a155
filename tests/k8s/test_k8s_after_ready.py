"""A server that was ready once must not wait again: whoever measures it has to stop, and is told why."""

from __future__ import annotations

from typing import Any

import k8s_pods as seen
import pytest
from k8s_pods import NOW

from specsweep.k8s.outcomes import Retryable, Verdict
from specsweep.k8s.verdict import Budgets, after_ready, judge

NO_GPUS = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def verdict(pod: dict[str, Any] | None, *events: dict[str, Any], job: dict[str, Any] | None = None) -> Verdict:
    return judge(pod, seen.job() if job is None else job, list(events), now=NOW, budgets=Budgets())


@pytest.mark.parametrize(
    "pod",
    [seen.up(started=300, ready=False), seen.creating(), seen.unscheduled(NO_GPUS, 1)],
    ids=["not ready", "creating", "unscheduled"],
)
def test_after_it_was_ready_it_must_not_wait_again(pod: dict[str, Any]) -> None:
    found = after_ready(verdict(pod))
    assert isinstance(found, Retryable)
    assert "was ready" in found.reason


@pytest.mark.parametrize("events", [(), (seen.event("FailedCreate", "exceeded quota: gpus", 1),)], ids=["no pod", "refused"])
def test_after_it_was_ready_a_job_without_a_pod_has_lost_it(events: tuple[dict[str, Any], ...]) -> None:
    found = after_ready(verdict(None, *events))
    assert isinstance(found, Retryable)
    assert found.kind == "pod gone"
    assert found.reason.startswith("its pod is gone")


def test_after_it_was_ready_a_suspended_job_was_preempted_also_when_its_pod_is_gone() -> None:
    found = after_ready(verdict(None, job=seen.kueue_suspended(1)))
    assert isinstance(found, Retryable)
    assert found.kind == "preempted"


def test_after_it_was_ready_all_else_stays() -> None:
    for found in (verdict(seen.up(started=300, ready=True)), verdict(seen.ended(137, "OOMKilled")), verdict(seen.ended(1))):
        assert after_ready(found) == found
