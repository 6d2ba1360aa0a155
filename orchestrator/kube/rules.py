"""Why a point cannot run on Kubernetes, as rules of the grid: told in the plan, before a cluster is asked for anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.settings import Settings, gpus_of, pod_of
from specsweep.orchestrator.kube.specs import image_of

Config = Mapping[str, Any]


def has_an_image(config: Config) -> str | None:
    if config["cluster"]["kind"] != "kubernetes":
        return None
    try:
        image_of(config, Settings.of(config))
    except ConfigError as error:
        return error.message
    return None


def pod_is_right(config: Config) -> str | None:
    if config["cluster"]["kind"] != "kubernetes":
        return None
    try:
        pod_of(config)
    except ConfigError as error:
        return error.message
    return None


def gpus_fit_the_limit(config: Config) -> str | None:
    """What is more than the limit could only ever run against the will of whoever set it."""
    if config["cluster"]["kind"] != "kubernetes" or not config["cluster"].get("gpu_limits"):
        return None
    try:
        product, wanted = str(pod_of(config).get("gpu_product") or ""), gpus_of(config)
    except ConfigError:
        return None  # the rule above says it
    limit = Settings.of(config).gpu_limits.get(product)
    if limit is None or wanted <= limit:
        return None
    return (
        f"target {config['target']['name']} takes {wanted} GPUs of {product}, and cluster.gpu_limits.{product}={limit}: it can never start; "
        "raise the limit, or give it fewer GPUs (target.gpus)"
    )
