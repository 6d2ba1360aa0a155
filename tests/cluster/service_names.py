"""The names of services, as a cluster's DNS would give them: lines of each pod's ``/etc/hosts``, kept current while it runs.

They come from the EndpointSlices that the real controller makes. A headless service has the addresses of its pods; so has any other here,
since there is no proxy for a service's own address (its port must then be the pod's).
"""

from __future__ import annotations

from pathlib import Path

from cluster.rest import Json, Rest

SERVICE = "kubernetes.io/service-name"
DOMAIN = "svc.cluster.local"


class ServiceNames:
    def __init__(self) -> None:
        self._slices: dict[str, Json] = {}
        self._files: dict[Path, tuple[str, str]] = {}  # a pod's file → its namespace and its own line

    async def follow(self, rest: Rest) -> None:
        async for kind, found in rest.follow("/apis/discovery.k8s.io/v1/endpointslices"):
            self.see(kind, found)

    def see(self, kind: str, found: Json) -> None:
        """An EndpointSlice was added, changed or deleted."""
        if kind == "DELETED":
            self._slices.pop(found["metadata"]["uid"], None)
        else:
            self._slices[found["metadata"]["uid"]] = found
        for file in self._files:
            self._write(file)

    def add(self, file: Path, namespace: str, name: str, ip: str) -> None:
        self._files[file] = (namespace, f"{ip}\t{name}")
        self._write(file)

    def remove(self, file: Path) -> None:
        self._files.pop(file, None)

    def _write(self, file: Path) -> None:
        namespace, own = self._files[file]
        lines = ["127.0.0.1\tlocalhost", own]
        for found in self._slices.values():
            service, its = found["metadata"].get("labels", {}).get(SERVICE), found["metadata"]["namespace"]
            if service is None or found.get("addressType") != "IPv4":
                continue
            names = [f"{service}.{its}.{DOMAIN}", f"{service}.{its}.svc", f"{service}.{its}", *([service] if its == namespace else [])]
            ready = (each for each in found.get("endpoints") or () if (each.get("conditions") or {}).get("ready") is not False)
            for endpoint in ready:
                pod = [f"{endpoint['hostname']}.{names[0]}"] if endpoint.get("hostname") else []
                lines += ["\t".join((endpoint["addresses"][0], " ".join((*names, *pod))))]
        file.write_text("\n".join(lines) + "\n")  # in place: it is mounted
