"""MLflow agrees with the store, while a sweep runs and when it is synced afterwards: tried against the real MLflow, on sqlite."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
from store_samples import record
from tracking_samples import GRID, PATIENCE_S, assert_one_complete_run_per_attempt, children, client, land, parent

from specsweep.orchestrator import tracking, tracking_mlflow
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import Tracker, sync

pytestmark = pytest.mark.slow  # importing MLflow and making its schema take 15 s; what a run holds is tested without MLflow


@pytest.fixture
def store(mlflow_store: Store) -> Store:
    return mlflow_store


# -- while it runs


def test_runs_appear_as_points_land_and_the_parents_figure_grows(store: Store) -> None:
    tracker = Tracker(store, None, "demo")
    uri = tracker.uri
    assert uri == f"sqlite:///{store.root}/mlflow.db"
    tracker.start()
    tracker.settle()
    figures = []
    for landed, values in enumerate(GRID, start=1):
        assert tracker.attempt(land(store, values, minute=landed), PATIENCE_S)
        assert len(children(uri)) == landed
        path = client(uri).download_artifacts(parent(uri).info.run_id, "pareto.png", str(store.root))
        figures.append(Path(path).read_bytes())
        assert parent(uri).info.status == "RUNNING"
    assert figures[-1].startswith(b"\x89PNG")
    assert len(set(figures)) == len(figures)
    assert tracker.finish()
    assert parent(uri).info.status == "FINISHED"
    history = client(uri).get_metric_history(parent(uri).info.run_id, "points_done")
    assert [m.value for m in sorted(history, key=lambda m: m.step)] == [0, 1, 2, 3, 4]
    assert_one_complete_run_per_attempt(store, uri)

    [run] = children(uri, "params.drafter = 'ngram' and params.batch_size = '8'")
    assert run.info.run_name == "ngram DL4 BS8 ISL256 low_entropy"
    assert run.data.metrics["output_tps"] == 800.0
    positions = client(uri).get_metric_history(run.info.run_id, "ar_cond")
    assert [(m.step, m.value) for m in positions] == [(1, 0.8)]
    assert {f.path for f in client(uri).list_artifacts(run.info.run_id)} == {"point.json", "measurement.json", "trace.parquet", "evidence"}
    first = client(uri).search_runs([run.info.experiment_id], order_by=["attributes.start_time ASC"], max_results=1)
    assert first[0].info.run_id == parent(uri).info.run_id, "the linked page shows the parent first"
    assert [e["kind"] for e in store.sweep("demo").events] == []


def test_a_resumed_sweep_uses_the_same_parent(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    for values, status in ((GRID[0], "KILLED"), (GRID[1], "KILLED")):
        tracker = Tracker(store, None, "demo")
        tracker.start()
        tracker.attempt(land(store, values), PATIENCE_S)
        assert parent(uri).info.status == "RUNNING"
        tracker.finish()
        assert parent(uri).info.status == status, "stopped with points missing"
    assert_one_complete_run_per_attempt(store, uri)


def test_a_simulated_sweep_says_so_by_name_and_tag_in_every_run(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    for values in GRID[:2]:
        land(store, values, measured={"simulated": True})
    sync(store, "demo")
    for run in [*children(uri), parent(uri)]:
        assert run.data.tags["simulated"] == "true"
        assert run.info.run_name.endswith(" simulated")
    assert parent(uri).info.run_name == "sweep demo simulated"
    assert sync(store, "demo").unchanged == 2


def test_low_acceptance_does_not_find_the_baseline(store: Store) -> None:
    for values in GRID:
        land(store, values, measured={"al": 1.1})
    sync(store, "demo")
    found = children(tracking.tracking_uri(store), "metrics.al_decode < 1.2")
    assert {r.data.params["drafter"] for r in found} == {"ngram"}
    assert len(found) == 2


# -- afterwards


def test_syncing_twice_changes_nothing(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    for values in GRID[:3]:
        land(store, values)
    store.commit(record(GRID[3], status="failed"), None, None, {"engine.log": "boom"})
    assert sync(store, "demo").created == 4
    before = {r.info.run_id: (r.data.to_dictionary(), r.info.end_time) for r in [*children(uri), parent(uri)]}
    second = sync(store, "demo")
    assert (second.created, second.repaired, second.superseded, second.unchanged) == (0, 0, 0, 4)
    assert {r.info.run_id: (r.data.to_dictionary(), r.info.end_time) for r in [*children(uri), parent(uri)]} == before
    assert {r.info.status for r in children(uri, "tags.validity = 'failed'")} == {"FAILED"}


def test_another_environment_or_another_measurement_is_another_run_and_never_kills_the_sync(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    first = land(store, GRID[3])
    sync(store, "demo")
    config = {**record(GRID[3])["config"], "engine": {"name": "llamacpp", "image": "sha256:other"}}
    other = land(store, GRID[3], minute=1, env_id="f" * 64, config=config)
    again = land(store, GRID[3], minute=2)
    result = sync(store, "demo")
    assert (result.created, result.unchanged, result.superseded) == (2, 1, 1)
    superseded = {r.data.tags["attempt_sha"]: r.data.tags.get("superseded") for r in children(uri)}
    assert superseded == {first.sha256: again.sha256, other.sha256: None, again.sha256: None}
    assert sync(store, "demo").superseded == 0


def test_half_written_and_doubled_runs_are_put_right(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    half, doubled = land(store, GRID[2]), land(store, GRID[3])
    sync(store, "demo")
    mlflow = client(uri)
    [run] = children(uri, f"tags.attempt_sha = '{half.sha256}'")
    mlflow.delete_tag(run.info.run_id, "complete")  # as a kill before the last write leaves it
    [whole] = children(uri, f"tags.attempt_sha = '{doubled.sha256}'")
    for status in ("RUNNING", "FINISHED"):
        mlflow.update_run(mlflow.create_run(whole.info.experiment_id, tags=dict(whole.data.tags)).info.run_id, status)
    result = sync(store, "demo")
    assert (result.repaired, result.unchanged) == (2, 0)
    assert_one_complete_run_per_attempt(store, uri)


def test_a_value_that_mlflow_refuses_costs_that_run_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = land(store, GRID[0])
    land(store, GRID[1])
    real = tracking_mlflow.run_content

    def content(attempt: Any) -> Any:
        made = real(attempt)
        return dataclasses.replace(made, params={"a?b": "1"}) if attempt.sha256 == odd.sha256 else made

    monkeypatch.setattr(tracking_mlflow, "run_content", content)
    result = sync(store, "demo")
    assert result.created == 1
    assert len(result.refused) == 1
    assert str(odd.path) in result.refused[0]
    monkeypatch.undo()
    assert sync(store, "demo").repaired == 1
    assert_one_complete_run_per_attempt(store, f"sqlite:///{store.root}/mlflow.db")


def test_a_damaged_measurement_is_reported_and_not_projected(store: Store) -> None:
    attempt = land(store, GRID[0])
    path = attempt.path / "measurement.json"
    good = path.read_text()
    path.write_text(good.replace("100.0", "900.0"))
    result = sync(Store(store.root), "demo")
    assert result.created == 0
    assert str(path) in result.damaged[0]
    path.write_text(good)
    assert sync(Store(store.root), "demo").created == 1


def test_an_experiment_or_parent_that_was_deleted_comes_back(store: Store) -> None:
    uri = tracking.tracking_uri(store)
    land(store, GRID[0])
    sync(store, "demo")
    mlflow = client(uri)
    mlflow.delete_run(parent(uri).info.run_id)
    sync(store, "demo")
    assert_one_complete_run_per_attempt(store, uri)
    mlflow.delete_experiment(parent(uri).info.experiment_id)
    sync(store, "demo")
    assert_one_complete_run_per_attempt(store, uri)


def test_two_syncs_at_once_do_not_double(store: Store) -> None:
    for values in GRID:
        land(store, values)
    threads = [threading.Thread(target=sync, args=(Store(store.root), "demo"), kwargs={"patience_s": 30}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_one_complete_run_per_attempt(store, tracking.tracking_uri(store))


def test_syncing_an_unknown_sweep_is_a_config_error(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"'dmeo' is not in store"):
        sync(store, "dmeo")
