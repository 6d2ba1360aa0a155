"""Conversations of several turns in a sweep: what they need of an engine, of its context, and of the configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_samples import only, plan_of

from specsweep.client.trace import Exchange, PlannedRequest
from specsweep.client.workload import Prompt, PromptSet, load_tokenizer
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.measuring import chat_recipe, recording, requests_of
from specsweep.orchestrator.points import Point
from specsweep.orchestrator.preparation import TURN_MARGIN, Preparation, conversation_tokens

TINY = Path(__file__).parents[1] / "tiny_pair" / "target"


def point(*words: str) -> Point:
    return only(plan_of("engine=llamacpp", "target=tiny", "drafter=none", "workload.prompts=2", "isl=64", "batch_size=1", *words))


def talks(ids: int = 5) -> PromptSet:
    main, ramp = (Prompt(name, "c", tuple(range(ids)), name, 3, turns=("and?", "why?")) for name in "mr")
    return PromptSet((main,), (ramp,))


def test_the_recipe_is_what_the_point_says() -> None:
    words = (
        "workload.osl=40",
        "+workload.thinking=cut",
        "target.max_model_len=512",
        "workload.system=hush",
        "+target.reasoning_effort=low",
    )
    recipe = chat_recipe(point(*words), TINY, "tiny")
    assert (recipe.tokenizer, recipe.dialect, recipe.model) == (str(TINY), "llamacpp", "tiny")
    assert (recipe.sampling.max_tokens, recipe.thinking, recipe.thinking_end) == (40, "cut", "</think>")
    assert (recipe.max_model_len, recipe.system, recipe.draft_length) == (512, "hush", 0)
    assert recipe.template_args == {"reasoning_effort": "low"}
    assert chat_recipe(point(), TINY, "tiny").thinking == "keep"


def test_thinking_is_kept_or_cut_and_nothing_else() -> None:
    with pytest.raises(ConfigError, match=r"workload\.thinking.*keep, cut"):
        point("+workload.thinking=drop")


def test_a_server_of_texts_is_refused_before_it_is_measured() -> None:
    attached = point("engine=openai_chat", "cluster=attach", "endpoint=http://h:1")
    with pytest.raises(ConfigError, match=r"conversations of several turns, and engine openai_chat takes texts"):
        requests_of(attached, talks(), "m")
    assert requests_of(point(), talks(), "m")[0].turns == ("and?", "why?")


@pytest.mark.parametrize("osl", [8, 300])
def test_the_context_of_an_engine_holds_the_whole_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, osl: int) -> None:
    tokenizer = load_tokenizer(TINY)
    (prompt,) = talks(100).main
    words = sum(len(tokenizer.encode(text)) for text in prompt.turns)
    assert conversation_tokens(prompt, osl, tokenizer) == 100 + 3 * osl + 2 * TURN_MARGIN + words
    assert conversation_tokens(replace(prompt, turns=()), osl, tokenizer) == 100 + osl
    preparation = Preparation(tmp_path, lambda line: None)
    monkeypatch.setattr(preparation, "prompts", lambda _: talks(100))
    monkeypatch.setattr(preparation, "tokenizer_source", lambda _: TINY)
    need = conversation_tokens(prompt, osl, tokenizer)
    context = preparation.context_per_slot([point(f"workload.osl={osl}")])
    assert need < context < need + 300


def test_an_engine_is_never_asked_for_more_context_than_the_target_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preparation = Preparation(tmp_path, lambda line: None)
    monkeypatch.setattr(preparation, "prompts", lambda _: talks(100))
    monkeypatch.setattr(preparation, "tokenizer_source", lambda _: TINY)
    assert preparation.context_per_slot([point("workload.osl=300", "target.max_model_len=500")]) == 500
    assert preparation.context_per_slot([point("workload.osl=300", "target.max_model_len=5000")]) % 256 == 0


def test_a_recording_names_the_turns(tmp_path: Path) -> None:
    from specsweep.client.dialects import dialect
    from specsweep.client.recording import read_recording

    planned = PlannedRequest(4, "p", "p", 2, "c", "main", 0, 3, 8, b'{"prompt":[1,2,3]}')
    unsent = planned.later(3, n_prompt=-1, max_tokens=8, body=b"")
    raw: Any = [(4, planned, Exchange(1, 0, [], [], "eof", 2)), (7, unsent, Exchange(2, 0, [], [], "not_sent: x", 2))]
    path = tmp_path / "raw.jsonl.gz"
    path.write_bytes(recording(point(), dialect("llamacpp"), {}, raw, "", ""))
    requests = read_recording(path).requests
    assert [r.plan["turn"] for r in requests] == [2, 3]
    assert dialect("llamacpp").read(requests[1].exchange, draft_length=0, n_prompt=None).error_kind == "not_sent"
