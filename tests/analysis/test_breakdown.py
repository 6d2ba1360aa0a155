"""Metrics by what prompts are, and what is said of prompts that are no texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fake_engine import FakeEngine, FakePrompt, run

from specsweep.analysis.breakdown import band, cautions
from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.trace import PointTrace

EASY = {f"p{i}" for i in range(1, 16, 2)}


def labelled(**labels: Any) -> PointTrace:
    """Every second prompt has the labels, and is easy to guess."""
    prompts = [FakePrompt(f"p{i}", (0.95,) if i % 2 else (0.1,), 150, "any") for i in range(16)]
    trace = run(FakeEngine(4, 1, max_tokens=200), prompts)
    trace.requests = [replace(r, **labels) if r.prompt_id in EASY else r for r in trace.requests]
    return trace


FACTS = PointFacts(4, 1, "eagle3", max_batch=4)


@pytest.mark.parametrize("label", ["sub_category", "difficulty", "source"])
def test_each_label_that_tells_prompts_apart_has_its_numbers(label: str) -> None:
    found = measure(labelled(**{label: "code"}), FACTS)["by_label"]
    assert found.keys() == {label}
    code, other = found[label]["code"], found[label][""]
    assert code["al_decode"] == pytest.approx(1.95, abs=0.05)
    assert other["al_decode"] == pytest.approx(1.10, abs=0.05)
    assert code["al_decode_ci_low"] > other["al_decode_ci_high"]


def test_prompts_are_split_by_how_much_of_them_is_padding_and_repetition() -> None:
    found = measure(labelled(padding_share=0.6, repeated_share=1.0), FACTS)
    assert found["by_label"]["padding"].keys() == {"0% to 5%", "50% to 75%"}
    assert found["by_label"]["repetition"].keys() == {"0% to 5%", "75% to 100%"}
    assert found["prompts"]["padding_share_mean"] == pytest.approx(0.3)
    assert found["prompts"]["repeated_share_max"] == 1.0
    assert "isl_target_mean" not in found["prompts"], "nobody said it"


@pytest.mark.parametrize(("share", "words"), [(0.0, "0% to 5%"), (0.05, "5% to 25%"), (0.999, "75% to 100%"), (1.0, "75% to 100%")])
def test_a_share_has_one_band(share: float, words: str) -> None:
    assert band(share) == words


def test_prompts_that_are_no_texts_are_told_once_a_workload() -> None:
    def attempt(isl: int, **facts: float) -> dict[str, Any]:
        return {"point": {"axes": {"workload": "mine", "isl": isl, "batch_size": 1}}, "measurement": {"prompts": facts}}

    found = cautions(
        [attempt(256, padding_share_mean=0.1), *2 * [attempt(2000, padding_share_mean=0.4)], attempt(32000, repeated_share_mean=0.94)]
    )
    assert len(found) == 2
    assert "ISL 2000 are 40% padding" in found[0]
    assert "94% of the prompts of mine · ISL 32000 repeats" in found[1]
