"""The commands that read a measured sweep: the order of its prompts, and benchmarks put together out of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from store_samples import axes, measurement, plan, record, trace

from specsweep.client.workload.rows import Row, read_rows, write_rows
from specsweep.orchestrator.cli import main
from specsweep.orchestrator.store import Store

WORDS = ("river", "stone", "engine", "violin", "harvest", "comet", "ledger", "orchid", "tunnel", "marble", "lantern", "glacier")


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """12 prompts in each of two categories; a sweep measured them at DL 3 and 7: math is harder to guess, and its AL varies more."""
    store = Store(tmp_path / "results")
    rows, made = [], []
    for category in ("math", "coding"):
        for i, word in enumerate(WORDS):
            rows.append(Row(f"{category}-{i}", category, "", (f"{word} {category} " * (i + 1),), "own", str(i), "", False))
    write_rows(tmp_path / "pool.parquet", rows)
    lengths: list[dict[str, Any]] = [axes(draft_length=3), axes(draft_length=7), axes("none")]
    with store.lock() as writer:
        writer.write_plan(plan("pool", lengths))
        for values in lengths:
            spread = {"math": 0.05, "coding": 0.01}
            base = {"math": 1.5, "coding": 2.5}
            numbers = measurement(drafter=str(values["drafter"]))
            numbers["per_conversation"] = [
                {"conversation_id": f"{c}-{i}", "category": c, "steps": 100, "step_tokens": round(100 * (base[c] + spread[c] * i))}
                for c in base
                for i in range(len(WORDS))
            ]
            made.append(writer.commit(record(values), numbers, trace()))
    return tmp_path


def test_prompts_of_a_sweep_come_in_one_order(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "spectrum", "pool", f"store={pool / 'results'}", "--out", str(pool / "x" / "order.csv"), "--figures", str(pool / "x")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "24 prompts by acceptance length" in printed
    assert [Path(line.removeprefix("wrote ")).name for line in printed.splitlines()[-3:]] == ["order.csv", "spectrum.png", "spectrum.svg"]
    with (pool / "x" / "order.csv").open() as f:
        lines = list(csv.DictReader(f))
    assert [line["category"] for line in lines] == ["math"] * 12 + ["coding"] * 12
    assert [line["prompt_id"] for line in lines][:2] == ["math-0", "math-1"]
    assert {p.name for p in (pool / "x").iterdir()} == {"order.csv", "spectrum.png", "spectrum.svg"}
    assert main([*words[:4], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["prompts"]) == 24
    assert len(told["prompts"][0]["al_decode_shrunk"]) == 2, "both draft lengths, and not the baseline"


def capture(store: Store, name: str, arms: list[dict[str, Any]], nats: dict[str, float], more: float = 0.01) -> None:
    """Adds to the sweep of these arms a point with log-probabilities: ``nats`` by category, a little more from prompt to prompt."""
    values = {**axes("none"), "capture": "logprobs"}
    rows = [
        {"prompt_id": f"{c}-{i}", "category": c, "tokens": 50, "nats": 50 * (mean + more * i), "squares": 60 * mean**2}
        for c, mean in nats.items()
        for i in range(len(WORDS))
    ]
    numbers = {**measurement(drafter="none"), "untimed": True, "metrics": {}, "ci": {}, "logprobs": {"by_prompt": rows}}
    with store.lock() as writer:
        writer.write_plan(plan(name, [*arms, values]))
        writer.commit(record(values), numbers, trace())


def test_log_probabilities_put_the_same_prompts_in_an_order_of_their_own(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(Store(pool / "results"), "pool", [axes(draft_length=3), axes(draft_length=7), axes("none")], {"math": 2.0, "coding": 0.5})
    words = ["data", "spectrum", "pool", f"store={pool / 'results'}"]
    assert main([*words, "--out", str(pool / "order.csv"), "--by", "logprobs"]) == 0
    printed = capsys.readouterr().out
    assert "24 prompts by surprisal" in printed
    assert "Kendall's tau-b of the two orders: " in printed
    with (pool / "order.csv").open() as f:
        lines = list(csv.DictReader(f))
    assert [line["prompt_id"] for line in lines][:2] == ["math-11", "math-10"], "the largest surprisal first"
    assert {line["tokens"] for line in lines} == {"50"}
    assert float(lines[-1]["place_by_acceptance_length"]) > 0.5 > float(lines[0]["place_by_acceptance_length"])
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["by"] == "acceptance length", "as before, where nothing is asked for"
    tau, rho = told["agreement"]
    assert tau["low"] < tau["value"] < rho["value"] < rho["high"] < 1
    assert len(told["prompts"][0]["nats_per_token_shrunk"]) == 1
    (tier,) = told["tiers"]
    assert tier["nats_per_token"]["value"] == pytest.approx(1.25 + 0.055)


def test_an_order_of_ties_is_not_held_against_the_other(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(Store(pool / "results"), "pool", [axes(draft_length=3)], {"math": 1.0, "coding": 1.0}, more=0.0)
    assert main(["data", "spectrum", "pool", f"store={pool / 'results'}"]) == 0
    assert "puts all in the same place" in capsys.readouterr().out


def test_an_order_that_nothing_was_measured_for_is_refused(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "spectrum", "pool", f"store={pool / 'results'}", "--by", "logprobs"]) == 2
    assert "no point has capture=logprobs" in capsys.readouterr().err


def test_benchmarks_of_a_pool_are_compared_at_each_draft_length(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "stability", "pool", f"store={pool / 'results'}", "--data", str(pool / "pool.parquet"), "--k", "4"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    ranges, _, rankings = told["tables"]
    by_category = {row["category"]: row for row in ranges["rows"]}
    assert by_category["math"]["uniform_relative_al_range"] > by_category["coding"]["uniform_relative_al_range"] > 0
    assert {(row["selection"], row["draft_length"]) for row in rankings["rows"]} == {
        (k, n) for k in ("uniform", "optimized") for n in (3, 7)
    }
    assert 0 < told["overlap"]["uniform"] < 1
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "agrees by itself" in said
    assert said.count("measured by") == 2, "which point each draft length is of"


def test_the_points_that_figures_are_not_of_are_named(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(pool / "results")
    (one,) = [r for r in store.sweep("pool").records() if r["point"]["axes"]["draft_length"] == 3]
    other = axes("eagle3", draft_length=3)
    with store.lock() as writer:
        writer.write_plan(plan("two", [one["point"]["axes"], other]))
        writer.commit(record(other), one["measurement"], trace())
    assert main(["data", "stability", "two", f"store={pool / 'results'}", "--data", str(pool / "pool.parquet"), "--k", "4"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("DL 3:")]
    taken, left_out = line.split("; not in it: ")
    assert {"eagle3" in taken, "eagle3" in left_out} == {True, False}


def test_the_pool_of_a_benchmark_may_be_the_lines_that_were_measured(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "stability", "pool", f"store={pool / 'results'}", "--k", "4", "--json", "--data"]
    lines = [{"prompt_id": r.question_id, "category": r.category, "text": r.turns[0]} for r in read_rows(pool / "pool.parquet")]
    (pool / "pool.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert main([*words, str(pool / "pool.jsonl")]) == 0
    of_lines = json.loads(capsys.readouterr().out)
    assert main([*words, str(pool / "pool.parquet")]) == 0
    assert json.loads(capsys.readouterr().out) == of_lines


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--k", "40"], "category 'math' has 12 candidates; 40 are needed"),
        (["--k", "4", "--embedder", "magic"], "magic"),
    ],
)
def test_what_cannot_be_compared_is_said(words: list[str], told: str, pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "stability", "pool", f"store={pool / 'results'}", "--data", str(pool / "pool.parquet"), *words]) == 2
    assert told in capsys.readouterr().err


def test_a_pool_of_which_a_part_was_not_measured_is_refused_by_count(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(f"{c}-{i}", c, "", (f"text {c} {i}",), "own", str(i), "", False) for c in ("math", "coding") for i in range(len(WORDS) + 1)]
    write_rows(pool / "larger.parquet", rows)
    assert main(["data", "stability", "pool", f"store={pool / 'results'}", "--data", str(pool / "larger.parquet"), "--k", "4"]) == 2
    told = capsys.readouterr().err
    assert "no acceptance length of 2 of the 26 prompts" in told
    assert "math 1, coding 1" in told
    assert "workload.prompts=26" in told
