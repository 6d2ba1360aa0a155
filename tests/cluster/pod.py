"""One pod from its binding to its end, as its kubelet sees it.

Two things go on at once: the pod's life (network, volumes, init containers, containers with their images, variables, probes, restarts),
and its status, which is sent whenever something of it changed. A deletion, an eviction or the loss of the node cuts the life short:
the containers get their grace period, the last status is sent, and only then the API server is told that the pod may go.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster.place import Place
from cluster.rest import STRATEGIC, Json, RestError
from cluster.runs import Runs
from cluster.status import CREATING, INITIALIZING, State, Taken, now, pod_status
from cluster.volumes import MountError, NotAttached, Volume, prepare


class PodWorker:
    """``ahead_s``: of the node's monotonic clock. ``lost``: the node comes back from where its pods did not survive."""

    def __init__(self, pod: Json, place: Place, host_ip: str, *, ahead_s: int = 0, lost: bool = False) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.folder: Path = place.folder / self.uid
        self.hosts = self.folder / "hosts"
        self._path = "/api/v1/namespaces/{}/pods/{}".format(*self.key)
        self.place = place
        self._host_ip = host_ip
        self.ahead_s = ahead_s
        self._lost = lost
        self._since = (pod.get("status") or {}).get("startTime") or now()
        self.ip = ""
        self._taken: Taken | None = None
        self._sent: Json = {}
        self._silent = False
        self._dirty = asyncio.Event()
        self._ending = asyncio.Event()  # its life is to be cut short
        self._hurry = asyncio.Event()  # without a grace period
        self._deleted = asyncio.Event()  # the API server waits for our word to forget it
        spec = pod["spec"]
        self._policy: str = spec.get("restartPolicy", "Always")
        self._runs = Runs(self)
        self._init = [State(each["name"], each["image"]) for each in spec.get("initContainers") or ()]
        waits = INITIALIZING if self._init else CREATING
        self._main = [State(each["name"], each["image"], waits) for each in spec["containers"]]
        self._task = asyncio.create_task(self._run(), name=f"pod {self.key[1]}")
        self.update(pod)

    def log(self, container: str, *, previous: bool = False) -> Path | None:
        """Of its present run, or of the one before; None if there was none."""
        return self._runs.log(container, previous=previous)

    def runs(self, container: str) -> bool:
        return self._runs.runs(container)

    def pid(self, container: str) -> int | None:
        return self._runs.pid(container)

    def update(self, pod: Json) -> None:
        """As the API server has it now."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
                self._hurry.set()
            self._ending.set()
            self._deleted.set()

    def changed(self) -> None:
        self._dirty.set()

    def event(self, kind: str, reason: str, message: str, container: str | None = None) -> None:
        if not self._silent:
            self.place.events.tell(self.pod, kind, reason, message, container)

    def take(self, taken: Taken) -> None:
        """The node ends it: an eviction."""
        self._taken = taken
        self.event("Warning", taken.reason, taken.message)
        self._hurry.set()
        self._ending.set()

    async def gone(self) -> None:
        """The API server does not have it any more: nothing of it may be left here."""
        self._hurry.set()
        self._ending.set()
        self._deleted.set()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def crash(self) -> None:
        """The node loses power: everything ends at once, and nobody is told."""
        self._silent = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        publishing = asyncio.create_task(self._publish())
        living = asyncio.create_task(self._lost_life() if self._lost else self._live())
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({living, ending}, return_when=asyncio.FIRST_COMPLETED)
            if living.done():
                living.result()  # a fault of this file is loud
            else:
                await _cancelled(living)
                await self._runs.stop(self._grace_s(), self._hurry)
            await self._leave()
            self.changed()
            await self._deleted.wait()
            await _cancelled(publishing)
            await self._send()
            await self._let_go()
        except Exception as error:
            self.place.faults.append(error)
            raise
        finally:
            await _cancelled(publishing, living, ending)
            await self._runs.stop(0, self._hurry)
            await self._leave()

    async def _live(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        await self._attach()
        self.place.names.add(self.hosts, *self.key, self.ip)
        self.changed()
        volumes = await self._volumes()
        spec = self.pod["spec"]
        for state, container in zip(self._init, spec.get("initContainers") or (), strict=True):
            if await self._runs.keep(state, container, volumes, policy="OnFailure" if self._policy == "Always" else self._policy):
                return
        containers = zip(self._main, spec["containers"], strict=True)
        await asyncio.gather(*(self._runs.keep(state, container, volumes, policy=self._policy) for state, container in containers))

    async def _attach(self) -> None:
        adding = asyncio.ensure_future(asyncio.to_thread(self.place.network.add, self.uid))
        try:
            self.ip = await asyncio.shield(adding)
        except asyncio.CancelledError:
            self.ip = await adding  # so that it is taken away again
            raise

    async def _lost_life(self) -> None:
        what = {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
        }
        for state in (*self._init, *self._main):
            state.current = {"terminated": what}
        self.changed()

    async def _volumes(self) -> dict[str, Volume]:
        while True:
            try:
                return await prepare(self.pod, self.folder, self.fetch, self._token, self._attached)
            except MountError as error:
                if not isinstance(error, NotAttached):
                    self.event("Warning", "FailedMount", str(error))
                await asyncio.sleep(self.place.pace.mount_s)

    async def fetch(self, kind: str, name: str) -> Json:
        """A namespaced object that the pod refers to, or a PersistentVolume. Raises RestError."""
        where = "/api/v1" if kind == "persistentvolumes" else f"/api/v1/namespaces/{self.key[0]}"
        return await self.place.rest.get(f"{where}/{kind}/{name}")

    def _attached(self, volume: str) -> bool:
        return self.place.disks.has(self.pod["spec"]["nodeName"], volume)

    async def _token(self, source: Json) -> str:
        account = self.pod["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.key[1], "uid": self.uid}
        audiences = {"audiences": [source["audience"]]} if source.get("audience") else {}
        spec = {"expirationSeconds": source.get("expirationSeconds", 3600), "boundObjectRef": bound, **audiences}
        path = f"/api/v1/namespaces/{self.key[0]}/serviceaccounts/{account}/token"
        answer = await self.place.rest.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        return str(answer["status"]["token"])

    def _grace_s(self) -> float:
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        return float(metadata.get("deletionGracePeriodSeconds") or spec.get("terminationGracePeriodSeconds") or 0)

    async def _leave(self) -> None:
        """The sandbox goes; logs and the last status stay until the pod is gone."""
        if not self.ip:
            return
        self.place.names.remove(self.hosts)
        await asyncio.to_thread(self.place.network.remove, self.uid)
        self.ip = ""

    async def _publish(self) -> None:
        try:
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                await self._send()
        except Exception as error:
            self.place.faults.append(error)
            raise

    async def _send(self) -> None:
        before = {each["type"]: each for each in ((self.pod.get("status") or {}).get("conditions") or ())}
        before |= {each["type"]: each for each in self._sent.get("conditions", ())}
        status = pod_status(
            self._init,
            self._main,
            policy=self._policy,
            ip=self.ip,
            host_ip=self._host_ip,
            since=self._since,
            before=before,
            taken=self._taken,
        )
        if status == self._sent:
            return
        with suppress(RestError):  # gone, or another one of its name
            await self.place.rest.patch(f"{self._path}/status", {"metadata": {"uid": self.uid}, "status": status}, kind=STRATEGIC)
            self._sent = status

    async def _let_go(self) -> None:
        with suppress(RestError):
            await self.place.rest.delete(self._path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
