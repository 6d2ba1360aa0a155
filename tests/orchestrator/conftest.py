from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from runner_samples import Prepared
from store_samples import plan
from tracking_samples import GRID

from specsweep.orchestrator import tracking_mlflow
from specsweep.orchestrator.store import Store


class _Any(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


@pytest.fixture(autouse=True)
def every_engine_version_is_installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are tested with versions that exist nowhere; the rule that refuses those has its own test."""
    if request.module.__name__ != "test_engines":
        monkeypatch.setattr("specsweep.orchestrator.engines.llamacpp.installed_version", lambda: _Any("any"))


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's schema takes seconds to make, so it is made once and copied."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    tracking_mlflow.connect(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def mlflow_store(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with the plan ``demo`` and an empty MLflow database beside it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = Store(tmp_path / "results")
    made.write_plan(plan("demo", GRID))
    shutil.copy(empty_database, made.root / "mlflow.db")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty one that may be written."""
    made = Store(tmp_path / "results")
    with made.lock():
        yield made


@pytest.fixture
def prepared() -> Prepared:
    return Prepared()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
