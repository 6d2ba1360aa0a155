"""How far the sweep is, told to whoever looks from outside: a ConfigMap that belongs to the sweep's Job and goes with it.

The results lie on a volume that only the sweep's pod sees; the API server is the one place that both sides reach. Whoever measures must
not be disturbed by that: it is looked only after something happened (a point began, a session ended), never more often than every few
seconds, and sent only if it says something new. Inside a measuring window nothing happens, so nothing is done. Whatever goes wrong with
it is none of the sweep's concern, and is tried again later.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.k8s import names
from specsweep.orchestrator.clusters.kubernetes import JOB_VARIABLE
from specsweep.orchestrator.kube.access import api_of
from specsweep.orchestrator.kube.settings import Settings
from specsweep.orchestrator.kube.specs import fingerprint
from specsweep.orchestrator.kube.status_document import KEY, document, same
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_status import SweepStatus, sweep_status

if TYPE_CHECKING:
    from specsweep.k8s.api import Api
    from specsweep.k8s.specs import Owner

PAUSE_S = 5.0  # between two looks
AGAIN_S = 30.0  # after one that failed
LAST_S = 10.0  # for the last word, when the run ends
COMPONENT = "status"


def status_name(sweep: str) -> str:
    return names.object_name(f"status-{sweep}", fingerprint(sweep))


@dataclass(slots=True)
class Glance:
    """What there is to see of a sweep in its store. ``news``: differs from what it was if something happened since."""

    store: Path
    sweep: str
    _store: Store = field(init=False)

    def __post_init__(self) -> None:
        self._store = Store(self.store)  # of its own: it reads beside the writer, in a thread

    def news(self) -> object:
        try:
            found = (self._store.sweep_dir(self.sweep) / "events.jsonl").stat()
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns

    def look(self) -> SweepStatus:
        return sweep_status(self._store.sweep(self.sweep), writer=self._store.writer(), now=datetime.now(UTC))


@asynccontextmanager
async def publishing(
    api: Api,
    owner: Owner,
    sweep: str,
    look: Callable[[], SweepStatus],
    news: Callable[[], object],
    *,
    pause_s: float = PAUSE_S,
    say: Callable[[str], None] = lambda words: None,
) -> AsyncIterator[None]:
    """Publishes what ``look`` sees (in a thread) while the block runs, and once more at its end. Raises nothing of its own."""
    publisher = _Publisher(api, owner, sweep, look, say)
    task = asyncio.create_task(publisher.keep_on(news, pause_s), name="publish status")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await publisher.publish()


@asynccontextmanager
async def telling(base: Mapping[str, Any], store: Path, sweep: str, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Publishes while the block runs, if this is the pod of a sweep's Job; anywhere else it does nothing. Raises nothing of its own."""
    async with AsyncExitStack() as stack:
        try:
            if (own := await _own_job(base, stack)) is not None:
                glance = Glance(store, sweep)
                await stack.enter_async_context(publishing(*own, sweep, glance.look, glance.news, say=say))
        except Exception as error:  # of the API, or ours
            say(f"how far the sweep is cannot be told outside of its pod: {error}")
        yield


def tell_end(base: Mapping[str, Any], store: Path, sweep: str) -> None:
    """How the sweep is once its run has ended, which is another word than the last of :func:`telling`. Raises nothing."""

    async def tell() -> None:
        async with asyncio.timeout(LAST_S), AsyncExitStack() as stack:
            if (own := await _own_job(base, stack)) is not None:
                await _Publisher(*own, sweep, Glance(store, sweep).look, lambda words: None).publish()

    with suppress(Exception):
        asyncio.run(tell())


async def _own_job(base: Mapping[str, Any], stack: AsyncExitStack) -> tuple[Api, Owner] | None:
    job = os.environ.get(JOB_VARIABLE)
    if base["cluster"]["kind"] != "kubernetes" or not job or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    from specsweep.k8s.resources import JOBS
    from specsweep.k8s.specs import Owner

    api = await stack.enter_async_context(api_of(Settings.of(base)))
    return api, Owner.of(await api.get(JOBS, job))


@dataclass(slots=True)
class _Publisher:
    api: Api
    owner: Owner
    sweep: str
    look: Callable[[], SweepStatus]
    say: Callable[[str], None]
    published: SweepStatus | None = None
    complained: bool = False

    async def keep_on(self, news: Callable[[], object], pause_s: float) -> None:
        seen: object = self  # what no news is equal to
        while True:
            found = news()
            wait_s = pause_s
            if found != seen:
                if await self.publish():
                    seen = found
                else:
                    wait_s = max(pause_s, AGAIN_S)
            await asyncio.sleep(wait_s)

    async def publish(self) -> bool:
        """Whether what is there to see is published now."""
        try:
            status = await asyncio.to_thread(self.look)
            if not same(self.published, status):
                await self._send(document(status, datetime.now(UTC).isoformat()))
                self.published = status
        except Exception as error:  # of the store, the API, or ours
            if not self.complained:
                self.complained = True
                self.say(f"how far the sweep is cannot be told outside of its pod: {str(error).splitlines()[0] if str(error) else error!r}")
            return False
        return True

    async def _send(self, text: str) -> None:
        from specsweep.k8s.errors import NotFound
        from specsweep.k8s.manifests import owned
        from specsweep.k8s.resources import CONFIG_MAPS

        name = status_name(self.sweep)
        ours = owned(self.owner)["metadata"]
        try:
            await self.api.patch(CONFIG_MAPS, name, {"data": {KEY: text}, "metadata": ours})
        except NotFound:
            metadata: dict[str, Any] = {
                "name": name,
                "namespace": self.api.namespace,
                "labels": names.labels(COMPONENT, sweep=self.sweep),
                "annotations": {},
                **ours,
            }
            await self.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}})
