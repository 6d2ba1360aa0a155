"""The few things that are done with objects, each with what can come between.

Creating is idempotent: names follow from what is wanted, so a 409 usually means that we were here before (a retry, or another life
of the same sweep). What carries our labels and the same content is adopted, and given to the present owner. What carries our labels
and other content is from other settings (Outdated): the caller decides. What is not ours is left alone, and named.

Deleting waits until the object is gone, dependents first: as long as a Job stands, its pods hold GPUs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from specsweep.k8s.config import Access, find_access
from specsweep.k8s.errors import Conflict, Expired, NotFound, Outdated
from specsweep.k8s.manifests import content_of
from specsweep.k8s.names import carries
from specsweep.k8s.resources import EVENTS, JOBS, MERGE_PATCH, METADATA_ONLY, PODS, Request, Resource, Verb, resource_of
from specsweep.k8s.transport import Manners, Transport

FIELD_MANAGER = "specsweep"
PAGE = 500
CREATE_TRIES = 4
LOG_BYTES = 2_000_000
LOG_PATIENCE_S = 10.0  # it comes from the node, and a node that is gone does not come back for being asked
GONE_FIRST_S, GONE_LONGEST_S = 0.1, 3.0  # how often is looked whether an object is gone


class Api:
    """The objects of one namespace."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.transport = transport
        self.namespace = namespace

    @staticmethod
    @asynccontextmanager
    async def connect(
        *, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None, manners: Manners | None = None
    ) -> AsyncIterator[Api]:
        """Raises AccessError if there is no way to a cluster. Nothing is sent yet."""

        async def log_in() -> Access:
            return await find_access(kubeconfig=kubeconfig, context=context, namespace=namespace)

        access = await log_in()
        async with Transport(access, manners=manners, renew=log_in) as transport:
            yield Api(transport, access.namespace)

    def now(self) -> datetime:
        """The cluster's time."""
        return self.transport.now()

    async def get(self, resource: Resource, name: str) -> dict[str, Any]:
        return dict(await self.transport.call(self._request("get", resource, name)))

    async def exists(self, resource: Resource, name: str) -> bool:
        """Asks for the metadata only: the values of a Secret are not read."""
        try:
            await self.transport.call(Request("get", resource, self.namespace, name, accept=METADATA_ONLY))
        except NotFound:
            return False
        return True

    async def find(self, resource: Resource, *, selector: str = "", fields: str = "") -> tuple[list[dict[str, Any]], str]:
        """All that match, and the version of the list, to watch from there."""
        query = {"limit": str(PAGE), **({"labelSelector": selector} if selector else {}), **({"fieldSelector": fields} if fields else {})}
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            try:
                page = await self.transport.call(self._request("list", resource, query={**query, **({"continue": token} if token else {})}))
            except Expired:  # the rest of the list is of a version that is not kept any more
                items, token = [], ""
                query.pop("limit", None)
                continue
            # Items of a list come without the kind that the list as a whole has.
            items += [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in page.get("items") or ()]
            token = page["metadata"].get("continue") or ""
            if not token:
                return items, page["metadata"].get("resourceVersion", "")

    async def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """As the server has it. ``dry_run``: everything is checked, admission included, and nothing is kept.

        A field that the server does not know (misspelt in a user's template) is refused; by itself the server would drop it.
        """
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return dict(await self.transport.call(self._request("create", resource_of(obj), query=query, body=obj)))

    async def create_or_adopt(self, obj: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The object on the server, and whether it was there before.

        Raises Conflict for one that is not ours, Outdated for one of ours with other content. One that is being deleted is waited for.
        """
        resource, name = resource_of(obj), obj["metadata"]["name"]
        for _ in range(CREATE_TRIES):
            try:
                return await self.create(obj), False
            except Conflict as error:
                if error.reason != "AlreadyExists":
                    raise
            try:
                found = await self.get(resource, name)
            except NotFound:
                continue
            if found["metadata"].get("deletionTimestamp"):
                await self.gone(resource, name, uid=found["metadata"]["uid"], within_s=self.transport.manners.patience_s)
                continue
            return await self._adopted(resource, obj, found), True
        raise Conflict(f"{resource.full_name} {name} in namespace {self.namespace} comes and goes while we create it: who else makes it?")

    async def _adopted(self, resource: Resource, wanted: Mapping[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        name, ours = wanted["metadata"]["name"], wanted["metadata"].get("labels") or {}
        labels = found["metadata"].get("labels") or {}
        where = f"{resource.full_name} {name} in namespace {self.namespace}"
        if not carries(labels, ours):
            raise Conflict(
                f"{where} exists and is not ours (its labels: {labels or 'none'}); rename the sweep, or delete it: kubectl delete {resource.plural} {name}",
                status=409,
                reason="AlreadyExists",
            )
        if content_of(found) != content_of(wanted):
            raise Outdated(f"{where} is ours, but was made with other settings", status=409, reason="AlreadyExists")
        owners = wanted["metadata"].get("ownerReferences")
        if owners and found["metadata"].get("ownerReferences") != owners:
            return await self.patch(resource, name, {"metadata": {"ownerReferences": owners}})
        return found

    async def patch(self, resource: Resource, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch: objects field by field, lists as a whole, null removes."""
        request = self._request("patch", resource, name, query={"fieldManager": FIELD_MANAGER}, body=change, content_type=MERGE_PATCH)
        return dict(await self.transport.call(request))

    async def delete(self, resource: Resource, name: str, *, uid: str | None = None, grace_s: int | None = None) -> None:
        """Asks for the end of an object and of what it owns; returns at once. One that is not there, or is another by now, is fine."""
        # A Job is to stay until its pods are gone. What a Service owns (its EndpointSlices) nobody needs to wait for.
        policy = "Foreground" if resource is JOBS else "Background"
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            await self.transport.call(self._request("delete", resource, name, body=body))
        except NotFound:
            return
        except Conflict:
            if uid is None:
                raise

    async def gone(self, resource: Resource, name: str, *, uid: str | None = None, within_s: float) -> None:
        """Returns when the object (of that uid) is gone. Raises TimeoutError that says what still holds it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        pause = GONE_FIRST_S
        while True:
            try:
                found = await self.get(resource, name)
            except NotFound:
                return
            if uid is not None and found["metadata"].get("uid") != uid:
                return
            if loop.time() + pause > deadline:
                holds = found["metadata"].get("finalizers") or "no finalizer"
                raise TimeoutError(f"{resource.full_name} {name} is still there after {within_s:.0f} s (held by {holds})")
            await asyncio.sleep(pause)
            pause = min(GONE_LONGEST_S, pause * 2)

    async def log(self, pod: str, container: str, *, previous: bool = False, lines: int | None = None) -> str:
        """The end of a container's log; empty if there is none (not started yet, or the node is gone)."""
        query = {"container": container, "limitBytes": str(LOG_BYTES), **({"previous": "true"} if previous else {})}
        # limitBytes alone would cut the end off, and the end is what says why.
        query["tailLines"] = str(lines if lines is not None else LOG_BYTES // 200)
        request = Request("get", PODS, self.namespace, pod, "log", query)
        return (await self.transport.call_text(request, patience_s=LOG_PATIENCE_S)).decode(errors="replace")

    async def events(self, *uids: str) -> list[dict[str, Any]]:
        """Events about the objects of these uids, the oldest first."""
        found: list[dict[str, Any]] = []
        for uid in uids:
            found += (await self.find(EVENTS, fields=f"involvedObject.uid={uid}"))[0]
        return sorted(
            found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")
        )

    def _request(
        self,
        verb: Verb,
        resource: Resource,
        name: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Request:
        return Request(verb, resource, self.namespace, name, None, query or {}, body, content_type)
