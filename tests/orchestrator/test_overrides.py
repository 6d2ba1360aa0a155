"""Override grammar: what Hydra's parser says, minus what it does to versions and hashes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.overrides import parse_overrides, split_values


def parse(text: str) -> Any:
    (setting,) = parse_overrides([text], options=lambda group: ["draft_model", "ngram", "none"])
    return setting


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("drafter=none,ngram", "drafter", ("none", "ngram")),
        ("batch_size=1,2,4", "batch_size", (1, 2, 4)),
        ("draft_length=range(1,6)", "draft_length", (1, 2, 3, 4, 5)),
        ("isl=choice(256,1000)", "isl", (256, 1000)),
        ("temperature=1e-6,0", "temperature", (1e-6, 0)),
        ("temperature=range(0,1,0.25)", "temperature", (0.0, 0.25, 0.5, 0.75)),
        ("batch_size=sort(4,1,2)", "batch_size", (1, 2, 4)),
        ("drafter=glob(n*)", "drafter", ("ngram", "none")),
        ("engine.args={a:1},{a:2}", "engine.args", ({"a": 1}, {"a": 2})),
        ("workload.temperature=0.5,1", "temperature", (0.5, 1)),
    ],
)
def test_sweeps(text: str, key: str, values: tuple[Any, ...]) -> None:
    setting = parse(text)
    assert (setting.key, setting.values, setting.swept) == (key, values, True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("engine.version=0.10", "0.10"),
        ("target.revision=12e4567", "12e4567"),
        ("target.model.sha256=00123", "00123"),
        ("target=qwen2.5-72b", "qwen2.5-72b"),
        ("target=7e5", "7e5"),
        ("name=2026", "2026"),
        ("hardware=4090", "4090"),
        ("engine.version='0.10'", "0.10"),
        ("engine.image=ghcr.io/x/y:0.10", "ghcr.io/x/y:0.10"),
        ("endpoint=http://host:8000/v1", "http://host:8000/v1"),
        ("store=/data/a b", "/data/a b"),
        ("engine.max_batch=16", 16),
        ("+x=1e4", 10000.0),
        ("engine.threads=null", None),
        ("engine.args={a:1}", {"a": 1}),
    ],
)
def test_one_value_and_text_kept_to_the_character(text: str, value: Any) -> None:
    setting = parse(text)
    assert setting.value == value
    assert type(setting.value) is type(value)
    assert not setting.swept


def test_swept_text_keeps_its_characters_too() -> None:
    assert parse("engine.version=0.10,0.1,'a,b',1e3,null").values == ("0.10", "0.1", "a,b", "1e3", None)
    assert parse("engine.version=choice(0.10, 1e3)").values == ("0.10", "1e3")


_PLAIN = st.from_regex(r"[0-9][0-9a-f._]{0,11}", fullmatch=True).filter(lambda t: not t.endswith("."))


@given(st.lists(_PLAIN, min_size=1, max_size=4))
@example(["12e4567"])
@example(["0.10", "1_000"])
def test_whatever_looks_like_a_version_or_hash_survives(values: list[str]) -> None:
    assert parse(f"engine.version={','.join(values)}").values == tuple(values)


@given(st.lists(st.text("ab,'\"\\()[]{}: ", max_size=6), min_size=1, max_size=4))
def test_splitting_undoes_joining_of_quoted_values(values: list[str]) -> None:
    quoted = ["'" + v.replace("\\", "\\\\").replace("'", "\\'") + "'" for v in values]
    assert split_values(",".join(quoted)) == quoted


@pytest.mark.parametrize("text", ["~drafter.model", "~engine.threads"])
def test_deletion(text: str) -> None:
    setting = parse(text)
    assert (setting.key, setting.action, setting.values) == (text[1:], "delete", ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("batch_size", "cannot be read"),
        ("batch_size=[1,2", "cannot be read"),
        ("hydra.run.dir=x", "store=DIR"),
        ("batch_size=shuffle(1,2)", "chance"),
        ("temperature=interval(0,1)", "range(start,stop,step)"),
        ("drafter=glob(x*)", "draft_model, ngram, none"),
        ("drafter@other=ngram", "packages"),
        ("draft_length=range(6,1)", "empty"),
        ("batch_size=range(1,100000000)", "99999999 values"),
        ("engine.version=str(0.10)", "written out"),
        ("engine.version=range(1,3)", "has no range"),
    ],
)
def test_refused_with_the_override_and_what_to_do(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert text in caught.value.message
    assert words in caught.value.message
