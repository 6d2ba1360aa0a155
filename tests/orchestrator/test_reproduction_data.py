"""What `reproduce` collects beside points: data sets, choices, stability, vocabularies, captures, from small files and a small store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import store_samples
from safetensors.numpy import save_file

from specsweep.analysis.reproduce.collected import Choices, DataSets
from specsweep.analysis.reproduce.expert_figures import Captures
from specsweep.analysis.reproduce.stability_tables import Stability
from specsweep.analysis.reproduce.vocabulary_table import Vocabularies
from specsweep.analysis.routing import Routing, to_npz
from specsweep.client.workload.rows import Row, write_rows
from specsweep.orchestrator import cli
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.reproduction_extras import COLLECTORS, OPTIONS, Request, collected
from specsweep.orchestrator.store import Store

WORDS = [f"{a}{b}" for a in ("apple", "river", "stone", "cloud") for b in ("light", "house", "field", "smith")]
TINY: dict[str, Any] = {"name": "tiny", "model": {"source": "package_data", "file": "tiny_pair/target"}, "vocab_size": 4096}


def pool(folder: Path, size: int = 12) -> tuple[Path, list[Row]]:
    rows = []
    for category in ("coding", "math"):
        for n in range(size):
            text = "the same template for all of them" if n < size // 2 else " ".join(np.random.default_rng(n).permutation(WORDS)[:7])
            rows.append(Row(f"{category}-{n}", category, "", (f"{text} {WORDS[n]}",), "somewhere", f"{n}", "", False))
    path = folder / "pool.parquet"
    write_rows(path, rows)
    return path, rows


def one(name: str, request: Request) -> Any:
    return collected([name], request)[name]


def test_the_offline_split_stands_in_where_nothing_was_prepared(tmp_path: Path) -> None:
    questions = tmp_path / "question.jsonl"
    lines = [
        {"question_id": n, "category": "translation", "turns": [f"Translate German to English: {word}"]} for n, word in enumerate(WORDS)
    ]
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = one("data_sets", Request(options={"data": str(tmp_path), "specbench": str(questions), "embedder": "hashed:64"}))
    assert isinstance(found, DataSets)
    assert [(s.role, s.published, s.stats.samples) for s in found.sets] == [("benchmark", False, 220), ("specbench", False, 16)]
    assert {len(m) for s in found.sets for m in s.matrices.values()} == {16, 20}
    assert found.sets[0].stats.embedder.startswith("hashed"), "the independent sketch, as the choices are judged by"
    assert "+1" in found.sets[0].stats.embedder


def test_the_published_split_is_taken_where_it_was_prepared(tmp_path: Path) -> None:
    (tmp_path / "qualitative").mkdir()
    path, _ = pool(tmp_path)
    path.rename(tmp_path / "qualitative" / "test.parquet")
    found = one("data_sets", Request(options={"data": str(tmp_path), "embedder": "hashed:64"}))
    assert [(s.stats.name, s.published, s.paper_name) for s in found.sets] == [("SPEED-Bench", True, "SPEED-Bench")]


def test_choices_from_a_pool(tmp_path: Path) -> None:
    path, _ = pool(tmp_path)
    found = one("choices", Request(options={"pool": str(path), "embedder": "hashed:512"}))
    assert isinstance(found, Choices)
    assert (found.k, found.stand_in, [c.category for c in found.categories]) == (6, False, ["coding", "math"])
    for c in found.categories:
        assert c.bound <= c.reached + 1e-6
        assert c.greedy_swap < c.random.value, "half of the pool is one template"
        assert c.random.low is not None
        assert c.random.low <= c.random.value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": "12"}, "k=12: category coding has 12 prompts"),
        ({"k": "many"}, "k=many"),
        ({"embedder": "word2vec"}, "word2vec"),
        ({"pool": "/nowhere.parquet"}, "nowhere"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, options: dict[str, str], words: str) -> None:
    path, _ = pool(tmp_path)
    with pytest.raises(ConfigError, match=words):
        one("choices", Request(options={"pool": str(path), **options}))
    with pytest.raises(ConfigError, match="specbench"):
        one("data_sets", Request(options={"specbench": str(tmp_path / "specbench.jsonl"), "embedder": "hashed:64"}))


def measured(values: dict[str, Any], al: dict[tuple[str, str], float], *, valid: bool = True, simulated: bool = False) -> dict[str, Any]:
    numbers = store_samples.measurement(drafter=values["drafter"], valid=valid, simulated=simulated)
    rows = [{"conversation_id": i, "category": c, "steps": 100, "step_tokens": 100 * v} for (c, i), v in al.items()]
    return {
        "point": store_samples.record(values, config={"workload": {"corpus": "x"}}),
        "measurement": {**numbers, "per_conversation": rows},
    }


def test_stability_needs_every_prompt_of_the_pool(tmp_path: Path) -> None:
    path, rows = pool(tmp_path, 14)
    al = {(r.category, r.question_id): 2.0 + 0.01 * n for n, r in enumerate(rows)}
    options = {"pool": str(path), "embedder": "hashed:64", "k": "5"}
    attempts = [measured(store_samples.axes("eagle3", 7), al), measured(store_samples.axes("eagle3", 3), dict(list(al.items())[1:]))]
    found = one("stability", Request(attempts, options=options))
    assert isinstance(found, Stability)
    assert list(found.found) == [7], "DL 3 lacks a prompt"
    assert (found.k, found.of_the_paper) == (5, False)
    paper = measured({**store_samples.axes("eagle3", 7), "target": "llama-3.3-70b"}, al)
    assert one("stability", Request([paper], options=options)).of_the_paper
    assert collected(["stability"], Request([], options=options)) == {}


def test_captures_of_points_and_of_files(tmp_path: Path) -> None:
    data = to_npz(Routing(np.ones((3, 2, 4), np.int32), np.arange(3), None, 2))
    (tmp_path / "mine.npz").write_bytes(data)
    store = Store(tmp_path / "results")
    attempts = []
    for workload, corpus in (("mixed", "mixed"), ("random", "random")):
        values = {**store_samples.axes("none", None, workload=workload), "capture": "routing"}
        record = store_samples.record(values, config={"workload": {"corpus": corpus}})
        store.commit(record, store_samples.measurement(simulated=True), evidence={"routing.npz": data})
        attempts.append(store.latest(record["point_id"]).record())  # type: ignore[union-attr]
    found = one("captures", Request(attempts, store.root, {"routing-random": str(tmp_path / "mine.npz")}))
    assert isinstance(found, Captures)
    assert [(c.random, c.simulated) for c in found.captures] == [(True, False), (False, True), (True, True)]
    with pytest.raises(ConfigError, match="gone"):
        one("captures", Request([], store.root, {"routing-real": str(tmp_path / "gone.npz")}))


def test_vocabularies_of_answers_and_of_heads(tmp_path: Path) -> None:
    head = tmp_path / "head"
    head.mkdir()
    save_file({"d2t": np.zeros(2000, np.int64)}, head / "model.safetensors")
    (tmp_path / "whole").mkdir()
    save_file({"fc": np.zeros(2, np.float32)}, tmp_path / "whole" / "model.safetensors")
    store = Store(tmp_path / "results")
    records = []
    for name, folder in (("none", None), ("pruned", head), ("full", tmp_path / "whole")):
        drafter = {
            "name": name,
            "method": "eagle3" if folder else "none",
            "model": {"source": "path", "path": str(folder)} if folder else None,
        }
        engine = {"name": "vllm", "dialect": "vllm"}
        config = {"target": TINY, "drafter": drafter, "engine": engine, "cache": str(tmp_path / "cache"), "workload": {"corpus": "x"}}
        record = store_samples.record(store_samples.axes(name, 3 if folder else None), config=config)
        parts = {"math": {"al_decode": 2.0}, "qa": {"al_decode": 3.0}}
        store.commit(record, {**store_samples.measurement(drafter=name), "by_category": parts}, store_samples.trace())
        records.append(store.latest(record["point_id"]).record())  # type: ignore[union-attr]
    (tmp_path / "corpus.txt").write_text("one two three four five six seven " * 20)
    found = one("vocabularies", Request(records[:1], store.root, {"vocabulary": str(tmp_path / "corpus.txt")}))
    assert isinstance(found, Vocabularies)
    (arm,) = found.arms
    assert [c.label for c in arm.coverages][-1] == "full"
    assert arm.heads["full"].kept is None
    assert arm.heads["pruned"].kept is not None
    assert arm.heads["pruned"].kept.size == 2000
    assert arm.heads["pruned"].al == {"math": 2.0, "qa": 3.0}
    (head / "model.safetensors").unlink()
    save_file({"d2t": np.full(2000, 4000)}, head / "model.safetensors")
    with pytest.raises(ConfigError, match=r"drafter pruned.*another target"):
        one("vocabularies", Request(records[:1], store.root, {"vocabulary": str(tmp_path / "corpus.txt")}))


def test_experiments_name_only_records_that_can_be_collected() -> None:
    from specsweep.analysis.reproduce.catalogue import EXPERIMENTS

    assert {name for e in EXPERIMENTS.values() for name in e.extras} == set(COLLECTORS)
    assert {
        "fig2",
        "fig9",
        "fig10",
        "fig11",
        "fig12",
        "table2",
        "table3",
        "table6",
        "table7",
        "table8",
        "table14",
        "blog",
    } <= EXPERIMENTS.keys()


def test_options_reach_the_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = pool(tmp_path)
    words = ["reproduce", "table8", f"store={tmp_path / 'results'}", "--pool", str(path), "--embedder", "hashed:64", "--k", "5", "--json"]
    assert cli.main(words) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert any("5 prompts a category of" in note for note in result["notes"])
    assert (tmp_path / "results" / "reproduce" / "paper" / "table8.csv").is_file()
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "--help"])
    shown = capsys.readouterr().out
    assert all(f"--{name}" in shown for name in OPTIONS)
