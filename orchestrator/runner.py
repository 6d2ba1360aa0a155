"""Executes a plan, session by session, or several at once where their place has room for them.

It decides nothing that the plan has decided, and a session that fails is never the end of it.

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

from specsweep.client.actors import ClientPool
from specsweep.orchestrator.admission import Admission
from specsweep.orchestrator.clients import Clients
from specsweep.orchestrator.clusters import Cluster
from specsweep.orchestrator.errors import NoClientsError
from specsweep.orchestrator.ledger import Ledger, Outcome
from specsweep.orchestrator.points import Plan
from specsweep.orchestrator.preparation import Preparation
from specsweep.orchestrator.progress import Progress, Tally
from specsweep.orchestrator.session_run import SessionRun
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.tracking import Tracker


@dataclass(slots=True)
class Runner:
    plan: Plan
    place: Cluster
    store: Store
    tracker: Tracker | None
    progress: Progress
    preparation: Preparation
    tally: Tally
    rerun: str = "failed"
    actors: int | None = None
    ray_address: str | None = None  # of a Ray cluster for the client processes; None: on this host
    outcome: Outcome = field(default_factory=Outcome)

    async def run(self) -> Outcome:
        """Raises nothing for what went wrong with points (the outcome counts them), and ``RunError`` if there is no going on."""
        with contextlib.closing(ClientPool(address=self.ray_address)) as pool:
            clients = Clients(pool, self.progress.say)
            starting = clients.starting
            serving = asyncio.create_task(self._serve(clients))
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

    async def tidy(self) -> None:
        """Ends what an earlier run left that was killed after its last point. For a run that has nothing to measure."""
        async with self.place.opened(self.plan.name, (), self.progress.say):
            pass

    async def _serve(self, clients: Clients) -> None:
        ledger = Ledger(self.plan.name, self.store, self.tracker, self.progress, self.tally, self.outcome)
        missing = {s.session_id: [p for p in s.points if self.store.needs(p.point_id, self.rerun)] for s in self.plan.sessions}
        waiting = {s.session_id: s for s in self.plan.sessions if missing[s.session_id]}
        async with self.place.opened(self.plan.name, waiting.keys(), self.progress.say):
            admission = Admission(self.place.limits.sessions, self.place.limits.gpus)
            running: dict[asyncio.Task[None], str] = {}
            try:
                while waiting or running:
                    for session_id in admission.admit({name: self.place.need(s.config) for name, s in waiting.items()}):
                        self.tally.number(waiting[session_id])
                        session = SessionRun(
                            waiting.pop(session_id), missing[session_id], self.place, ledger, self.preparation, clients, self.actors
                        )
                        running[asyncio.create_task(session.run())] = session_id
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        admission.ended(running.pop(task))
                        task.result()  # RunError: there is no going on
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)


def _seen(*tasks: asyncio.Task[None]) -> None:
    """Marks exceptions as looked at: what counted was raised, and asyncio prints the others when the program ends."""
    for task in tasks:
        if not task.cancelled():
            task.exception()
