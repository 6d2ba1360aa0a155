"""Executes a plan, session by session. It decides nothing that the plan has decided, and a session that fails is never the end of it.

The client processes start beside the first engine. If none comes up, the run ends at once, without waiting for an engine that nobody
could measure; its points stay missing.

Below it: :mod:`~specsweep.orchestrator.session_run` (one engine and its points), :mod:`~specsweep.orchestrator.point_run` (one point),
:mod:`~specsweep.orchestrator.ledger` (what becomes of a point). Since every landed attempt is complete on disk before the next point
begins, the same command after any kind of end measures exactly what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from specsweep.client.actors import ClientPool, ClientsUnavailable
from specsweep.orchestrator.errors import NoClientsError
from specsweep.orchestrator.ledger import Ledger, Outcome
from specsweep.orchestrator.point_run import no_clients
from specsweep.orchestrator.points import Plan
from specsweep.orchestrator.preparation import Preparation
from specsweep.orchestrator.progress import Progress, Tally
from specsweep.orchestrator.session_run import Clients, SessionRun
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import Tracker


@dataclass(slots=True)
class Runner:
    plan: Plan
    store: Store
    tracker: Tracker | None
    progress: Progress
    preparation: Preparation
    tally: Tally
    rerun: str = "failed"
    actors: int | None = None
    outcome: Outcome = field(default_factory=Outcome)

    async def run(self) -> Outcome:
        """Raises nothing for what went wrong with points (the outcome counts them), and ``RunError`` if there is no going on."""
        with contextlib.closing(ClientPool()) as pool:
            starting = asyncio.create_task(self._start(pool))  # Ray's start hides behind that of the first engine
            serving = asyncio.create_task(self._serve(Clients(pool, starting)))
            try:
                await asyncio.wait((starting, serving), return_when=asyncio.FIRST_COMPLETED)
                if not serving.done() and isinstance(error := starting.exception(), NoClientsError):
                    raise error  # of any other the first point will say more
                await serving
            finally:
                serving.cancel()
                await asyncio.wait((starting, serving))
                _seen(starting, serving)
        return self.outcome

    async def _serve(self, clients: Clients) -> None:
        ledger = Ledger(self.plan.name, self.store, self.tracker, self.progress, self.tally, self.outcome)
        for session in self.plan.sessions:
            missing = [point for point in session.points if self.store.needs(point.point_id, self.rerun)]
            if missing:
                self.tally.session += 1
                await SessionRun(session, missing, ledger, self.preparation, clients, self.actors).run()

    async def _start(self, pool: ClientPool) -> None:
        """Raises NoClientsError."""
        try:
            await asyncio.to_thread(pool.start)
        except ClientsUnavailable as error:
            self.progress.say(f"{error}; starting it once more")
            try:
                await asyncio.to_thread(pool.start)
            except ClientsUnavailable as again:
                raise no_clients(again) from error


def _seen(*tasks: asyncio.Task[None]) -> None:
    """Marks exceptions as looked at: what counted was raised, and asyncio prints the others when the program ends."""
    for task in tasks:
        if not task.cancelled():
            task.exception()
