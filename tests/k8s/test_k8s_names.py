"""Names are DNS labels, labels are valid, and different things have different names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.k8s import names
from specsweep.k8s.errors import SpecError

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
FINGERPRINTS = st.text("abcdef0123456789", min_size=1, max_size=32)


@given(st.text(max_size=200), FINGERPRINTS)
def test_every_name_is_a_dns_label_that_ends_in_its_fingerprint(word: str, fingerprint: str) -> None:
    name = names.object_name(word, fingerprint)
    assert DNS_LABEL.match(name)
    assert name.endswith(f"-{fingerprint}")
    assert name == names.object_name(word, fingerprint)


@given(st.text(max_size=100), FINGERPRINTS, st.text(max_size=100), FINGERPRINTS)
def test_different_things_have_different_names(word: str, fingerprint: str, other: str, print_of_other: str) -> None:
    same = (word, fingerprint) == (other, print_of_other)
    assert (names.object_name(word, fingerprint) == names.object_name(other, print_of_other)) == same


def test_long_words_that_begin_alike_stay_apart_and_readable() -> None:
    one, two = (names.object_name("llama-3.3-70b-instruct " * 5 + tail, "3f2a91c0e2") for tail in ("a", "b"))
    assert one != two
    assert one.startswith("llama-3-3-70b-instruct-")


@pytest.mark.parametrize("length", [51, 52, 53, 63, 64, 200])
def test_a_valid_word_that_is_too_long_is_cut(length: int) -> None:
    name = names.object_name("a" * length, "3f2a91c0e2")
    assert DNS_LABEL.match(name)
    assert (name == "a" * length + "-3f2a91c0e2") == (length <= 52)


def test_a_valid_word_is_kept_as_it_is() -> None:
    assert names.object_name("fig7-vllm", "3f2a91c0e2") == "fig7-vllm-3f2a91c0e2"


@pytest.mark.parametrize("fingerprint", ["", "ABC", "a-b", "a" * 33])
def test_a_fingerprint_must_be_one(fingerprint: str) -> None:
    with pytest.raises(SpecError, match="fingerprint="):
        names.object_name("word", fingerprint)


@given(st.text(max_size=200))
def test_every_label_value_is_valid_and_valid_ones_are_kept(text: str) -> None:
    value = names.label_value(text)
    assert LABEL_VALUE.match(value)
    assert value == text or not LABEL_VALUE.match(text)


def test_label_values_that_had_to_change_stay_apart() -> None:
    assert len({names.label_value(text) for text in ("a b", "a  b", "a/b", "a-b", " a-b")}) == 5


def test_the_selector_of_labels_names_each() -> None:
    ours = names.labels("engine", sweep="fig 7", session="s1")
    assert set(names.selector(ours).split(",")) == {f"{key}={value}" for key, value in ours.items()}
    assert names.SESSION not in names.labels("sweep", sweep="fig7")
