"""Two orders of the same prompts, and the workloads in them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.agreement import agreement, as_json, tiers
from specsweep.analysis.spectrum import NATS, Place, surprisal_spectrum


def order(*places: float, first: int = 0) -> list[Place]:
    return [Place(f"p{first + i}", "c", place, None, {"s": place}, 10) for i, place in enumerate(places)]


def captured(workload: str, nats: dict[str, float], *, tokens: int = 100, drafter: str = "none") -> dict[str, Any]:
    axes = {"engine": "vllm", "target": "t", "drafter": drafter, "draft_length": None, "batch_size": 4, "isl": 256, "workload": workload}
    rows = [
        {"prompt_id": name, "category": workload, "tokens": tokens, "nats": mean * tokens, "squares": mean**2 * tokens * 1.5}
        for name, mean in nats.items()
    ]
    point = {"point_id": workload + drafter, "axes": axes | {"capture": "logprobs"}, "status": "measured"}
    return {"point": point, "measurement": {"logprobs": {"by_prompt": rows}}}


def test_known_values() -> None:
    """One discordant pair of ten: tau = 8/10; squared rank differences sum to 2: rho = 1 - 6·2/(5·24)."""
    tau, rho = agreement(order(0.1, 0.3, 0.5, 0.7, 0.9), order(0.1, 0.5, 0.3, 0.7, 0.9))
    assert (tau.value, rho.value) == (pytest.approx(0.8), pytest.approx(0.9))
    assert tau.low == pytest.approx(math.tanh(math.atanh(0.8) - 1.959964 * math.sqrt(0.437)))
    assert rho.high == pytest.approx(math.tanh(math.atanh(0.9) + 1.959964 * math.sqrt((1 + 0.405) / 2)))


def test_only_prompts_of_both_orders_count() -> None:
    found = agreement(order(0.1, 0.2, 0.3, 0.4), order(0.9, 0.8, 0.7, first=2))
    assert [(a.prompts, a.value, a.low) for a in found] == [(2, pytest.approx(-1), None)] * 2


@pytest.mark.parametrize("other", [[], order(0.5), order(0.5, 0.5, 0.5)])
def test_where_nothing_can_be_said_nothing_is(other: list[Place]) -> None:
    assert agreement(order(0.1, 0.2, 0.3), other) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=6, max_size=40))
def test_it_is_symmetric_turns_with_the_order_and_its_interval_holds_it(pairs: list[tuple[int, int]]) -> None:
    one, other = (order(*(float(p[i]) for p in pairs)) for i in (0, 1))
    turned = order(*(-float(p[1]) for p in pairs))
    for a, b, c in zip(agreement(one, other), agreement(other, one), agreement(one, turned), strict=True):
        assert a.value == pytest.approx(b.value)
        assert a.value == pytest.approx(-c.value)
        assert a.low is None or a.low <= a.value <= a.high  # type: ignore[operator]


def test_the_interval_covers_what_normal_samples_come_from() -> None:
    """Spearman's of a bivariate normal with correlation r is 6/pi asin(r/2), Kendall's 2/pi asin(r)."""
    r, n, rng, inside = 0.6, 40, np.random.default_rng(1), [0, 0]
    truth = (2 / math.pi * math.asin(r), 6 / math.pi * math.asin(r / 2))
    for _ in range(300):
        x = rng.standard_normal(n)
        y = r * x + math.sqrt(1 - r * r) * rng.standard_normal(n)
        found = agreement(order(*x), order(*y))
        inside = [count + (a.low <= t <= a.high) for count, a, t in zip(inside, found, truth, strict=True)]  # type: ignore[operator]
    assert all(270 <= count <= 297 for count in inside), inside


def test_workloads_stand_by_what_was_captured_of_them() -> None:
    attempts = [
        captured("low_entropy", {"a": 0.4, "b": 0.6, "c": 0.5}),
        captured("high_entropy", {"d": 2.0, "e": 2.5, "f": 1.5}),
        captured("mixed", {"g": 1.0, "h": 1.1, "i": 0.9}),
    ]
    places = surprisal_spectrum(attempts)
    assert [p.category for p in places] == ["high_entropy"] * 3 + ["mixed"] * 3 + ["low_entropy"] * 3
    found = tiers(attempts, {NATS: places})
    assert [t.workload for t in found] == ["high_entropy", "mixed", "low_entropy"]
    nats = found[0].nats
    assert nats is not None
    assert nats.value == pytest.approx(2.0)
    assert nats.low is not None
    assert nats.low < 2.0 < nats.high  # type: ignore[operator]
    assert as_json(found[2])["prompts"] == 3


def test_a_second_capture_of_a_workload_is_another_series_and_counts_once_in_its_mean() -> None:
    attempts = [
        captured("low", {"a": 0.5, "b": 1.0}),
        captured("low", {"a": 0.5, "b": 1.0}, drafter="eagle3"),
        captured("high", {"c": 2.0}),
    ]
    places = surprisal_spectrum(attempts)
    assert {p.prompt_id: len(p.values) for p in places} == {"a": 2, "b": 2, "c": 1}
    low = tiers(attempts, {NATS: places})[-1]
    assert low.nats is not None
    assert (low.prompts, low.nats.value, low.nats.n) == (2, pytest.approx(0.75), 2)
