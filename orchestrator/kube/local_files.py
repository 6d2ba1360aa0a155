"""What a sweep's words name on this machine that its pods will not see: told when it is handed over, not by a pod that fails minutes later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.settings import Settings

LOOPBACK = ("localhost", "127.0.0.1", "::1")
TIERS = ("low_entropy", "mixed", "high_entropy", "random", "tasks", "mini/qualitative")  # of workload.corpus, which come with the image


def only_here(configs: Iterable[Mapping[str, Any]], settings: Settings) -> list[str]:
    """One line for each file of this machine that sessions with these configs read, in the order in which they are met."""
    found: dict[str, None] = {}
    for config in configs:
        for key, path in _files(config):
            if not _is_on_a_volume(path, settings):
                found[f"{key}={path} is on this machine: pods see volumes only ({_volumes(settings)})"] = None
        for role in ("target", "drafter"):
            if (config[role].get("model") or {}).get("source") == "package_data":
                name = config[role]["name"]
                found[f"{role} {name} is part of specsweep's source tree: an image that is built from the Dockerfile does not have it"] = (
                    None
                )
    return list(found)


def check_tracking(uri: str, settings: Settings) -> str | None:
    """What is to be said of ``tracking.uri``. Raises ConfigError for a database that no pod can open."""
    if uri.startswith("sqlite:///"):
        path = uri.removeprefix("sqlite:///").partition("?")[0]
        if not _is_on_a_volume(path, settings):
            raise ConfigError(
                f"tracking.uri={uri}: that database is on this machine, and pods see volumes only ({_volumes(settings)}); name a server "
                "(tracking.uri=http://SERVICE:5000), or leave it out: the database then lies with the results"
            )
    elif urlsplit(uri).hostname in LOOPBACK:
        return f"tracking.uri={uri} is this machine; name the server as pods see it: tracking.uri=http://SERVICE:5000"
    return None


def _files(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for role in ("target", "drafter"):
        model = config[role].get("model") or {}
        for name in ("path", "tokenizer"):
            if model.get(name):
                yield f"{role}.model.{name}", str(model[name])
    corpus = config["workload"].get("corpus")
    if corpus and corpus not in TIERS:
        yield "workload.corpus", str(corpus)


def _is_on_a_volume(path: str, settings: Settings) -> bool:
    mounts = [PurePosixPath(volume.path) for volume in (settings.results, settings.weights) if volume is not None]
    place = PurePosixPath(Path(path).expanduser())
    return any(mount == place or mount in place.parents for mount in mounts)


def _volumes(settings: Settings) -> str:
    named = {"cluster.results.path": settings.results, "cluster.weights.path": settings.weights}
    return (
        ", ".join(f"{key}={volume.path}" for key, volume in named.items() if volume is not None) or "and none is set: cluster.weights.claim"
    )
