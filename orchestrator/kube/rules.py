"""Why a point cannot run on Kubernetes, as rules of the grid: told in the plan, before a cluster is asked for anything.

What they say follows from the cluster, the engine and the target alone, and a grid's points share those mappings by the thousand: each
combination is looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.settings import Settings, need_of, pod_of
from specsweep.orchestrator.kube.specs import image_of

Config = Mapping[str, Any]


def has_an_image(config: Config) -> str | None:
    return _found(config).image


def pod_is_right(config: Config) -> str | None:
    return _found(config).pod


def gpus_fit_the_limit(config: Config) -> str | None:
    """What is more than the limit could only ever run against the will of whoever set it."""
    return _found(config).gpus


@dataclass(frozen=True, slots=True)
class _Reasons:
    image: str | None = None
    pod: str | None = None
    gpus: str | None = None


_NONE = _Reasons()


class _Same:
    """A mapping as a key: the very same one. It is never changed, and the cache that has the key keeps it."""

    __slots__ = ("value",)

    def __init__(self, value: Config) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


def _found(config: Config) -> _Reasons:
    if config["cluster"]["kind"] != "kubernetes":
        return _NONE
    return _judged(_Same(config["cluster"]), _Same(config["engine"]), _Same(config["target"]))


@lru_cache(maxsize=1024)
def _judged(cluster: _Same, engine: _Same, target: _Same) -> _Reasons:
    config = {"cluster": cluster.value, "engine": engine.value, "target": target.value}
    return _Reasons(*(_said(check, config) for check in (_image, _pod, _gpus)))


def _said(check: Any, config: Config) -> str | None:
    try:
        return check(config)  # type: ignore[no-any-return]
    except ConfigError as error:
        return error.message


def _image(config: Config) -> None:
    image_of(config, Settings.of(config))


def _pod(config: Config) -> None:
    pod_of(config)


def _gpus(config: Config) -> str | None:
    if not config["cluster"].get("gpu_limits") or _said(_pod, config) is not None:  # the rule above says it
        return None
    need = need_of(config)
    limit = Settings.of(config).gpu_limits.get(need.product)
    if limit is None or need.gpus <= limit:
        return None
    return (
        f"target {config['target']['name']} takes {need.gpus} GPUs of {need.product}, and cluster.gpu_limits.{need.product}={limit}: it can "
        "never start; raise the limit, or give it fewer GPUs (target.gpus)"
    )
