"""The sweep in MLflow while it runs, and afterwards. MLflow is a projection of the store: it may be away, slow or empty, and
nothing is lost by that.

**Between points, and bounded.** On a small machine whatever runs beside a measurement disturbs it. So the projection of a point
happens between two measuring windows, on a thread that the caller waits for, and no longer than a few seconds: what is not
done by then is given up and left to :func:`sync`. ``start`` returns at once (importing MLflow and making its database take
seconds, as an engine start does) and :meth:`Tracker.settle` waits for it before the first window.

**Away means away.** After a failure nothing is tried for a minute; one event says so, one says when it is back. ``finish``
catches up with all that was missed, if it can.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path

from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.durable import FileLock, Held
from specsweep.orchestrator.errors import TrackingError
from specsweep.orchestrator.fields import missing_database_folder
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_record import SweepView
from specsweep.orchestrator.tracking_mlflow import Experiment, connect, shown
from specsweep.orchestrator.typed_paths import as_typed

START_S, ATTEMPT_S, FINISH_S = 60.0, 8.0, 60.0  # how long a sweep waits for MLflow at most
RETRY_AFTER_S = 60.0
BUSY_S = 5.0  # patience for another process of ours that writes to the same experiment
UI_PORT = 5000


def tracking_uri(store: Store) -> str:
    """``MLFLOW_TRACKING_URI`` if it is set, else a sqlite file in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{store.root / 'mlflow.db'}"


def link(uri: str, experiment_id: str) -> str:
    """The page of the sweep: runs in the order in which they started, so that the parent stands first and holds its children.

    (MLflow nests children only in the order of start times and without a filter.)
    """
    base = uri.rstrip("/") if uri.startswith(("http://", "https://")) else f"http://127.0.0.1:{UI_PORT}"
    return f"{shown(base)}/#/experiments/{experiment_id}/runs?orderByKey=attributes.start_time&orderByAsc=true"


def ui_command(uri: str) -> str | None:
    """What to type to see a database that no server serves yet; None if ``uri`` is a server."""
    if uri.startswith(("http://", "https://")):
        return None
    here = Path(sys.executable).with_name("mlflow")
    program = "mlflow" if shutil.which("mlflow") or not here.exists() else os.path.relpath(here)
    # Without the job executor the server needs a quarter of the memory.
    return f"MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false {program} server --backend-store-uri '{shown(uri)}' --port {UI_PORT}"


def _open(store: Store, view: SweepView, uri: str) -> Experiment:
    artifacts = (store.root / "mlartifacts" / view.name).as_uri() if uri.startswith("sqlite:") else None
    if (missing := missing_database_folder(uri)) is not None:
        raise TrackingError(f"MLflow at {uri}: the folder {missing} does not exist; make it, or name another database")
    return Experiment(connect(uri), view, artifacts)


@contextlib.contextmanager
def _alone(store: Store, patience_s: float) -> Iterator[None]:
    lock = FileLock(store.root / "tracking.lock")
    try:
        lock.acquire(patience_s=patience_s)
    except Held as held:
        raise TrackingError(f"another process (pid {held.holder.get('pid', '?')}) is writing this store to MLflow") from None
    try:
        yield
    finally:
        lock.release()


# -- afterwards


@dataclass(slots=True)
class SyncResult:
    """What it took to make MLflow agree with the store."""

    sweep: str
    uri: str
    link: str
    created: int = 0
    unchanged: int = 0
    repaired: int = 0  # half-written or doubled runs were deleted and written once
    superseded: int = 0  # runs newly tagged as measured again later
    refused: list[str] = field(default_factory=list)  # attempts that MLflow would not take, and why
    damaged: list[str] = field(default_factory=list)  # files of the store that could not be read


def sync(store: Store, sweep: str, uri: str | None = None, *, patience_s: float = BUSY_S) -> SyncResult:
    """Brings one sweep's experiment up to date. Idempotent, and right after a kill at any moment.

    Raises ``ConfigError`` for a sweep that the store does not have, ``TrackingError`` if MLflow is away or fails.
    """
    uri = uri or tracking_uri(store)
    view = store.sweep(sweep)
    try:
        with _alone(store, patience_s):
            return _sync(store, view, uri)
    except TrackingError:
        raise
    except Exception as error:  # MLflow raises its own, SQLAlchemy's and requests' errors
        raise TrackingError(f"MLflow at {shown(uri)}: {type(error).__name__}: {error}") from error


def _sync(store: Store, view: SweepView, uri: str) -> SyncResult:
    experiment = _open(store, view, uri)
    result = SyncResult(view.name, shown(uri), link(uri, experiment.experiment_id))
    _catch_up(experiment, view, result)
    status = _final_status(view) if view.ended or store.writer() is None else "RUNNING"
    experiment.update_parent(view, status=status, figure=result.created + result.repaired > 0)
    result.damaged = list(store.damaged)
    return result


def _catch_up(experiment: Experiment, view: SweepView, result: SyncResult) -> None:
    from mlflow.exceptions import MlflowException

    known = experiment.known()
    for attempts in view.attempts.values():
        for attempt in attempts:
            if attempt.measured and attempt.measurement is None:
                continue  # damaged: the store reports it, and MLflow must not hold it as something else
            try:
                outcome = experiment.project(attempt, known.get(attempt.sha256, []))
            except MlflowException as error:
                if error.error_code not in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST"):
                    raise
                result.refused.append(f"{attempt.path}: {error.message}")  # one odd value must not keep the others out
                continue
            setattr(result, outcome, getattr(result, outcome) + 1)
        for newest, older in _superseding(attempts):
            result.superseded += experiment.mark_superseded(newest, older)


