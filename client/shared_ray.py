"""One Ray for several threads: each may call it, and it is started, restarted and stopped only while nobody does.

Ray's calls are safe from many threads. Its shutdown is not: a thread that waits for something while Ray is shut down under it waits a
minute, and then Ray ends the whole process. So whoever uses Ray says so (:meth:`SharedRay.use`), and a change waits until the last
one has left. They leave soon: whoever waits for a Ray that died looks twice a second whether it is alive.

A restart makes every handle and reference of before worthless. Users learn it from the epoch, a number that each start raises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Node(Protocol):
    """As :class:`specsweep.client.local_ray.LocalRay`."""

    @property
    def alive(self) -> bool: ...

    def stop(self) -> None: ...


class SharedRay:
    """``start`` starts ``node``, also again if it has died."""

    def __init__(self, node: Node, start: Callable[[], None]) -> None:
        self._node = node
        self._start = start
        self._state = threading.Condition()
        self._users = 0
        self._changing = False  # one thread starts or stops it
        self._closed = False
        self._epoch = 0

    @property
    def alive(self) -> bool:
        return self._node.alive

    @contextmanager
    def use(self) -> Iterator[int]:
        """Ray is there and stays; yields the epoch. Starts it if it is not there.

        Raises what ``start`` raises, and ``RuntimeError`` once :meth:`close` was called.
        """
        epoch = self._enter()
        try:
            yield epoch
        finally:
            self._leave()

    @contextmanager
    def use_if_alive(self) -> Iterator[int | None]:
        """The same without a start: yields None if Ray is not there, or is about to go."""
        with self._state:
            there = not self._changing and not self._closed and self._node.alive
            self._users += there
            epoch = self._epoch
        try:
            yield epoch if there else None
        finally:
            if there:
                self._leave()

    def stop_if_dead(self) -> None:
        """Stops a Ray that has died, once its users have left; the next one who wants it starts it again."""
        with self._state:
            self._state.wait_for(lambda: self._closed or not (self._users or self._changing))
            if self._closed or self._node.alive:
                return
            self._changing = True
        try:
            self._node.stop()
        finally:
            self._changed()

    def close(self) -> None:
        """Stops Ray once its users have left; nobody can use it afterwards. Safe to call again."""
        with self._state:
            self._closed = True
            self._state.notify_all()
            self._state.wait_for(lambda: not self._users and not self._changing)
            self._changing = True
        try:
            self._node.stop()
        finally:
            self._changed()

    def _enter(self) -> int:
        with self._state:
            while True:
                if self._closed:
                    raise RuntimeError("the client pool is closed")
                if not self._changing and self._node.alive:
                    self._users += 1
                    return self._epoch
                if not self._changing and not self._users:
                    self._changing = True
                    self._epoch += 1
                    break
                self._state.wait()
        try:
            self._start()
        except BaseException:
            self._changed()
            raise
        with self._state:
            self._users += 1
            self._changing = False
            self._state.notify_all()
            return self._epoch

    def _leave(self) -> None:
        with self._state:
            self._users -= 1
            self._state.notify_all()

    def _changed(self) -> None:
        with self._state:
            self._changing = False
            self._state.notify_all()
