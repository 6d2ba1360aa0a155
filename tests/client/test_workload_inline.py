"""One prompt in the workload's own settings, and the names of tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsweep.client.workload import WorkloadError, check_prompts, load_prompts, task_names, workload_hash

TEXT = "Write a merge sort in C++, please: ${x}"


def settings(**more: Any) -> dict[str, Any]:
    return {"corpus": None, "prompt": TEXT, "prompts": 1, "ramp_prompts": 2, "ramp_corpus": "mixed", "osl": 32, **more}


def test_the_prompt_is_sent_as_it_is_and_the_ramp_comes_from_elsewhere() -> None:
    found = load_prompts(settings(), isl=0, tokenizer=None)
    (prompt,) = found.main
    assert (prompt.text, prompt.prompt_id, prompt.category, prompt.source) == (TEXT, "custom-prompt", "custom", "prompt")
    assert len(found.ramp) == 2
    assert TEXT not in {p.text for p in found.ramp}
    assert task_names(settings(), 0) == {"custom-prompt": "prompt"}


def test_another_text_is_another_workload() -> None:
    assert workload_hash(settings(), 0) == workload_hash(settings(), 0)
    assert workload_hash(settings(), 0) != workload_hash(settings(prompt=TEXT + "."), 0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"corpus": "mixed"}, "workload.prompt and workload.corpus='mixed' are both given"),
        ({"prompt": "  "}, "workload.prompt='  ': must be a text"),
        ({"prompt": "two \udcff words"}, r"workload.prompt: '\udcff' at character 4 is no text"),
        ({"prompt": 5}, "workload.prompt=5: must be a text"),
        ({"prompts": 4}, "workload.prompts=4"),
        ({"ramp_corpus": None}, "workload.ramp_corpus=null"),
        ({"prompt": None}, "or give one prompt as workload.prompt"),
    ],
)
def test_what_cannot_be_meant_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkloadError) as error:
        check_prompts(settings(**more), 0)
    assert words in str(error.value)


def test_tasks_keep_their_names_budgets_and_order(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    lines = [{"prompt": "one", "name": "first", "max_tokens": 7}, {"prompt": "two", "id": "b"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    asked = settings(prompt=None, corpus=str(file), prompts=2, order="as_listed")
    assert task_names(asked, 0) == {"1": "first", "b": "b"}
    assert [p.cap(32) for p in load_prompts(asked, isl=0, tokenizer=None).main] == [7, 32]


def test_built_in_tasks_and_a_plain_text_file(tmp_path: Path) -> None:
    assert list(task_names(settings(prompt=None, corpus="tasks", prompts=3, order="as_listed"), 0).values()) == ["code", "extract", "story"]
    file = tmp_path / "own.txt"
    file.write_text("a\nb\n", encoding="utf-8")
    (prompt,) = load_prompts(settings(prompt=None, corpus=str(file)), isl=0, tokenizer=None).main
    assert prompt.text == "a\nb"