def _superseding(attempts: Sequence[Attempt]) -> list[tuple[Attempt, list[Attempt]]]:
    """Per environment that was measured more than once: the newest attempt, and the older ones."""
    by_env: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda a: a.number):
        by_env.setdefault(attempt.env_id, []).append(attempt)
    return [(own[-1], own[:-1]) for own in by_env.values() if len(own) > 1]


def _final_status(view: SweepView) -> str:
    return "FINISHED" if view.complete else "KILLED"


# -- while it runs


class Tracker:
    """MLflow beside a running sweep. No method raises; what could not be done is an event and is made up for later."""

    def __init__(self, store: Store, uri: str | None, sweep: str) -> None:
        self._store = store
        self._sweep = sweep
        self.uri = uri or tracking_uri(store)
        self._experiment: Experiment | None = None
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], Future[object]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy: Future[object] | None = None  # a job that was given up and still runs
        self._opening: Future[object] | None = None
        self._away_until = 0.0
        self._away = False
        self.complete = False  # MLflow agrees with the store; known after :meth:`finish`

    @property
    def link(self) -> str | None:
        """The page of this sweep, once it is known."""
        return None if self._experiment is None else link(self.uri, self._experiment.experiment_id)

    @property
    def catch_up(self) -> str:
        """The command that brings MLflow up to date afterwards."""
        where = "" if self.uri == tracking_uri(self._store) else f" --uri {shlex.quote(shown(self.uri))}"
        return f"specsweep sync {self._sweep} {shlex.quote(as_typed('store', self._store.root))}{where}"

    def start(self) -> None:
        """Begins to open the experiment and returns at once. The plan must have been written."""
        # A daemon: a server that hangs must not keep the sweep from ending.
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()
        self._opening = self._submit(self._ready)

    def settle(self, timeout_s: float = START_S) -> None:
        """Waits until nothing of the projection runs, or ``timeout_s`` is over. To be called before a measuring window."""
        opening, self._opening = self._opening, None
        if opening is not None:
            self._wait(opening, timeout_s)

    def attempt(self, attempt: Attempt, timeout_s: float = ATTEMPT_S) -> bool:
        """Shows a landed attempt in MLflow; whether it is there now. Takes ``timeout_s`` seconds at most."""
        self.settle()
        return self._do(lambda: self._project(attempt), timeout_s)

    def finish(self, timeout_s: float = FINISH_S) -> bool:
        """Catches up and ends the parent run. Whether MLflow now agrees with the store (else ``specsweep sync`` is to be run)."""
        self.settle()
        self._away_until = 0.0
        self.complete = self._thread is not None and self._do(self._close, timeout_s)
        self._jobs.put(None)
        return self.complete

    def _project(self, attempt: Attempt) -> None:
        with _alone(self._store, BUSY_S):
            experiment = self._ready()
            experiment.project(attempt, experiment.known(attempt.sha256).get(attempt.sha256, []))
            view = self._store.sweep(self._sweep)
            for newest, older in _superseding(view.attempts.get(attempt.point_id, ())):
                experiment.mark_superseded(newest, older)
            experiment.update_parent(view, status="RUNNING", figure=attempt.measured)

    def _close(self) -> None:
        with _alone(self._store, BUSY_S):
            view, experiment = self._store.sweep(self._sweep), self._ready()
            result = SyncResult(self._sweep, self.uri, "")
            _catch_up(experiment, view, result)
            experiment.update_parent(view, status=_final_status(view), figure=result.created + result.repaired > 0)

    def _ready(self) -> Experiment:
        if self._experiment is None:
            view = self._store.sweep(self._sweep)
            self._experiment = _open(self._store, view, self.uri)
            self._experiment.update_parent(view, status="RUNNING", figure=False)
        return self._experiment

    def _submit(self, job: Callable[[], object]) -> Future[object]:
        future: Future[object] = Future()
        self._jobs.put((job, future))
        return future

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

    def _do(self, job: Callable[[], object], timeout_s: float) -> bool:
        if self._busy is not None and self._busy.done():
            self._busy = None
        if self._busy is not None or time.monotonic() < self._away_until:
            return False
        return self._wait(self._submit(job), timeout_s)

    def _wait(self, future: Future[object], timeout_s: float) -> bool:
        try:
            future.result(timeout_s)
        except FutureTimeout:
            if not future.cancel():
                self._busy = future
            self._fail(f"no answer within {timeout_s:g} s")
            return False
        except Exception as error:
            self._fail(str(error) if isinstance(error, TrackingError) else f"{type(error).__name__}: {error}")
            return False
        if self._away:
            self._away = False
            self._event("tracking_available")
        return True

    def _fail(self, reason: str) -> None:
        self._away_until = time.monotonic() + RETRY_AFTER_S
        if not self._away:
            self._away = True
            self._event("tracking_unavailable", reason=reason[:1000], catch_up=self.catch_up)

    def _event(self, kind: str, **facts: str) -> None:
        with contextlib.suppress(OSError):  # a full disk is reported by the next commit
            self._store.event(self._sweep, kind, uri=shown(self.uri), **facts)
