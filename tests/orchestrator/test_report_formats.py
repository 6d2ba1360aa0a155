"""`specsweep report --format spec-bench.…` on a store, and where its texts come from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from store_samples import axes, measurement, plan, record, trace

from specsweep.client.workload import WorkloadError
from specsweep.orchestrator import answers, cli
from specsweep.orchestrator.answers import CHANGED, NO_IDS, Texts, point_of
from specsweep.orchestrator.identity import Contents, recipe
from specsweep.orchestrator.store import Store

WORKLOAD = {
    "name": "own",
    "corpus": None,
    "prompt": "Hello",
    "prompts": 1,
    "ramp_prompts": 1,
    "ramp_corpus": "mixed",
    "osl": 8,
    "chat": False,
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    values = axes()
    store.write_plan(plan("demo", [values]))
    store.commit(record(values), measurement(), trace())
    return store


def lines(store: Store, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert cli.main(["report", "demo", f"store={store.root}", "--format", "spec-bench.jsonl", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_lines_go_to_standard_output_and_nothing_into_the_store(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(store.root.rglob("*"))
    found = lines(store, capsys)
    assert [row["row_type"] for row in found] == ["attempt"] * 3 + ["summary"]
    assert sorted(store.root.rglob("*")) == before


def test_markdown_says_how_far_the_sweep_is(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "demo", f"store={store.root}", "--format", "spec-bench.md"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# llama-spec-bench report of sweep demo\n\n1 of 1 points measured")
    assert "| task | run | stage |" in text


def test_texts_that_cannot_be_had_are_null_with_the_reason(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    first = lines(store, capsys, "--details")[0]
    assert (first["prompt"], first["output"]) == (None, None)
    assert "prompts cannot be made again" in first["absent"]["prompt"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--details"], "--details belongs to --format spec-bench.md"), (["--format", "spec-bench.md", "--json"], "leave it out")],
)
def test_options_that_do_not_go_together(store: Store, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert cli.main(["report", "demo", f"store={store.root}", *words]) == 2
    assert said in capsys.readouterr().err


class Letters:
    """Ids are letters of the alphabet."""

    has_template = False

    def decode(self, ids: Any) -> str:
        return "".join(chr(96 + i) for i in ids)

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        return [ord(c.lower()) - 96 for c in text if c.isalpha()]


@pytest.fixture
def with_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers.Preparation, "tokenizer_source", lambda self, config: Path("letters"))
    monkeypatch.setattr(answers, "load_tokenizer", lambda source: Letters())
    monkeypatch.setattr(answers.Preparation, "_tokenizer", lambda self, source: Letters())


def of_own_workload(**workload: Any) -> dict[str, Any]:
    values = {**axes(), "isl": 0}
    config = {**record(values)["config"], "workload": {**WORKLOAD, **workload}}
    return record(values, config=config, declared={"workload": Contents().workload(recipe(WORKLOAD), 0)})


@pytest.mark.usefixtures("with_letters")
def test_prompts_are_those_that_were_sent_and_answers_are_decoded() -> None:
    (row, *_) = trace().requests
    asked = dataclasses.replace(row, prompt_id="custom-prompt")
    said = Texts(print).of(point_of(of_own_workload()), [asked])[0]
    assert (said.prompt, said.response, said.reason) == ("hello", "efgh", "")


@pytest.mark.usefixtures("with_letters")
def test_a_workload_that_was_changed_since_gives_no_prompt() -> None:
    (row, *_) = trace().requests
    said = Texts(print).of(point_of(of_own_workload(prompt="Bye")), [dataclasses.replace(row, prompt_id="custom-prompt")])[0]
    assert (said.prompt, said.response, said.reason) == (None, "efgh", CHANGED)


@pytest.mark.usefixtures("with_letters")
def test_an_answer_without_ids_has_no_text() -> None:
    (row, *_) = trace().requests
    row.prompt_id, row.read.output_ids = "custom-prompt", []
    said = Texts(print).of(point_of(of_own_workload()), [row])[0]
    assert (said.prompt, said.response, said.reason) == ("hello", None, NO_IDS)


def test_without_a_tokenizer_the_prompts_text_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(source: Path) -> None:
        raise WorkloadError("no such file")

    monkeypatch.setattr(answers.Preparation, "tokenizer_source", lambda self, config: Path("letters"))
    monkeypatch.setattr(answers.Preparation, "_tokenizer", lambda self, source: None)
    monkeypatch.setattr(answers, "load_tokenizer", gone)
    (row, *_) = trace().requests
    said = Texts(print).of(point_of(of_own_workload()), [dataclasses.replace(row, prompt_id="custom-prompt")])[0]
    assert (said.prompt, said.response) == ("Hello", None)
    assert "no such file" in said.reason
