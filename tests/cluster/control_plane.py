"""etcd, API server, controller manager and scheduler as processes of this machine, from the binaries that a cluster has.

All state is in one temporary folder. The processes end with this one, however it ends (the kernel is asked for that), and by KILL: asked
politely, an API server keeps its port for a minute while watches are open. For tests of what a client does then, it can be stopped
and started again, and etcd can be made to forget old versions.

Nodes are declared lost after seconds instead of most of a minute; nothing else is tuned.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from cluster.build import find
from cluster.certificates import Authority, signing_pair
from cluster.rest import Credentials
from cluster.view import Bind, root_of, tool, view

SERVICE_IP = "10.0.0.1"
NODE_LOST_S = 12
START_S = 120.0  # a hang guard, not a claim
USERS = {
    "admin": ("admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "controller-manager": ("system:kube-controller-manager", ""),
    "kubelet": ("kubelet", "system:masters"),
}


class ControlPlane:
    """``address``: of this machine, where pods reach it too. Use as a context manager: ready inside, gone afterwards."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self.authority = Authority(_made(folder / "certificates"))
        self.port, self._etcd_port, self._peer_port = free_ports(address, 3)
        self.url = f"https://{address}:{self.port}"
        self._tokens = {name: secrets.token_hex(16) for name in USERS}
        self._serving = self.authority.serving(
            "api-server", [address, SERVICE_IP, "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        )
        self._account_key, self._account_public = signing_pair(folder / "certificates", "accounts")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # The kernel ends a child when the *thread* that started it ends, and a test's loop takes its threads with it.
        self._parent = ThreadPoolExecutor(1, "control plane")

    def __enter__(self) -> ControlPlane:
        try:
            self._start_etcd()
            self._start_api_server()
            self._start_controllers()
            self.wait_for("the default service account", lambda: self._asked("/api/v1/namespaces/default/serviceaccounts/default"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for name in reversed(list(self._processes)):
            self.kill(name)
        self._parent.shutdown()

    def credentials(self, user: str = "admin") -> Credentials:
        return Credentials(self.url, self.authority.certificate, self._tokens[user])

    def kubeconfig(self, user: str = "admin", *, token: str | None = None, namespace: str = "default") -> Path:
        """For one of :data:`USERS`, or for whoever has ``token`` (``user`` is then only its name)."""
        path = self.folder / f"{user}-{namespace}.kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.authority.certificate)}}],
            "users": [{"name": user, "user": {"token": token or self._tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": namespace}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def stop(self) -> None:
        """As if its machine had lost power: with it go the controllers, whose watches would begin again only after a long back-off."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver"):
            self.kill(name)

    def restart(self) -> None:
        """Returns when the API server is ready."""
        self._start_api_server()
        self._start_controllers()

    def restart_controllers(self) -> None:
        """They keep in no place how often a Job's pods failed: its next one is not waited for."""
        for name in ("kube-scheduler", "kube-controller-manager"):
            self.kill(name)
        self._start_controllers()

    def _start_api_server(self) -> None:
        tokens = self.folder / "tokens.csv"
        tokens.write_text("".join(f'{self._tokens[key]},{user},{key},"{group}"\n' for key, (user, group) in USERS.items()))
        self.start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
            f"--kubelet-certificate-authority={self.authority.certificate}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={self._account_public}",
            f"--service-account-signing-key-file={self._account_key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
        )
        self.wait_for("the API server", lambda: self._asked("/readyz"))

    def forget_history(self) -> None:
        """Versions before now are no longer kept: who wants to go on from one gets 410."""
        call = f"http://127.0.0.1:{self._etcd_port}/v3"
        header = _posted(f"{call}/kv/range", {"key": "AA=="})["header"]
        _posted(f"{call}/kv/compaction", {"revision": header["revision"], "physical": True})

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _start_etcd(self) -> None:
        clients, peers = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self.start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )

    def _start_controllers(self) -> None:
        self.start(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig('controller-manager')}",
            f"--service-account-private-key-file={self._account_key}",
            f"--root-ca-file={self.authority.certificate}",
            f"--node-monitor-grace-period={NODE_LOST_S}s",
            "--node-monitor-period=1s",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self.start("kube-scheduler", f"--kubeconfig={self.kubeconfig('scheduler')}", "--leader-elect=false", "--secure-port=0")

    def start(self, binary: str, *arguments: str, binds: Sequence[Bind] = (), **env: str) -> None:
        """A process that ends with the control plane. ``binds``: what it is to see where its defaults look for it."""
        path = find(binary)
        assert path is not None, f"{binary} is not built: python -m cluster.build"
        command = [tool("setpriv"), "--pdeathsig", "KILL", "--", str(path), *arguments]
        if binds:
            folder = _made(self.folder / f"{binary}-view")
            script = [*view(folder, binds), f'exec {tool("chroot")} {root_of(folder)} "$@"']
            command = [tool("unshare"), "--mount", "--propagation", "private", "--", tool("sh"), "-ec", "\n".join(script), "sh", *command]
        with (self.folder / f"{binary}.log").open("ab") as log:
            env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **env}
            started = self._parent.submit(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=env
            )
            self._processes[binary] = started.result()

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def _asked(self, path: str) -> bool:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self._tokens['admin']}"})
        trust = ssl.create_default_context(cafile=str(self.authority.certificate))
        try:
            with urllib.request.urlopen(request, timeout=5, context=trust) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_for(self, what: str, there: Callable[[], bool]) -> None:
        """Raises RuntimeError with its log if a process of the control plane ends meanwhile, TimeoutError if it does not come."""
        deadline = time.monotonic() + START_S
        while not there():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with code {process.returncode}:\n{self.log(name)[-3000:]}")
            if time.monotonic() > deadline:
                logs = "\n".join(f"{name}:\n{self.log(name)[-1500:]}" for name in self._processes)
                raise TimeoutError(f"{what} did not come within {START_S:.0f} s\n{logs}")
            time.sleep(0.1)


def _posted(url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    with urllib.request.urlopen(urllib.request.Request(url, data=json.dumps(body).encode()), timeout=10) as answer:
        return dict(json.load(answer))


def free_ports(address: str, count: int) -> list[int]:
    sockets = [socket.create_server((address, 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
