"""Files that survive a crash, and the lock that keeps writers apart. Knows nothing of sweeps.

Three rules make the store safe against ``kill -9``, power loss and a full disk, and each is one function here:

* what is written is flushed (``fsync``) before it gets its name, so a name never stands for half a file;
* a name is given by ``rename`` inside one file system, which is all or nothing, and the folder is flushed after it;
* a log line is one ``write`` on an ``O_APPEND`` descriptor, so lines of two processes never mix, and a torn last line
  (the process died inside the write) is told from a whole one by its missing newline.

The lock is ``flock`` and not a file that exists: the kernel drops it with the process, however that one ends, so there is
no such thing as a stale lock. The text in the lock file only says who holds it.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LOCK_PATIENCE_S = 1.0  # `status` probes with a shared lock for some microseconds; a writer waits that out


def to_json(value: Any, *, what: str) -> str:
    """Strict JSON, indented. Raises ``ValueError`` that names the first place which JSON cannot hold (NaN, infinity, a foreign type)."""
    try:
        return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    except (ValueError, TypeError) as error:
        place, found = next(_not_json(value, ""), ("", error))
        raise ValueError(f"{what}: {place or 'value'} is {found!r}, which JSON cannot hold") from None


def _not_json(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str | int | float | bool | None):
                yield f"{place}[{key!r}]", key
            yield from _not_json(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _not_json(item, f"{place}[{i}]")
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield place, value
    elif not isinstance(value, str | int | bool | None):
        yield place, value


def sync_dir(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, content: str | bytes) -> None:
    """A new file, on the disk when this returns. For files inside a folder that has no final name yet."""
    with path.open("xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: str | bytes) -> None:
    """Replaces ``path`` so that a reader sees the old content or the new one, never a mixture."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    aside.unlink(missing_ok=True)
    try:
        write_synced(aside, content)
        os.rename(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_dir(path.parent)


def make_dirs(path: Path) -> None:
    """``mkdir -p`` whose result survives a power loss."""
    if path.is_dir():
        return
    make_dirs(path.parent)
    path.mkdir(exist_ok=True)
    sync_dir(path.parent)


def append_line(path: Path, line: str) -> None:
    """One line in one write. If the file ends in a torn line, that one is closed first, so that only it is lost."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # another's write that is under way looks like a torn line
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (b"\n" if torn else b"") + line.encode() + b"\n")
    finally:
        os.close(descriptor)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Every whole line that is a JSON object; torn lines are left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for line in content.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


class Held(Exception):
    """The lock is held by another open file; ``holder`` is what that one wrote about itself (may be empty)."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__("lock is held")
        self.holder = holder


class FileLock:
    """An exclusive ``flock`` on one file, re-entrant within this object. Not inherited by programs that are started under it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._depth = 0

    @property
    def depth(self) -> int:
        """How many times this object holds it; 0: not at all."""
        return self._depth

    def acquire(self, *, patience_s: float = LOCK_PATIENCE_S) -> None:
        """Raises :class:`Held` if another process (or another ``FileLock``) still has it after ``patience_s`` seconds."""
        if self._depth:
            self._depth += 1
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    raise Held(_holder(self.path)) from None
                time.sleep(0.02)
        os.ftruncate(descriptor, 0)
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "command": " ".join(sys.argv)[:500], "since": time.time()}
        os.pwrite(descriptor, json.dumps(facts).encode(), 0)
        self._descriptor, self._depth = descriptor, 1

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._descriptor is not None:
            os.close(self._descriptor)  # closing drops the lock
            self._descriptor = None

    def holder(self) -> dict[str, Any] | None:
        """Who holds it now; ``None`` if nobody does. Never takes the lock from anybody and needs no right to write."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(self.path)
        finally:
            os.close(descriptor)
        return None


def _holder(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
