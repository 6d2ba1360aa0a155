"""MLflow that is away, hangs or comes back costs a sweep nothing but the projection, and that is made up for."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tracking_samples import GRID, PATIENCE_S, assert_one_complete_run_per_attempt, children, land

from specsweep.orchestrator import tracking, tracking_mlflow
from specsweep.orchestrator.errors import TrackingError
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import Tracker, link, sync, ui_command

pytestmark = pytest.mark.slow  # importing MLflow and making its schema take 15 s; what a run holds is tested without MLflow


@pytest.fixture
def store(mlflow_store: Store) -> Store:
    return mlflow_store


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield int(listener.getsockname()[1])


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that MLflow is looked for."""
    made: list[str] = []
    real = tracking_mlflow.connect

    def connect(uri: str) -> Any:
        made.append(uri)
        return real(uri)

    monkeypatch.setattr(tracking, "connect", connect)
    return made


def test_mlflow_away_costs_the_sweep_nothing_and_sync_catches_up(store: Store, closed_port: int, tries: list[str]) -> None:
    tracker = Tracker(store, f"http://user:secret@127.0.0.1:{closed_port}", "demo")
    tracker.start()
    landed = [tracker.attempt(land(store, values, minute=m)) for m, values in enumerate(GRID)]
    assert not tracker.finish()
    assert len(tries) == 2, "at the start and at the end, and not at each point"
    assert landed == [False] * 4
    [event] = store.sweep("demo").events
    assert event["kind"] == "tracking_unavailable"
    assert "does not answer" in event["reason"]
    assert event["catch_up"] == f"specsweep sync demo store={store.root} --uri 'http://user:***@127.0.0.1:{closed_port}'"
    assert "secret" not in str(event)
    assert sync(store, "demo").created == 4
    assert_one_complete_run_per_attempt(store, tracking.tracking_uri(store))


def test_a_server_that_hangs_is_given_up_within_the_limit(store: Store, silent_server: int, tries: list[str]) -> None:
    tracker = Tracker(store, f"http://127.0.0.1:{silent_server}", "demo")
    began = time.monotonic()
    tracker.start()
    tracker.settle(timeout_s=1.0)
    assert not tracker.attempt(land(store, GRID[0]), timeout_s=1.0)
    assert not tracker.attempt(land(store, GRID[1]), timeout_s=1.0)
    assert not tracker.finish(timeout_s=1.0)
    assert len(tries) == 1, "nobody waits for it again while the first call still hangs"
    assert time.monotonic() - began < 60, "MLflow's own patience is minutes"
    assert [e["kind"] for e in store.sweep("demo").events] == ["tracking_unavailable"]


def test_mlflow_that_comes_back_is_used_again_and_what_it_missed_is_made_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "RETRY_AFTER_S", 0.0)
    real, away = tracking_mlflow.connect, [True]

    def connect(uri: str) -> Any:
        if away[0]:
            raise TrackingError("MLflow does not answer")
        return real(uri)

    monkeypatch.setattr(tracking, "connect", connect)
    tracker = Tracker(store, None, "demo")
    tracker.start()
    assert not tracker.attempt(land(store, GRID[0]))
    away[0] = False
    assert tracker.attempt(land(store, GRID[1]), PATIENCE_S)
    assert len(children(tracker.uri)) == 1
    assert tracker.finish()
    assert_one_complete_run_per_attempt(store, tracker.uri)
    assert [e["kind"] for e in store.sweep("demo").events] == ["tracking_unavailable", "tracking_available"]


def test_a_sync_to_nobody_is_a_tracking_error_at_the_first_try(store: Store, closed_port: int, tries: list[str]) -> None:
    with pytest.raises(TrackingError, match="does not answer"):
        sync(store, "demo", f"http://127.0.0.1:{closed_port}")
    assert len(tries) == 1


def test_links_and_commands() -> None:
    assert link("https://u:pw@mlflow.example:8443/", "7").startswith(
        "https://u:***@mlflow.example:8443/#/experiments/7/runs?orderByKey=attributes.start_time"
    )
    assert link("sqlite:////x/mlflow.db", "7").startswith("http://127.0.0.1:5000/#/experiments/7/")
    assert ui_command("https://mlflow.example") is None
    assert "--backend-store-uri 'sqlite:////x/mlflow.db' --port 5000" in str(ui_command("sqlite:////x/mlflow.db"))
