"""What a session needs before it starts, where that is nothing."""

from __future__ import annotations

from pathlib import Path

from plan_samples import only, plan_of

from specsweep.orchestrator.preparation import Preparation


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
