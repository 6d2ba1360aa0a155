"""`specsweep data select`: the chosen rows, what is printed of them, and what is refused."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from specsweep.client.workload.rows import PLACEHOLDER, Row, read_rows, write_rows
from specsweep.orchestrator.cli import data_select
from specsweep.orchestrator.errors import ConfigError

TOPICS = ("the harbour at dawn", "integer overflow in C", "a recipe for bread", "chess openings", "why the sky is blue", "tax law")


def row(n: int, category: str = "writing", *turns: str) -> Row:
    return Row(
        f"{category}-{n}", category, "", turns or (f"Please write some lines about {TOPICS[n % 6]}.",), "made", str(n), "", len(turns) > 1
    )


def candidates() -> list[Row]:
    """Six topics, twelve wordings of each, in two categories; the second has turns as well."""
    words = ("calm", "short", "rhymed", "angry", "formal", "plain", "old", "loud", "kind", "dry", "long", "odd")
    writing = [row(n, "writing", f"Please write a {words[n // 6]} text about {TOPICS[n % 6]}.") for n in range(72)]
    coding = [row(n, "coding", f"Implement {TOPICS[n % 6]} as a class, {words[n // 6]}.", "Now add tests.") for n in range(30)]
    return writing + coding


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_rows(tmp_path / "rows.parquet", candidates())
    return tmp_path / "rows.parquet"


def select(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    data_select.add_arguments(parser)
    return data_select.run(parser.parse_args([str(w) for w in words]))


def as_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert select(*words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_choice_is_less_alike_than_chance_and_than_greedy_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, data, "--k", "6")
    assert [(c["category"], c["candidates"], c["chosen"]) for c in found["categories"]] == [("writing", 72, 6), ("coding", 30, 6)]
    for c in found["categories"]:
        assert c["similarity"] < c["uniform_low"] <= c["uniform_mean"] <= c["uniform_high"]
        assert c["similarity"] <= c["greedy_similarity"] + 1e-9
        assert c["converged"]
    topics = {int(question_id.split("-")[1]) % 6 for question_id in found["categories"][0]["question_ids"]}
    assert len(topics) == 6  # one of each
    assert found["embedder"].startswith("hashed-")


def test_the_chosen_rows_are_written_as_they_were(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "chosen" / "rows.parquet"
    found = as_json(capsys, data, "--k", "5", "--out", out)
    kept = read_rows(out)
    everything = candidates()
    assert [r.question_id for r in kept] == [q for c in found["categories"] for q in c["question_ids"]]
    assert set(kept) <= set(everything)
    places = [everything.index(r) for r in kept]
    assert places == sorted(places)  # the order of the data set
    assert found["files"] == [str(out)]


@pytest.mark.parametrize("method", data_select.METHODS)
def test_every_method_chooses_and_repeats_itself(method: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (data, "--k", "6", "--category", "writing", "--method", method, "--seed", "3")
    found, again = as_json(capsys, *words), as_json(capsys, *words)
    (c,) = found["categories"]
    assert len(set(c["question_ids"])) == 6
    assert c["question_ids"] == again["categories"][0]["question_ids"]
    assert method == "uniform" or c["similarity"] < c["uniform_mean"]


def test_table_for_people(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert select(data, "--k", "6", "--category", "coding") == 0
    said = capsys.readouterr().out
    assert "Average pairwise similarity, greedy_swap, embedder hashed-" in said
    assert "mean of 20 random choices" in said
    line = next(line for line in said.splitlines() if line.startswith("coding"))
    assert " 30 " in line
    assert "writing" not in said


def test_figures(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, data, "--k", "6", "--category", "coding", "--figures", tmp_path / "figures")
    names = [Path(path).name for path in found["files"]]
    assert names == ["similarity.png", "similarity.svg", "similarity_coding.png", "similarity_coding.svg"]
    assert all((tmp_path / "figures" / name).stat().st_size > 1000 for name in names)


def test_categories_whose_names_look_alike_keep_a_figure_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "rows.parquet", [row(n, category) for category in ("a/b", "A b") for n in range(6)])
    found = as_json(capsys, tmp_path / "rows.parquet", "--k", "3", "--figures", tmp_path / "figures")
    assert len({path.lower() for path in found["files"]}) == len(found["files"]) == 2 * 3  # the averages, and a matrix a category


def test_a_second_embedder_judges_the_choice(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, data, "--k", "6", "--category", "writing")
    (c,) = found["categories"]
    assert found["check"] == found["embedder"] + "+1"
    assert c["check_uniform_mean"] == pytest.approx(c["uniform_mean"], abs=0.02)
    assert c["similarity"] != c["check_similarity"] < c["check_uniform_mean"]
    other = as_json(capsys, data, "--k", "6", "--category", "writing", "--check", "hashed:256")
    assert ":256@" in other["check"]
    assert other["categories"][0]["question_ids"] == c["question_ids"]
    assert select(data, "--k", "6") == 0
    assert "had no part in the choice" in capsys.readouterr().out


def test_copies_of_a_text_are_no_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "rows.parquet", [row(n) for n in range(18)])  # six texts, three times each
    found = as_json(capsys, tmp_path, "--k", "4")
    assert (found["categories"][0]["candidates"], found["copies_left_out"]) == (6, 12)
    with pytest.raises(ConfigError, match="writing has 6"):
        select(tmp_path, "--k", "7")


def test_embeddings_are_kept_where_asked(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = as_json(capsys, data, "--k", "6", "--cache", tmp_path / "cache")
    second = as_json(capsys, data, "--k", "6", "--cache", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir())
    assert [c["question_ids"] for c in first["categories"]] == [c["question_ids"] for c in second["categories"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--k", "31"], "--k 31: too few candidates with texts of their own .coding has 30.; give a smaller --k"),
        (["--k", "1"], "choose at least 2"),
        (["--k", "6", "--category", "poetry"], "category='poetry' is not in .*rows.parquet; it has coding, writing"),
        (["--k", "6", "--check", "hashed"], "--check hashed: that is the embedder which chooses .hashed-.*no second opinion"),
        (["--k", "6", "--embedder", "hashed:64", "--check", "hashed:64+0"], "--check hashed:64.0: that is the embedder"),
        (["--k", "6", "--embedder", "word2vec"], "embedder 'word2vec' is not known; give hashed"),
        (["--k", "6", "--seed", "-1"], "--seed -1"),
        (["--k", "2001", "--figures", "f"], "--figures draws"),
    ],
)
def test_what_is_refused(words: list[str], said: str, data: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        select(data, *words)


def test_placeholders_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such Parquet file"):
        select(tmp_path / "gone.parquet")
    write_rows(tmp_path / "rows.parquet", [*candidates(), row(99, "math", PLACEHOLDER)])
    with pytest.raises(ConfigError, match="1 of 103 rows hold the published placeholder"):
        select(tmp_path)
    assert select(tmp_path, "--k", "6", "--category", "coding") == 0  # the rows at hand are complete
