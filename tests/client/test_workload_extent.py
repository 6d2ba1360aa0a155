"""How long the prompts of a workload are, before there is a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.workload import WorkloadError, buckets, extent, load_prompts

SETTINGS: dict[str, Any] = {
    "corpus": "mini/qualitative",
    "prompts": 220,
    "ramp_prompts": 4,
    "ramp_corpus": "high_entropy",
    "order": "as_listed",
}


def talk(*texts: str, cap: int | None = None, before: str = "", history: bool = True) -> extent.Talk:
    return extent.Talk("p", texts, cap, before=before, has_history=history)


def test_the_conversations_are_those_that_a_run_sends() -> None:
    found, sent = extent.extent(SETTINGS, 0), load_prompts(SETTINGS, isl=0, tokenizer=None)
    assert found is not None
    for talks, prompts in ((found.main, sent.main), (found.ramp, sent.ramp)):
        assert [(t.prompt_id, t.turns) for t in talks] == [(p.prompt_id, 1 + len(p.turns)) for p in prompts]
        assert [t.said(extent.tokens)[0] for t in talks] == [p.isl_o200k for p in prompts]


def test_in_a_bucket_the_bucket_is_the_length() -> None:
    found = extent.extent({**SETTINGS, "corpus": "mixed", "prompts": 3}, 256)
    assert found is not None
    assert {t.need(100, extent.tokens, answers=True) for t in found.all} == {356}
    assert extent.prompt_tokens_mean(found, 100) == 256


def test_a_history_holds_what_was_said_and_answered_before() -> None:
    of = talk("one two", "three", "four five six", before="be brief")
    a, b, c, d = (buckets.count(text) for text in (*of.texts, of.before))
    assert of.said(extent.tokens) == [d + a, d + a + b, d + a + b + c]
    assert of.need(10, extent.tokens, answers=False) == d + a + b + c + 10
    assert of.need(10, extent.tokens, answers=True) == d + a + b + c + 30
    alone = talk(*of.texts, history=False)
    assert alone.need(10, extent.tokens, answers=True) == max(a, b, c) + 10
    assert talk("one two", cap=7).need(1000, extent.tokens, answers=True) == a + 7


def test_turns_are_counted_where_prompts_go_round() -> None:
    of = extent.Extent((talk("a", "b", "c"), talk("d"), talk("e", "f")), (talk("r"), talk("s", "t")))
    assert extent.requests(of, 3, 0) == 6
    assert extent.requests(of, 8, 3) == 6 + 6 + 4 + 4


@given(st.lists(st.lists(st.text(max_size=40), min_size=1, max_size=3), min_size=1, max_size=5), st.integers(1, 60), st.integers(1, 80))
def test_what_is_found_too_long_is_too_long(texts: list[list[str]], room: int, osl: int) -> None:
    """Bytes only spare counting: they decide nothing that tokens would decide otherwise."""
    of = extent.Extent(tuple(talk(*t) for t in texts), (talk("r"),))
    for answers in (False, True):
        found = extent.too_long(of, osl, room, answers=answers)
        over = [t for t in of.all if t.need(osl, extent.tokens, answers=answers) > room]
        assert (found in over) if over else (found is None)
    assert extent.longest(of, osl) == max(t.need(osl, extent.tokens, answers=True) for t in of.all)


def test_random_tokens_have_no_texts_and_bad_settings_are_told(tmp_path: Path) -> None:
    assert extent.extent({"corpus": "random", "prompts": 1, "ramp_prompts": 1}, 64) is None
    file = tmp_path / "few.jsonl"
    file.write_text(json.dumps({"prompt_id": "p", "category": "c", "text": "t"}) + "\n")
    with pytest.raises(WorkloadError, match="ask for fewer"):
        extent.extent({"corpus": str(file), "prompts": 1, "ramp_prompts": 1}, 0)
