"""What a session needs before it starts, where that is nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

from plan_samples import only, plan_of

from specsweep.client.workload import load_tokenizer
from specsweep.orchestrator.preparation import Preparation

TINY = Path(__file__).parents[1] / "tiny_pair" / "target"


def test_a_server_that_takes_texts_needs_no_model_of_its_target(tmp_path: Path) -> None:
    point = only(
        plan_of("engine=openai_chat", "cluster=attach", "endpoint=http://h:1", "target.model=null", "workload.prompts=2", "isl=64")
    )
    preparation = Preparation(tmp_path, lambda line: None)
    preparation.models(point.config)
    prompts = preparation.prompts(point)
    assert [prompt.ids for prompt in prompts.main] == [(), ()]
    assert all(prompt.text for prompt in prompts.main)
    assert list(tmp_path.iterdir()) == []


def test_the_targets_reasoning_effort_is_part_of_the_prompt(tmp_path: Path) -> None:
    """GPT-OSS is told by its template how much to think, and we render that template, not the server."""
    folder = tmp_path / "target"
    shutil.copytree(TINY, folder)
    (folder / "chat_template.jinja").write_text("effort {{ reasoning_effort }}: {{ messages[-1]['content'] }}\n")

    def first_prompt(effort: str) -> str:
        words = (f"target.model={{source: path, path: {folder}}}", f"+target.reasoning_effort={effort}", "workload.prompts=2", "isl=64")
        point = only(plan_of("engine=sglang", "target=tiny", *words))
        prompt = Preparation(tmp_path / "cache", lambda line: None).prompts(point).main[0]
        return load_tokenizer(folder).decode(prompt.ids)

    assert first_prompt("low").startswith("effort low: ")
    assert first_prompt("medium").startswith("effort medium: ")
