"""Which cluster, as whom, in which namespace: found as kubectl finds it.

A kubeconfig that was named, else ``$KUBECONFIG`` (several files, merged), else ``~/.kube/config``; without any, the service account
of the pod that we run in. The official client loads all of that, exec plugins and client certificates included.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException

from specsweep.k8s.errors import AccessError

official: Any = config  # it says that it has types, but these functions have none
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    configuration: Configuration
    context: str  # "in-cluster" for a service account
    namespace: str


async def find_access(*, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None) -> Access:
    """Raises AccessError that says what is missing and what there is to choose from."""
    files = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file):
        return await _from_kubeconfig(files, context, namespace)
    if context is None and kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(namespace)
    raise AccessError(
        f"there is no kubeconfig at {files}, and this is no pod of a cluster; set KUBECONFIG or the cluster's kubeconfig field"
    )


async def _from_kubeconfig(files: str, context: str | None, namespace: str | None) -> Access:
    configuration = Configuration()
    try:
        contexts, current = _contexts(files)
        chosen = context or current
        if chosen not in contexts:
            raise AccessError(
                f"context={chosen!r} is not in {files}; it has: {', '.join(contexts) or 'none'} (kubectl config get-contexts)"
            )
        await official.load_kube_config(files, context=chosen, client_configuration=configuration, persist_config=False)
    except ConfigException as error:
        raise AccessError(f"kubeconfig {files}: {error}; look at: kubectl config get-contexts") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise AccessError(f"kubeconfig {files} cannot be read: {error}") from error
    return Access(configuration, chosen, namespace or contexts[chosen].get("namespace") or "default")


def _contexts(files: str) -> tuple[dict[str, Mapping[str, Any]], str | None]:
    """The contexts of all files by name (the first of a name counts, as with kubectl), and the current one."""
    contexts: dict[str, Mapping[str, Any]] = {}
    current = None
    for file in files.split(os.pathsep):
        path = Path(file).expanduser()
        content = yaml.safe_load(path.read_text()) if file and path.is_file() else None
        for entry in (content or {}).get("contexts") or ():
            contexts.setdefault(entry["name"], entry.get("context") or {})
        current = current or (content or {}).get("current-context") or None
    return contexts, current


def _in_cluster(namespace: str | None) -> Access:
    configuration = Configuration()
    try:
        official.load_incluster_config(client_configuration=configuration)
        found = namespace or (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except (ConfigException, OSError) as error:
        raise AccessError(f"the service account of this pod cannot be used: {error}; set automountServiceAccountToken: true") from error
    return Access(configuration, "in-cluster", found)
