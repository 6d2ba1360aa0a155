"""`specsweep status` says what is done, what runs, what is wrong and how long it will take, from the files alone."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from store_samples import axes, measurement, plan, record, trace

from specsweep.orchestrator import cli
from specsweep.orchestrator.cli.selection import only_sweep
from specsweep.orchestrator.cli.status_page import page
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_status import SweepStatus, sweep_status

GRID = [axes("none", None, 1), axes("none", None, 8), axes("ngram", 4, 1), axes("ngram", 4, 8)]
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
WRITER = {"pid": 7, "host": "bench-1"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "results")
    made.write_plan(plan("demo", GRID, est_s=10.0))
    return made


def land(store: Store, values: dict[str, Any], **more: Any) -> None:
    measured = None if more.get("status") == "failed" else measurement(drafter=values["drafter"], valid=more.pop("valid", True))
    store.commit(record(values, **more), measured, trace())


def shown(status: SweepStatus) -> str:
    console = Console(width=160)
    with console.capture() as text:
        console.print(page([status], {}, detail=True))
    return text.get()


def look(store: Store, writer: dict[str, Any] | None = None, now: datetime = NOW) -> SweepStatus:
    return sweep_status(store.sweep("demo"), writer=writer, now=now)


def test_a_sweep_that_has_not_begun(store: Store) -> None:
    status = look(store)
    assert (status.state, status.points, status.missing, status.measured) == ("not started", 4, 4, 0)
    assert status.left_s == 2 * 5.0 + 4 * 10.0, "two engine starts and four points, as planned"
    assert status.problems == ()


def test_counts_problems_and_their_reasons(store: Store) -> None:
    land(store, GRID[0])
    land(store, GRID[1], valid=False)
    land(store, GRID[2], status="failed")
    status = look(store)
    assert (status.state, status.measured, status.invalid, status.failed, status.missing) == ("stopped", 2, 1, 1, 1)
    assert [(p.point, p.state, p.reason) for p in status.problems] == [
        ("none BS8 ISL256 low_entropy", "invalid", "a client core was 90 % busy"),
        ("ngram DL4 BS1 ISL256 low_entropy", "failed", "engine failed: engine ended with code 1"),
    ]
    assert [(s.what, s.points, s.measured, s.failed, s.missing) for s in status.sessions] == [
        ("llamacpp · smollm2-135m · none", 2, 2, 0, 0),
        ("llamacpp · smollm2-135m · ngram DL4", 2, 0, 1, 1),
    ]
    # The samples take 20 s where 10 were planned: twice the plan for the failed and the missing one, and one engine start.
    assert status.left_s == pytest.approx(5 + 2 * 2 * 10)


def test_what_runs_now_and_for_how_long(store: Store) -> None:
    land(store, GRID[0])
    store.event("demo", "run_started", pid=7)
    store.event("demo", "session_started", session_id="s-ngram")
    point_id = record(GRID[2])["point_id"]
    store.event("demo", "point_started", point_id=point_id)
    began = datetime.fromisoformat(store.sweep("demo").events[-1]["t_utc"])
    status = look(store, WRITER, began + timedelta(seconds=8))
    assert (status.state, status.now, status.now_s) == ("running", "ngram DL4 BS1 ISL256 low_entropy", 8.0)
    # the baseline's session is to be started for its second point; the other one runs, 8 s of 20 into its first point
    assert status.left_s == pytest.approx((5 + 20) + (20 + 20 - 8))


def test_a_killed_run_does_not_run(store: Store) -> None:
    store.event("demo", "run_started", pid=7)
    store.event("demo", "point_started", point_id=record(GRID[0])["point_id"])
    status = look(store, writer=None)
    assert (status.state, status.now) == ("not started", None)


def test_another_sweep_that_writes_to_the_store_is_not_this_one(store: Store) -> None:
    store.event("demo", "run_started", pid=6)
    store.event("demo", "run_finished", measured=0)
    assert look(store, writer=WRITER).state == "not started"


def test_mlflow_that_stayed_away_is_told_with_its_cure(store: Store) -> None:
    store.event("demo", "tracking_unavailable", reason="refused", catch_up="specsweep sync demo store=x")
    assert look(store).mlflow_behind == "specsweep sync demo store=x"
    store.event("demo", "tracking_available")
    assert look(store).mlflow_behind is None


def test_a_narrower_plan_counts_itself_and_tells_of_the_rest(store: Store) -> None:
    for values in GRID:
        land(store, values)
    store.write_plan(plan("demo", GRID[:1]))
    status = look(store)
    assert (status.state, status.points, status.measured, status.earlier, status.left_s) == ("finished", 1, 1, 3, None)


def test_points_of_several_targets_are_told_apart(store: Store) -> None:
    two = [axes(), {**axes(), "target": "qwen2.5-72b"}]
    store.write_plan(plan("demo", two))
    land(store, two[1], status="failed")
    assert [p.point for p in look(store).problems] == ["qwen2.5-72b ngram DL4 BS8 ISL256 low_entropy"]


def test_the_command_prints_all_sweeps_and_one_in_detail(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_plan(plan("other", GRID[:1]))
    land(store, GRID[0])
    land(store, GRID[1], status="failed", error={"kind": "EngineTerminal", "message": "[red]bad flag[/red] --draft-model"})
    assert cli.main(["status", f"store={store.root}"]) == 0
    text = capsys.readouterr().out
    assert "demo  stopped · 1 of 4 points measured · 1 failed · 2 missing" in text
    assert "other  finished · 1 of 1 points measured" in text
    assert cli.main(["status", "demo", f"store={store.root}"]) == 0
    text = capsys.readouterr().out
    assert "engine failed: [red]bad flag[/red] --draft-model" in text
    assert "other" not in text


def test_a_simulated_sweep_is_marked(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    land(store, GRID[0])
    assert cli.main(["status", f"store={store.root}"]) == 0
    assert "SIMULATED" not in capsys.readouterr().out
    store.commit(record(GRID[1]), measurement(drafter="none", simulated=True), trace(simulated=True))
    assert cli.main(["status", f"store={store.root}"]) == 0
    assert "2 of 4 points measured · SIMULATED" in capsys.readouterr().out
    assert cli.main(["status", "--json", f"store={store.root}"]) == 0
    assert json.loads(capsys.readouterr().out)["sweeps"][0]["simulated"] is True


def test_json_holds_the_same_facts(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    land(store, GRID[1], valid=False)
    with store.lock():
        store.event("demo", "run_started", pid=os.getpid())
        assert cli.main(["status", f"store={store.root}", "--json"]) == 0
    [status] = json.loads(capsys.readouterr().out)["sweeps"]
    assert (status["sweep"], status["state"], status["points"], status["invalid"]) == ("demo", "running", 4, 1)
    assert status["writer"]["pid"] == os.getpid()
    assert status["problems"][0]["reason"] == "a client core was 90 % busy"


def test_watching_ends_when_nothing_is_missing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for values in GRID:
        land(store, values)
    assert cli.main(["status", f"store={store.root}", "--watch"]) == 0
    assert "4 of 4 points measured" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmeo"], "sweep 'dmeo' is not in store="),
        (["store=/nowhere/at/all"], "store=/nowhere/at/all: no such folder"),
        (["batch_size=4"], "batch_size=4: not a setting of this command"),
        (["--json", "--watch"], "leave out --watch"),
    ],
)
def test_bad_input_is_named(store: Store, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    where = [] if any(a.startswith("store=") for a in arguments) else [f"store={store.root}"]
    assert cli.main(["status", *where, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_empty_store_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", f"store={tmp_path}"]) == 2
    assert "holds no sweep; measure one with `specsweep run`" in capsys.readouterr().err


@pytest.fixture
def with_a_broken_plan(store: Store) -> Store:
    for values in GRID:
        land(store, values)
    broken = store.write_plan(plan("broken", GRID[:1]))
    broken.write_text(broken.read_text()[:200])
    return store


def test_one_broken_plan_hides_no_other_sweep(with_a_broken_plan: Store, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"store={with_a_broken_plan.root}"
    assert cli.main(["status", where]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "demo finished · 4 of 4 points measured" in text
    assert "broken unreadable · " in text
    assert "sweeps/broken/plan.json cannot be read" in text
    assert cli.main(["status", where, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [s["sweep"] for s in facts["sweeps"]] == ["demo"]
    assert "cannot be read" in facts["unreadable"]["broken"]
    assert cli.main(["status", where, "--watch"]) == 0, "watching waits for nothing that cannot be read"


def test_a_broken_plan_that_is_asked_for_is_an_error(with_a_broken_plan: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "report", "sync"):
        assert cli.main([command, "broken", f"store={with_a_broken_plan.root}"]) == 2, command
        assert "sweeps/broken/plan.json cannot be read" in capsys.readouterr().err


def test_a_report_of_the_only_readable_sweep_tells_what_it_leaves_out(
    with_a_broken_plan: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert only_sweep(with_a_broken_plan) == "demo"
    assert "left out: " in capsys.readouterr().err
    with_a_broken_plan.write_plan(plan("other", GRID[:1]))
    with pytest.raises(ConfigError, match="holds 2 sweeps; name one: demo, other"):
        only_sweep(with_a_broken_plan)


def test_a_store_of_nothing_readable_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweeps/a/plan.json").mkdir(parents=True)
    (tmp_path / "sweeps/not a name").mkdir()
    (tmp_path / "sweeps/not a name/plan.json").write_text("{}")
    assert cli.main(["status", f"store={tmp_path}"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Is a directory" in text
    assert "'not a name' is not the name of a sweep" in text


def test_the_command_that_measures_invalid_points_again_is_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    land(store, GRID[0])
    assert look(store).measure_invalid is None
    land(store, GRID[1], valid=False)
    assert look(store).measure_invalid == f"specsweep run store={store.root} rerun=invalid"
    assert cli.main(["status", "demo", f"store={store.root}"]) == 0
    assert "rerun=invalid" in capsys.readouterr().out


def test_what_failed_before_a_run_is_to_be_repeated_and_not_failed(store: Store) -> None:
    for values in GRID[:2]:
        land(store, values, status="failed", error={"kind": "EngineTerminal", "message": "no such model"})
    store.event("demo", "run_started", t_utc="2099-11-30T11:00:00Z")  # after the samples
    running = look(store, writer=WRITER)
    assert (running.state, running.failed, running.missing, running.repeat, running.problems) == ("running", 0, 4, 2, ())
    assert "4 missing (2 of them to repeat: failed before)" in shown(running)
    store.event("demo", "run_finished")
    stopped = look(store)
    assert (stopped.failed, stopped.repeat) == (2, 0)


def test_points_with_one_cause_are_one_row_and_nothing_is_foretold_where_none_could_be_measured(store: Store) -> None:
    for values in GRID:
        land(store, values, status="failed", error={"kind": "EngineTerminal", "message": "no such model"})
    text = shown(look(store))
    assert text.count("no such model") == 1
    assert "4 points: " in text
    assert "no point could be measured" in text
    assert "to run" not in text
