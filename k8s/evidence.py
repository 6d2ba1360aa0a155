"""What can be known of a server that failed, taken before anything of it is deleted: texts by file name, to be kept with the result.

Taking it must not fail where the cluster fails: what cannot be read is said instead. Each text is bounded (a log by its end, where
the reason is), and none holds a secret (:mod:`specsweep.k8s.redaction`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specsweep.k8s.api import Api
from specsweep.k8s.errors import AccessError, ApiError, NotFound
from specsweep.k8s.merge import MAIN
from specsweep.k8s.pods import read_event, read_pod
from specsweep.k8s.redaction import redacted, redacted_object

MAX_TEXT = 400_000  # characters of one text
LOG_LINES = 2000


async def gather(
    api: Api, *, pod: Mapping[str, Any] | None, job: Mapping[str, Any] | None, events: Sequence[Mapping[str, Any]], main: str = MAIN
) -> dict[str, str]:
    """``pod.json``, ``job.json``, ``events.txt``, ``log.txt``, ``previous-log.txt`` and ``where.json``, as far as there is anything."""
    texts: dict[str, str] = {}
    if job is not None:
        texts["job.json"] = _json(job)
    texts["events.txt"] = events_text(events)
    if pod is not None:
        texts["pod.json"] = _json(pod)
        texts["where.json"] = _json(where(pod, main))
        name = pod["metadata"]["name"]
        texts["log.txt"] = await last_lines(api, name, main)
        if (container := read_pod(pod).container(main)) is not None and container.restarts:
            texts["previous-log.txt"] = await last_lines(api, name, main, previous=True)
    return {name: _bounded(redacted(text)) for name, text in texts.items() if text}


async def last_lines(api: Api, pod: str, container: str = MAIN, *, previous: bool = False, lines: int = LOG_LINES) -> str:
    """The end of a log, or in brackets why there is none."""
    try:
        return redacted(await api.log(pod, container, previous=previous, lines=lines))
    except NotFound:
        return "(no log: the pod is gone)"
    except (ApiError, AccessError) as error:  # 400 before the container was started, 500 when its node is away
        return f"(no log: {error.message})"


def where(pod: Mapping[str, Any], main: str = MAIN) -> dict[str, str]:
    """Where it ran and what, for the environment of a result: pod, node, image reference and digest."""
    found = read_pod(pod)
    container = found.container(main)
    return {
        "pod": found.name,
        "node": found.node,
        "image_id": container.image_id if container else "",
        "image_digest": image_digest(pod, main),
    }


def image_digest(pod: Mapping[str, Any], main: str = MAIN) -> str:
    """``sha256:…`` of the image that runs, whatever its tag pointed to; empty if the kubelet has not told."""
    container = read_pod(pod).container(main)
    reference = container.image_id if container else ""
    return reference[at:] if (at := reference.find("sha256:")) >= 0 else ""


def events_text(events: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for event in map(read_event, events):
        time = event.last.strftime("%Y-%m-%d %H:%M:%S") if event.last else "?"
        times = f" (× {event.count})" if event.count > 1 else ""
        lines.append(f"{time} {event.kind} {event.reason}{times}: {event.message}")
    return "\n".join(lines)


def _json(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    if isinstance(metadata, Mapping):
        obj = {**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}
    return json.dumps(redacted_object(obj), indent=1, sort_keys=True)


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"(… {len(text) - MAX_TEXT} characters before)\n{text[-MAX_TEXT:]}"
