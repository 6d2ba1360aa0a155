"""Executes a plan, session by session. It decides nothing that the plan has decided, and a session that fails is never the end of it.

Below it: :mod:`~specsweep.orchestrator.session_run` (one engine and its points), :mod:`~specsweep.orchestrator.point_run` (one point),
:mod:`~specsweep.orchestrator.ledger` (what becomes of a point). Since every landed attempt is complete on disk before the next point
begins, the same command after any kind of end measures exactly what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from specsweep.client.actors import ClientPool
from specsweep.orchestrator.ledger import Ledger, Outcome
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
        """Raises nothing for what went wrong with points: the outcome counts them."""
        ledger = Ledger(self.plan.name, self.store, self.tracker, self.progress, self.tally, self.outcome)
        with contextlib.closing(ClientPool()) as pool:
            starting = asyncio.create_task(asyncio.to_thread(pool.start))  # Ray's start hides behind that of the first engine
            try:
                for session in self.plan.sessions:
                    missing = [point for point in session.points if self.store.needs(point.point_id, self.rerun)]
                    if missing:
                        self.tally.session += 1
                        await SessionRun(session, missing, ledger, self.preparation, Clients(pool, starting), self.actors).run()
            finally:
                with contextlib.suppress(Exception):
                    await starting
        return self.outcome
