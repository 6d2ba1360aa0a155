"""A store that was lost comes back from MLflow as it was; what is not as it was committed stays out. Tried against the real MLflow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from store_samples import axes, measurement, record, trace
from tracking_samples import client, land, parent

from specsweep.orchestrator import cli, identity, tracking, tracking_restore
from specsweep.orchestrator.errors import TrackingError
from specsweep.orchestrator.points import Plan, Point, Session
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import sync
from specsweep.orchestrator.tracking_restore import restore

pytestmark = pytest.mark.slow  # importing MLflow takes seconds

VALUES = [axes("none", None, 1), axes("ngram", 4, 1), axes("ngram", 4, 8)]


def declared(values: dict[str, Any]) -> dict[str, Any]:
    return {"axes": values, "schema_version": 1}


def point_id(values: dict[str, Any]) -> str:
    return identity.point_id(declared(values))


def commit(store: Store, values: dict[str, Any], **more: Any) -> Path:
    """An attempt whose id is that of its content."""
    facts = record(values, **more) | {"declared": declared(values), "point_id": point_id(values)}
    failed = facts["status"] == "failed"
    evidence: dict[str, str | bytes] = {"engine.log": "log\n", "parts/large.bin": b"x" * 1_500_000, "parts/small.txt": "small"}
    return store.commit(facts, None if failed else measurement(drafter=values["drafter"]), None if failed else trace(), evidence)


@pytest.fixture
def full(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with three points, one of them failed first and one measured twice, that MLflow agrees with."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store = Store(tmp_path / "a")
    points = tuple(Point(point_id(values), values, {}, declared(values), None) for values in VALUES)
    store.write_plan(Plan("demo", (Session("s1", points, 1.0, (1.0,) * 3),)), ["sweep=demo"])
    shutil.copy(empty_database, store.root / "mlflow.db")
    commit(store, VALUES[0], status="failed", minute=1)
    for minute, values in enumerate([*VALUES, VALUES[2]], start=2):
        commit(store, values, minute=minute)
    sync(store, "demo")
    return store


def documents(store: Store) -> dict[str, bytes]:
    """Every file of every attempt, by its path, but for evidence that is too large for MLflow."""
    root = store.root / "points"
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file() and f.name != "large.bin"}


def test_what_comes_back_is_what_was_committed(full: Store, tmp_path: Path) -> None:
    uri, empty = tracking.tracking_uri(full), Store(tmp_path / "b")
    found = restore(empty, "demo", uri)
    assert (found.restored, found.known, found.plan, found.broken) == (5, 0, True, [])
    assert documents(empty) == documents(full)
    assert not any(empty.needs(point_id(values)) for values in VALUES)
    assert empty.sweep_plan("demo") == full.sweep_plan("demo")
    assert [a.number for a in empty.attempts(point_id(VALUES[2]))] == [1, 2]
    assert empty.damaged == []
    again = restore(empty, "demo", uri)
    assert (again.restored, again.known) == (0, 5)
    later = sync(empty, "demo", uri)
    assert (later.created, later.repaired, later.unchanged) == (0, 0, 5), "it is the same attempt to MLflow"


def test_only_what_is_missing_is_brought(full: Store, tmp_path: Path) -> None:
    half = Store(tmp_path / "b")
    shutil.copytree(full.root / "points" / point_id(VALUES[0])[:16], half.root / "points" / point_id(VALUES[0])[:16])
    found = restore(half, "demo", tracking.tracking_uri(full))
    assert (found.restored, found.known) == (3, 2)


def artifact(full: Store, values: dict[str, Any], name: str) -> Path:
    uri = tracking.tracking_uri(full)
    mlflow = client(uri)
    experiment = mlflow.get_experiment_by_name("demo")
    (run,) = mlflow.search_runs([experiment.experiment_id], f"tags.point_id = '{point_id(values)}'")
    return Path(str(run.info.artifact_uri).removeprefix("file://")) / name


def test_what_is_not_as_it_was_is_left_out_and_said(full: Store, tmp_path: Path) -> None:
    artifact(full, VALUES[1], "trace.parquet").write_bytes(b"PAR1 cut off")
    empty = Store(tmp_path / "b")
    found = restore(empty, "demo", tracking.tracking_uri(full))
    assert found.restored == 4
    (line,) = found.broken
    assert "trace.parquet" in line
    assert empty.needs(point_id(VALUES[1]))
    assert not empty.needs(point_id(VALUES[0]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"declared": {"another": "point"}}, "its content is that of"),
        ({"schema_version": 99}, "schema 99"),
        ({"axes": {}}, "axes"),
    ],
)
def test_a_point_that_is_not_what_it_says(full: Store, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = artifact(full, VALUES[1], "point.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    found = restore(Store(tmp_path / "b"), "demo", tracking.tracking_uri(full))
    assert found.restored == 4
    assert words in found.broken[0]


def test_a_missing_file_is_said(full: Store, tmp_path: Path) -> None:
    artifact(full, VALUES[1], "measurement.json").unlink()
    found = restore(Store(tmp_path / "b"), "demo", tracking.tracking_uri(full))
    assert "measurement.json" in found.broken[0]


def test_a_sweep_that_mlflow_does_not_know_brings_nothing(full: Store, tmp_path: Path) -> None:
    found = restore(Store(tmp_path / "b"), "other", tracking.tracking_uri(full))
    assert (found.restored, found.known, found.broken) == (0, 0, [])


def test_half_a_run_of_a_killed_process_is_not_brought(full: Store, tmp_path: Path) -> None:
    uri = tracking.tracking_uri(full)
    mlflow = client(uri)
    experiment = mlflow.get_experiment_by_name("demo")
    (run,) = mlflow.search_runs([experiment.experiment_id], f"tags.point_id = '{point_id(VALUES[1])}'")
    mlflow.delete_tag(run.info.run_id, "complete")
    assert restore(Store(tmp_path / "b"), "demo", uri).restored == 4


def test_the_command(full: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = tracking.tracking_uri(full)
    words = ["sync", "demo", f"store={tmp_path / 'b'}", "--from-mlflow"]
    assert cli.main(words) == 2
    assert "there is no MLflow database at" in capsys.readouterr().err
    assert cli.main([*words, "--uri", uri]) == 0
    assert "demo: 5 results brought back from MLflow" in capsys.readouterr().out
    assert cli.main([*words, "--uri", uri, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["known"] == 5
    assert cli.main(["sync", f"store={tmp_path / 'b'}", "--from-mlflow", "--uri", uri]) == 2
    assert cli.main(["status", "demo", f"store={tmp_path / 'b'}"]) == 0
    assert "3 of 3 points measured" in capsys.readouterr().out


def test_the_report_is_kept_at_the_sweeps_run_once_and_can_be_made_from_what_came_back(
    full: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = tracking.tracking_uri(full)
    assert cli.main(["report", "demo", f"store={full.root}"]) == 0
    page = full.sweep_dir("demo") / "report.html"
    sync(full, "demo")
    run = parent(uri)
    kept = client(uri).download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert Path(kept).read_bytes() == page.read_bytes()
    assert cli.main(["sync", "demo", f"store={tmp_path / 'b'}", "--from-mlflow", "--uri", uri]) == 0
    assert cli.main(["report", "demo", f"store={tmp_path / 'b'}"]) == 0
    assert (tmp_path / "b/sweeps/demo/report.html").exists()


def test_mlflow_away(tmp_path: Path, closed_port: int) -> None:
    with pytest.raises(TrackingError, match="does not answer"):
        restore(Store(tmp_path / "b"), "demo", f"http://127.0.0.1:{closed_port}")


def test_a_run_in_a_cluster_begins_with_what_the_server_has(
    full: Store, tmp_path: Path, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    asked: list[str] = []
    uri, whole = tracking.tracking_uri(full), tracking_restore.restore

    def at_the_server(store: Store, sweep: str, where: str, **more: Any) -> Any:
        asked.append(where)
        return whole(store, sweep, uri if where == "http://mlflow:5000" else where, **more)

    monkeypatch.setattr(tracking_restore, "restore", at_the_server)

    def first(name: str, server: str | None, kind: str = "kubernetes") -> Store:
        store = Store(tmp_path / name)
        base = {"tracking": {"enabled": True, "uri": server}, "cluster": {"kind": kind}}
        tracking_restore.restore_first(store, "demo", base, said.append)
        return store

    assert len(first("b", "http://mlflow:5000").attempts()) == 5
    assert len(first("c", f"http://127.0.0.1:{closed_port}").attempts()) == 0
    assert "does not answer" in said[-1]
    before = len(asked)
    first("d", None)
    first("e", "http://mlflow:5000", kind="local")
    first("f", "sqlite:////results/mlflow.db")
    assert len(asked) == before


def test_the_samples_of_others_have_other_ids(mlflow_store: Store, tmp_path: Path) -> None:
    """A store whose ids are not of its content is not believed: that is what the check is for."""
    land(mlflow_store, VALUES[1])
    sync(mlflow_store, "demo")
    found = restore(Store(tmp_path / "b"), "demo", tracking.tracking_uri(mlflow_store))
    assert (found.restored, len(found.broken)) == (0, 1)
