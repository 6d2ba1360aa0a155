"""The way from a command to the cluster that a config names, with errors in our own tree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from specsweep.k8s.errors import KubernetesError
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.outcomes import as_error
from specsweep.orchestrator.kube.settings import Settings

if TYPE_CHECKING:  # the official client takes a second to load
    from specsweep.k8s.api import Api

T = TypeVar("T")


def api_of(settings: Settings) -> AbstractAsyncContextManager[Api]:
    """The API of the cluster that ``settings`` name, with errors of the Kubernetes room."""
    from specsweep.k8s.api import Api

    return Api.connect(kubeconfig=settings.kubeconfig, context=settings.context, namespace=settings.namespace)


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Api]:
    """Raises ConfigError if there is no way to a cluster, and ClusterError for what the cluster says to anything inside the block."""
    try:
        async with api_of(settings) as api:
            yield api
    except KubernetesError as error:
        raise as_error(error) from error


def in_cluster(settings: Settings, work: Callable[[Api], Awaitable[T]]) -> T:
    """Runs ``work`` with the API of the cluster that ``settings`` name."""

    async def connect_and_work() -> T:
        async with connected(settings) as api:
            return await work(api)

    return asyncio.run(connect_and_work())


def kubernetes_settings(base: Mapping[str, Any], command: str) -> Settings:
    """Raises ConfigError for another cluster than one of Kubernetes."""
    cluster = base["cluster"]
    if cluster["kind"] != "kubernetes":
        raise ConfigError(
            f"cluster={cluster['name']} is of kind {cluster['kind']}, and `specsweep {command}` speaks to Kubernetes: add cluster=kubernetes, "
            "or use `specsweep run`, which measures where it is"
        )
    return Settings.of(base)
