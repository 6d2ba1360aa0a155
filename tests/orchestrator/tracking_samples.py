"""What MLflow holds of a store, and attempts to put into it: for the tests of tracking, which ask the real MLflow."""

from __future__ import annotations

from typing import Any

from store_samples import axes, measurement, record, trace

from specsweep.orchestrator import tracking_mlflow
from specsweep.orchestrator.store import Store

PATIENCE_S = 60.0  # of tests in which MLflow is there; a sweep waits less, and a busy machine must fail no test
GRID = [axes("none", None, 1), axes("none", None, 8), axes("ngram", 4, 1), axes("ngram", 4, 8)]


def land(store: Store, values: dict[str, Any], minute: int = 0, **more: Any) -> Any:
    measured = measurement(drafter=values["drafter"], tps=100.0 * values["batch_size"], **more.pop("measured", {}))
    store.commit(record(values, minute=minute, **more), measured, trace(), {"engine.log": "log\n"})
    return store.latest(record(values)["point_id"])


def client(uri: str) -> Any:
    return tracking_mlflow.connect(uri)


def children(uri: str, query: str = "", sweep: str = "demo") -> list[Any]:
    mlflow = client(uri)
    experiment = mlflow.get_experiment_by_name(sweep)
    query = "tags.role = 'attempt'" + (f" and {query}" if query else "")
    return list(mlflow.search_runs([experiment.experiment_id], query, max_results=1000))


def parent(uri: str, sweep: str = "demo") -> Any:
    mlflow = client(uri)
    [run] = mlflow.search_runs([mlflow.get_experiment_by_name(sweep).experiment_id], "tags.role = 'sweep'")
    return run


def assert_one_complete_run_per_attempt(store: Store, uri: str) -> None:
    runs = children(uri)
    assert sorted(r.data.tags["attempt_sha"] for r in runs) == sorted(a.sha256 for a in store.attempts())
    assert all(r.data.tags.get("complete") == "true" and r.info.status in ("FINISHED", "FAILED") for r in runs)
    assert {r.data.tags["mlflow.parentRunId"] for r in runs} == {parent(uri).info.run_id}
