"""What a pod of a sweep says: which pod is meant, and its log, followed across lost connections. Secrets are hidden as in evidence.

A log that is followed is asked for with times. A connection to the API server lasts minutes, not days: after its end it is asked again
from the second of the last line, and the lines that were shown already are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from specsweep.k8s import names
from specsweep.k8s.merge import MAIN
from specsweep.k8s.pods import Terminated, newest_last, read_pod, read_time
from specsweep.k8s.redaction import redacted
from specsweep.k8s.resources import PODS, Request
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.resumption import not_there, sweeps_there

if TYPE_CHECKING:
    from specsweep.k8s.api import Api

Json = Mapping[str, Any]
PAUSE_S = 1.0
SILENCE_S = 3600.0  # a pod may have nothing to say for long


async def pod_of(api: Api, sweep: str, *, session: str | None = None, engine: str | None = None) -> str:
    """The pod of the sweep itself, or of one of its engines: ``session`` begins as its id does, ``engine`` as its name does.

    Raises ConfigError that names what there is.
    """
    pods, _ = await api.find(PODS, selector=names.selector({names.MANAGED_BY: names.APP, names.SWEEP: names.label_value(sweep)}))
    chosen = [pod for pod in pods if _is_meant(pod, session, engine)]
    if chosen:
        return str(max(chosen, key=newest_last)["metadata"]["name"])
    if not pods and sweep not in await sweeps_there(api):
        raise ConfigError(await not_there(api, sweep))
    if session is None and engine is None:
        raise ConfigError(
            f"sweep {sweep} has no pod in namespace {api.namespace}; "
            f"`specsweep status {sweep} cluster=kubernetes cluster.namespace={api.namespace}` says why"
        )
    wanted = f"session={session}" if session is not None else f"engine={engine}"
    engines = [
        f"{pod['metadata']['name']} (session {names.label_of(pod, names.SESSION)})"
        for pod in pods
        if names.label_of(pod, names.COMPONENT) == "engine"
    ]
    raise ConfigError(
        f"{wanted}: no engine of sweep {sweep} runs under that name; there is {', '.join(engines) or 'none'}. "
        f"Logs of engines that ended are in the store: sweeps/{sweep}/logs/, and beside each failed point"
    )


def _is_meant(pod: Json, session: str | None, engine: str | None) -> bool:
    if session is None and engine is None:
        return names.label_of(pod, names.COMPONENT) == "sweep"
    its = names.label_of(pod, names.SESSION)
    by_session = session is None or (bool(its) and (its.startswith(session) or session.startswith(its)))
    return (
        names.label_of(pod, names.COMPONENT) == "engine"
        and by_session
        and (engine is None or str(pod["metadata"]["name"]).startswith(engine))
    )


async def follow(api: Api, pod: str, show: Callable[[str], None], *, lines: int | None = None) -> None:
    """Shows each line as it comes, until the program has ended. Waits for one that has not started."""
    from specsweep.k8s.errors import ApiError, NotFound
    from specsweep.k8s.transport import LOST

    last, since, seen = "", "", False
    while True:
        query = {"container": MAIN, "follow": "true", "timestamps": "true", **({"sinceTime": since} if since else {})}
        if lines is not None and not seen:
            query["tailLines"] = str(lines)
        over = await _is_over(api, pod)
        try:
            async with api.transport.stream(
                Request("get", PODS, api.namespace, pod, "log", query), silence_s=SILENCE_S, total_s=SILENCE_S
            ) as stream:
                async for raw in stream:
                    time, _, text = raw.decode(errors="replace").rstrip("\n").partition(" ")
                    if time > last:
                        last, since, seen = time, _second(time), True
                        show(redacted(text))
        except NotFound:
            return
        except ApiError as error:
            if error.status != 400:  # not started yet
                raise
        except (*LOST, ValueError):  # a line that is longer than any buffer
            over = False
        if over:
            return
        await asyncio.sleep(PAUSE_S)


async def _is_over(api: Api, pod: str) -> bool:
    """Whether there is nothing more to come. Asked before the log is, so that none of it is missed."""
    found = read_pod(await api.get(PODS, pod))
    container = found.container(MAIN)
    return found.phase in ("Succeeded", "Failed") or (container is not None and isinstance(container.state, Terminated))


def _second(time: str) -> str:
    found = read_time(time[:19] + "Z")
    return time[:19] + "Z" if found is not None else ""
