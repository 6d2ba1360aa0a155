"""The offline data set: what is in it, that nothing in it occurs twice, and that its prompts have the length of their bucket."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from specsweep.client.workload import build_questions, corpus_sources, mini
from specsweep.client.workload.build_corpus import LONG
from specsweep.client.workload.corpus_sources import Source
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.rows import read_rows, write_rows

CORPUS = Path(mini.__file__).parent / "corpus"
LICENCES = {"Apache-2.0", "Apache-2.0 AND PSF-2.0", "Apache-2.0 AND BSD-3-Clause", "Apache-2.0 AND public domain"}


def _lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(CORPUS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def test_twenty_questions_a_category_a_fifth_with_several_turns() -> None:
    rows = mini.qualitative_rows()
    assert Counter(row.category for row in rows) == dict.fromkeys(build_questions.CATEGORIES, 20)
    assert Counter(row.category for row in rows if row.multiturn) == dict.fromkeys(build_questions.CATEGORIES, 4)
    assert all(2 <= len(row.turns) <= 5 for row in rows if row.multiturn)
    assert {row.category for row in rows if row.difficulty} == set(build_questions.GRADED)


def test_no_text_occurs_twice() -> None:
    turns = [turn for row in mini.qualitative_rows() for turn in row.turns]
    assert len(set(turns)) == len(turns)
    assert not [turn for turn in turns if "{material}" in turn or "{ask}" in turn]


def test_every_licence_is_allowed_and_its_text_is_there() -> None:
    assert {line["licence"] for line in _lines("qualitative")} == LICENCES
    assert {line["licence"] for tier in mini.TIERS for line in _lines(f"{tier}_long")} == {"PSF-2.0", "public domain"}
    assert "Django Software Foundation" in (CORPUS / "LICENSE-Django.txt").read_text()


@pytest.mark.parametrize("tier", mini.TIERS)
def test_long_documents_of_ramp_up_and_measurement_share_no_file(tier: str) -> None:
    lines = _lines(f"{tier}_long")
    assert Counter(line["role"] for line in lines) == {"main": LONG.main, "ramp": LONG.ramp}
    assert len({line["text"] for line in lines}) == len(lines)
    # A joined source names all of its files; what stands in brackets is the package.
    files = {
        role: {file for x in lines if x["role"] == role for file in x["source"].partition(" (")[0].split(", ")[1:]}
        for role in ("main", "ramp")
    }
    assert files["main"]
    assert not files["main"] & files["ramp"]


@pytest.mark.parametrize("tier", mini.TIERS)
@pytest.mark.parametrize("isl", mini.BUCKETS)
def test_prompts_fill_their_bucket_without_padding(tier: str, isl: int) -> None:
    # The first few of each: docs/workloads.md has a table of all.
    prompts = [prompt for prompt, _ in zip(mini.throughput_prompts(tier, isl), range(3), strict=False)]
    assert all(abs(p.fitted.isl - isl) <= 2 and p.fitted.padding_share == 0 for p in prompts)
    assert len({p.row.turns for p in prompts}) == len(prompts)


def test_a_bucket_of_16k_is_made_of_several_documents() -> None:
    first, second = islice(mini.throughput_prompts("high", 16_000), 2)
    _, after = islice(mini.throughput_prompts("high", 4000), 2)
    assert after.row.turns[0][-2000:] in first.row.turns[0], "it goes on with the document after it"
    assert (first.row.src_id, second.row.src_id) == ("high-long-main-000", "high-long-main-001")
    assert abs(first.fitted.isl - 16_000) <= 2
    assert first.fitted.padding_share == 0


def test_throughput_rows_are_enough_and_survive_their_file(tmp_path: Path) -> None:
    rows = mini.throughput_rows("mixed", 1000)
    assert sum("-main-" in row.question_id for row in rows) >= 64
    write_rows(tmp_path / "test.parquet", [*rows, *mini.qualitative_rows()])
    assert read_rows(tmp_path / "test.parquet") == (*rows, *mini.qualitative_rows())


def test_an_unknown_tier_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"tier='medium'.*low, mixed, high"):
        mini.throughput_rows("medium", 256)


def test_short_neighbours_are_joined_and_roles_kept_apart() -> None:
    text = "one two three four five six seven eight\n" * 4
    sources = [Source(f"p, Lib/a/{n}.py", "PSF-2.0", text, n == 2, "^") for n in range(4)]
    made = list(corpus_sources.joined(sources, 60, "#"))
    assert [(s.name, s.ramp) for s in made] == [("p, Lib/a/0.py, Lib/a/1.py", False)]
    assert made[0].text.count("# ---- Lib/a/") == 2


def test_messages_of_a_catalogue_leave_out_the_doubtful() -> None:
    catalogue = (
        'msgid "This sentence is long enough to be taken."\nmsgstr "Dieser Satz ist lang genug."\n\n'
        '#, fuzzy\nmsgid "This sentence is long enough but unsure."\nmsgstr "Unsicher."\n\n'
        'msgid "This one holds %(name)s and is left out."\nmsgstr "Mit %(name)s."\n\n'
        'msgid ""\n"This one goes over "\n"two lines of text."\nmsgstr ""\n"Zwei "\n"Zeilen."\n'
    )
    assert list(build_questions.messages(catalogue)) == [
        ("This sentence is long enough to be taken.", "Dieser Satz ist lang genug."),
        ("This one goes over two lines of text.", "Zwei Zeilen."),
    ]


def test_malformed_questions_are_refused(tmp_path: Path) -> None:
    library = build_questions.Library([Source("Novel", "public domain", "Once upon a time.\n" * 20, False, "^")], tmp_path)
    question = {"id": "x", "sub_category": "s", "turns": ["Read this:\n{material}"]}
    with pytest.raises(ValueError, match="stands for no material"):
        build_questions.row("rag", question, library)
    with pytest.raises(ValueError, match="difficulty"):
        build_questions.row("math", {**question, "turns": ["1 + 1?"]}, library)
    with pytest.raises(ValueError, match="is not in Novel"):
        build_questions.row("rag", {**question, "material": {"file": "Novel", "at": "Twice", "tokens": 10}}, library)
    row = build_questions.row("rag", {**question, "material": {"file": "Novel", "at": "Once", "tokens": 10}}, library)
    assert row["licence"] == "Apache-2.0 AND public domain"
    assert "Once upon" in row["turns"][0]
