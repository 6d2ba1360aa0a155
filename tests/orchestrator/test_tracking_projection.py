"""What an attempt says in MLflow, and what it must not say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from store_samples import axes, measurement, record, trace

from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking_mlflow import pareto_png
from specsweep.orchestrator.tracking_projection import run_content, run_name


def landed(tmp_path: Path, measured: dict[str, Any] | None, **more: Any) -> Attempt:
    store = Store(tmp_path / "results")
    values = more.pop("values", axes())
    status = "failed" if measured is None else "measured"
    store.commit(record(values, status=status, **more), measured, trace() if measured else None)
    attempt = store.latest(record(values)["point_id"])
    assert attempt is not None
    return attempt


def test_metrics_carry_the_registry_names_with_intervals_and_steps(tmp_path: Path) -> None:
    content = run_content(landed(tmp_path, measurement(tps=120.0, al=2.5)))
    found = {(m.name, m.step): m.value for m in content.metrics}
    assert found["output_tps", 0] == 120.0
    assert found["output_tps_ci_low", 0] == pytest.approx(116.4)
    assert found["al_decode.coding _ math", 0] == 2.5
    assert {k: v for k, v in found.items() if k[0].startswith("ar_cond")} == {
        ("ar_cond", 1): 0.8,
        ("ar_cond_ci_low", 1): 0.7,
        ("ar_cond_ci_high", 1): 0.9,
    }, "an unseen position is no number"
    assert {k[1]: v for k, v in found.items() if k[0] == "accept_hist"} == {1: 20, 2: 30, 3: 50}
    assert content.status == "FINISHED"
    assert content.end_ms - content.start_ms == 20_000


def test_labels_are_metrics_as_long_as_they_are_few(tmp_path: Path) -> None:
    measured = measurement()
    measured["by_label"] = {
        "difficulty": {"hard": {"al_decode": 2.0, "al_decode_ci_low": 1.9, "user_tps_mean": 9.0}, "": {"al_decode": 3.0}},
        "turns": {"one": {"al_decode": 2.5}, "several": {"al_decode": math.pi}},
        "sub_category": {f"s{n}": {"al_decode": 2.0} for n in range(40)},
    }
    content = run_content(landed(tmp_path, measured))
    found = {m.name: m.value for m in content.metrics if m.name.count(".") == 2}
    assert found == {
        "al_decode.difficulty.hard": 2.0,
        "user_tps_mean.difficulty.hard": 9.0,
        "al_decode.difficulty.none": 3.0,
        "al_decode.turns.one": 2.5,
        "al_decode.turns.several": math.pi,
    }
    assert content.tags["labels_left_out"] == "sub_category: 40 values, more than 24; see measurement.json"


def test_names_that_read_alike_in_mlflow_stay_apart(tmp_path: Path) -> None:
    measured = measurement()
    measured["by_category"] = {"a&b": {"al_decode": 1.5}, "a|b": {"al_decode": 2.5}, "x" * 300: {"al_decode": 3.5}}
    metrics = run_content(landed(tmp_path, measured)).metrics
    assert {m.name: m.value for m in metrics if m.name.startswith("al_decode.a")} == {"al_decode.a_b": 1.5, "al_decode.a_b-2": 2.5}
    assert len({(m.name, m.step) for m in metrics}) == len(metrics)
    assert max(len(m.name) for m in metrics) <= 250


def test_what_is_no_finite_number_is_a_reason_and_not_a_metric(tmp_path: Path) -> None:
    attempt = landed(tmp_path, measurement())
    broken = measurement()
    broken["metrics"] |= {"step_ms_mean": math.nan, "speedup": math.inf, "gap_ms": None}
    attempt._measurement, attempt._read = broken, True  # the store refuses such a file, so it comes from elsewhere
    content = run_content(attempt)
    assert not {"step_ms_mean", "speedup", "gap_ms"} & {m.name for m in content.metrics}
    assert all(math.isfinite(m.value) for m in content.metrics)
    assert '"step_ms_mean": "not a finite number: nan"' in content.tags["absent"]
    assert '"step_ms_p99": "99 values; a p99 needs 1000"' in content.tags["absent"]


def test_the_baseline_has_no_acceptance(tmp_path: Path) -> None:
    content = run_content(landed(tmp_path, measurement(drafter="none"), values=axes("none")))
    names = {m.name for m in content.metrics}
    assert "output_tps" in names
    assert not [n for n in names if n.startswith(("al_", "ar_", "accept"))]
    assert '"al_decode": "drafter none: nothing is drafted"' in content.tags["absent"]


def test_text_that_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    content = run_content(landed(tmp_path, measurement()))
    assert content.params["engine.version"] == "0.10"
    assert content.params["target.revision"] == "12e4567"
    assert content.params["engine.args.flash_attn"] == "true"
    assert content.params["batch_size"] == "8"
    assert content.tags["engine_version"] == "b8000-12e4567"


def test_tags_say_what_a_filter_needs(tmp_path: Path) -> None:
    attempt = landed(tmp_path, measurement(valid=False, simulated=True))
    tags = run_content(attempt).tags
    assert run_content(attempt).name == "ngram DL4 BS8 ISL256 low_entropy simulated"
    assert tags["point_id"] == attempt.point_id
    assert tags["env_id"] == attempt.env_id
    assert tags["host"] == "bench-1"
    assert tags["model_sha256"] == "ab" * 32
    assert tags["resolved_flags"] == '{"n_ctx": 4096, "target_sha256": "' + "ab" * 32 + '"}'
    assert (tags["validity"], tags["simulated"], tags["valid.tps"], tags["valid.steps"]) == ("invalid", "true", "false", "true")
    assert tags["failed_checks"] == "client_core: a client core was 90 % busy"
    assert "baseline_id" not in tags


def test_a_failed_attempt_is_a_failed_run_with_its_reason_and_no_numbers(tmp_path: Path) -> None:
    content = run_content(landed(tmp_path, None, error={"kind": "EngineTerminal", "message": "out of memory\n\nlog…"}))
    assert content.status == "FAILED"
    assert content.metrics == ()
    assert content.tags["validity"] == "failed"
    assert content.tags["error"] == "EngineTerminal: out of memory"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (axes(), "ngram DL4 BS8 ISL256 low_entropy"),
        (axes("none"), "none BS8 ISL256 low_entropy"),
        (axes("eagle3", **{"drafter.topk": 2, "repeat": 3, "temperature": 0.6}), "eagle3 DL4 BS8 ISL256 low_entropy T0.6 topk=2 #3"),
    ],
)
def test_run_names_tell_points_apart(values: dict[str, Any], name: str) -> None:
    assert run_name(values) == name


def test_long_texts_are_cut_to_what_mlflow_takes(tmp_path: Path) -> None:
    content = run_content(landed(tmp_path, measurement(), env={"flags": {"argv": "x" * 20_000}}, config={"a" * 300: "y" * 9000}))
    assert max(map(len, content.tags.values())) <= 5000
    assert all(len(k) <= 250 and len(v) <= 6000 for k, v in content.params.items())


def test_the_pareto_figure_is_drawn_from_what_there_is() -> None:
    grid = [axes(d, 4, b) for d in ("none", "ngram") for b in (1, 8)]
    landed = [{"point": record(v), "measurement": measurement(drafter=v["drafter"], tps=50.0 * v["batch_size"])} for v in grid]
    failed = {"point": record(axes(batch_size=2), status="failed"), "measurement": None}
    pictures = [pareto_png([failed, *landed[:n]]) for n in range(len(landed) + 1)]
    assert pictures[0] is None, "nothing measured, nothing drawn"
    assert all(p is not None and p.startswith(b"\x89PNG") for p in pictures[1:])
    assert len(set(pictures)) == len(pictures), "every point changes it"
