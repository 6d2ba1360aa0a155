"""One running server, from its objects to their end.

What the cluster shows of it is read by the verdict (:mod:`specsweep.k8s.verdict`); here is only what follows from that: wait, report,
fetch events while nothing runs and the log once it decides, take evidence before anything is deleted, delete. Whatever ends the
block, nothing is left: clean-up is not cut short by a cancellation, nor by a second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from specsweep.k8s.errors import KubernetesError
from specsweep.k8s.evidence import image_digest, last_lines
from specsweep.k8s.fleet import Fleet
from specsweep.k8s.manifests import Manifest, server_objects
from specsweep.k8s.outcomes import Ready, Retryable, Starting, Terminal
from specsweep.k8s.pods import read_pod
from specsweep.k8s.specs import Owner, ServerSpec
from specsweep.k8s.verdict import FOREVER, Budgets, after_ready
from specsweep.k8s.watched import Classify, Json, Watched


class Server:
    """A server that was ready. ``url`` is its pod's own address."""

    def __init__(self, watched: Watched, pod: Json, port: int) -> None:
        found = read_pod(pod)
        self.pod = found.name
        self.node = found.node
        self.image_digest = image_digest(pod)
        self.url = f"http://[{found.ip}]:{port}" if ":" in found.ip else f"http://{found.ip}:{port}"
        self.evidence: dict[str, str] = {}  # taken at its end, if it had ended before it was asked to
        self._watched = watched

    def ended(self) -> str | None:
        """Why it is not any more what it was when it became ready; None while it is. Raises ApiError if the cluster cannot be seen."""
        verdict = after_ready(self._watched.verdict())
        return None if isinstance(verdict, Ready | Starting) else verdict.reason

    async def end(self) -> Retryable | Terminal | None:
        """The same as a verdict, with the log's part in it."""
        verdict = after_ready((await self._watched.full_verdict())[0])
        return None if isinstance(verdict, Ready | Starting) else verdict

    async def log(self) -> str:
        """The last lines that it wrote, or in brackets why there are none."""
        return await last_lines(self._watched.api, self.pod)

    async def take_evidence(self) -> None:
        if self.ended() is not None and not self.evidence:
            self.evidence = await self._watched.evidence()


@asynccontextmanager
async def serve(
    fleet: Fleet,
    spec: ServerSpec,
    owner: Owner | None,
    *,
    budgets: Budgets | None = None,
    classify: Classify = lambda log: None,
    progress: Callable[[Starting], None] = lambda starting: None,
) -> AsyncIterator[Server]:
    """A server that is ready, found as it was if it runs already, and gone when the block ends.

    ``budgets``: how long it may wait for what; for its health that is ``spec.startup_s``. ``progress`` is told of every new thing that
    it waits for. Raises StartRetryable or StartTerminal, evidence attached, if it does not come; Conflict if its name is somebody
    else's; RemovalError if something of it may still hold GPUs afterwards.
    """
    server = None
    objects = server_objects(spec, owner)
    try:
        job = await fleet.create(objects)
        watched = Watched(fleet, job, replace(budgets or Budgets(), startup_s=spec.startup_s), classify)
        pod = await _until_ready(watched, progress)
        server = Server(Watched(fleet, job, FOREVER, classify, ran=True), pod, spec.port)
        yield server
    except BaseException as error:
        try:
            await _to_its_end(_leave(fleet, objects, server))
        except KubernetesError as left:
            error.add_note(f"and then: {left}")
        raise
    await _to_its_end(_leave(fleet, objects, server))


async def _leave(fleet: Fleet, objects: Sequence[Manifest], server: Server | None) -> None:
    if server is not None:
        with suppress(KubernetesError):  # no reason to leave it there
            await server.take_evidence()
    await fleet.remove(objects)


async def _until_ready(watched: Watched, progress: Callable[[Starting], None]) -> Json:
    """The pod once it is ready. Raises StartRetryable or StartTerminal."""
    look_s = watched.fleet.pace.first_look_s
    told = ""
    while True:
        versions = watched.fleet.versions
        verdict, pod = await watched.full_verdict()
        if isinstance(verdict, Ready) and pod is not None:
            return pod
        if isinstance(verdict, Retryable | Terminal):
            raise await watched.failure(verdict)
        if isinstance(verdict, Starting) and verdict.waits_for != told:
            told = verdict.waits_for
            progress(verdict)
        look_s = await watched.wait(versions, verdict, look_s)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Waits for ``work`` however often we are cancelled meanwhile; then the cancellation goes on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
