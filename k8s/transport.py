"""One request to the API server and its answer, with the manners that a server of many clients asks for.

Every call has a timeout. What may heal is asked again with a growing pause and jitter: 429 (no earlier than ``Retry-After`` says),
5xx, a lost connection, no answer, a refusal that is not to be believed (:mod:`specsweep.k8s.grants`); for as long as ``patience_s``,
which is to outlive a restart of the API server. That is safe for every verb here: a create that was done and whose answer got lost
meets itself as 409, a delete as 404.

The official client does what is tedious (TLS, proxies, tokens that are renewed); requests and answers are JSON. Answers carry the
server's time, which :meth:`Transport.now` keeps: deadlines of pods are on the cluster's clock, not on this machine's.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient

from specsweep.k8s.answers import RETRIED, error_of, retry_after_s
from specsweep.k8s.config import Access
from specsweep.k8s.errors import AccessError, ApiError, Unauthorized, Unreachable
from specsweep.k8s.grants import Grants
from specsweep.k8s.resources import Request

USER_AGENT = "specsweep"
CLOCK_STEP = timedelta(seconds=2)
LOST = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Manners:
    timeout_s: float = 30.0  # of one attempt
    patience_s: float = 180.0  # of all attempts
    first_pause_s: float = 0.25
    longest_pause_s: float = 10.0
    doubt_s: float = 30.0  # after it was away, or granted the same before, a refusal is not believed for that long

    def pause_s(self, attempt: int) -> float:
        """Before the attempt after ``attempt`` failed ones: doubled each time, between half and all of it."""
        return random.uniform(0.5, 1.0) * min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(attempt, 30))


class Transport:
    """Use as a context manager. ``renew``: gives fresh credentials after a 401 (exec plugins' tokens run out), once per request."""

    def __init__(self, access: Access, *, manners: Manners | None = None, renew: Callable[[], Awaitable[Access]] | None = None) -> None:
        self.manners = manners or Manners()
        self.calls = 0  # attempts made, for whoever wants to know what a sweep costs the API server
        self._client = _client(access)
        self._renew = renew
        self._offset = timedelta()
        self._grants = Grants(self.manners.doubt_s)

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.close()

    def now(self) -> datetime:
        """The cluster's time, to a second."""
        return datetime.now(UTC) + self._offset

    async def call(self, request: Request, *, patience_s: float | None = None) -> Any:
        """The answer's JSON. Raises the ApiError that it means, Unreachable if there was none in all the time."""
        return json.loads(await self.call_text(request, patience_s=patience_s))

    async def call_text(self, request: Request, *, patience_s: float | None = None) -> bytes:
        loop = asyncio.get_running_loop()
        patience = self.manners.patience_s if patience_s is None else patience_s
        deadline = loop.time() + patience
        renewed = False
        attempt = 0
        while True:
            wait_s = 0.0
            error: ApiError
            try:
                status, headers, body = await self._attempt(request)
            except LOST as lost:
                self._grants.away(loop.time())
                error = _unreachable(request, lost)
            else:
                if 200 <= status < 300:
                    self._grants.granted(request.right)
                    return body
                error = error_of(status, body, request)
                if isinstance(error, Unauthorized) and not renewed and await self._renewed():
                    renewed = True
                    continue
                if status not in RETRIED and not self._grants.doubts(error, request.right, loop.time()):
                    raise error
                wait_s = retry_after_s(headers)
            pause = max(wait_s, self.manners.pause_s(attempt))
            attempt += 1
            if loop.time() + pause > deadline:
                raise error if error.status else Unreachable(f"{error.message}; asked {attempt} times within {patience:.0f} s")
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(self, request: Request, *, silence_s: float, total_s: float) -> AsyncIterator[aiohttp.StreamReader]:
        """An answer that goes on (a watch). Ends with LOST errors if nothing comes for ``silence_s``, or after ``total_s``."""
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=self.manners.timeout_s, sock_read=silence_s)
        loop = asyncio.get_running_loop()
        try:
            response = await self._send(request, timeout)
        except aiohttp.ClientConnectorCertificateError as refused:
            raise _not_trusted(refused) from refused
        except LOST:
            self._grants.away(loop.time())
            raise
        try:
            if response.status != 200:
                error = error_of(response.status, await response.read(), request)
                if isinstance(error, Unauthorized) and await self._renewed():
                    raise aiohttp.ClientError("credentials were renewed")
                if self._grants.doubts(error, request.right, loop.time()):
                    raise aiohttp.ClientError(f"a refusal that is not believed: {error.message}")
                raise error
            self._grants.granted(request.right)
            try:
                yield response.content
            except LOST:
                self._grants.away(loop.time())
                raise
        finally:
            response.close()  # not released: what is left of the stream is not wanted

    async def _attempt(self, request: Request) -> tuple[int, Mapping[str, str], bytes]:
        timeout = aiohttp.ClientTimeout(total=self.manners.timeout_s)
        try:
            response = await self._send(request, timeout)
            body = await response.read()
        except aiohttp.ClientConnectorCertificateError as refused:
            raise _not_trusted(refused) from refused
        with suppress(KeyError, ValueError, TypeError):
            self._set_clock(parsedate_to_datetime(response.headers["Date"]))
        return response.status, response.headers, body

    def _set_clock(self, date: datetime) -> None:
        # Whole seconds, cut off. A clock that jumped with each answer would be worse than one that is a second wrong.
        offset = date + timedelta(seconds=0.5) - datetime.now(UTC)
        if abs(offset - self._offset) > CLOCK_STEP:
            self._offset = offset

    async def _send(self, request: Request, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        self.calls += 1
        method, url, headers, body, _ = await self._client.param_serialize(
            request.method,
            request.path,
            query_params=list(request.query.items()),
            header_params={"Accept": request.accept, "Content-Type": request.content_type},
            body=dict(request.body) if request.body is not None else None,
            auth_settings=["BearerToken"],
        )
        response = await self._client.call_api(method, url, headers, body, _request_timeout=timeout)
        found: aiohttp.ClientResponse = response.response
        return found

    async def _renewed(self) -> bool:
        if self._renew is None:
            return False
        old, self._client = self._client, _client(await self._renew())
        # Requests that are under way on the old one end with a lost connection, and are asked again.
        await old.close()
        return True


def _client(access: Access) -> Any:
    client: Any = ApiClient(access.configuration)
    client.user_agent = USER_AGENT
    return client


def _unreachable(request: Request, lost: BaseException) -> Unreachable:
    what = str(lost) or type(lost).__name__
    return Unreachable(f"the API server does not answer ({request}): {what}; look at: kubectl cluster-info")


def _not_trusted(error: aiohttp.ClientConnectorCertificateError) -> AccessError:
    return AccessError(f"the API server's certificate is not accepted: {error}; look at certificate-authority in the kubeconfig")
