"""One attempt as it lies in the store: the folder, its ``point.json``, and what makes it readable.

``point.json`` alone decides what an attempt is. It repeats the two facts of the measurement that an index needs (``valid``,
``simulated``) and holds size and SHA-256 of every other file of the folder, so that a list of thousands of attempts reads one
small file each, and a file that was cut or changed later is found out instead of believed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from specsweep.client.trace import PointTrace, read_trace

POINT_SCHEMA_VERSION = 1
SHOWN = 16  # hex digits of an id that are shown, and that name its folder

_REQUIRED = ("point_id", "env_id", "status", "axes", "config")
_TEXT, _WHOLE = (str,), (int,)
_AXES: Mapping[str, tuple[type, ...]] = {
    "engine": _TEXT,
    "target": _TEXT,
    "drafter": _TEXT,
    "draft_length": (int, type(None)),
    "batch_size": _WHOLE,
    "isl": _WHOLE,
    "workload": _TEXT,
    "temperature": (int, float),
    "repeat": _WHOLE,
}
_ATTEMPT_DIR = re.compile(r"([0-9a-f]+)(?:\.(\d+))?")


class Attempt:
    """One measurement (or failure) of a point in one environment. ``measurement`` is read when it is first asked for."""

    def __init__(self, point: Mapping[str, Any], path: Path, number: int, *, sha256: str, damaged: list[str] | None = None) -> None:
        self.point = point
        self.path = path
        self.number = number  # 1, 2, …: how many times this point was measured in this environment
        self.sha256 = sha256  # of point.json, which holds the hashes of the other files: the identity of everything in the folder
        self._damaged = [] if damaged is None else damaged
        self._measurement: Mapping[str, Any] | None = None
        self._read = False

    @property
    def point_id(self) -> str:
        return str(self.point["point_id"])

    @property
    def env_id(self) -> str:
        return str(self.point["env_id"])

    @property
    def measured(self) -> bool:
        return bool(self.point["status"] == "measured")

    @property
    def valid(self) -> bool:
        """Measured, and every validity check held."""
        return self.measured and bool(self.point.get("valid"))

    @property
    def measurement(self) -> Mapping[str, Any] | None:
        """``measurement.json``; None for a failed attempt, and for a file that is not what was committed (then reported as damaged)."""
        if not self._read:
            self._read = True
            if self.measured:
                path = self.path / "measurement.json"
                try:
                    content = path.read_bytes()
                    if hashlib.sha256(content).hexdigest() != self.point["files"]["measurement.json"]["sha256"]:
                        raise ValueError("its content is not what was committed (SHA-256 differs)")
                    self._measurement = json.loads(content)
                except (OSError, ValueError) as error:
                    self._damaged.append(f"{path}: {error}")
        return self._measurement

    def trace(self) -> PointTrace | None:
        """The trace, None if the attempt has none. Raises ``OSError`` or ``ValueError`` (Arrow's errors are some) if it cannot be read."""
        path = self.path / "trace.parquet"
        return read_trace(path) if path.exists() else None

    def record(self) -> dict[str, Any]:
        return {"point": self.point, "measurement": self.measurement}

    def __repr__(self) -> str:
        return f"Attempt({self.point_id[:SHOWN]}/{self.path.name}, {self.point['status']})"


def standing(attempts: Sequence[Attempt]) -> Attempt | None:
    """The one that stands for a point, of its attempts in order of age: the newest measured one, else the newest failed one."""
    chosen = [a for a in attempts if a.measured] or list(attempts)
    return chosen[-1] if chosen else None


def read_attempt(path: Path, number: int, damaged_measurements: list[str]) -> Attempt:
    """Raises ``OSError`` or ``ValueError`` that says which file is not what was committed, or which facts are missing."""
    content = (path / "point.json").read_bytes()
    try:
        point = json.loads(content)
    except RecursionError:
        raise ValueError("point.json is nested too deep") from None
    if not isinstance(point, dict):
        raise ValueError("point.json is no JSON object")
    version = point.get("schema_version")
    if version != POINT_SCHEMA_VERSION:
        raise ValueError(f"point.json has schema {version!r}; this specsweep reads {POINT_SCHEMA_VERSION}")
    if wrong := _wrong_record(point) or _wrong_files(point):
        raise ValueError(f"point.json: {'; '.join(wrong)}")
    if point["point_id"][:SHOWN] != path.parent.name or point["env_id"][:SHOWN] != path.name.partition(".")[0]:
        raise ValueError(f"the folder's name is not that of point {point['point_id']} in environment {point['env_id']}")
    for name in ("measurement.json", "trace.parquet"):
        if name in point["files"] and (size := (path / name).stat().st_size) != point["files"][name]["bytes"]:
            raise ValueError(f"{name} has {size} bytes; {point['files'][name]['bytes']} were committed")
    return Attempt(point, path, number, sha256=hashlib.sha256(content).hexdigest(), damaged=damaged_measurements)


def attempt_dirs(home: Path) -> list[tuple[Path, str, int]]:
    """(folder, 16 digits of env_id, number) of each attempt of one point."""
    try:
        entries = [(entry.path, _ATTEMPT_DIR.fullmatch(entry.name)) for entry in os.scandir(home)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(Path(path), match[1], int(match[2] or 1)) for path, match in entries if match]


def check_record(record: Mapping[str, Any], measurement: Mapping[str, Any] | None) -> None:
    """Raises ``ValueError`` naming everything that would make the attempt unreadable: what is written is what can be read."""
    if wrong := _wrong_record(record):
        raise ValueError(f"point.json: {'; '.join(wrong)}")
    if (record["status"] == "measured") != (measurement is not None):
        raise ValueError("point.json: an attempt has a measurement if, and only if, its status is 'measured'")


def _wrong_record(record: Mapping[str, Any]) -> list[str]:
    """What the readers of a record count on and do not find: ids, status, every axis with its kind, the config, the times."""
    missing = [name for name in _REQUIRED if name not in record]
    if missing:
        return [f"{', '.join(missing)} missing"]
    wrong = [
        f"{name} is {record[name]!r}; 64 hex digits are needed"
        for name in ("point_id", "env_id")
        if not isinstance(record[name], str) or not re.fullmatch(r"[0-9a-f]{64}", record[name])
    ]
    if record["status"] not in ("measured", "failed"):
        wrong.append(f"status is {record['status']!r}; it must be 'measured' or 'failed'")
    wrong += _wrong_axes(record["axes"])
    if not isinstance(record["config"], Mapping):
        wrong.append("config is no mapping")
    times = [name for name in ("started_utc", "finished_utc") if record.get(name) is not None and not is_time(record[name])]
    wrong += [f"{name} is {record[name]!r}; a time with its zone is needed" for name in times]
    mappings = [name for name in ("env", "declared", "error") if not isinstance(record.get(name) or {}, Mapping)]
    return wrong + [f"{name} is no mapping" for name in mappings]


def _wrong_axes(axes: Any) -> list[str]:
    if not isinstance(axes, Mapping):
        return ["axes is no mapping"]
    found = {name: axes[name] for name in _AXES if name in axes}
    kinds = [name for name, value in found.items() if isinstance(value, bool) or not isinstance(value, _AXES[name])]
    missing = [f"axes.{name}" for name in _AXES if name not in found]
    return [f"axes.{name} is {found[name]!r}" for name in kinds] + ([f"{', '.join(missing)} missing"] if missing else [])


def _wrong_files(point: Mapping[str, Any]) -> list[str]:
    files = point.get("files")
    if not isinstance(files, Mapping):
        return ["files is no mapping"]
    wrong = [
        f"files.{name} has no bytes or no sha256"
        for name, facts in files.items()
        if not isinstance(facts, Mapping) or not isinstance(facts.get("bytes"), int) or not isinstance(facts.get("sha256"), str)
    ]
    if point["status"] == "measured" and "measurement.json" not in files:
        wrong.append("files.measurement.json missing")
    return wrong


def is_time(value: Any) -> bool:
    """Whether ``value`` is a moment as the store writes it: ISO 8601 with a zone."""
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False
