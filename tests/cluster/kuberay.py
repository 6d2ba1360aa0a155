"""KubeRay's operator beside the control plane: it makes head and worker pods of a RayCluster, which the process kubelet runs."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

from cluster.build import GROUPS
from cluster.control_plane import ControlPlane, free_ports
from cluster.images import LOCAL
from cluster.kueue import define, kustomized
from cluster.rest import Json

PATH = "/apis/ray.io/v1/namespaces/{}/rayclusters"


def start_kuberay(plane: ControlPlane) -> None:
    """Returns when the operator is ready. It ends with the control plane."""
    define(plane, kustomized(GROUPS["kuberay"].folder / "config" / "crd"))
    metrics, health = free_ports(plane.address, 2)
    plane.start(
        "kuberay",
        f"-kubeconfig={plane.kubeconfig()}",
        "-enable-leader-election=false",
        f"-metrics-addr={plane.address}:{metrics}",
        f"-health-probe-bind-address={plane.address}:{health}",
        ENABLE_INIT_CONTAINER_INJECTION="false",  # workers would wait for the head in a container of another image
    )
    plane.wait_for("KubeRay", lambda: _ready(f"http://{plane.address}:{health}/readyz"))


def ray_cluster(name: str, *, workers: int, token: str, placement: dict[str, Any], memory: str = "2Gi") -> Json:
    """A RayCluster whose head takes no work. ``placement``: further fields of both pod specs.

    ``token``: a Secret whose ``auth_token`` everybody must know who speaks with it.
    """
    known = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": token, "key": "auth_token"}}}
    env = [{"name": "RAY_AUTH_MODE", "value": "token"}, known]

    def group(component: str, **parameters: str) -> Json:
        amounts = {"cpu": "2", "memory": memory}
        container = {"name": component, "image": LOCAL, "env": env, "resources": {"limits": amounts, "requests": amounts}}
        return {"rayStartParams": parameters, "template": {"spec": {"containers": [container], **placement}}}

    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {
            "headGroupSpec": group("head", **{"num-cpus": "0", "dashboard-host": "0.0.0.0"}),
            "workerGroupSpecs": [
                {"groupName": "clients", "replicas": workers, "minReplicas": workers, "maxReplicas": workers, **group("worker")}
            ],
        },
    }


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
