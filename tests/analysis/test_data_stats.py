"""The statistics of a data set against numbers worked out by hand, and the rules by which languages and sources are found."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.data_stats import DataStats, describe, to_json
from specsweep.analysis.data_stats_tables import comparison_table, isl_table
from specsweep.analysis.isl_figure import isl_figure
from specsweep.analysis.prompt_languages import LANGUAGES, natural_languages, programming_languages
from specsweep.analysis.prompt_sources import UNKNOWN_LICENCE, licence, source_name
from specsweep.analysis.tabular import Table


@dataclass(frozen=True)
class Prompt:
    category: str
    turns: tuple[str, ...] = ("Who?",)
    sub_category: str = ""
    source: str = "SpecBench"
    src_id: str = ""
    difficulty: str = ""
    extra: dict[str, str] = field(default_factory=dict)


ROWS = (
    Prompt("math", difficulty="easy", source="SpecBench/GSM8K"),
    Prompt("math", difficulty="hard", source="cais/hle"),
    Prompt("coding", ("Write it in Rust.", "Now in Python.", "Thanks."), source="bigcode/humanevalpack", sub_category="humaneval"),
    Prompt("coding", ("Write it in Python.",), source="https://huggingface.co/datasets/deepmind/code_contests", sub_category="contest"),
    Prompt("multilingual", src_id="opus100_de-en_17", source="Helsinki-NLP/opus-100"),
    Prompt("multilingual", source="somebody/private"),
)
ISL = (10, 30, 100, 300, 50, None)


def _stats(name: str = "mine", **similarity: float) -> DataStats:
    return describe(name, ROWS, ISL, similarity=similarity, embedder="hashed" if similarity else "")


def _cells(table: Table) -> dict[str, tuple[str, ...]]:
    return {row.cells[0]: row.cells[1:] for row in table.rows}


def test_counts_by_hand() -> None:
    found = _stats()
    assert [(c.category, c.samples, c.multi_turn, c.most_turns) for c in found.categories] == [
        ("math", 2, 0, 1),
        ("coding", 2, 1, 3),
        ("multilingual", 2, 0, 1),
    ]
    assert (found.samples, found.multi_turn, found.most_turns, found.unfilled) == (6, 1, 3, 1)
    assert [(c.isl_mean, c.isl_median) for c in found.categories] == [(20.0, 20.0), (200.0, 200.0), (50.0, 50.0)]
    assert found.isl_macro_mean == pytest.approx(90.0)  # each category once; over the rows it would be 98
    assert dict(found.difficulties) == {"easy": 1, "hard": 1}
    assert dict(found.sub_categories) == {"humaneval": 1, "contest": 1}
    assert dict(found.programming_languages) == {"Python": 2, "Rust": 1}
    assert dict(found.natural_languages) == {"de": 1, "en": 1}
    assert found.language_unknown == 1
    assert found.licences["HumanEvalPack"] == "MIT"
    assert found.licences["somebody/private"] == UNKNOWN_LICENCE


def test_rows_and_lengths_belong_together() -> None:
    with pytest.raises(ValueError, match="6 rows and 5 lengths"):
        describe("mine", ROWS, ISL[:5])
    with pytest.raises(ValueError, match="0 rows"):
        describe("mine", (), ())


def test_a_category_without_any_text_has_no_length_and_not_zero() -> None:
    found = describe("mine", ROWS[:2], (None, None))
    assert (found.categories[0].isl_mean, found.categories[0].isl_median, found.isl_macro_mean) == (None, None, None)
    assert to_json(found)["isl_tokens_mean"] is None
    assert _cells(isl_table([found]))["math"] == ("2", "–", "–")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(1, 10**6))), min_size=1, max_size=30))
def test_categories_are_a_partition_of_the_rows(made: list[tuple[str, int | None]]) -> None:
    found = describe("mine", [Prompt(category) for category, _ in made], [isl for _, isl in made])
    assert found.samples == len(made)
    assert sorted(found.isl) == sorted(isl for _, isl in made if isl is not None)
    assert found.unfilled + len(found.isl) == len(made)
    means = [statistics.fmean(known) for c in "abc" if (known := [isl for name, isl in made if name == c and isl is not None])]
    assert found.isl_macro_mean == (pytest.approx(statistics.fmean(means)) if means else None)


def test_table_2_of_one_data_set() -> None:
    cells = {name: text for name, (text,) in _cells(comparison_table([_stats(math=0.2, coding=0.1)])).items()}
    assert cells["samples"] == "6"
    assert cells["samples per category"] == "2"
    assert cells["rows without text"] == "1"
    assert cells["data sources"] == "6: GSM8K, Humanity's Last Exam, HumanEvalPack, CodeContests, OPUS-100, somebody/private"
    assert cells["similarity"] == "0.150 (hashed)"
    assert cells["multi-turn prompts"] == "1 (16.7 %)"
    assert cells["ISL"] == "10 to 300 tokens; mean 98.0, median 50.0"
    assert cells["natural languages"] == "2: DE, EN; not found in 1 prompts"
    assert cells["programming languages"] == "Python 2, Rust 1"
    assert cells["licences"].startswith("Apache-2.0 (GSM8K); ")
    assert cells["licences"].endswith(f"{UNKNOWN_LICENCE} (CodeContests, OPUS-100, somebody/private)")


def test_what_no_data_set_has_is_not_a_row() -> None:
    plain = describe("plain", [Prompt("qa")], [11])
    assert (
        not {"rows without text", "similarity", "difficulties", "programming languages", "sub-categories"}
        & _cells(comparison_table([plain])).keys()
    )
    both = _cells(comparison_table([plain, _stats()]))
    assert both["difficulties"] == ("–", "easy 1, hard 1")


def test_table_3_side_by_side() -> None:
    other = describe("other", [Prompt("translation"), Prompt("math"), Prompt("math")], [35, 11, 1000])
    table = isl_table([_stats(math=0.25), other])
    assert [c.header for c in table.columns[1:]] == [
        "samples A", "samples B", "mean A", "mean B", "median A", "median B", "similarity A", "similarity B",
    ]  # fmt: skip
    assert table.shared == {"A": "mine", "B": "other"}
    cells = _cells(table)
    assert list(cells) == ["math", "coding", "multilingual", "average of categories"]
    assert cells["math"] == ("2", "2", "20.0", "505.5", "20.0", "505.5", "0.250", "–")
    assert cells["coding"] == ("2", "–", "200.0", "–", "200.0", "–", "–", "–")
    assert cells["multilingual"] == ("2", "1", "50.0", "35.0", "50.0", "35.0", "–", "–")
    assert cells["average of categories"] == ("6", "3", "90.0", "270.2", "", "", "0.250", "–")
    assert "translation stands under multilingual." in table.notes
    assert any("rows without their text: 1" in note for note in table.notes)
    (math, *_) = table.to_json()["rows"]
    assert math["other.isl_tokens_mean"] == 505.5


def test_a_category_keeps_its_name_where_the_other_name_is_taken() -> None:
    both = describe("both", [Prompt("translation"), Prompt("multilingual")], [1, 2])
    other = describe("other", [Prompt("multilingual")], [3])
    assert list(_cells(isl_table([both, other]))) == ["translation", "multilingual", "average of categories"]
    assert list(_cells(isl_table([describe("alone", [Prompt("translation")], [1])]))) == ["translation", "average of categories"]


@pytest.mark.parametrize("table", [comparison_table, isl_table])
def test_one_or_two_data_sets_of_different_names(table) -> None:  # type: ignore[no-untyped-def]
    for data, words in (([], "0 data sets"), ([_stats()] * 3, "3 data sets"), ([_stats()] * 2, "both data sets are called 'mine'")):
        with pytest.raises(ValueError, match=words):
            table(data)


@pytest.mark.parametrize(
    ("sub_category", "src_id", "first_turn", "codes"),
    [
        ("German-English", "", "", "de en"),
        ("en_mg", "x_fr-it_3", "From Danish", "en mg"),
        ("translation", "opus100_de-en_17", "", "de en"),
        ("", "mmath_th_12", "", "th"),
        ("", "161", "Translate German to English: Ich bin kein Spanish speaker", "de en es"),
        ("", "161", "Translate Norwegian Nynorsk to Scottish Gaelic\nNot French", "nn gd"),
        ("", "161", "german is a word here", ""),
        ("", "3", "次の文章を英語に翻訳してください", "ja"),
        ("", "3", "请把下面的句子翻译成另一种语言", "zh"),
        ("", "3", "Área del círculo de radio π", ""),
        ("is it", "it-is-4", "", "is it"),
        ("", "q-id-12-to-as", "", "id as"),
    ],
)
def test_natural_languages(sub_category: str, src_id: str, first_turn: str, codes: str) -> None:
    assert natural_languages(sub_category, src_id, [first_turn]) == frozenset(codes.split())


@given(st.sampled_from(sorted(LANGUAGES)), st.sampled_from(sorted(LANGUAGES)))
def test_every_known_pair_is_found(one: str, other: str) -> None:
    assert natural_languages("", f"opus100_{one}-{other}_4711", ["?"]) == {one, other}
    assert natural_languages("", "4711", [f"Translate {LANGUAGES[one]} to {LANGUAGES[other]}:"]) == {one, other} - (
        {"no"} if {one, other} & {"nb", "nn"} else set()
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Write a Go function `f`.", {"Go"}),
        ("Go to the end of the list and go on.", set()),
        ("Solve it in Go", {"Go"}),
        ("Use golang or Golang", {"Go"}),
        ("JavaScript, not the other one", {"JavaScript"}),
        ("java and C++ and C#", {"Java", "C++", "C#"}),
        ("```python\nprint(1)\n```", {"Python"}),
        ("The rust on the iron was swift to come", set()),
        ("A Swift program; a page in html with css", {"Swift", "HTML", "CSS"}),
        ("Implement it.", set()),
    ],
)
def test_programming_languages(text: str, names: set[str]) -> None:
    assert programming_languages([text]) == names
    assert programming_languages(["First.", text]) == names


@pytest.mark.parametrize(
    ("source", "name", "named"),
    [
        ("https://github.com/mtbench101/mt-bench-101/raw/main/x.jsonl", "MT-Bench-101", UNKNOWN_LICENCE),
        ("SpecBench", "SpecBench", "Apache-2.0"),
        ("SpecBench/CNN/Daily Mail", "CNN/Daily Mail", "Apache-2.0"),
        ("abisee/cnn_dailymail", "CNN/Daily Mail", UNKNOWN_LICENCE),
        ("https://github.com/RUCAIBox/BAMBOO/raw/main/meetingpred_16k.jsonl", "BAMBOO", "MIT"),
        ("cais/hle", "Humanity's Last Exam", "gated: accept the terms of cais/hle"),
        ("Neph0s/CoSER", "CoSER", "public-domain books only"),
        ("my notes", "my notes", UNKNOWN_LICENCE),
        ("", "(none)", UNKNOWN_LICENCE),
    ],
)
def test_sources_and_licences(source: str, name: str, named: str) -> None:
    assert (source_name(source), licence(source)) == (name, named)


def test_the_figure_shows_median_mean_and_range_of_each_category() -> None:
    figure = isl_figure({"A": {"qa": [10, 11, 12, 99], "rag": [500, 900]}, "B": {"rag": [700]}})
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["qa", "rag"]
    assert ax.get_yscale() == "log"
    heights = {round(float(y), 3) for line in ax.lines for y in line.get_ydata()}
    assert {11.5, 33.0, 700.0, 10.0, 99.0, 500.0, 900.0} <= heights
    assert isl_figure({"A": {"low": [1000, 1001], "high": [1000]}}).axes[0].get_yscale() == "linear"
    with pytest.raises(ValueError, match="no input length"):
        isl_figure({"A": {"qa": []}})
