"""How late this process is: the certificate that a client gives itself on every point.

A chunk that arrives while the event loop is busy is stamped when the loop comes to it. The probe measures that delay as a
socket would suffer it: a kernel timer (``timerfd``) becomes readable at an exactly known time, the loop polls it among the
sockets, and lag is the time between the two. ``loop.call_later`` would not do: epoll rounds its time-outs up to whole
milliseconds, so such a probe reports half a millisecond of lag on an idle machine, more than a fifth of a fast engine's step.

Expiries that pass while the loop is held up are counted each, with the lag that each had: one stall of 50 ms is ten late
samples and not one.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from dataclasses import dataclass
from time import CLOCK_MONOTONIC, monotonic_ns

import numpy as np

_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


def _timer_fd(first_ns: int, period_ns: int) -> int:
    """A file descriptor that becomes readable at ``first_ns`` and every period after it. Python has it from 3.13 on only."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.timerfd_create(CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create failed")
    spec = _Itimerspec(_Timespec(*divmod(period_ns, 10**9)), _Timespec(*divmod(first_ns, 10**9)))
    if libc.timerfd_settime(fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) < 0:
        error = ctypes.get_errno()
        os.close(fd)
        raise OSError(error, "timerfd_settime failed")
    return int(fd)


@dataclass(frozen=True, slots=True)
class Lag:
    """Milliseconds over ``samples`` expiries; all zero if there was none."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    samples: int


class LagProbe:
    """Samples the lag of the running loop between :meth:`start` and :meth:`stop`."""

    def __init__(self, period_s: float = 0.005) -> None:
        self._period_ns = round(period_s * 1e9)
        self._lags_ns: list[int] = []
        self._next_ns = 0
        self._fd = -1

    def start(self) -> None:
        self._next_ns = monotonic_ns() + self._period_ns
        self._fd = _timer_fd(self._next_ns, self._period_ns)
        asyncio.get_running_loop().add_reader(self._fd, self._expired)

    def _expired(self) -> None:
        now = monotonic_ns()
        for _ in range(int.from_bytes(os.read(self._fd, 8), "little")):
            self._lags_ns.append(now - self._next_ns)
            self._next_ns += self._period_ns

    def stop(self) -> Lag:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        return summarise(self._lags_ns)


def summarise(lags_ns: list[int]) -> Lag:
    if not lags_ns:
        return Lag(0.0, 0.0, 0.0, 0)
    p50, p99 = np.quantile(np.asarray(lags_ns, dtype=np.float64) / 1e6, (0.5, 0.99))
    return Lag(float(p50), float(p99), max(lags_ns) / 1e6, len(lags_ns))
