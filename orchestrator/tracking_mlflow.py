"""One sweep's experiment in MLflow: opened, filled, repaired. The only module that imports MLflow, and late: it costs seconds.

A child run is written in an order that makes every interruption visible: created (RUNNING), filled, ended, and only then
tagged ``complete``. A run of ours without that tag is half a run of a process that was killed; it is deleted and written anew.
Runs are found by ``attempt_sha``, so writing the same attempt again does nothing, whoever wrote it first. A lock file in the
store keeps two of our processes (a sweep and a ``sync``) from writing the same attempt at the same moment.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.errors import TrackingError
from specsweep.orchestrator.sweep_record import SweepView
from specsweep.orchestrator.tracking_projection import COMPLETE, PARENT, PLAN_SHA, REPORT_SHA, ROLE, SHA, SUPERSEDED, epoch_ms, run_content

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

CONNECT_S = 2.0
EVIDENCE_LIMIT = 1_000_000  # bytes; a raw recording stays in the store
FILE_LIMIT = 50_000_000  # bytes; a plan of a hundred thousand points
BATCH_METRICS, BATCH_PARAMS = 1000, 100  # MLflow's limits of one request
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # MLflow's own: 7 retries with back-off, four minutes for a server that is away
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "GIT_PYTHON_REFRESH": "quiet",
}


def shown(uri: str) -> str:
    """The URI without a password, for messages and events."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "a URI that cannot be read"  # and that may hold a password
    if parts.password is None:
        return uri
    where = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{where}"))


