"""What happens to pods, as Event objects: the kubelet's story, told to whoever looks and to nobody in particular.

They are sent in their order by a task of their own, so that a pod does not wait for them while the API server is away. The same event
again is counted on the first one.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

from cluster.rest import Json, Rest, RestError
from cluster.status import now


class Events:
    """Use as a context manager."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._queue: asyncio.Queue[Json] = asyncio.Queue()
        self._told: dict[tuple[str, str, str], Json] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Events:
        self._task = asyncio.create_task(self._send(), name="events")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def tell(self, pod: Json, kind: str, reason: str, message: str, container: str | None = None) -> None:
        metadata, time = pod["metadata"], now()
        key = (metadata["uid"], reason, message)
        if (event := self._told.get(key)) is not None:
            event["count"] += 1
            event["lastTimestamp"] = time
        else:
            event = self._told[key] = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{metadata['name'][:230]}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "uid": metadata["uid"],
                    **({"fieldPath": f"spec.containers{{{container}}}"} if container else {}),
                },
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": "kubelet", "host": pod["spec"].get("nodeName", "")},
                "firstTimestamp": time,
                "lastTimestamp": time,
                "count": 1,
            }
        self._queue.put_nowait(dict(event))

    async def _send(self) -> None:
        while True:
            event = await self._queue.get()
            path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
            with suppress(RestError):  # its namespace, or itself, is gone
                if event["count"] == 1:
                    await self._rest.create(path, event)
                else:
                    again = {"count": event["count"], "lastTimestamp": event["lastTimestamp"]}
                    await self._rest.patch(f"{path}/{event['metadata']['name']}", again)
