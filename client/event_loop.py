"""The event loop of a client process: asyncio's own, with a selector that does not wake for every single chunk of a dense stream.

What a chunk costs a client that is not saturated is mostly not Python: it is the kernel that puts the process to sleep and wakes
it again, 25,000 times a second if 25,000 chunks come evenly (measured: about 30 µs a chunk, with a bare epoll loop as well as
with asyncio or uvloop; 7 µs once chunks are read in groups). On a host that also runs the engine, that is the engine's time.
So when reads follow each other closely, the loop naps for 150 µs before it looks again, and reads what came
meanwhile in one go. That more than halves the cost, and is the most that a time stamp can be late by it.

Streams that are not dense are never made to wait: below some seven thousand wake-ups a second there is no nap, and a nap that
gathered less than two reads is the last one. The lag probe sits among the sockets, so its certificate includes the naps.
"""

from __future__ import annotations

import asyncio
import ctypes
import selectors
import time
from collections.abc import Callable

NAP_S = 150e-6
_PR_SET_TIMERSLACK = 29


class NappingSelector(selectors.EpollSelector):
    """``epoll`` that naps between wake-ups that follow each other within :data:`NAP_S`. ``clock`` and ``sleep`` are for tests."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__()
        self._clock = clock
        self._sleep = sleep
        self._dense = False
        self._woke_s = float("-inf")

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # A time-out of zero means that callbacks are waiting: they are not made to wait.
        napped = self._dense and (timeout is None or timeout > NAP_S)
        if napped:
            self._sleep(NAP_S)
        ready = super().select(timeout)
        now = self._clock()
        self._dense = len(ready) > 1 if napped else now - self._woke_s < NAP_S
        self._woke_s = now
        return ready


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop for this thread, whatever policy the host has set (Ray's workers take uvloop where it is installed).

    The kernel adds 50 µs of slack to every sleep of a thread; this thread gets none.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    return asyncio.SelectorEventLoop(NappingSelector())
