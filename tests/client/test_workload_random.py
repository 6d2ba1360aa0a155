"""Random tokens: of the target's own vocabulary, of the length that was asked for, and the same for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsweep.client.workload import WorkloadError, check_prompts, load_prompts, load_tokenizer, shortest_text, workload_hash
from specsweep.client.workload.random_tokens import random_texts

TINY = Path(__file__).parents[1] / "tiny_pair" / "target"
RANDOM: dict[str, Any] = {"corpus": "random", "prompts": 5, "ramp_prompts": 2, "osl": 8, "chat": False, "seed": 0}


class OneWord:
    """A vocabulary whose tokens all merge into one."""

    vocab_size = 10

    def ordinary_ids(self) -> list[int]:
        return list(range(10))

    def decode(self, ids: Any) -> str:
        return "a"

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        return [0]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(TINY)


@pytest.mark.parametrize("words", ["ordinary", "all"])
def test_prompts_are_as_long_as_asked_for_in_tokens_of_the_target(tokenizer: Any, words: str) -> None:
    found = load_prompts({**RANDOM, "vocabulary": words}, isl=300, tokenizer=tokenizer)
    assert (len(found.main), len(found.ramp)) == (5, 2)
    prompts = (*found.main, *found.ramp)
    assert all(len(tokenizer.encode(p.text)) == 300 for p in prompts)
    assert len({p.text for p in prompts}) == len({p.prompt_id for p in prompts}) == 7
    assert {p.category for p in prompts} == {"random"}
    assert all(p.padding_share == 0 for p in prompts)


@pytest.mark.parametrize("isl", [256, 8000])
def test_a_text_that_a_cut_makes_longer_is_cut_elsewhere(tokenizer: Any, isl: int) -> None:
    """Seed 1 has texts whose cut at these lengths falls within a character, which is encoded to more tokens."""
    texts = random_texts(tokenizer, count=5, isl=isl, words="ordinary", seed=1)
    assert [len(tokenizer.encode(text)) for text in texts] == [isl] * 5


class NeverExact(OneWord):
    """Every text has twice as many tokens as it was made of."""

    def decode(self, ids: Any) -> str:
        return "a" * len(ids)

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        return [0] * (len(text) * 2)


def test_where_no_cut_gives_the_length_the_nearest_is_taken() -> None:
    assert len(random_texts(NeverExact(), count=1, isl=1, words="ordinary", seed=0)[0]) == 1, "but no text is empty"  # type: ignore[arg-type]
    (text,) = random_texts(NeverExact(), count=1, isl=9, words="ordinary", seed=0)  # type: ignore[arg-type]
    assert len(NeverExact().encode(text)) == 12, "six ids are the fewest that are tried"


def test_ordinary_tokens_hold_no_special_one(tokenizer: Any) -> None:
    special = set(range(tokenizer.vocab_size)) - set(tokenizer.ordinary_ids())
    assert set(tokenizer.eos_ids) <= special
    for text in random_texts(tokenizer, count=40, isl=500, words="ordinary", seed=3):
        assert not special & set(tokenizer.encode(text))
    everything = random_texts(tokenizer, count=40, isl=500, words="all", seed=3)
    assert any(special & set(tokenizer.encode(text)) for text in everything), "the whole range of ids holds them"


def test_ids_follow_each_other_from_an_offset_of_numpys_frozen_generator(tokenizer: Any) -> None:
    import numpy as np

    ordinary = tokenizer.ordinary_ids()
    offsets = np.random.RandomState(7).randint(0, len(ordinary), size=2)
    texts = random_texts(tokenizer, count=2, isl=20, words="ordinary", seed=7)
    for i, text in enumerate(texts):
        start = int(offsets[i]) + i
        recipe = tokenizer.decode([ordinary[(start + j) % len(ordinary)] for j in range(30)])
        assert recipe.startswith(text[:-8])


def test_a_chat_template_goes_around_them(tokenizer: Any) -> None:
    plain = load_prompts(RANDOM, isl=50, tokenizer=tokenizer).main[0]
    chat = load_prompts({**RANDOM, "chat": True}, isl=50, tokenizer=tokenizer).main[0]
    assert chat.text == plain.text
    assert len(chat.ids) > len(plain.ids)


def test_what_shapes_them_names_them() -> None:
    names = {workload_hash({**RANDOM, **change}, isl) for change in ({}, {"vocabulary": "all"}, {"seed": 1}) for isl in (64, 128)}
    assert len(names) == 6
    assert workload_hash({**RANDOM, "vocabulary": "ordinary"}, 64) == workload_hash(RANDOM, 64)


def test_bad_wishes_are_told(tokenizer: Any) -> None:
    check_prompts(RANDOM, 64)
    with pytest.raises(WorkloadError, match=r"workload\.vocabulary='some': choose one of ordinary, all"):
        check_prompts({**RANDOM, "vocabulary": "some"}, 64)
    with pytest.raises(WorkloadError, match=r"no tokenizer; set target\.model"):
        load_prompts(RANDOM, isl=64, tokenizer=None)


def test_a_vocabulary_that_cannot_make_the_length_is_told() -> None:
    with pytest.raises(WorkloadError, match="a text of 1 tokens, not of isl=64"):
        random_texts(OneWord(), count=1, isl=64, words="ordinary", seed=0)  # type: ignore[arg-type]


def test_how_far_the_texts_of_a_corpus_reach() -> None:
    assert shortest_text(RANDOM, 64) is None
    for corpus, least in (("mixed", 1080), ("high_entropy", 1080), ("low_entropy", 2160)):
        reach = shortest_text({"corpus": corpus, "prompts": 4, "ramp_prompts": 1}, 256)
        assert reach is not None
        assert least <= reach < 2 * least


def test_a_text_that_is_long_enough_is_not_padded(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(f'{{"prompt_id": "{i}", "category": "c", "text": "{"word " * n}"}}\n' for i, n in enumerate((50, 90, 70, 40))))
    recipe = {"corpus": str(file), "prompts": 3, "ramp_prompts": 1, "chat": False}
    reach = shortest_text(recipe, 64)
    assert reach is not None
    assert all(p.padding_share == 0 for p in load_prompts(recipe, isl=reach, tokenizer=None).main)
    assert any(p.padding_share > 0 for p in load_prompts(recipe, isl=reach + 1, tokenizer=None).main)
