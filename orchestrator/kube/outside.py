"""What a sweep says at its end to people outside of its pod: commands that work where they are.

Paths of the pod lead nowhere outside, and neither do the names of services. What a person has is a kubeconfig, so a sweep is asked for
by its name and namespace, and its results come out of MLflow through a port-forward (to read: nothing is measured through it).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from specsweep.orchestrator.clusters.kubernetes import JOB_VARIABLE
from specsweep.orchestrator.kube.submission import follow_up

NAMESPACE_VARIABLE = "POD_NAMESPACE"  # in the sweep's pod
_SERVICE = re.compile(r"(?P<name>[a-z]([-a-z0-9]*[a-z0-9])?)(\.(?P<namespace>[a-z0-9][-a-z0-9]*))?(\.svc(\..*)?)?")


@dataclass(frozen=True, slots=True)
class Outside:
    sweep: str
    namespace: str

    @staticmethod
    def of(sweep: str, environment: Mapping[str, str]) -> Outside | None:
        """None where the run is not that of a sweep's Job: its commands and paths are then those of whoever started it."""
        namespace = environment.get(NAMESPACE_VARIABLE)
        return Outside(sweep, namespace) if namespace and environment.get(JOB_VARIABLE) else None

    def command(self, name: str) -> str:
        return follow_up(name, self.sweep, [f"cluster.namespace={self.namespace}"])

    def report(self, uri: str) -> list[str]:
        """The commands that make the report from what the MLflow at ``uri``, as pods see it, holds."""
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        service = _SERVICE.fullmatch(host)
        forward = []
        if service is not None and ("." not in host or ".svc" in host):
            local = port if port > 1023 else 5000  # lower ones are root's
            forward = [
                shlex.join(
                    ["kubectl", "-n", service["namespace"] or self.namespace, "port-forward", f"svc/{service['name']}", f"{local}:{port}"]
                )
                + " &"
            ]
            uri = parts._replace(netloc=f"localhost:{local}").geturl()
        return [
            *forward,
            shlex.join(["specsweep", "sync", self.sweep, "--from-mlflow", "--uri", uri]),
            shlex.join(["specsweep", "report", self.sweep]),
        ]
