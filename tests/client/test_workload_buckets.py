"""ISL buckets, compared with a second o200k_base implementation and with the rule of SPEED-Bench written down once more."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import bpe_openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsweep.client.workload import WorkloadError
from specsweep.client.workload.buckets import DEFAULT_PADDING, count, decode, encode, fit

OTHER = bpe_openai.get_encoding("o200k_base")


def _by_the_rule(text: str, target: int, padding: str) -> str:
    """SPEED-Bench's preparation with the other implementation. A cut inside a character is left to the callers to avoid."""
    ids = OTHER.encode_ordinary(text)
    if len(ids) < target:
        text += padding * math.ceil((target - len(ids)) / len(OTHER.encode_ordinary(padding)))
        ids = OTHER.encode_ordinary(text)
    return text if len(ids) == target else str(OTHER.decode(ids[:target]))


def test_same_ids_as_a_second_implementation() -> None:
    rng = random.Random(1)
    texts = [
        Path(__file__).read_text(),
        Path(json.__file__).read_text(),
        "<|endoftext|> is plain text here",
        "",
        "\n\n\n   \t",
        "Ⅷ½ 中文 🙂👩‍👩‍👧",
    ]
    for _ in range(400):
        alphabet = rng.choice(["abc XYZ'sll 012\n", "中文字符テスト", "🙂👩\u200d\u0301 ", "".join(map(chr, range(32, 1500)))])
        texts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 80))))
    assert [t for t in texts if encode(t) != list(OTHER.encode_ordinary(t))] == []


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_counting_and_decoding_any_text(text: str) -> None:
    assert decode(encode(text)) == text
    assert count(text) == len(OTHER.encode_ordinary(text))


def test_the_padding_sentence_is_four_tokens() -> None:
    assert count(DEFAULT_PADDING) == 4


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="ascii"), max_size=300), st.integers(1, 120))
def test_fitted_text_is_what_speed_bench_makes(text: str, isl: int) -> None:
    fitted = fit(text, isl)
    assert fitted.text == _by_the_rule(text, isl, DEFAULT_PADDING)
    assert fitted.isl == count(fitted.text)
    assert abs(fitted.isl - isl) <= 2
    assert fitted.padding_share == max(0, isl - count(text)) / isl


def test_exact_fit_is_untouched() -> None:
    text = "Tell me about the sea."
    assert fit(text, count(text)).text == text


def test_longer_is_cut_and_shorter_is_padded() -> None:
    assert fit("one two three four five", 3).text == "one two three"
    padded = fit("Tell me.", 16)
    assert padded.text.startswith("Tell me.Answer now please.\nAnswer now please.\n")
    assert padded.isl == 16
    assert padded.padding_share == pytest.approx(13 / 16)


def test_a_cut_inside_a_character_is_reported_as_it_is() -> None:
    text = "👩‍👩‍👧🫠" * 10
    for isl in range(1, count(text)):
        fitted = fit(text, isl)
        assert fitted.isl == count(fitted.text)
        assert fitted.padding_share == 0


def test_padding_is_a_setting() -> None:
    assert fit("Go", 9, padding=" please").text == "Go please please please please please please please please"


def test_bad_buckets_and_paddings() -> None:
    with pytest.raises(WorkloadError, match="isl=0"):
        fit("x", 0)
    with pytest.raises(WorkloadError, match=r"workload\.padding is empty"):
        fit("x", 10, padding="")
    with pytest.raises(WorkloadError, match=r"workload\.padding=.* merges with itself"):
        fit("x", 100, padding="\n")
