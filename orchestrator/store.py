"""The store: every attempt ever made, as plain files that outlive this program. It is the truth; MLflow and reports are projections.

    <root>/points/<point_id>/<env_id>/     point.json  measurement.json  trace.parquet  evidence/
           sweeps/<name>/                  plan.json  events.jsonl  report.html
           staging/                        attempts that are being written
           lock                            flock of the one writer

**An attempt is immutable.** It is written under ``staging/``, flushed, and renamed into place as a whole. Measuring the same
point in the same environment again does not touch the old folder: the new one is ``<env_id>.2``, then ``.3``, and the highest
number stands for the pair. So there is no moment at which a result is missing, paths in MLflow and in reports stay true, and
nothing measured is ever lost.

**Folders are named by the 16 hex digits that are shown everywhere** and not by all 64, since people type and read them. Two
points that share 64 bits will not occur; that they do not is checked: the full ids stand in ``point.json`` and are compared
on every read and write.

**Reading is cheap and forgiving.** ``point.json`` says whether the attempt is valid and how large its files are, so an index
of thousands of attempts costs one small file each and ``measurement.json`` is parsed only when asked for. A file that cannot
be read is reported (:attr:`Store.damaged`) and the rest is still there. Readers never need the lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specsweep.client.trace import PointTrace, write_trace
from specsweep.orchestrator import durable
from specsweep.orchestrator.attempt import POINT_SCHEMA_VERSION, SHOWN, Attempt, attempt_dirs, check_record, is_time, read_attempt, standing
from specsweep.orchestrator.errors import ClientError, ConfigError, StoreError
from specsweep.orchestrator.fields import sweep_name
from specsweep.orchestrator.points import Plan
from specsweep.orchestrator.sweep_record import SweepView, plan_document, read_plan

RERUN = ("failed", "invalid", "all")
DAMAGED_PLAN = "plan.damaged.json"


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Store:
    """All results under one folder. Any number of readers, one writer (:meth:`lock`)."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).absolute()
        self._lock = durable.FileLock(self.root / "lock")
        self._seen: dict[Path, Attempt] = {}  # attempts never change, so one that was read once is never read again
        self._damaged: dict[Path, str] = {}
        self._damaged_measurements: list[str] = []

    # -- one writer

    @contextlib.contextmanager
    def lock(self) -> Iterator[Store]:
        """The right to write, until the block ends or the process dies. Raises ``ConfigError`` naming the holder. Re-entrant."""
        try:
            durable.make_dirs(self.root)
            self._lock.acquire()
        except durable.Held as held:
            raise ConfigError(_held_message(self.root, held.holder)) from None
        except OSError as error:
            raise ConfigError(f"store={self.root}: cannot write here: {error.strerror}; give another folder with store=DIR") from error
        try:
            if self._lock.depth == 1:
                shutil.rmtree(self.root / "staging", ignore_errors=True)  # of a writer that was killed: its attempt never got a name
            yield self
        finally:
            self._lock.release()

    def writer(self) -> dict[str, Any] | None:
        """Who is writing now: pid, host, command, since (seconds since 1970); None if nobody is."""
        return self._lock.holder()

    def commit(
        self,
        record: Mapping[str, Any],
        measurement: Mapping[str, Any] | None,
        trace: PointTrace | None = None,
        evidence: Mapping[str, str | bytes] | None = None,
    ) -> Path:
        """Lands one attempt, all or nothing, and returns its folder. Takes the lock for itself if this store does not hold it.

        ``record`` is ``point.json`` without ``schema_version``, ``valid``, ``simulated`` and ``files``, which are added here.
        ``evidence`` holds texts and bytes by file name (log tail, pod events, raw recordings); names may have folders in them.

        Raises ``ValueError`` for a record that is incomplete or not JSON (NaN and infinity are not), ``StoreError`` if the disk
        refuses. Nothing is left behind in either case.
        """
        check_record(record, measurement)
        with self.lock():
            stage = self.root / "staging" / uuid.uuid4().hex
            try:
                self._write(stage, record, measurement, trace, evidence or {})
                return self._publish(stage, record)
            except OSError as error:
                how = "was measured" if measurement is not None else "failed"
                raise self._refused(f"point {record['point_id'][:SHOWN]} {how}, but that could not be written", error) from error
            finally:
                shutil.rmtree(stage, ignore_errors=True)

    @contextlib.contextmanager
    def aside(self) -> Iterator[Path]:
        """A folder on the disk of this store, for attempts that are brought from elsewhere (:meth:`adopt`). Gone with the block."""
        with self.lock():
            stage = self.root / "staging" / uuid.uuid4().hex
            durable.make_dirs(stage)
            try:
                yield stage
            finally:
                shutil.rmtree(stage, ignore_errors=True)

    def adopt(self, folder: Path) -> Path | None:
        """Lands an attempt that another store committed, as it is: ``folder`` (see :meth:`aside`) is moved here. None if it is here already.

        Of its evidence some may be missing. Raises ``ValueError`` or ``OSError`` that says what is not as it was committed.
        """
        with self.lock():
            content = (folder / "point.json").read_bytes()
            point = json.loads(content)
            home = folder.with_name(folder.name + ".checked") / str(point["point_id"])[:SHOWN] / str(point["env_id"])[:SHOWN]
            durable.make_dirs(home.parent)
            os.rename(folder, home)  # where its name says what it is
            attempt = read_attempt(home, 1, [])
            for name, facts in attempt.point["files"].items():
                _check_content(home / _inside(name), facts["sha256"], needed=not name.startswith("evidence/"))
            if any(known.sha256 == attempt.sha256 for known in self.attempts(attempt.point_id)):
                return None
            for path in (home, *home.rglob("*")):
                durable.sync_dir(path) if path.is_dir() else durable.sync_file(path)
            return self._publish(home, attempt.point)

    def _refused(self, what: str, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        return StoreError(f"store={self.root}: {what}: {reason}; make room there (or make it writable) and run the same command again")

    def _write(
        self,
        stage: Path,
        record: Mapping[str, Any],
        measurement: Mapping[str, Any] | None,
        trace: PointTrace | None,
        evidence: Mapping[str, str | bytes],
    ) -> None:
        durable.make_dirs(stage)
        files: dict[str, dict[str, Any]] = {}

        def add(name: str, content: str | bytes) -> None:
            data = content.encode(errors="replace") if isinstance(content, str) else content
            path = stage / name
            durable.make_dirs(path.parent)
            durable.write_synced(path, data)
            files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

        if measurement is not None:
            add("measurement.json", durable.to_json(measurement, what="measurement.json"))
        if trace is not None:
            path = stage / "trace.parquet"
            write_trace(trace, path)
            durable.sync_file(path)
            data = path.read_bytes()
            files["trace.parquet"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, content in evidence.items():
            add(f"evidence/{_inside(name)}", content)
        validity = (measurement or {}).get("validity", {})
        point = {
            **record,
            "schema_version": POINT_SCHEMA_VERSION,
            "valid": None if measurement is None else bool(validity.get("valid", False)),
            "simulated": None if measurement is None else bool(measurement.get("simulated", False)),
            "files": files,
        }
        durable.write_synced(stage / "point.json", durable.to_json(point, what="point.json"))
        for folder in {stage, *(p for p in stage.rglob("*") if p.is_dir())}:
            durable.sync_dir(folder)

    def _publish(self, stage: Path, record: Mapping[str, Any]) -> Path:
        home: Path = self.root / "points" / record["point_id"][:SHOWN]
        durable.make_dirs(home)
        short = record["env_id"][:SHOWN]
        taken = []
        for path, name, number in attempt_dirs(home):
            known = self._attempt(path, number)
            if known is not None and known.point_id != record["point_id"]:
                raise ClientError(f"{home}: belongs to point {known.point_id}, not {record['point_id']}; two ids share 16 digits")
            if known is not None and name == short and known.env_id != record["env_id"]:
                raise ClientError(f"{path}: belongs to environment {known.env_id}, not {record['env_id']}; two ids share 16 digits")
            if name == short:
                taken.append(number)
        number = max(taken, default=0) + 1
        final = home / (short if number == 1 else f"{short}.{number}")
        os.rename(stage, final)
        durable.sync_dir(home)
        return final

    # -- reading

    def attempts(self, point_id: str | None = None) -> list[Attempt]:
        """The attempts of one point (its id or the 16 digits), or of all; oldest first within a point. Damaged ones are left out."""
        points = self.root / "points"
        if point_id is None:
            with contextlib.suppress(FileNotFoundError):
                return [a for entry in sorted(os.scandir(points), key=lambda e: e.name) for a in self._attempts_in(Path(entry.path))]
            return []
        found = self._attempts_in(points / point_id[:SHOWN])
        return [a for a in found if len(point_id) == SHOWN or a.point_id == point_id]

    def _attempts_in(self, home: Path) -> list[Attempt]:
        found = [a for path, _, number in attempt_dirs(home) if (a := self._attempt(path, number)) is not None]
        return sorted(found, key=lambda a: (str(a.point.get("finished_utc") or ""), a.number))

    def _attempt(self, path: Path, number: int) -> Attempt | None:
        if path not in self._seen:
            try:
                self._seen[path] = read_attempt(path, number, self._damaged_measurements)
                self._damaged.pop(path, None)
            except (OSError, ValueError) as error:
                self._damaged[path] = f"{path}: {error}"
                return None
        return self._seen[path]

    @property
    def damaged(self) -> list[str]:
        """One line for every file met so far that could not be read: which, and why."""
        return [*self._damaged.values(), *self._damaged_measurements]

    def latest(self, point_id: str) -> Attempt | None:
        """The attempt that stands for the point: the newest measured one, else the newest failed one."""
        return standing(self.attempts(point_id))

    def done(self, point_id: str) -> bool:
        """A measured attempt exists, valid or not."""
        return any(a.measured for a in self.attempts(point_id))

    def needs(self, point_id: str, rerun: str = "failed") -> bool:
        """Whether ``run`` must measure this point: never measured or only failed so far; ``invalid``: also measured ones that
        are not valid; ``all``: every one. Raises ``ConfigError`` for another word."""
        if rerun not in RERUN:
            raise ConfigError(f"rerun={rerun}: unknown; give one of {', '.join(RERUN)}")
        latest = self.latest(point_id)
        if rerun == "all" or latest is None or not latest.measured:
            return True
        return rerun == "invalid" and not latest.valid

    # -- sweeps

    def sweep_dir(self, name: str) -> Path:
        return self.root / "sweeps" / sweep_name(name)

    def sweeps(self) -> list[str]:
        """The names of all sweeps that were planned in this store."""
        return sorted(path.parent.name for path in self.root.glob("sweeps/*/plan.json"))

    def write_plan(self, plan: Plan, overrides: Sequence[str] = ()) -> Path:
        """Makes ``plan`` the current one of its name; points of earlier plans stay in ``plan.json``. Returns its path."""
        path = self.sweep_dir(plan.name) / "plan.json"
        with self.lock():
            try:
                durable.make_dirs(path.parent)
                previous, fault = _previous_plan(path)
                document = plan_document(plan, previous=previous, overrides=overrides, now=utc_now())
                durable.replace_file(path, durable.to_json(document, what="plan.json"))
                if fault:
                    self.event(plan.name, "plan_unreadable", reason=fault, kept_as=DAMAGED_PLAN)
            except OSError as error:
                raise self._refused(f"{path} could not be written", error) from error
        return path

    def write_document(self, name: str, document: Mapping[str, Any]) -> Path:
        """Makes ``document``, a ``plan.json`` that was put together from others, the plan of a sweep. Returns its path."""
        path = self.sweep_dir(name) / "plan.json"
        content = durable.to_json(document, what="plan.json")
        read_plan(content.encode())
        with self.lock():
            try:
                durable.make_dirs(path.parent)
                durable.replace_file(path, content)
            except OSError as error:
                raise self._refused(f"{path} could not be written", error) from error
        return path

    def event(self, sweep: str, kind: str, **facts: Any) -> None:
        """Appends one line to the sweep's ``events.jsonl``, if it can. Facts that JSON cannot hold are written as text."""
        path = self.sweep_dir(sweep) / "events.jsonl"
        line = json.dumps({"t_utc": utc_now(), "kind": kind, **facts}, default=str, ensure_ascii=False)
        with contextlib.suppress(OSError):  # a full disk is told by the next commit, where something would be lost by it
            durable.make_dirs(path.parent)
            durable.append_line(path, line)

    def sweep(self, name: str) -> SweepView:
        """Everything known of a sweep. Raises ``ConfigError`` if the store has none of that name, or its plan cannot be read."""
        folder, plan = self.sweep_dir(name), self.sweep_plan(name)
        attempts = {point_id: self.attempts(point_id) for point_id in plan["points"]}
        events = [e for e in durable.read_json_lines(folder / "events.jsonl") if isinstance(e.get("kind"), str) and is_time(e.get("t_utc"))]
        return SweepView(name=name, path=folder, plan=plan, attempts=attempts, events=events, damaged=self.damaged)

    def sweep_plan(self, name: str) -> dict[str, Any]:
        """``plan.json`` of a sweep. Raises ``ConfigError`` as :meth:`sweep` does."""
        folder = self.sweep_dir(name)
        try:
            return read_plan((folder / "plan.json").read_bytes())
        except FileNotFoundError:
            known = ", ".join(self.sweeps()) or "none yet"
            raise ConfigError(f"sweep {name!r} is not in store={self.root}; sweeps there: {known}") from None
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{folder / 'plan.json'} cannot be read ({error}); `specsweep run` with the same overrides writes it anew "
                f"and keeps this one as {DAMAGED_PLAN}"
            ) from None


def _previous_plan(path: Path) -> tuple[dict[str, Any] | None, str]:
    """The plan that is there. One that cannot be read is moved out of the way; then there is none, and the reason."""
    try:
        return read_plan(path.read_bytes()), ""
    except FileNotFoundError:
        return None, ""
    except (ValueError, IsADirectoryError) as error:
        os.rename(path, path.with_name(DAMAGED_PLAN))
        return None, str(error)


def _check_content(path: Path, sha256: str, *, needed: bool) -> None:
    if not path.is_file():
        if needed:
            raise ValueError(f"{path.name} is missing")
        return
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise ValueError(f"{path.name}: its content is not what was committed (SHA-256 differs)")


def _inside(name: str) -> str:
    if not name or name.startswith("/") or ".." in Path(name).parts:
        raise ValueError(f"evidence {name!r}: a relative file name without '..' is needed")
    return name


def _held_message(root: Path, holder: Mapping[str, Any]) -> str:
    pid, host = holder.get("pid"), holder.get("host")
    if pid == os.getpid():
        return f"store={root}: this process already writes to it through another Store object"
    who = f"pid {pid} on {host} ({holder.get('command', '')})" if pid else "another process"
    return f"store={root}: {who} is writing to it; wait for it, stop it, or give another folder with store=DIR"
