"""One Job of the fleet and its pod, with what they mean within given budgets.

Events are asked for only while nothing runs, and the log only where the verdict depends on it: a server that is measured costs the
API server nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from specsweep.k8s.ends import LogCause
from specsweep.k8s.errors import ApiError, StartRetryable, StartTerminal
from specsweep.k8s.evidence import gather, last_lines
from specsweep.k8s.fleet import Fleet
from specsweep.k8s.merge import MAIN
from specsweep.k8s.outcomes import Retryable, Starting, Terminal, Verdict
from specsweep.k8s.pods import Running, read_pod
from specsweep.k8s.verdict import Budgets, judge, wants_log

Classify = Callable[[str], LogCause | None]
Json = Mapping[str, Any]


class Watched:
    """``job``: as the API returned it. It is told from another one by that name by its uid.

    ``ran``: its pod was ready. One that is gone is then judged by how it was last seen; before that, another may come.
    """

    def __init__(self, fleet: Fleet, job: Json, budgets: Budgets, classify: Classify, *, ran: bool = False) -> None:
        self.api = fleet.api
        self.fleet = fleet
        self.name: str = job["metadata"]["name"]
        self._uid: str = job["metadata"]["uid"]
        self._budgets = budgets
        self._classify = classify
        self._ran = ran
        self._judged: tuple[object, object] | None = None  # what the last full verdict was about

    def verdict(self, events: list[dict[str, Any]] | None = None, log: str = "") -> Verdict:
        """From what the watches show at this moment."""
        return self._judge(self.picture(), events or [], log)

    async def full_verdict(self) -> tuple[Verdict, Json | None]:
        """With events as long as nothing runs, and with the log once it has ended or is too late. And the pod that it is about."""
        pod, job = self.picture()
        self._judged = _versions(pod, job)
        events = [] if _runs(pod) else await self._events(pod)
        verdict = self._judge((pod, job), events, "")
        if pod is not None and (wants_log(pod) or isinstance(verdict, Terminal)):
            log = await last_lines(self.api, pod["metadata"]["name"])
            events = events or await self._events(pod)
            verdict = self._judge((pod, job), events, log)
        return verdict, pod

    async def evidence(self) -> dict[str, str]:
        pod, job = self.picture()
        try:
            events = await self._events(pod)
        except ApiError:
            events = []
        return await gather(self.api, pod=pod, job=job, events=events)

    def _judge(self, picture: tuple[Json | None, Json | None], events: list[dict[str, Any]], log: str) -> Verdict:
        pod, job = picture
        return judge(pod, job, events, now=self.api.now(), budgets=self._budgets, log=log, classify=self._classify)

    def picture(self) -> tuple[Json | None, Json | None]:
        pod, job = self.fleet.picture(self.name, self._uid)
        return (self.fleet.departed(self._uid) if pod is None and self._ran else pod), job

    async def _events(self, pod: Json | None) -> list[dict[str, Any]]:
        return await self.api.events(self._uid, *([pod["metadata"]["uid"]] if pod is not None else []))

    async def failure(self, verdict: Retryable | Terminal) -> StartRetryable | StartTerminal:
        """The error for that end, with evidence."""
        text, evidence = f"{self.name}: {verdict.reason}", await self.evidence()
        if isinstance(verdict, Terminal):
            return StartTerminal(text, kind=verdict.kind, evidence=evidence)
        return StartRetryable(text, kind=verdict.kind, once=verdict.once, evidence=evidence)

    async def wait(self, versions: tuple[int, int], verdict: Verdict, look_s: float) -> float:
        """Until its own objects changed after ``versions``, a deadline of ``verdict`` is over, or for ``look_s``. Returns how long to look next.

        Changes of others are slept through: if each of many runs asked the API server at each change of all, that would be their square.
        """
        loop = asyncio.get_running_loop()
        pace = self.fleet.pace
        wait_s = look_s
        if isinstance(verdict, Starting) and verdict.until is not None:
            wait_s = min(look_s, max(pace.first_look_s, (verdict.until - self.api.now()).total_seconds()))
        deadline = loop.time() + wait_s
        while (left_s := deadline - loop.time()) > 0:
            versions = await self.fleet.changed(versions, left_s)
            if _versions(*self.picture()) != self._judged:
                return pace.first_look_s
        return min(pace.longest_look_s, look_s * 1.5)


def _versions(pod: Json | None, job: Json | None) -> tuple[object, object]:
    return pod and (pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]), job and job["metadata"]["resourceVersion"]


def _runs(pod: Json | None) -> bool:
    container = read_pod(pod).container(MAIN) if pod is not None else None
    return container is not None and isinstance(container.state, Running)
