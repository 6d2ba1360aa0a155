"""What a run says of itself at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from store_samples import plan, record, trace
from tracking_samples import GRID

from specsweep.orchestrator.cli import main, run
from specsweep.orchestrator.errors import EXIT_INCOMPLETE
from specsweep.orchestrator.ledger import Outcome
from specsweep.orchestrator.store import Store


def test_a_run_whose_points_are_missing_does_not_end_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, planned = Store(tmp_path / "results"), plan("demo", GRID)
    store.write_plan(planned)
    code = run._finish(planned, store, Outcome(), None, as_json=True)
    assert code == EXIT_INCOMPLETE
    told = capsys.readouterr()
    assert f'"missing": {len(planned.points)}' in told.out
    assert f"{len(planned.points)} points missing" in told.err


@pytest.mark.parametrize(("cells", "told"), [(50_000, False), (400_000, True)])
def test_a_plan_that_takes_its_time_says_so_first(cells: int, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    run.say_if_large(cells)
    assert (f"{cells:,} cells" in capsys.readouterr().err) is told


def test_an_engine_that_is_not_here_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECSWEEP_ENGINES", str(tmp_path / "none"))
    assert main(["run", "name=t", "engine=vllm", "target=tiny", f"store={tmp_path / 'store'}", f"cache={tmp_path / 'cache'}"]) == 2
    assert "engine vllm cannot be started on this machine" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("complete", [True, False])
def test_in_a_pod_the_last_lines_are_for_people_outside(
    complete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("SPECSWEEP_JOB", "sweep-demo-1a"), ("POD_NAMESPACE", "bench")):
        monkeypatch.setenv(name, value)
    store, planned = Store(tmp_path / "results"), plan("demo", GRID)
    store.write_plan(planned)
    store.commit(record(GRID[0], status="failed"), None, trace())
    tracker = SimpleNamespace(complete=complete, uri="http://mlflow:5000", link=None, catch_up=f"specsweep sync demo store={store.root}")
    run._finish(planned, store, Outcome(), tracker, as_json=False)
    told = capsys.readouterr().err
    assert "`specsweep status demo cluster=kubernetes cluster.namespace=bench` says why" in told
    assert ("specsweep sync demo --from-mlflow --uri http://localhost:5000" in told) is complete
    assert ("specsweep resume demo cluster=kubernetes cluster.namespace=bench" in told) is not complete
    assert f"store={store.root}" not in told, "a path of the pod leads nowhere"
