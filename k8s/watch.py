"""All objects of one selector, always current: one list and one watch, however many pods there are.

A list tells what there is at a version; a watch tells every change from there on. It ends for many reasons that are no reason for
us: the server closes it after some minutes, a proxy cuts it in the middle of a line, the API server restarts, the version is no
longer kept (410, then list anew), or it simply goes silent. Silence is told from peace by bookmarks, which the server sends about
once a minute: no byte for longer than that, and the watch is taken for dead and opened again from the last version.

An object that we saw in a list or an event is never lost by that, and no change is reported twice. What cannot heal (a right was
taken away, the server is gone for longer than we are patient) ends the watch loudly: everyone who reads or waits gets the error.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import aiohttp

from specsweep.k8s.answers import RETRIED
from specsweep.k8s.api import Api
from specsweep.k8s.errors import ApiError, Expired, Unreachable
from specsweep.k8s.resources import Request, Resource
from specsweep.k8s.transport import LOST

Objects = Mapping[str, Mapping[str, Any]]
SHORT_S = 1.0  # a watch that ends sooner and told nothing has failed
REMEMBERED = 64  # objects that are gone; whoever wants to know why one went asks within seconds
SPARE_S = 60.0  # for the server to end a watch by itself


@dataclass(frozen=True, slots=True)
class Patience:
    silence_s: float = 150.0  # without a byte: two bookmarks missed
    session_s: float = 300.0  # after which the server ends a watch in good order
    away_s: float = 600.0  # without any answer, then the watch dies


class Watch:
    """``async with Watch(api, PODS, selector) as pods``: ``pods.objects`` by name, ``await pods.changed(pods.version)`` to wait."""

    def __init__(self, api: Api, resource: Resource, selector: str, *, patience: Patience | None = None) -> None:
        self._api = api
        self._resource = resource
        self._selector = selector
        self._patience = patience or Patience()
        self._objects: dict[str, dict[str, Any]] = {}
        self._departed: dict[str, dict[str, Any]] = {}
        self._from = ""  # the resource version to go on from
        self._version = 0
        self._answered = 0.0  # when the server was last known to be there, on the loop's clock
        self._news = asyncio.Condition()
        self._death: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watch:
        await self._list()
        self._task = asyncio.create_task(self._live(), name=f"watch {self._resource.plural}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def objects(self) -> Objects:
        """By name, changing while you look. Raises what ended the watch, if it ended: an old picture must not be taken for the present."""
        self._check()
        return MappingProxyType(self._objects)

    @property
    def departed(self) -> Objects:
        """By name, of the last :data:`REMEMBERED` that were deleted, how each was last seen: why it went stands there alone."""
        return MappingProxyType(self._departed)

    @property
    def version(self) -> int:
        """Counts the changes of ``objects``."""
        self._check()
        return self._version

    async def changed(self, since: int, *, timeout_s: float | None = None) -> int:
        """Waits until there was a change after version ``since``, or for ``timeout_s``. Returns the version; raises what ended the watch."""
        async with self._news:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait_for(lambda: self._version > since or self._death is not None), timeout_s)
            return self.version

    def _check(self) -> None:
        if self._death is not None:
            raise self._death

    async def _live(self) -> None:
        try:
            await self._follow()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            async with self._news:
                self._death = error
                self._news.notify_all()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        self._answered = loop.time()
        failures = 0
        while True:
            began = loop.time()
            fails = True
            try:
                if not self._from:
                    await self._list()
                fails = not await self._session() and loop.time() - began < SHORT_S
            except Expired:
                self._from, fails = "", False
            except LOST as error:
                if loop.time() - self._answered > self._patience.away_s:
                    raise Unreachable(
                        f"watching {self._resource.plural}: no answer for {self._patience.away_s:.0f} s: {error!r}"
                    ) from error
            except ApiError as error:
                if error.status not in RETRIED:
                    raise
                self._answered = loop.time()
            failures = failures + 1 if fails else 0
            await asyncio.sleep(self._api.transport.manners.pause_s(failures))

    async def _session(self) -> bool:
        """One watch, to its end. Returns whether it told anything."""
        session_s = self._patience.session_s * random.uniform(0.9, 1.1)  # not all watches at one moment
        request = Request(
            "watch",
            self._resource,
            self._api.namespace,
            query={
                "watch": "true",
                "allowWatchBookmarks": "true",
                "labelSelector": self._selector,
                "resourceVersion": self._from,
                "timeoutSeconds": str(max(1, round(session_s))),
            },
        )
        told = False
        async with self._api.transport.stream(request, silence_s=self._patience.silence_s, total_s=session_s + SPARE_S) as lines:
            while True:
                try:
                    line = await lines.readline()
                except ValueError:  # longer than the buffer: ask for all instead
                    raise Expired(f"a change of {self._resource.plural} was too long to read") from None
                finally:  # silence alone is no absence: that begins when opening it again fails
                    self._answered = asyncio.get_running_loop().time()
                if not line.endswith(b"\n"):  # the end, or a line that was cut; it comes again
                    return told
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise aiohttp.ClientPayloadError(f"not an event: {line[:200]!r}") from error
                await self._event(event)
                told = True

    async def _event(self, event: Mapping[str, Any]) -> None:
        kind, obj = event.get("type"), event["object"]
        if kind == "ERROR":
            message = f"watching {self._resource.plural}: {obj.get('message')}"
            error = Expired if obj.get("code") == 410 else ApiError
            raise error(message, status=int(obj.get("code") or 500), reason=str(obj.get("reason") or ""))
        metadata = obj["metadata"]
        self._from = metadata["resourceVersion"]
        if kind == "BOOKMARK":
            return
        name = metadata["name"]
        before = self._objects.get(name)
        if kind == "DELETED":
            if before is None:
                return
        elif before is not None and _identity(before) == _identity(obj):
            return
        async with self._news:
            if kind == "DELETED":
                del self._objects[name]
                self._departed[name] = obj
                while len(self._departed) > REMEMBERED:
                    del self._departed[next(iter(self._departed))]
            else:
                self._objects[name] = obj
            self._told()

    async def _list(self) -> None:
        items, self._from = await self._api.find(self._resource, selector=self._selector)
        objects = {item["metadata"]["name"]: item for item in items}
        if {name: _identity(obj) for name, obj in objects.items()} == {name: _identity(obj) for name, obj in self._objects.items()}:
            return
        async with self._news:
            self._objects.clear()
            self._objects.update(objects)
            self._told()

    def _told(self) -> None:
        self._version += 1
        self._news.notify_all()


def _identity(obj: Mapping[str, Any]) -> tuple[object, object]:
    return obj["metadata"].get("uid"), obj["metadata"].get("resourceVersion")
