"""A container's memory limit, kept by the kernel: a control group of its own, of either version.

With it the out-of-memory end is a real one, and all processes of a container are known, whatever they forked.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "ssw"
GONE_S = 20.0  # a process in an uninterruptible sleep


class Group:
    """``name``: unique in this process. ``limit``: bytes, None for no limit."""

    def __init__(self, name: str, limit: int | None) -> None:
        self._first = _is_first()
        self.folder = _base(self._first) / f"{PREFIX}{os.getpid():x}-{name}"
        self.folder.mkdir()
        if limit is not None:
            (self.folder / ("memory.limit_in_bytes" if self._first else "memory.max")).write_text(str(limit))

    @property
    def entry(self) -> Path:
        """A process that writes 0 here is in it from then on."""
        return self.folder / "cgroup.procs"

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of it for going over the limit."""
        text = (self.folder / ("memory.oom_control" if self._first else "memory.events")).read_text()
        return any(int(line.split()[1]) > 0 for line in text.splitlines() if line.startswith("oom_kill "))

    def end(self) -> None:
        """Kills what is left in it, and removes it."""
        deadline = time.monotonic() + GONE_S
        while processes := self.entry.read_text().split():
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder}: processes {', '.join(processes)} do not end")
            time.sleep(0.01)
        while True:  # the last process is out of the list a moment before it is out of the group
            try:
                self.folder.rmdir()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def remove_left_over() -> None:
    """Groups of processes that were killed and are no more."""
    for folder in _base(_is_first()).iterdir():
        match = re.fullmatch(rf"{PREFIX}([0-9a-f]+)-.*", folder.name)
        if match and not Path(f"/proc/{int(match[1], 16)}").exists():
            with suppress(OSError):  # something of it still ends
                folder.rmdir()


def _is_first() -> bool:
    """Version 1: one hierarchy a controller."""
    return (ROOT / "memory").is_dir()


def _base(first: bool) -> Path:
    if first:
        return ROOT / "memory"
    base = ROOT / "specsweep-tests"  # the root itself has processes, so it may not pass controllers on to a deeper level than this
    base.mkdir(exist_ok=True)
    for folder in (ROOT, base):
        with suppress(OSError):
            (folder / "cgroup.subtree_control").write_text("+memory")
    return base
