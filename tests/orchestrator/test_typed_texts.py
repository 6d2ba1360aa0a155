"""A prompt typed on the command line is sent as it was typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from specsweep.orchestrator.overrides import parse_overrides
from specsweep.orchestrator.typed_texts import text_setting


def read(word: str) -> object:
    (setting,) = parse_overrides([word], options=lambda key: ())
    assert not setting.swept
    return OmegaConf.to_container(OmegaConf.create({"x": setting.value}), resolve=True)["x"]  # type: ignore[call-overload,index]


@pytest.mark.parametrize(
    "text",
    [
        "Write a merge sort in C++, please.",
        "1,2,3",
        "{a: [1, 2]} (and = more)",
        "${workload.osl} costs $5, \\${x}",
        'Say "yes", then "no"',
        "it's",
        "12e3",
        "true",
        "line\nbreak\t and \\n",
        " spaces ",
        "range(1,3)",
        "日本語 ```code```",
    ],
)
def test_nothing_in_a_prompt_is_parsed(text: str) -> None:
    assert read(f"workload.prompt={text}") == text


@given(
    st.text(st.characters(blacklist_characters="'\"", blacklist_categories=["Cs"]), min_size=1).filter(
        lambda t: t.strip().lower() not in ("null", "")
    )
)
def test_any_text_without_quotes_survives(text: str) -> None:
    assert read(f"workload.prompt={text}") == text


@pytest.mark.parametrize("word", ['workload.prompt="a, b"', "workload.prompt='a, b'", "+workload.prompt=a, b", "++workload.prompt=a, b"])
def test_quotes_around_the_whole_and_plus_signs_mean_what_they_do_everywhere(word: str) -> None:
    assert read(word) == "a, b"


def test_null_is_none_and_other_keys_are_not_touched() -> None:
    assert read("workload.prompt=null") is None
    assert text_setting("workload.prompts=3") is None
    assert text_setting("workload.osl=3") is None
