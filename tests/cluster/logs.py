"""Containers' logs, served as the API server asks a kubelet for them (``kubectl logs`` is its request, passed on).

Each node has an address of its own to ask at: when it is lost, so are its logs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from aiohttp import web

from cluster.certificates import Pair

LOOK_S = 0.1


class Logged(Protocol):
    def log(self, container: str, *, previous: bool = False) -> Path | None: ...

    def runs(self, container: str) -> bool: ...


class LogServer:
    """``pods``: the pod of that namespace and name, None if the node has none."""

    def __init__(self, host: str, pair: Pair, pods: Callable[[str, str], Logged | None]) -> None:
        self._host = host
        self._pair = pair
        self._pods = pods
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trust.load_cert_chain(self._pair.certificate, self._pair.key)
        site = web.TCPSite(self._runner, self._host, self.port, ssl_context=trust)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        info, query = request.match_info, request.query
        pod = self._pods(info["namespace"], info["pod"])
        if pod is None:
            return web.Response(status=404, text=f'pod "{info["pod"]}" not found')
        path = pod.log(info["container"], previous=query.get("previous") == "true")
        if path is None:
            what = "previous terminated container" if query.get("previous") == "true" else "container"
            return web.Response(status=400, text=f'{what} "{info["container"]}" in pod "{info["pod"]}" not found')
        data = path.read_bytes() if path.exists() else b""
        shown = _limited(data, query.get("tailLines"), query.get("limitBytes"))
        if query.get("follow") != "true":
            return web.Response(body=shown, content_type="text/plain")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(shown)
        with path.open("rb") as file:
            file.seek(len(data))
            while True:
                goes_on = pod.runs(info["container"])
                if more := file.read():
                    await response.write(more)
                elif not goes_on:
                    return response
                else:
                    await asyncio.sleep(LOOK_S)


def _limited(data: bytes, lines: str | None, size: str | None) -> bytes:
    if lines is not None:
        kept = data.splitlines(keepends=True)
        data = b"".join(kept[-int(lines) :] if int(lines) else [])
    return data[: int(size)] if size is not None else data
