"""The client processes of a run: started once, behind the first engine's start, and lent to the sessions that measure.

A session has a team of its own while an engine of it is up; a team that is given back serves the next session. Points of sessions that
run at the same time measure at the same time only as far as each of their processes has a core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from specsweep.client.actors import ClientPool, ClientsUnavailable, Team
from specsweep.client.gate import Gate
from specsweep.orchestrator.errors import ConfigError, NoClientsError


class Clients:
    def __init__(self, pool: ClientPool, say: Callable[[str], None]) -> None:
        self._pool = pool
        self._say = say
        self._idle: list[Team] = []
        self._gate: asyncio.Task[Gate] | None = None
        self.starting = asyncio.create_task(self._start())

    @contextmanager
    def team(self) -> Iterator[Team]:
        team = self._idle.pop() if self._idle else self._pool.team()
        try:
            yield team
        finally:
            self._idle.append(team)

    async def ready(self) -> None:
        """Waits until the client processes can be had. Raises NoClientsError; any other trouble the first point will tell better."""
        if not self.starting.done():
            await asyncio.wait([self.starting])
        if isinstance(error := self.starting.exception(), NoClientsError):
            raise error

    @asynccontextmanager
    async def cores(self, batch_size: int, asked: int | None) -> AsyncIterator[None]:
        """Waits until a point of that batch size finds a core for each of its processes. ``asked``: their number, None: by batch size.

        Raises ConfigError for a number that the Ray nodes do not have, NoClientsError if there is no Ray to ask.
        """
        if self._gate is None:
            self._gate = asyncio.create_task(self._make_gate())
        try:
            gate = await asyncio.shield(self._gate)
            processes = await asyncio.to_thread(self._pool.processes, batch_size, asked)
        except ValueError as error:
            raise ConfigError(f"measure.client_processes={asked}: {error}") from error
        except ClientsUnavailable as error:
            raise no_clients(error) from error
        async with gate.admitted(processes):
            yield

    async def _make_gate(self) -> Gate:
        return Gate(await asyncio.to_thread(lambda: self._pool.cores))

    async def _start(self) -> None:
        """Raises NoClientsError."""
        try:
            await asyncio.to_thread(self._pool.start)
        except ClientsUnavailable as error:
            self._say(f"{error}; starting it once more")
            try:
                await asyncio.to_thread(self._pool.start)
            except ClientsUnavailable as again:
                raise no_clients(again) from error


def no_clients(error: ClientsUnavailable) -> NoClientsError:
    return NoClientsError(
        f"no client process can be started, so nothing can be measured: {error}; points that are left stay missing, and the same "
        "command measures them once Ray starts"
    )
