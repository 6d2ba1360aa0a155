"""One timer for the end of the running step, exact to some ten microseconds.

Event loops round their timers up to whole milliseconds (``epoll`` takes no less, libuv neither), which is the length of a small model's
step. A ``timerfd`` is a file that becomes readable at a time given in nanoseconds. Where there is none (not Linux), the
loop's own timer has to do.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_ABSOLUTE = 1
_PR_SET_TIMERSLACK = 29


class _Itimerspec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class Ticker:
    """Calls ``callback`` once at each time that :meth:`at` is given, one time at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._file = -1
        if self._libc is not None:
            self._libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
            self._file = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._file >= 0:
            loop.add_reader(self._file, self._fired)

    def at(self, t_ns: int) -> None:
        """``t_ns``: of ``time.monotonic_ns``; one that has passed fires at once."""
        if self._file < 0:
            self._loop.call_later(max(0, t_ns - time.monotonic_ns()) / 1e9, self._callback)
            return
        spec = _Itimerspec(0, 0, *divmod(max(t_ns, 1), 1_000_000_000))
        assert self._libc is not None
        if self._libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_settime")

    def close(self) -> None:
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def _fired(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:  # set anew meanwhile
            return
        self._callback()
