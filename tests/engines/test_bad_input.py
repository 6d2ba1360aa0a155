"""Bad input ends with a clear error and its exit code, before any engine is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_sweeps import specsweep

CASES = [
    (("run", "sweep=smoke", "batch_sise=4"), 2, ("batch_sise", "batch_size")),
    (("run", "sweep=nope"), 2, ("nope", "quickstart")),
    (("run", "sweep=smoke", "drafter=eagle9"), 2, ("eagle9", "ngram")),
    (("run", "sweep=smoke", "engine.max_batch=2", "batch_size=4"), 2, ("batch_size", "max_batch")),
    (("run", "sweep=smoke", "isl=40000"), 2, ("max_model_len",)),
    (("run", "sweep=smoke", "batch_size=0"), 2, ("batch_size",)),
    (("run", "sweep=smoke", "draft_length=three"), 2, ("draft_length", "three")),
    (("run", "cluster=attach", "target=tiny", "drafter=none", "workload=mixed"), 2, ("endpoint",)),
    (("run", "cluster=attach", "endpoint=localhost:8000", "target=tiny", "drafter=none", "workload=mixed"), 2, ("localhost:8000",)),
    (("report", "nope"), 2, ("nope",)),
    (("compare", "a", "b"), 2, ("a",)),
    (("inspect", "/nowhere.jsonl"), 2, ("/nowhere.jsonl",)),
    (("wrong",), 2, ("wrong",)),
]


@pytest.mark.parametrize(("words", "code", "told"), CASES, ids=[" ".join(c[0]) for c in CASES])
def test_it_is_told_what_is_wrong(words: tuple[str, ...], code: int, told: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    store = () if words[0] in ("inspect", "wrong") else (f"store={tmp_path / 'store'}",)
    done = specsweep(*words, *store)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in told:
        assert word in done.stderr


def test_a_missing_model_file(tmp_path: Path) -> None:
    done = specsweep(
        "run", "sweep=smoke", f"store={tmp_path}", "target.model={source: path, path: /nowhere/model.gguf}", "drafter=none", "tracking.enabled=false"
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "/nowhere/model.gguf" in done.stderr
    assert "target.model" in done.stderr
    assert "Traceback" not in done.stderr