def connect(uri: str) -> MlflowClient:
    """Raises ``TrackingError`` within seconds if nobody listens there."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
        except OSError as error:
            raise TrackingError(f"MLflow at {shown(uri)} does not answer: {error}") from None
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri)


class Experiment:
    """The experiment and the parent run of one sweep. Every method may raise whatever MLflow raises."""

    def __init__(self, client: MlflowClient, view: SweepView, artifacts: str | None) -> None:
        self._client = client
        self.experiment_id = _experiment(client, view.name, artifacts)
        self.parent_id = self._parent(view)

    def _parent(self, view: SweepView) -> str:
        found = [str(run.info.run_id) for run in self._runs(f"tags.{ROLE} = 'sweep'")]
        for surplus in found[1:]:  # a deleted experiment that is restored brings back what had been deleted before
            self._client.delete_run(surplus)
        if found:
            return found[0]
        # It starts before its first child, so that the order by start time shows it first.
        started = [epoch_ms(a.point.get("started_utc")) for attempts in view.attempts.values() for a in attempts]
        start_ms = min([epoch_ms(view.plan["created_utc"]), *(s for s in started if s)]) - 1
        tags = {ROLE: "sweep", "sweep": view.name, "store": str(view.path.parents[1]), "host": socket.gethostname()}
        return str(self._client.create_run(self.experiment_id, start_time=start_ms, tags=tags, run_name=f"sweep {view.name}").info.run_id)

    def _runs(self, query: str) -> Iterator[Run]:
        token = None
        while True:
            page = self._client.search_runs(
                [self.experiment_id], query, max_results=1000, order_by=["attributes.start_time ASC"], page_token=token
            )
            yield from page
            token = page.token
            if not token:
                return

    def known(self, sha256: str | None = None) -> dict[str, list[Run]]:
        """Child runs by ``attempt_sha``: of one attempt, or all."""
        query = f"tags.{ROLE} = 'attempt'" + (f" and tags.{SHA} = '{sha256}'" if sha256 else "")
        found: dict[str, list[Run]] = {}
        for run in self._runs(query):
            found.setdefault(run.data.tags[SHA], []).append(run)
        return found

    def project(self, attempt: Attempt, runs: Sequence[Run]) -> str:
        """Makes sure that exactly one complete run holds ``attempt``; ``runs`` are those found of it.

        Returns ``unchanged``, ``created`` or ``repaired`` (a half-written or doubled run was deleted).
        """
        complete = [r for r in runs if r.data.tags.get(COMPLETE) == "true" and r.info.status != "RUNNING"]
        surplus = complete[1:] + [r for r in runs if r not in complete]
        for run in surplus:
            self._client.delete_run(run.info.run_id)
        if not complete:
            self._write(attempt)
            return "repaired" if surplus else "created"
        if complete[0].data.tags.get(PARENT) != self.parent_id:
            self._client.set_tag(complete[0].info.run_id, PARENT, self.parent_id)
        return "repaired" if surplus else "unchanged"

    def _write(self, attempt: Attempt) -> None:
        from mlflow.entities import Metric, Param

        content = run_content(attempt)
        tags = {**content.tags, PARENT: self.parent_id}
        run_id = self._client.create_run(
            self.experiment_id, start_time=content.start_ms or None, tags=tags, run_name=content.name
        ).info.run_id
        metrics = [Metric(m.name, m.value, content.end_ms, m.step) for m in content.metrics]
        params = [Param(k, v) for k, v in content.params.items()]
        for i in range(0, max(len(metrics), len(params) * BATCH_METRICS // BATCH_PARAMS), BATCH_METRICS):
            j = i * BATCH_PARAMS // BATCH_METRICS
            self._client.log_batch(run_id, metrics=metrics[i : i + BATCH_METRICS], params=params[j : j + BATCH_PARAMS])
        for name in ("point.json", "measurement.json", "trace.parquet"):
            if (attempt.path / name).exists():
                self._client.log_artifact(run_id, str(attempt.path / name))
        for path in sorted((attempt.path / "evidence").rglob("*")):
            if path.is_file() and path.stat().st_size <= EVIDENCE_LIMIT:
                self._client.log_artifact(run_id, str(path), str(path.parent.relative_to(attempt.path)))
        self._client.set_terminated(run_id, content.status, content.end_ms or None)
        self._client.set_tag(run_id, COMPLETE, "true")

    def mark_superseded(self, newer: Attempt, older: Sequence[Attempt]) -> int:
        """Tags the runs of ``older``, earlier attempts of the same point in the same environment. Returns how many were new to it."""
        marked = 0
        for attempt in older:
            for run in self.known(attempt.sha256).get(attempt.sha256, []):
                if run.data.tags.get(SUPERSEDED) != newer.sha256:
                    self._client.set_tag(run.info.run_id, SUPERSEDED, newer.sha256)
                    marked += 1
        return marked

    def update_parent(self, view: SweepView, *, status: str, figure: bool) -> None:
        """Progress, the Pareto figure so far, and whether the sweep runs: RUNNING, FINISHED, or KILLED (stopped with points missing)."""
        done = sum(1 for i in view.current if i in view.latest and view.latest[i].measured)
        run = self._client.get_run(self.parent_id)
        for name, value in (("points_done", done), ("points_total", len(view.current))):
            if run.data.metrics.get(name) != value:
                self._client.log_metric(self.parent_id, name, value, step=sum(len(a) for a in view.attempts.values()))
        self._keep(view.path / "plan.json", PLAN_SHA, run)  # so that a store can be made again from MLflow
        if status != "RUNNING":
            self._keep(view.path / "report.html", REPORT_SHA, run)
        if view.simulated and run.data.tags.get("simulated") != "true":
            self._client.set_tag(self.parent_id, "simulated", "true")
            self._client.update_run(self.parent_id, name=f"sweep {view.name} simulated")
        if figure and (png := pareto_png(view.records())) is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "pareto.png"
                path.write_bytes(png)
                self._client.log_artifact(self.parent_id, str(path))
        if status != run.info.status:
            if status == "RUNNING":
                self._client.update_run(self.parent_id, status)
            else:
                self._client.set_terminated(self.parent_id, status)

    def _keep(self, path: Path, tag: str, run: Run) -> None:
        """The file beside the results, if it is there and not what ``tag`` says of the one that was kept."""
        if not path.exists():
            return
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if len(content) <= FILE_LIMIT and run.data.tags.get(tag) != digest:
            self._client.log_artifact(self.parent_id, str(path))
            self._client.set_tag(self.parent_id, tag, digest)


def _experiment(client: MlflowClient, name: str, artifacts: str | None) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        # The kind opens MLflow's view of runs and metrics instead of the one for traces of language model applications.
        return str(client.create_experiment(name, artifact_location=artifacts, tags={"mlflow.experimentKind": "custom_model_development"}))
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def pareto_png(records: Sequence[dict[str, Any]]) -> bytes | None:
    """The Pareto figure of what was measured so far; None while there is nothing to show."""
    from specsweep.analysis.attempts import cells, varying
    from specsweep.analysis.figures import pareto_figure, styles, write_png
    from specsweep.analysis.pareto import pareto

    measured = [r for r in records if r["measurement"] is not None]
    found = cells(measured)
    points = pareto(found, varying(found))
    if not points:
        return None
    simulated = any(r["measurement"].get("simulated") for r in measured)
    figure = pareto_figure(
        points, styles([(p.series, str(p.cell.axes.get("drafter")), p.cell.baseline) for p in points]), simulated=simulated
    )
    with tempfile.TemporaryDirectory() as folder:
        return write_png(figure, Path(folder) / "pareto.png").read_bytes()
