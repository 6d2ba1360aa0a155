"""Which clocks a team stamps on: shared ones are asked once, and a shared clock is believed only if it proves itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from time import monotonic_ns

from specsweep.client.host import Host, this_host
from specsweep.client.team_clocks import PINGS, Clocks

HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Process:
    name: str
    offset_ns: int


class Asker:
    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, process: Process) -> int:
        self.asked[process.name] += 1
        return monotonic_ns() + process.offset_ns


def host(name: str, clock: str) -> Host:
    return replace(this_host(), name=name, clock=clock)


OWN = this_host()


def clocks(members: list[tuple[Process, Host]]) -> tuple[Clocks[Process], Asker]:
    ask = Asker()
    return Clocks.found([process for process, _ in members], [where for _, where in members], OWN, ask), ask


def test_the_coordinators_own_clock_needs_no_translation() -> None:
    found, _ = clocks([(Process("a", 0), OWN), (Process("b", 0), OWN)])
    assert found.names == ["", ""]
    before = found.read()
    assert before == {}
    assert found.starts(123, before) == [123, 123]
    assert found.lines(before, found.read()) == [None, None]


def test_processes_of_one_clock_are_translated_alike_and_one_of_them_is_asked() -> None:
    far = host("far", "far-clock")
    found, ask = clocks(
        [(Process("own", 0), OWN), (Process("a", HOUR_NS), far), (Process("b", HOUR_NS), far), (Process("c", -HOUR_NS), host("c", "c"))]
    )
    assert found.names == ["", "far-clock", "far-clock", "c"]
    before = found.read()
    assert (ask.asked["a"], ask.asked["b"], ask.asked["c"]) == (PINGS, 0, PINGS)
    own, a, b, c = found.starts(0, before)
    assert own == 0
    assert a == b
    assert abs(a - HOUR_NS) <= before["far-clock"].half_ns
    assert abs(c + HOUR_NS) <= before["c"].half_ns
    lines = found.lines(before, found.read())
    assert lines[0] is None
    assert lines[1] is not None
    assert lines[1] == lines[2]
    name, line = lines[1]
    assert name == "far-clock"
    now = monotonic_ns()
    assert abs(line.here(now + HOUR_NS) - now) <= line.bound_ns


def test_virtual_machines_of_one_snapshot_say_that_they_are_one_boot() -> None:
    found, _ = clocks([(Process("real", 0), OWN), (Process("clone", 2 * HOUR_NS), host("clone", OWN.clock))])
    assert found.names[0] == ""
    assert found.names[1].endswith("/clone")
    before = found.read()
    assert abs(found.starts(0, before)[1] - 2 * HOUR_NS) <= before[found.names[1]].half_ns


def test_clocks_that_do_not_say_which_they_are_are_each_measured() -> None:
    found, ask = clocks([(Process("a", HOUR_NS), host("x", "")), (Process("b", 3 * HOUR_NS), host("x", ""))])
    assert len(set(found.names)) == 2
    assert "" not in found.names
    found.read()
    assert ask.asked == {"a": PINGS, "b": PINGS}
