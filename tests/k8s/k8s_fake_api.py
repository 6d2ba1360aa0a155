"""A small API server over real HTTP: objects with versions, watches with bookmarks, and answers that a test puts in between.

It knows the protocol and none of the logic of a cluster: nothing schedules, no garbage is collected, pods are put there by the test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration

from specsweep.k8s.api import Api
from specsweep.k8s.config import Access
from specsweep.k8s.transport import Manners, Transport

FAST = Manners(timeout_s=5.0, patience_s=10.0, first_pause_s=0.001, longest_pause_s=0.01, doubt_s=0.1)
Key = tuple[str, str]  # plural, name


@dataclass
class Server:
    url: str = ""
    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)  # version, plural, type, object
    version: int = 100
    oldest: int = 0  # watches from before it get 410
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    answers: list[Callable[[web.Request], Any]] = field(default_factory=list)  # each takes one request: a response, None to pass, or "drop"
    scripts: list[Any] = field(default_factory=list)  # each is one watch: lines to send (bytes), floats to sleep
    logs: dict[str, str] = field(default_factory=dict)
    open_watches: int = 0
    on_delete: Callable[[str, dict[str, Any], dict[str, Any]], bool] | None = None  # plural, object, options → whether it took care of it
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    def put(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        """As if the cluster had created or changed it."""
        self.version += 1
        name = obj["metadata"]["name"]
        kind = "MODIFIED" if (plural, name) in self.objects else "ADDED"
        obj = json.loads(json.dumps(obj))
        obj["metadata"].setdefault("uid", f"uid-{plural}-{name}-{self.version}")
        obj["metadata"].setdefault("labels", {})
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[plural, name] = obj
        self.history.append((self.version, plural, kind, obj))
        asyncio.get_running_loop().create_task(self._tell())
        return obj

    def remove(self, plural: str, name: str) -> None:
        self.version += 1
        obj = self.objects.pop((plural, name))
        self.history.append(
            (self.version, plural, "DELETED", {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}})
        )
        asyncio.get_running_loop().create_task(self._tell())

    def seen(self, method: str, ending: str = "") -> list[web.Request]:
        return [request for request in self.requests if request.method == method and request.path.endswith(ending)]

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        text = await request.text()
        self.bodies.append(json.loads(text) if text else None)
        if self.answers:
            answer = self.answers.pop(0)(request)
            if answer == "drop":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if answer is not None:
                return answer  # type: ignore[no-any-return]
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
        parts = request.path.strip("/").split("/")
        parts = parts[parts.index("namespaces") + 2 :] if "namespaces" in parts else parts[2 if parts[0] == "api" else 3 :]
        if not parts:  # a namespace itself
            name = request.path.rpartition("/")[2]
            known = web.json_response({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
            return known if name == "bench" else failed(404, "NotFound", f'namespaces "{name}" not found')
        plural, name, sub = (*parts, None, None)[:3]
        if sub == "log":
            return web.Response(text=self.logs[name or ""]) if name in self.logs else failed(404, "NotFound", f'pods "{name}" not found')
        if request.query.get("watch") == "true":
            return await self._watch(request, plural or "")
        method: dict[str, Callable[..., web.Response]] = {
            "GET": self._get,
            "POST": self._post,
            "DELETE": self._delete,
            "PATCH": self._patch,
        }
        return method[request.method](request, plural, name, self.bodies[-1])

    def _get(self, request: web.Request, plural: str, name: str | None, body: Any) -> web.Response:
        if name is not None:
            found = self.objects.get((plural, name))
            return web.json_response(found) if found else failed(404, "NotFound", f'{plural} "{name}" not found')
        items = [obj for (kind, _), obj in sorted(self.objects.items()) if kind == plural and _matches(obj, request)]
        start, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "0")) or len(items) or 1
        metadata = {"resourceVersion": str(self.version), **({"continue": str(start + limit)} if start + limit < len(items) else {})}
        bare = [{key: value for key, value in obj.items() if key not in ("apiVersion", "kind")} for obj in items[start : start + limit]]
        return web.json_response({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": bare})

    def _post(self, request: web.Request, plural: str, name: None, body: Any) -> web.Response:
        if plural == "selfsubjectaccessreviews":
            return web.json_response({**body, "status": {"allowed": True}}, status=201)
        if request.query.get("dryRun") == "All":
            return web.json_response(body, status=201)
        if (plural, body["metadata"]["name"]) in self.objects:
            return failed(409, "AlreadyExists", f'{plural} "{body["metadata"]["name"]}" already exists')
        return web.json_response(self.put(plural, body), status=201)

    def _delete(self, request: web.Request, plural: str, name: str, body: Any) -> web.Response:
        found = self.objects.get((plural, name))
        if found is None:
            return failed(404, "NotFound", f'{plural} "{name}" not found')
        wanted = ((body or {}).get("preconditions") or {}).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            return failed(409, "Conflict", "the UID in the precondition does not match")
        if self.on_delete is None or not self.on_delete(plural, found, body or {}):
            self.remove(plural, name)
        return web.json_response({"kind": "Status", "status": "Success"})

    def _patch(self, request: web.Request, plural: str, name: str, body: Any) -> web.Response:
        found = self.objects.get((plural, name))
        if found is None:
            return failed(404, "NotFound", f'{plural} "{name}" not found')
        for part, change in body.items():
            found[part] = {**found.get(part, {}), **change}
        return web.json_response(self.put(plural, found))

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            return failed(410, "Expired", f"too old resource version: {since} ({self.oldest})")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if self.scripts:
            for step in self.scripts.pop(0):
                await asyncio.sleep(step) if isinstance(step, float) else await response.write(step)
            return response
        self.open_watches += 1
        try:
            while True:
                news = [entry for entry in self.history if entry[0] > since]
                for version, kind, change, obj in news:
                    since = version
                    if kind == plural and _matches(obj, request):
                        await response.write(line(change, obj))
                async with self._news:
                    await asyncio.wait_for(self._news.wait_for(lambda: self.version > since), 60)  # noqa: B023
        except (TimeoutError, ConnectionError):
            return response
        finally:
            self.open_watches -= 1


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}})


def failed(status: int, reason: str, message: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": status}
    return web.json_response(body, status=status, headers=headers)


def _matches(obj: dict[str, Any], request: web.Request) -> bool:
    labels = obj["metadata"].get("labels") or {}
    wanted = [part.split("=", 1) for part in request.query.get("labelSelector", "").split(",") if part]
    fields = request.query.get("fieldSelector", "")
    about = (obj.get("involvedObject") or {}).get("uid")
    return all(labels.get(key) == value for key, value in wanted) and fields in ("", f"involvedObject.uid={about}")


class Pods:
    """Plays Job controller and kubelet: one pod for each Job that comes, in the states that the test gives, one after the other."""

    def __init__(self, server: Server, *states: dict[str, Any], stuck: bool = False) -> None:
        self.server = server
        self.states = list(states)
        self.stuck = stuck  # its node is gone: only force removes it
        self.forced: list[str] = []
        server.on_delete = self._deleted
        self._task = asyncio.get_running_loop().create_task(self._play())

    async def _play(self) -> None:
        known: set[str] = set()
        while True:
            for (plural, name), job in list(self.server.objects.items()):
                if plural == "jobs" and job["metadata"]["uid"] not in known:
                    known.add(job["metadata"]["uid"])
                    for state in self.states:
                        if ("jobs", name) in self.server.objects:
                            self.show(name, state)
                        await asyncio.sleep(0.03)
            await asyncio.sleep(0.005)

    def show(self, job_name: str, state: dict[str, Any]) -> None:
        job = self.server.objects["jobs", job_name]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_name, "uid": job["metadata"]["uid"]}
        labels = job["spec"]["template"]["metadata"]["labels"]
        name = f"{job_name}-x7k2p"
        metadata = {**state["metadata"], "name": name, "uid": f"pod-of-{owner['uid']}", "labels": labels, "ownerReferences": [owner]}
        self.server.put("pods", {**state, "metadata": metadata})
        self.server.logs.setdefault(name, "")

    def _deleted(self, plural: str, obj: dict[str, Any], options: dict[str, Any]) -> bool:
        loop = asyncio.get_running_loop()
        name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
        if plural == "pods":
            if options.get("gracePeriodSeconds") == 0:
                self.forced.append(name)
                return False
            return self.stuck
        if plural != "jobs":
            return False
        mine = [
            key[1] for key, pod in self.server.objects.items() if key[0] == "pods" and pod["metadata"]["ownerReferences"][0]["uid"] == uid
        ]
        if not mine:
            return False
        for pod in mine:
            if not self.stuck:
                loop.call_later(0.05, lambda pod=pod: self.server.objects.get(("pods", pod)) and self.server.remove("pods", pod))
        self.server.put("jobs", {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-11-30T12:00:00Z"}})
        self._wait_for(mine, name)
        return True

    def _wait_for(self, pods: list[str], job: str) -> None:
        if any(("pods", pod) in self.server.objects for pod in pods):
            asyncio.get_running_loop().call_later(0.01, self._wait_for, pods, job)
        elif ("jobs", job) in self.server.objects:
            self.server.remove("jobs", job)

    async def stop(self) -> None:
        self._task.cancel()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def access(url: str, token: str = "secret-token") -> Access:
    configuration = Configuration()
    configuration.host = url
    configuration.api_key["BearerToken"] = f"Bearer {token}"
    return Access(configuration, "test", "bench")


@asynccontextmanager
async def connected(manners: Manners = FAST) -> AsyncIterator[tuple[Server, Api]]:
    async with serving() as server, Transport(access(server.url), manners=manners) as transport:
        yield server, Api(transport, "bench")
