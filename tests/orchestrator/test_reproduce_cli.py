"""`specsweep reproduce` on a small store: what it finds, what it misses, what it writes, and what it may not say of a simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import store_samples

from specsweep.orchestrator import cli
from specsweep.orchestrator.config import compose
from specsweep.orchestrator.grid import expand
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking_projection import ROLE

SWEEP = """
axes: {engine: sim, target: tiny, drafter: draft_model, draft_length: [1, 3], batch_size: [1, 4], isl: 128, workload: mixed}
set: {cluster: local}
"""


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    folder = tmp_path / "conf" / "sweep"
    folder.mkdir(parents=True)
    (folder / "fig7.yaml").write_text(SWEEP)
    return folder.parent


def filled(root: Path, configs: Path, *, leave_out: int = 0, simulated: bool = True) -> Store:
    """The longer draft is faster at BS 1 and slower at BS 4."""
    store = Store(root)
    points = expand(compose(["sweep=fig7"], [configs])).points
    for point in points[: len(points) - leave_out]:
        ahead = (point.axes["draft_length"] == 3) == (point.axes["batch_size"] == 1)
        numbers = store_samples.measurement(drafter="draft_model", tps=140.0 if ahead else 100.0, simulated=simulated)
        config = {k: dict(v) if isinstance(v, dict) else v for k, v in point.config.items()}
        record = store_samples.record(dict(point.axes), point_id=point.point_id, declared=dict(point.declared), config=config)
        store.commit(record, numbers)
    return store


def reproduced(root: Path, configs: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["reproduce", "fig7", f"store={root}", "--config-dir", str(configs), "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_a_complete_simulated_sweep_holds_by_construction_and_reproduces_nothing(
    tmp_path: Path, configs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path / "results", configs)
    code, found = reproduced(tmp_path / "results", configs, capsys)
    (result,) = found["results"]
    words = {c["key"]: c["verdict"] for c in result["claims"]}
    assert code == 0
    assert words["curves-cross"] == "holds by construction"
    assert "reproduced" not in words.values()
    assert result["title"].startswith("SIMULATED")
    assert all(t["title"].startswith("SIMULATED") for t in result["tables"])
    out = tmp_path / "results" / "reproduce" / "paper"
    for name in ("reproduce.html", "reproduce.md", "fig7.csv", "fig7_claims.csv", "fig7.png", "fig7.svg"):
        assert (out / name).stat().st_size > 0
    page = (out / "reproduce.html").read_text()
    assert "SIMULATED" in page
    assert "<svg" in page
    assert "src=" not in page  # nothing is fetched


def test_what_was_measured_is_reproduced(tmp_path: Path, configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path / "results", configs, simulated=False)
    _, found = reproduced(tmp_path / "results", configs, capsys)
    assert {c["key"]: c["verdict"] for c in found["results"][0]["claims"]}["curves-cross"] == "reproduced"


def test_missing_points_are_named_with_the_command_that_measures_them(
    tmp_path: Path, configs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path / "results", configs, leave_out=1)
    code, found = reproduced(tmp_path / "results", configs, capsys)
    (result,) = found["results"]
    assert code == 5
    assert (result["points_there"], result["points_needed"]) == (3, 4)
    assert "specsweep run sweep=fig7" in result["missing_command"]
    assert str(tmp_path / "results") in result["missing_command"]
    assert {c["key"]: c["verdict"] for c in result["claims"]}["curves-cross"] == "not decidable"


def test_an_id_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "fig99", f"store={tmp_path}"]) == 2
    said = capsys.readouterr().err
    assert "fig99" in said
    assert "table10" in said


def test_the_files_stand_on_the_sweeps_run_in_mlflow(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    from specsweep.orchestrator.tracking_reproduction import log_files

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    file = tmp_path / "fig7.csv"
    file.write_text("a\n")
    assert not log_files("fig7", [file], uri)
    assert not (tmp_path / "mlflow.db").exists()  # asking makes no database
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("fig7", artifact_location=str(tmp_path / "artifacts"))
    run = client.create_run(experiment, tags={ROLE: "sweep"})
    assert log_files("fig7", [file], uri)
    assert [f.path for f in client.list_artifacts(run.info.run_id, "reproduce")] == ["reproduce/fig7.csv"]
