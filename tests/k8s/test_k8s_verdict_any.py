"""Whatever JSON an API server sends, there is a verdict, and it is never readiness without its condition."""

from __future__ import annotations

from typing import Any

import k8s_pods as seen
from hypothesis import given, settings
from hypothesis import strategies as st
from k8s_pods import NOW

from specsweep.k8s.outcomes import Ready, Retryable, Starting, Terminal
from specsweep.k8s.verdict import Budgets, judge

NO_GPUS = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
WORDS = st.sampled_from(
    [
        *["True", "False", "Pending", "Running", "Failed", "Ready", "PodScheduled", "OOMKilled", "Evicted", "main", "ErrImagePull", "x"],
        *("", seen.ago(5), "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"),
    ]
)
KEY_WORDS = """
metadata spec status phase conditions type reason message containerStatuses initContainerStatuses name state waiting running terminated
exitCode startedAt restartCount lastTransitionTime creationTimestamp nodeName suspend deletionTimestamp schedulingGates firstTimestamp
series containers resources limits memory signal count
"""
KEYS = st.sampled_from(KEY_WORDS.split())
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-300, 300), st.floats(allow_nan=False), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=25,
)
OBJECTS = st.dictionaries(KEYS, ANY_JSON, max_size=5)
WHOLE = st.sampled_from(
    [
        seen.ended(1),
        seen.up(started=5, ready=True),
        seen.up(started=5, ready=False),
        seen.creating(),
        seen.unscheduled(NO_GPUS, 5),
    ]
)


@st.composite
def damaged_pods(draw: st.DrawFn) -> dict[str, Any]:
    """A real pod of which some branches are cut off or replaced by anything."""

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: draw(ANY_JSON) if draw(st.integers(0, 14)) == 0 else cut(item)
                for key, item in value.items()
                if draw(st.integers(0, 9))
            }
        return [cut(item) for item in value] if isinstance(value, list) else value

    return dict(cut(draw(WHOLE)))


@settings(deadline=None, max_examples=40)
@given(st.one_of(st.none(), OBJECTS, damaged_pods()), st.one_of(st.none(), OBJECTS), st.lists(OBJECTS, max_size=3))
def test_no_json_makes_it_raise_and_none_makes_it_ready_without_the_condition(
    pod: dict[str, Any] | None, job: dict[str, Any] | None, events: list[dict[str, Any]]
) -> None:
    found = judge(pod, job, events, now=NOW, budgets=Budgets())
    assert isinstance(found, Starting | Ready | Retryable | Terminal)
    if isinstance(found, Ready):
        status = (pod or {})["status"]
        assert any(item.get("type") == "Ready" and item.get("status") == "True" for item in status["conditions"] if isinstance(item, dict))
        assert not (pod or {})["metadata"].get("deletionTimestamp") if isinstance((pod or {}).get("metadata"), dict) else True
