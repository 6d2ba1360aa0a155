"""A store made again from MLflow, for a sweep whose pod came back without its disk.

A child run of MLflow holds the files of its attempt as they were committed, and ``point.json`` the hash of each. So what comes back is
checked against what was committed, byte for byte, and is the same attempt: a later ``sync`` finds nothing to do. What is not as it was
(half a file, another version, a point whose id is not that of its content) is left out and said; that point is measured again.

What MLflow does not hold stays lost: evidence of more than 1 MB, and the sweep's events.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.orchestrator import durable, identity
from specsweep.orchestrator.attempt import SHOWN
from specsweep.orchestrator.errors import TrackingError
from specsweep.orchestrator.fields import missing_database_folder
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_record import read_plan
from specsweep.orchestrator.tracking_mlflow import connect, shown
from specsweep.orchestrator.tracking_projection import COMPLETE, ROLE, SHA

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

AT_ONCE = 4  # downloads
PLAN = "plan.json"


@dataclass(slots=True)
class Restored:
    """What it took to make the store agree with MLflow."""

    sweep: str
    uri: str
    restored: int = 0
    known: int = 0  # attempts that the store has
    plan: bool = False  # the plan came back too
    broken: list[str] = field(default_factory=list)  # attempts that were left out, and why


def restore(store: Store, sweep: str, uri: str, *, say: Callable[[str], None] = lambda words: None) -> Restored:
    """Brings every complete attempt of the sweep's experiment into ``store`` that it does not have. Idempotent, and right after a kill.

    Raises ``TrackingError`` if MLflow is away or fails; what was brought by then stays.
    """
    if (missing := missing_database_folder(uri)) is not None:
        raise TrackingError(f"MLflow at {uri}: the folder {missing} does not exist")
    try:
        return _restore(store, sweep, uri, say)
    except TrackingError:
        raise
    except Exception as error:  # MLflow raises its own, SQLAlchemy's and requests' errors
        raise TrackingError(f"MLflow at {shown(uri)}: {type(error).__name__}: {error}") from error


def restore_first(store: Store, sweep: str, base: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Before a run in a cluster: its disk may be a new one. Without a server that outlives the pod there is nothing to bring back, and
    where MLflow is away the run begins without: what it then measures again is known to be right.
    """
    tracking, kind = base["tracking"], base["cluster"]["kind"]
    uri = str(tracking.get("uri") or os.environ.get("MLFLOW_TRACKING_URI") or "")
    if kind != "kubernetes" or not tracking["enabled"] or not uri.startswith(("http://", "https://")):
        return
    try:
        found = restore(store, sweep, uri, say=say)
    except TrackingError as error:
        say(f"{error.message}; results that only MLflow holds are measured again")
        return
    for line in found.broken:
        say(f"not brought back from MLflow: {line}")


def _restore(store: Store, sweep: str, uri: str, say: Callable[[str], None]) -> Restored:
    client, found = connect(uri), Restored(sweep, shown(uri))
    experiment = client.get_experiment_by_name(sweep)
    if experiment is None or experiment.lifecycle_stage == "deleted":
        return found
    with store.aside() as stage:
        found.plan = _restore_plan(store, sweep, client, experiment.experiment_id, stage, found)
        wanted = []
        for run in _runs(client, experiment.experiment_id, "attempt"):
            if run.data.tags.get(COMPLETE) != "true" or run.info.status == "RUNNING":
                continue
            if _is_here(store, run.data.tags):
                found.known += 1
            else:
                wanted.append(run)
        if wanted:
            say(f"{len(wanted)} results of {sweep} are in MLflow at {shown(uri)} and not in this store: bringing them back")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for run, fetched in zip(wanted, pool.map(lambda run: _fetched(client, run, stage), wanted), strict=True):
                fault = fetched if isinstance(fetched, str) else _adopted(store, fetched, run)
                if fault:
                    found.broken.append(f"{_name(run)}: {fault}")
                else:
                    found.restored += 1
    return found


def _runs(client: MlflowClient, experiment_id: str, role: str) -> Iterator[Run]:
    """In the order in which they began, so that attempts of one point keep their numbers."""
    token = None
    while True:
        page = client.search_runs(
            [experiment_id], f"tags.{ROLE} = '{role}'", max_results=1000, order_by=["attributes.start_time ASC"], page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


def _is_here(store: Store, tags: Mapping[str, str]) -> bool:
    point_id = tags.get("point_id", "")
    return bool(point_id) and any(attempt.sha256 == tags.get(SHA) for attempt in store.attempts(point_id))


def _fetched(client: MlflowClient, run: Run, stage: Path) -> Path | str:
    """The folder with the run's files, or why there is none."""
    folder = stage / str(run.info.run_id)
    try:
        durable.make_dirs(folder)
        client.download_artifacts(run.info.run_id, "", str(folder))
    except Exception as error:  # of one run: the others may be well
        return f"{type(error).__name__}: {error}"
    return folder


def _adopted(store: Store, folder: Path, run: Run) -> str:
    """Why it was not taken in; empty if it was."""
    try:
        fault = _fault(json.loads((folder / "point.json").read_bytes()))
        if not fault:
            store.adopt(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return str(error)
    return fault


def _fault(point: Any) -> str:
    """A point is named by its content: whoever changed one and not the other must not be believed."""
    named, found = point["point_id"], identity.point_id(point["declared"])
    return "" if named == found else f"it calls itself point {str(named)[:SHOWN]}, and its content is that of {found[:SHOWN]}"


def _restore_plan(store: Store, sweep: str, client: MlflowClient, experiment_id: str, stage: Path, found: Restored) -> bool:
    path = store.sweep_dir(sweep) / PLAN
    if path.exists():
        return False
    for run in _runs(client, experiment_id, "sweep"):
        try:
            if not any(file.path == PLAN for file in client.list_artifacts(run.info.run_id)):
                continue
            content = Path(client.download_artifacts(run.info.run_id, PLAN, str(stage))).read_bytes()
            if read_plan(content)["name"] != sweep:
                raise ValueError("it is that of another sweep")
        except (OSError, ValueError, KeyError) as error:
            found.broken.append(f"{PLAN}: {error}")
            continue
        durable.make_dirs(path.parent)
        durable.replace_file(path, content)
        return True
    return False


def _name(run: Run) -> str:
    return f"{run.data.tags.get('point_id', '')[:SHOWN] or 'a point'} ({run.info.run_name})"
