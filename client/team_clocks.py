"""Which clocks a team's processes stamp on, and how each of them stands to the coordinator's.

Processes that share a clock are asked through one of them, so that all their stamps are translated in the same way. One that shares
the coordinator's needs no translation; it is believed only if a stamp of it lies between question and answer, because two virtual
machines that came from one snapshot say that they are the same boot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Generic, TypeVar

from specsweep.client.clock import Line, Ping, Reading, read_clock
from specsweep.client.host import Host

PINGS = 25
Process = TypeVar("Process")


@dataclass(frozen=True, slots=True)
class Clocks(Generic[Process]):
    """``names``: of the clock of each process, "" the coordinator's. ``ask``: one process for its CLOCK_MONOTONIC in ns."""

    processes: Sequence[Process]
    names: Sequence[str]
    ask: Callable[[Process], int]

    @classmethod
    def found(cls, processes: Sequence[Process], hosts: Sequence[Host], here: Host, ask: Callable[[Process], int]) -> Clocks[Process]:
        def name(number: int) -> str:
            host, process = hosts[number], processes[number]
            if host.shares_clock(here):
                ping = _ping(process, ask)
                return "" if ping.sent_ns <= ping.stamp_ns <= ping.received_ns else f"{host.clock}/{host.name}"
            return host.clock or f"{host.name}/{number}"

        return cls(processes, [name(number) for number in range(len(processes))], ask)

    def read(self) -> dict[str, Reading]:
        """Every foreign clock now, by its name."""
        first = {name: process for name, process in reversed(list(zip(self.names, self.processes, strict=True))) if name}
        return {name: read_clock(_ping(process, self.ask) for _ in range(PINGS)) for name, process in first.items()}

    def starts(self, start_ns: int, readings: dict[str, Reading]) -> list[int]:
        """One moment of the coordinator's clock on the clock of each process."""
        return [readings[name].there(start_ns) if name else start_ns for name in self.names]

    def lines(self, before: dict[str, Reading], after: dict[str, Reading]) -> list[tuple[str, Line] | None]:
        """Of each process the name of its clock and the way back; None: it stamps on the coordinator's own."""
        lines = {name: Line(before[name], after[name]) for name in before}
        return [(name, lines[name]) if name else None for name in self.names]


def _ping(process: Process, ask: Callable[[Process], int]) -> Ping:
    sent = monotonic_ns()
    stamp = ask(process)
    return Ping(sent, stamp, monotonic_ns())
