"""The kubelet's client of the API server, and the tests' own eyes.

It is not the client that is tested here: a fault of one must not hide behind the same fault of the other. A kubelet never gives up:
without an answer it asks again until there is one, since the pods of its node run on meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PAUSE_S = 0.2
LOST = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Credentials:
    url: str
    authority: Path
    token: str


class RestError(Exception):
    def __init__(self, status: int, answer: Json, what: str) -> None:
        super().__init__(f"{what}: {status} {answer.get('reason')}: {answer.get('message')}")
        self.status = status
        self.reason = answer.get("reason")


class Rest:
    """Use as a context manager. ``patient``: without an answer, and on 429 and 5xx, asks for ever."""

    def __init__(self, credentials: Credentials, *, patient: bool = True) -> None:
        self._credentials = credentials
        self._patient = patient
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Rest:
        trust = ssl.create_default_context(cafile=str(self._credentials.authority))
        self._session = aiohttp.ClientSession(
            base_url=self._credentials.url,
            headers={"Authorization": f"Bearer {self._credentials.token}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, **query: str) -> Json:
        return await self.call("GET", path, query=query)

    async def find(self, path: str, **query: str) -> list[Json]:
        return list((await self.get(path, **query))["items"])

    async def create(self, path: str, obj: Mapping[str, Any]) -> Json:
        return await self.call("POST", path, obj)

    async def patch(self, path: str, change: Mapping[str, Any], *, kind: str = MERGE) -> Json:
        return await self.call("PATCH", path, change, content_type=kind)

    async def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Json:
        return await self.call("DELETE", path, options or {})

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Raises RestError for any answer that will stay the same."""
        assert self._session is not None
        data = json.dumps(body) if body is not None else None
        while True:
            try:
                timeout = aiohttp.ClientTimeout(total=20)
                async with self._session.request(
                    method, path, data=data, params=query, headers={"Content-Type": content_type}, timeout=timeout
                ) as response:
                    text = await response.text()
                    if response.status < 300:
                        return dict(json.loads(text))
                    if not self._patient or (response.status < 500 and response.status != 429):
                        raise RestError(response.status, _status(text), f"{method} {path}")
            except LOST:
                if not self._patient:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def follow(self, path: str) -> AsyncIterator[tuple[str, Json]]:
        """For ever: every object once, as ("ADDED", object), ("MODIFIED", …) or ("DELETED", …), and all changes.

        After a watch that could not go on, what is gone meanwhile comes as "DELETED", and what is there once more.
        """
        known: dict[str, Json] = {}
        while True:
            version, found = await self._listed(path)
            for uid in known.keys() - found.keys():
                yield "DELETED", known[uid]
            for uid, obj in found.items():
                yield ("MODIFIED" if uid in known else "ADDED"), obj
            known = found
            async for kind, obj in self._watched(path, version):
                if kind == "DELETED":
                    known.pop(obj["metadata"]["uid"], None)
                else:
                    known[obj["metadata"]["uid"]] = obj
                yield kind, obj

    async def _listed(self, path: str) -> tuple[str, dict[str, Json]]:
        answer = await self.get(path)
        return answer["metadata"]["resourceVersion"], {item["metadata"]["uid"]: item for item in answer["items"]}

    async def _watched(self, path: str, version: str) -> AsyncIterator[tuple[str, Json]]:
        """Until the version is no longer kept. A watch that merely ended goes on."""
        assert self._session is not None
        while True:
            query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
            try:
                async with self._session.get(
                    path, params=query, timeout=aiohttp.ClientTimeout(sock_read=120), read_bufsize=2**22
                ) as response:
                    if response.status == 410:
                        return
                    response.raise_for_status()
                    async for line in response.content:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            return
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event["type"], event["object"]
            except (*LOST, ValueError):  # ValueError: a line that was cut
                pass
            await asyncio.sleep(PAUSE_S)


def _status(text: str) -> Json:
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"message": text}
