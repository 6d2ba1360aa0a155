"""Lets points measure at the same time as long as their client processes have a core each.

Two points that share cores would each measure the other: the stamps of one come late because the other is read. So a point asks for
as many cores as it has client processes before it opens a connection, and waits while they are taken. Strictly first come, first
served: a small point never passes a large one that waits, so none waits for ever. A point that wants more than there are gets all of
them, and is alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """For the tasks of one event loop."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity={capacity}: must be at least 1")
        self.capacity = capacity
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def waiting(self) -> int:
        """How many tasks wait to be let in."""
        return len(self._waiting)

    @asynccontextmanager
    async def admitted(self, weight: int) -> AsyncIterator[None]:
        """Waits for ``weight`` of the capacity, at least 1, all of it if that is more; gives it back on exit."""
        if weight < 1:
            raise ValueError(f"weight={weight}: must be at least 1")
        weight = min(weight, self.capacity)
        await self._enter(weight)
        try:
            yield
        finally:
            self._leave(weight)

    async def _enter(self, weight: int) -> None:
        ticket = weight, asyncio.get_running_loop().create_future()
        self._waiting.append(ticket)
        self._admit()
        try:
            await ticket[1]
        except asyncio.CancelledError:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self._admit()  # those behind may fit
            else:  # let in and cancelled in the same moment
                self._leave(weight)
            raise

    def _leave(self, weight: int) -> None:
        self._taken -= weight
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._taken + self._waiting[0][0] <= self.capacity:
            weight, ticket = self._waiting.popleft()
            self._taken += weight
            if not ticket.done():
                ticket.set_result(None)
