"""`specsweep plan` as its reader sees it, and as a program does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from plan_samples import contents, plan_of

from specsweep.orchestrator.cli import main
from specsweep.orchestrator.cli.plan import duration, summarise
from specsweep.orchestrator.identity import Contents, point_id


@pytest.fixture(autouse=True)
def _no_model_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsweep.orchestrator.identity.Contents", contents)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", *arguments]) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(shown(capsys, *arguments, "--json"))


def test_the_reader_sees_points_sessions_time_and_losses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = shown(capsys, "sweep=quickstart", "batch_size=1,4,16", "isl=256,9k", "engine.max_batch=8", f"store={tmp_path}")
    assert out.startswith("quickstart: ")
    assert "12 points in 3 sessions, about" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line[:1].isdigit()}
    assert "ngram     4  1, 4" in lines["2"]
    assert "(engine llamacpp · target smollm2-135m · ISL 256 · workload low_entropy, high_entropy)" in out, "what all share is said once"
    assert "24 cells of the grid are left out" in out
    assert "batch_size=16 is above engine.max_batch=8" in out
    assert "target.max_model_len=8192" in out
    assert "drafter=none draft_length=4, 8" in out
    assert "measured already" not in out


def test_nothing_lost_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "loses no point" in shown(capsys, "drafter=none", f"store={tmp_path}")


def test_points_are_listed_on_demand(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = plan_of("drafter=none,ngram")
    out = shown(capsys, "drafter=none,ngram", "--points", f"store={tmp_path}")
    assert all(p.short_id in out for p in plan.points)


def test_json_has_the_same_facts_in_full(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("sweep=quickstart", "batch_size=1,4,16", "engine.max_batch=8", "engine.version=0.10", f"store={tmp_path}")
    facts = as_json(capsys, *arguments, "--points")
    plan = plan_of(*arguments)
    assert facts["points"] == facts["points_to_measure"] == len(plan.points) == 12
    assert facts["estimate_s"] == pytest.approx(plan.est_s)
    listed = [p for s in facts["sessions"] for p in s["points"]]
    assert [p["point_id"] for p in listed] == [p.point_id for p in plan.points]
    assert {p["declared"]["engine"]["version"] for p in listed} == {"0.10"}
    assert all(point_id(p["declared"]) == p["point_id"] for p in listed)
    assert sum(d["rule"] == "batch_fits_engine" for d in facts["dropped"]) == 6
    assert "declared" not in as_json(capsys, *arguments)["sessions"][0]["points"][0]


def test_typos_end_with_code_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "sweep=quikstart"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "did you mean 'quickstart'" in captured.err


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("workload.category=nope", "workload.category='nope' is not in mixed"),
        ("workload.prompts=1000000", "workload.prompts=1000000, but corpus 'mixed' has "),
        ("workload.ramp_prompts=1000000", "workload.ramp_prompts=1000000, but corpus 'mixed' has "),
        ("workload.corpus=BROKEN", "not JSON"),
        ("workload.corpus=/nope", "workload.corpus='/nope': /nope: No such file"),
    ],
)
def test_prompts_that_a_run_could_not_have_are_refused_by_the_plan(
    override: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("specsweep.orchestrator.identity.Contents", lambda: Contents(lambda spec: "model"))
    broken = tmp_path / "corpus.jsonl"
    broken.write_text("{\n")
    assert main(["plan", "target=tiny", "workload=mixed", override.replace("BROKEN", str(broken)), f"store={tmp_path}"]) == 2
    assert told in capsys.readouterr().err


def measured(root: Path, points: list[Any], seconds: int, *, valid: bool = True) -> None:
    from specsweep.orchestrator.store import Store

    store = Store(root)
    for point in points:
        record: Mapping[str, Any] = {
            "point_id": point.point_id,
            "env_id": "0" * 64,
            "status": "measured",
            "axes": dict(point.axes),
            "declared": dict(point.declared),
            "config": dict(point.config),
            "env": {},
            "baseline_id": point.baseline_id,
            "session_id": "0" * 64,
            "error": None,
            "started_utc": "2026-01-01T00:00:00Z",
            "finished_utc": f"2026-01-01T00:00:{seconds:02}Z",
            "git_commit": None,
            "host": "h",
        }
        store.commit(record, {"schema_version": 1, "simulated": False, "validity": {"valid": valid}, "metrics": {}})


def test_what_is_measured_is_reused_when_the_sweep_grows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = plan_of("batch_size=1,2,4", "drafter=none,ngram")
    measured(tmp_path, list(before.points), seconds=30)
    grown = ("batch_size=16,1,2,4", "drafter=none,ngram", "workload=low_entropy,high_entropy", f"store={tmp_path}")
    facts = as_json(capsys, *grown)
    assert (facts["points"], facts["points_reused"], facts["points_to_measure"]) == (16, 6, 10)
    reused = [p for s in facts["sessions"] for p in s["points"] if not p["to_measure"]]
    assert {p["point_id"] for p in reused} == {p.point_id for p in before.points}
    assert {p["estimate_s"] for p in reused} == {30.0}
    out = shown(capsys, *grown)
    assert f"6 of them are measured already in {tmp_path} and reused; 10 points in 4 sessions to measure" in out
    assert "nothing to run" in shown(capsys, "batch_size=1,2,4", "drafter=none,ngram", f"store={tmp_path}")
    assert as_json(capsys, "batch_size=1,2,4", "drafter=none,ngram", f"store={tmp_path}", "rerun=all")["points_reused"] == 0


def test_reused_points_that_are_not_valid_are_counted_and_their_remedy_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("batch_size=1,2", "drafter=none", f"store={tmp_path}")
    points = plan_of(*arguments).points
    measured(tmp_path, [points[0]], seconds=30, valid=False)
    measured(tmp_path, [points[1]], seconds=30)
    assert "1 reused point is not valid: rerun=invalid measures it again" in shown(capsys, *arguments)
    facts = as_json(capsys, *arguments)
    assert (facts["points_reused"], facts["points_reused_not_valid"]) == (2, 1)
    facts = as_json(capsys, *arguments, "rerun=invalid")
    assert (facts["points_to_measure"], facts["points_reused_not_valid"]) == (1, 0)
    assert "not valid" not in shown(capsys, *arguments, "rerun=invalid")


def test_times_of_a_sweep_that_goes_on_are_those_of_what_is_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    measured(tmp_path, list(plan_of("batch_size=1", "drafter=none,ngram").points), seconds=30)
    out = shown(capsys, "batch_size=1", "drafter=none,ngram", "draft_length=4,8", f"store={tmp_path}")
    assert out.splitlines()[1] == "3 points in 3 sessions", "the time of what is done already is nobody's question"
    rows = [line.split() for line in out.splitlines() if line[:1].isdigit() and "  " in line]
    assert [row[-1] for row in rows] == ["–", "–", "s"]
    assert "1 point in 1 session to measure, about" in out


def test_the_time_of_a_model_that_fills_gpus_is_called_a_guess(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    huge = ("engine=vllm", "engine.version=0.19", "target=llama-3.3-70b", "drafter=none", "hardware=x", f"store={tmp_path}")
    assert "a guess" in shown(capsys, *huge)
    assert "a guess" not in shown(capsys, "drafter=none", f"store={tmp_path}")


def test_no_word_is_broken_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = shown(capsys, "sweep=quickstart", "engine.max_batch=8", "batch_size=1,4,16", f"store={tmp_path}")
    assert {"smollm2-135m", "none_has_no_draft", "engine.max_batch=8:"} <= set(out.split())
    assert max(map(len, out.splitlines()[2:])) <= 80


ATTACHED = ("cluster=attach", "endpoint=http://127.0.0.1:1", "engine=vllm", "hardware=x", "drafter=none", "batch_size=1,2")


def test_an_estimate_that_would_be_a_guess_is_not_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = (*ATTACHED, f"store={tmp_path}")
    out = shown(capsys, *arguments)
    assert "2 points in 1 session, time unknown" in out
    assert "about" not in out
    assert next(line for line in out.splitlines() if line.startswith("1  none")).rstrip().endswith("–")
    facts = as_json(capsys, *arguments)
    assert facts["estimate_s"] is facts["estimate_to_measure_s"] is None
    assert {p["estimate_s"] for p in facts["sessions"][0]["points"]} == {None}
    measured(tmp_path, [plan_of(*ATTACHED).points[0]], seconds=30)  # now there is something to go by
    assert "about" in shown(capsys, *arguments)
    assert as_json(capsys, *arguments)["estimate_s"] > 30


def test_losses_are_summed_up_by_rule_and_by_the_axes_that_stand_out() -> None:
    plan = plan_of("sweep=quickstart", "batch_size=range(1,13)", "engine.max_batch=4")
    summary = {rule: (cells, where, reason) for cells, rule, where, reason in summarise(plan)}
    cells, where, reason = summary["batch_fits_engine"]
    assert cells == 8 * 3 * 2
    assert where == "batch_size=5, 6, 7, … 12 (8 values)"
    assert "7 reasons like it" in reason
    assert summary["none_has_no_draft"][0] == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (89, "89 s"), (91, "2 min"), (7000, "117 min"), (7200, "2 h"), (12000, "3 h 20 min"), (400_000, "4 d 15 h")],
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_planning_loads_neither_ray_nor_mlflow_nor_transformers() -> None:
    code = (
        "import sys; from specsweep.orchestrator.plan import make_plan; from specsweep.orchestrator.identity import Contents\n"
        "make_plan(['sweep=quickstart'], contents=Contents(lambda s: 'm'))\n"
        "print([m for m in ('ray', 'mlflow', 'transformers', 'pyarrow', 'torch', 'rich', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
