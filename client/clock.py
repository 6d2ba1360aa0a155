"""One time line for stamps of several hosts. Pure: round trips in, integers of nanoseconds out.

The monotonic clocks of two hosts differ by any constant, and run at rates that differ by parts per million. NTP does not help: it sets
the other clock, which jumps, and promises milliseconds. So the coordinator asks a client process for its clock, and looks at its own
before and after: the stamp was taken somewhere between the two, and whatever the network did on either way, the offset of the clocks
is known to within half of that round trip. The shortest of several round trips is the best, and its half is a bound, not an estimate.

One such reading is taken before the window and one after it, and the offset between them is drawn as a straight line. The error of
that line is at most that of its ends, as long as the rates stay the same. They nearly do: both oscillators drift with temperature and
are steered by NTP, which changes rates by a few ppm a minute. :data:`WANDER_PPM` of it is allowed for. Clocks that moved apart further
than :data:`MAX_DRIFT_PPM` explains did not run evenly (a machine that was suspended or moved), and the bound then covers all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from specsweep.client.trace import ActorReport, Exchange, PointTrace, RequestTrace

MAX_DRIFT_PPM = 200  # by which two clocks may run apart: twice the 100 ppm that the worst oscillators of computers have
WANDER_PPM = 5  # by which the difference of their rates may change within a window


@dataclass(frozen=True, slots=True)
class Ping:
    """One round trip: sent and received on the coordinator's clock, the other clock's stamp between them. All ns."""

    sent_ns: int
    stamp_ns: int
    received_ns: int


@dataclass(frozen=True, slots=True)
class Reading:
    """At ``at_ns`` of the coordinator's clock the other one was ahead by ``offset_ns``, give or take ``half_ns``."""

    at_ns: int
    offset_ns: int
    half_ns: int

    def there(self, here_ns: int) -> int:
        """A moment of the coordinator's clock on the other one, for moments near the reading."""
        return here_ns + self.offset_ns


def read_clock(pings: Iterable[Ping]) -> Reading:
    """By the shortest round trip. Raises ``ValueError`` for none, or for one that was received before it was sent."""
    best = min(pings, key=lambda p: p.received_ns - p.sent_ns, default=None)
    if best is None:
        raise ValueError("pings: a clock cannot be read without a round trip")
    if best.received_ns < best.sent_ns:
        raise ValueError(f"pings: received at {best.received_ns} ns, before it was sent at {best.sent_ns} ns")
    middle = (best.sent_ns + best.received_ns) // 2
    half = best.received_ns - middle
    return Reading(middle, best.stamp_ns - middle, half + half * MAX_DRIFT_PPM // 10**6 + 1)  # it drifts in half a round trip, too


@dataclass(frozen=True, slots=True)
class Line:
    """Stamps of one clock on the coordinator's line, for the time between two readings.

    ``bound_ns``: no translated stamp is further than that from the moment at which it was taken.
    """

    before: Reading
    after: Reading

    @property
    def offset_ns(self) -> int:
        """Other clock minus coordinator's, at the first reading."""
        return self.before.offset_ns

    @property
    def drift_ppm(self) -> float:
        """How much faster the other clock ran. Of a short window it is mostly the error of the readings."""
        passed = self.after.at_ns - self.before.at_ns
        return (self.after.offset_ns - self.before.offset_ns) / passed * 1e6 if passed > 0 else 0.0

    @property
    def bound_ns(self) -> int:
        passed = max(self.after.at_ns - self.before.at_ns, 0)
        ends = max(self.before.half_ns, self.after.half_ns)
        # A rate that is higher by w for one half of the time and lower for the other leaves the straight line by w · time / 4.
        bound = ends + passed * WANDER_PPM // (4 * 10**6) + 2  # and the rounding of offset and stamp
        apart = abs(self.after.offset_ns - self.before.offset_ns)
        if apart > passed * MAX_DRIFT_PPM // 10**6 + self.before.half_ns + self.after.half_ns + 1:
            bound += 2 * apart  # it may have jumped by that and what the readings hide, at any moment
        return bound

    def here(self, stamp_ns: int) -> int:
        """A stamp of the other clock on the coordinator's line, to the nearest ns. Never turns the order of two stamps."""
        first = self.before.at_ns + self.before.offset_ns
        passed_there = self.after.at_ns + self.after.offset_ns - first
        if passed_there <= 0:  # the clock stood or went back: bound_ns says so
            return stamp_ns - self.before.offset_ns
        passed_here = self.after.at_ns - self.before.at_ns
        return self.before.at_ns + (2 * (stamp_ns - first) * passed_here + passed_there) // (2 * passed_there)


def translate(trace: PointTrace, line: Line, clock: str) -> PointTrace:
    """The trace of one client process with all its stamps on the coordinator's line, and what that line is in its report.

    Durations (of connecting, of the process's own wall and CPU time) stay: a drift of 200 ppm is nothing in them.
    """
    here = line.here
    return replace(
        trace,
        requests=[_request(request, here) for request in trace.requests],
        actors=[_report(report, line, clock) for report in trace.actors],
    )


def translate_exchange(exchange: Exchange, line: Line) -> Exchange:
    here = line.here
    return replace(
        exchange,
        t_send_ns=here(exchange.t_send_ns),
        t_end_ns=here(exchange.t_end_ns),
        reads=[(here(t), data) for t, data in exchange.reads],
    )


def _request(request: RequestTrace, here: Callable[[int], int]) -> RequestTrace:
    read = replace(request.read, chunk_t_ns=list(map(here, request.read.chunk_t_ns)), step_t_ns=list(map(here, request.read.step_t_ns)))
    return replace(request, t_send_ns=here(request.t_send_ns), t_end_ns=here(request.t_end_ns), read=read)


def _report(report: ActorReport, line: Line, clock: str) -> ActorReport:
    return replace(
        report,
        t_start_ns=line.here(report.t_start_ns),
        t_queue_empty_ns=line.here(report.t_queue_empty_ns),
        clock=clock,
        clock_offset_ns=line.offset_ns,
        clock_drift_ppm=line.drift_ppm,
        clock_bound_ns=line.bound_ns,
    )
