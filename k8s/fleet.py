"""All that one sweep runs, as the cluster has it: one watch on its pods and one on its Jobs, whatever their number.

The objects of a run (a Job and what it needs) are made and removed here. Making is idempotent: what an earlier life of the same
sweep left is found again by its name; if it is as wanted it is taken over, else (other settings, or a Job that is over) it is removed
first. Removing touches only what carries the run's labels, and returns when its pods are gone, since until then they hold GPUs. A pod
on a node that does not answer never reports its end; it is then deleted by force: its node is kept from new pods by its own taint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from specsweep.k8s.api import Api
from specsweep.k8s.errors import NotFound, Outdated, RemovalError
from specsweep.k8s.manifests import Manifest
from specsweep.k8s.names import carries, selector
from specsweep.k8s.pods import newest_last, read_job
from specsweep.k8s.resources import JOBS, PODS, resource_of
from specsweep.k8s.watch import Patience, Watch

Json = Mapping[str, Any]
SHOWN_S = 2.0  # a watch tells a change within milliseconds
_OVER = ("Failed", "FailureTarget", "Complete", "SuccessCriteriaMet")


@dataclass(frozen=True, slots=True)
class Pace:
    first_look_s: float = 2.0  # events and deadlines change no object: they are looked at, less and less often
    longest_look_s: float = 30.0
    delete_s: float = 120.0  # on top of the grace period; after that, by force


class Fleet:
    """The runs whose pods and Jobs carry ``labels``. Use as a context manager."""

    def __init__(self, api: Api, labels: Mapping[str, str], *, pace: Pace | None = None, patience: Patience | None = None) -> None:
        self.api = api
        self.pace = pace or Pace()
        self._pods = Watch(api, PODS, selector(labels), patience=patience)
        self._jobs = Watch(api, JOBS, selector(labels), patience=patience)
        self._watches = AsyncExitStack()
        self._latest: dict[str, Json] = {}
        self._latest_at = -1

    async def __aenter__(self) -> Fleet:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._pods)
            await stack.enter_async_context(self._jobs)
            self._watches = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._watches.aclose()

    @property
    def versions(self) -> tuple[int, int]:
        return self._pods.version, self._jobs.version

    async def changed(self, since: tuple[int, int], timeout_s: float) -> tuple[int, int]:
        """Waits for a change of any pod or Job after these versions, or for ``timeout_s``. Raises what ended a watch."""
        waits = [asyncio.create_task(watch.changed(version)) for watch, version in zip((self._pods, self._jobs), since, strict=True)]
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return self.versions

    def picture(self, name: str, uid: str) -> tuple[Json | None, Json | None]:
        """The pod of that Job (the latest, if it made several) and the Job, as they are now; None for what is not there."""
        job = self._jobs.objects.get(name)
        if self._latest_at != self._pods.version:  # once a change, not once for each who looks
            self._latest_at, self._latest = self._pods.version, _latest(self._pods.objects.values())
        return self._latest.get(uid), (job if job is not None and job["metadata"]["uid"] == uid else None)

    def departed(self, uid: str) -> Json | None:
        """How the pod of that Job was last seen while it was being deleted, if it is gone: what took it away stands in its conditions."""
        return _latest(pod for pod in self._pods.departed.values() if pod["metadata"].get("deletionTimestamp")).get(uid)

    async def create(self, objects: Sequence[Manifest]) -> Json:
        """Of the objects of one run, the last of which is its Job: all made or found. Returns the Job.

        Raises Conflict if the name is somebody else's.
        """
        job = await self._create(objects)
        if job is None:
            await self.remove(objects)
            job = await self._create(objects)
        if job is None:
            raise Outdated(f"{_name(objects)}: what an earlier life left was removed and is there again: who else starts it?")
        await self._shown(job)
        return job

    async def remove(self, objects: Sequence[Manifest]) -> None:
        """Deletes what is there of them and returns when the Job's pods are gone. Raises RemovalError that says what may still hold GPUs."""
        name, uid = _name(objects), None
        for obj in reversed(objects):  # the Job first: the others serve its pod
            resource = resource_of(obj)
            try:
                found = await self.api.get(resource, name)
            except NotFound:
                continue
            if carries(found["metadata"].get("labels") or {}, obj["metadata"]["labels"]):
                await self.api.delete(resource, name, uid=found["metadata"]["uid"])
                uid = found["metadata"]["uid"] if resource is JOBS else uid
        grace_s = objects[-1]["spec"]["template"]["spec"].get("terminationGracePeriodSeconds") or 0
        try:
            await self._gone(name, uid, grace_s + self.pace.delete_s)
        except TimeoutError:
            for pod in self._pods_of(name):
                await self.api.delete(PODS, pod, grace_s=0)
            try:
                await self._gone(name, uid, self.pace.delete_s)
            except TimeoutError as error:
                raise RemovalError(f"{name} could not be removed and may still hold GPUs: {error}; look at: kubectl get pods") from error

    async def _create(self, objects: Sequence[Manifest]) -> Json | None:
        """None if what is there has to be removed first."""
        try:
            *_, (job, adopted) = [await self.api.create_or_adopt(obj) for obj in objects]
        except Outdated:
            return None
        return None if adopted and is_over(job) else job

    async def _shown(self, job: Json) -> None:
        """Waits until the watch shows the Job, so that "not there" means gone and not "not yet"."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        versions = self.versions
        while self.picture(name, uid)[1] is None:
            before = versions
            versions = await self.changed(versions, SHOWN_S)
            if versions == before:  # deleted so soon that the watch never had it to show?
                try:
                    found = await self.api.get(JOBS, name)
                except NotFound:
                    return
                if found["metadata"]["uid"] != uid:
                    return

    async def _gone(self, name: str, uid: str | None, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        if uid is not None:
            await self.api.gone(JOBS, name, uid=uid, within_s=within_s)
        while left := self._pods_of(name):
            versions = self.versions
            if (wait_s := deadline - loop.time()) <= 0:
                raise TimeoutError(f"pods {', '.join(left)} are still there after {within_s:.0f} s")
            await self.changed(versions, wait_s)

    def _pods_of(self, job: str) -> list[str]:
        # By the Job's name: there may be pods of an earlier Job of that name.
        return [name for name, pod in self._pods.objects.items() if any(owner.get("name") == job for owner in _owners(pod))]


def is_over(job: Json) -> bool:
    """Whether that Job starts no pod any more."""
    conditions = read_job(job).conditions
    return any(name in conditions and conditions[name].holds for name in _OVER)


def _latest(pods: Iterable[Json]) -> dict[str, Json]:
    """By the uid of its owner: the newest pod that is not being deleted, else the newest."""
    return {owner["uid"]: pod for pod in sorted(pods, key=newest_last) for owner in _owners(pod)}


def _name(objects: Sequence[Manifest]) -> str:
    return str(objects[-1]["metadata"]["name"])


def _owners(obj: Json) -> list[Json]:
    return obj["metadata"].get("ownerReferences") or []
