"""What a client process can say of the host that it runs on: whose clock it reads, which versions it runs, how many cores it has.

Two processes read one CLOCK_MONOTONIC if their kernels are the same boot of the same kernel *and* they are in one time namespace: a
container may have its own (``unshare --time``), with another origin on the very same machine. Host names do not tell: a pod has its
own name on a host that it shares, and pods in the host's network all have the host's.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Host:
    """``clock`` and ``processes``: equal exactly where two processes read one monotonic clock, or see each other's process ids.

    "" in either of them: not known, and equal to nothing.
    """

    name: str
    clock: str
    processes: str
    versions: tuple[tuple[str, str], ...]

    def shares_clock(self, other: Host) -> bool:
        return bool(self.clock) and self.clock == other.clock

    def shares_processes(self, other: Host) -> bool:
        return bool(self.processes) and self.processes == other.processes

    def unlike(self, other: Host) -> str:
        """How the versions of ``other`` differ from ours, in words; "" if they do not."""
        theirs = dict(other.versions)
        return ", ".join(
            f"{name} {theirs.get(name, 'unknown')} instead of {ours}" for name, ours in self.versions if theirs.get(name) != ours
        )


@cache
def this_host() -> Host:
    boot = _text("/proc/sys/kernel/random/boot_id")
    versions = (("specsweep", version("specsweep")), ("Python", platform.python_version()), ("Ray", version("ray")))
    return Host(platform.node(), _identity(boot, "time"), _identity(boot, "pid"), versions)


def _identity(boot: str, namespace: str) -> str:
    """A kernel without such namespaces has one of them: the boot is all there is to know."""
    try:
        link = os.readlink(f"/proc/self/ns/{namespace}")
    except FileNotFoundError:
        link = ""
    except OSError:
        return ""
    return f"{boot}/{link}" if boot else ""


def cores() -> int:
    """CPUs that this process may use: those of its affinity, or fewer if a control group's quota (a container's CPU limit) gives less.

    Whole ones, rounded down: a client process needs one to itself. At least 1.
    """
    return max(1, int(min(len(os.sched_getaffinity(0)), *_quotas())))


def _quotas(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[float]:
    """CPUs by the quotas of this process's control group and those above it, both versions; ``inf``: none is set."""
    found = [float("inf")]
    for line in _text(str(own)).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += [quota for folder in _upwards(root, path) for quota in _read_quota(_text(f"{folder}/cpu.max"))]
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "cpu", path):
                files = (_text(f"{folder}/cpu.cfs_quota_us"), _text(f"{folder}/cpu.cfs_period_us"))
                found += _read_quota(" ".join(files))
    return found


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The folder of a group and those above it. In a container the path is the host's, and ``root`` is the group itself."""
    folder = root / path.strip("/")
    while folder != root:
        yield folder
        folder = folder.parent
    yield root


def _read_quota(text: str) -> list[float]:
    words = text.split()
    if len(words) != 2 or not words[0].isdecimal() or not words[1].isdecimal() or words[1] == "0":  # "max 100000", "-1 100000", ""
        return []
    return [int(words[0]) / int(words[1])]


def _text(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip()
    except OSError:
        return ""
