"""Kueue's controller beside the control plane: it suspends, admits and preempts real Jobs.

It is made to run as a pod whose webhooks are behind a service. Here it is a process of this machine, so the API server is told its address
instead, and it sees its certificates where it looks for them. Of its webhooks only those are installed that are of its own kinds and of Jobs.
"""

from __future__ import annotations

import base64
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from cluster.build import GROUPS, find
from cluster.control_plane import ControlPlane, free_ports
from cluster.rest import Json
from cluster.view import Bind

API = "kueue.x-k8s.io/v1beta2"
PATH = "/apis/kueue.x-k8s.io/v1beta2"
CERTIFICATES = ("/tmp/k8s-webhook-server/serving-certs", "/etc/kueue/metrics/certs")


def start_kueue(plane: ControlPlane) -> None:
    """Returns when its webhooks answer. It ends with the control plane."""
    port, metrics, health = free_ports(plane.address, 3)
    pair = plane.authority.serving("kueue", [plane.address])
    folder = plane.folder / "kueue"
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    for name, source in {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": plane.authority.certificate}.items():
        (certificates / name).write_bytes(source.read_bytes())
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "webhook": {"host": plane.address, "port": port},
        "metrics": {"bindAddress": f"{plane.address}:{metrics}"},
        "health": {"healthProbeBindAddress": f"{plane.address}:{health}"},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": {"VisibilityOnDemand": False},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    installed = Webhooks(f"https://{plane.address}:{port}", plane.authority.certificate)
    define(plane, installed.definitions())
    kubectl(plane, "create", "namespace", "kueue-system")
    plane.start(
        "kueue",
        f"--config={folder / 'config.yaml'}",
        binds=[Bind(certificates, target, read_only=True) for target in CERTIFICATES],
        KUBECONFIG=str(plane.kubeconfig()),
    )
    plane.wait_for("Kueue", lambda: _answers(plane.address, port))
    kubectl(plane, "create", "-f", "-", given=yaml.safe_dump_all(installed.hooks()))


class Webhooks:
    """Kueue's manifests with ``url`` in the place of its service."""

    def __init__(self, url: str, authority: Path) -> None:
        self._url = url
        self._bundle = base64.b64encode(authority.read_bytes()).decode()
        self._manifests = GROUPS["kueue"].folder / "config" / "components"

    def definitions(self) -> list[Json]:
        """Its kinds."""
        found = kustomized(self._manifests / "crd")
        for definition in found:
            if webhook := (definition["spec"].get("conversion") or {}).get("webhook"):
                webhook["clientConfig"] = self._client(webhook["clientConfig"])
        return found

    def hooks(self) -> list[Json]:
        found = [each for each in yaml.safe_load_all((self._manifests / "webhook" / "manifests.yaml").read_text()) if each]
        for configuration in found:
            kept = [hook for hook in configuration["webhooks"] if any(_wanted(rule) for rule in hook["rules"])]
            configuration["webhooks"] = [{**hook, "clientConfig": self._client(hook["clientConfig"])} for hook in kept]
        return found

    def _client(self, config: Mapping[str, Any]) -> Json:
        return {"url": self._url + config["service"].get("path", "/"), "caBundle": self._bundle}


def define(plane: ControlPlane, definitions: Sequence[Json]) -> None:
    """Installs CustomResourceDefinitions, and returns when the API server offers all their kinds: a controller looks for them only once."""
    kubectl(plane, "create", "-f", "-", given=yaml.safe_dump_all(definitions))
    wanted: dict[str, set[str]] = {}
    for spec in (definition["spec"] for definition in definitions):
        for version in (each["name"] for each in spec["versions"] if each["served"]):
            wanted.setdefault(f"/apis/{spec['group']}/{version}", set()).add(spec["names"]["plural"])

    def offered() -> bool:
        with suppress(RuntimeError):  # 404 until the first is there
            answers = {path: json.loads(kubectl(plane, "get", "--raw", path))["resources"] for path in wanted}
            return all(wanted[path] <= {each["name"] for each in found} for path, found in answers.items())
        return False

    plane.wait_for("the kinds", offered)


def kustomized(folder: Path) -> list[Json]:
    """The objects of a kustomization."""
    text = subprocess.run([str(find("kubectl")), "kustomize", str(folder)], stdout=subprocess.PIPE, check=True).stdout
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def queue(name: str, namespace: str, *, gpus: int, cpu: str = "64", memory: str = "1Ti") -> list[tuple[str, Json]]:
    """A local queue with a quota of its own, in which a higher priority preempts a lower one: (path, object) to create."""
    flavor = f"{namespace}-{name}"
    quotas = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus)}
    group = {
        "coveredResources": list(quotas),
        "flavors": [{"name": flavor, "resources": [{"name": key, "nominalQuota": value} for key, value in quotas.items()]}],
    }
    spec = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": {"withinClusterQueue": "LowerPriority"}}

    def made(kind: str, metadata: Json, **fields: Any) -> Json:
        return {"apiVersion": API, "kind": kind, "metadata": metadata, **fields}

    return [
        (f"{PATH}/resourceflavors", made("ResourceFlavor", {"name": flavor})),
        (f"{PATH}/clusterqueues", made("ClusterQueue", {"name": flavor}, spec=spec)),
        (
            f"{PATH}/namespaces/{namespace}/localqueues",
            made("LocalQueue", {"name": name, "namespace": namespace}, spec={"clusterQueue": flavor}),
        ),
    ]


def priority(name: str, value: int) -> tuple[str, Json]:
    obj = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
    return f"{PATH}/workloadpriorityclasses", obj


def kubectl(plane: ControlPlane, *arguments: str, given: str | None = None) -> str:
    """As admin. Raises RuntimeError with its words."""
    command = [str(find("kubectl")), f"--kubeconfig={plane.kubeconfig()}", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _wanted(rule: Mapping[str, Any]) -> bool:
    return "kueue.x-k8s.io" in rule["apiGroups"] or ("batch" in rule["apiGroups"] and "jobs" in rule["resources"])


def _answers(address: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False
