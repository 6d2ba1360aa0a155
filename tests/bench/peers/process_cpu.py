"""CPU seconds of processes and of all that they start, over time, from ``/proc``: clients are whole families of processes.

A family is looked at some times a second. What a process used stays counted after its end, up to the last look; a process that lived
between two looks is missed. Linux gives user and system time in hundredths of a second.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns

PERIOD_S = 0.2
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class CpuSeries:
    """CPU seconds of the family up to each look. ``t_ns``: CLOCK_MONOTONIC."""

    t_ns: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def add(self, t_ns: int, cpu_s: float) -> None:
        self.t_ns.append(t_ns)
        self.cpu_s.append(cpu_s)

    def at(self, t_ns: int) -> float:
        """Between two looks in proportion; before the first and after the last as there. Raises ``ValueError`` without any."""
        if not self.t_ns:
            raise ValueError("the processes ended before they were looked at")
        i = bisect_left(self.t_ns, t_ns)
        if i == 0:
            return self.cpu_s[0]
        if i == len(self.t_ns):
            return self.cpu_s[-1]
        share = (t_ns - self.t_ns[i - 1]) / (self.t_ns[i] - self.t_ns[i - 1])
        return self.cpu_s[i - 1] + share * (self.cpu_s[i] - self.cpu_s[i - 1])


class FamilyWatch:
    """Looks at the families of ``roots`` while it is entered. ``others``: what neither they nor the process ``server`` used."""

    def __init__(self, roots: Sequence[int], server: int) -> None:
        self.series = CpuSeries()
        self.others = CpuSeries()
        self.processes_max = 0  # at one look
        self._server = server
        self._used: dict[int, float] = dict.fromkeys(roots, 0.0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="family-watch", daemon=True)

    def __enter__(self) -> FamilyWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self.look()

    def look(self) -> None:
        now, busy_s, seen = monotonic_ns(), busy_seconds(), processes()
        grown = True
        while grown:  # until no child of the family is left out; a child may be listed before its parent
            added = {pid for pid, (parent, _) in seen.items() if parent in self._used and pid not in self._used}
            self._used |= dict.fromkeys(added, 0.0)
            grown = bool(added)
        alive = self._used.keys() & seen.keys()
        self._used |= {pid: max(self._used[pid], seen[pid][1]) for pid in alive}
        self.processes_max = max(self.processes_max, len(alive))
        family_s = sum(self._used.values())
        self.series.add(now, family_s)
        self.others.add(now, busy_s - family_s - seen.get(self._server, (0, 0.0))[1])


def busy_seconds(stat: Path = Path("/proc/stat")) -> float:
    """CPU seconds that all processes together have used since the start of the machine: user, nice and system."""
    return sum(map(int, stat.read_bytes().split(b"\n", 1)[0].split()[1:4])) * _TICK_S


def processes(proc: Path = Path("/proc")) -> dict[int, tuple[int, float]]:
    """Of every process: its parent, and its own user and system seconds."""
    found = {}
    for name in os.listdir(proc):
        if name.isdecimal():
            try:
                stat = (proc / name / "stat").read_bytes()
            except OSError:  # it has just ended
                continue
            fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold anything
            found[int(name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) * _TICK_S
    return found
