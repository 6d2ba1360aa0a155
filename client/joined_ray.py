"""A running Ray cluster that this process joins, so that its clients run on the cluster's nodes.

A driver talks to its cluster through a raylet on its own host: it maps that raylet's shared memory, and finds it by looking for a
process named ``raylet`` whose command line names a node of the cluster (Ray 2.60, ``get_node_to_connect_for_driver``). Without one it waits
a minute and gives up. So where this host is no node of the cluster, it becomes one: ``ray start --num-cpus=0``, on which Ray runs nothing,
ended with the pool. The ``ray://`` client would do without, but puts a proxy between the clock of the coordinator and the clients.

Everything else about the cluster is its owner's: logging, authentication (``RAY_AUTH_MODE`` and ``RAY_AUTH_TOKEN`` of this process's
environment are used), the niceness of its workers. Ray's default for that is 15; a cluster that is made to measure sets
``RAY_worker_niceness=0`` on its head.

The head is watched (:mod:`specsweep.client.head_watch`), because Ray ends the processes of a cluster without one, this one included. Once
it is gone Ray is shut down before it comes to that. What was being measured is lost, and the next measurement joins again.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from specsweep.client.head_watch import wait_until_lost
from specsweep.client.local_ray import (
    OBJECT_STORE_BYTES,
    OWN_NODE,
    QUIET,
    RayNode,
    environment,
    groups_of_their_own,
    read_token_again,
    ship_nothing,
    silence,
)

AUTO = "auto"
_JOIN_S = 120.0  # until our node is one of the cluster; Ray tries for a minute to reach the head
_HEAD_S = 60.0  # until the head answers: it may be starting, too
_LOOK_S = 0.1


class JoinedRay(RayNode):
    """``address``: ``host:port`` of the cluster's GCS, or ``auto`` for the cluster that runs on this host. Raises ``ValueError`` for others.

    ``when_lost`` is called, in a thread of its own, once the cluster is given up: it has to see to it that :meth:`stop` is called.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self.when_lost: Callable[[], None] = lambda: None
        self._lost: threading.Event | None = None  # the release of the session whose head was given up
        if address != AUTO and not re.fullmatch(r"[^\s/@]+:\d{1,5}", address):
            hint = "; the ray:// client is not supported, give the port of the GCS (6379)" if address.startswith("ray://") else ""
            raise ValueError(f"address={address!r}: must be 'host:port' of a Ray cluster's GCS, or 'auto'{hint}")
        self._address = address
        self._node: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises ``RuntimeError`` with Ray's words if the cluster cannot be joined."""
        self._begin(self._join)

    @property
    def alive(self) -> bool:
        """Whether our node's process is there and the cluster's head is not given up."""
        return self._lost is not self._release and super().alive

    def stop(self) -> None:
        super().stop()
        if self._node is not None:
            self._node.kill()
            self._node.wait()
            self._node = None

    def _join(self) -> None:
        with environment(OWN_NODE), groups_of_their_own():
            own = None if self._address == AUTO else self._become_a_node()
            import ray

            silence()
            ship_nothing()
            read_token_again()
            ray.init(address=self._address, _temp_dir=own, **QUIET)
            context = ray.get_runtime_context()
        self._nodes = [p for p in psutil.process_iter() if _is_raylet_of(p, context.get_node_id())]
        watch = (context.gcs_address, self._release)
        threading.Thread(target=self._watch_head, args=watch, name="specsweep-ray-head", daemon=True).start()

    def _watch_head(self, address: str, ended: threading.Event) -> None:
        if wait_until_lost(address, ended):
            self._lost = ended
            self.when_lost()

    def _become_a_node(self) -> str:
        """The temporary folder of the node, by which the driver finds it among others on this host."""
        own_ip = _ip_towards(self._address)
        self._make_folder()
        folder = Path(self._folder, "node")
        log = Path(self._folder, "ray-start.log")
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={self._address}", f"--temp-dir={folder}"]
        if not ipaddress.ip_address(own_ip).is_loopback:  # Ray would look for the way to the internet, which a pod need not have
            command.append(f"--node-ip-address={own_ip}")
        limits = ["--num-cpus=0", "--num-gpus=0", f"--object-store-memory={OBJECT_STORE_BYTES}", "--disable-usage-stats", "--block"]
        with log.open("wb") as out:
            self._node = subprocess.Popen([*command, *limits], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        end = time.monotonic() + _JOIN_S
        while not any(_is_raylet_of(p, str(folder)) for p in psutil.Process(self._node.pid).children()):
            if self._node.poll() is not None:
                raise RuntimeError(f"this host could not become a node of the Ray cluster at {self._address}: {_said(log)}")
            if time.monotonic() > end:
                raise RuntimeError(f"this host became no node of the Ray cluster at {self._address} in {_JOIN_S:g} s: {_said(log)}")
            time.sleep(_LOOK_S)
        return os.fspath(folder)


def _ip_towards(address: str) -> str:
    """This host's address on the network of the head. Raises ``RuntimeError`` if the head does not answer."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + _HEAD_S
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_HEAD_S) as connection:
                return str(connection.getsockname()[0])
        except OSError as error:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"no head of a Ray cluster answers at {address}: {error}; is the address right, and does it run?"
                ) from error
        time.sleep(_LOOK_S)


def _is_raylet_of(process: psutil.Process, word: str) -> bool:
    """Whether it is a raylet whose command line holds ``word``."""
    try:
        return process.name() == "raylet" and any(word in argument for argument in process.cmdline())
    except psutil.Error:
        return False


def _said(log: Path) -> str:
    """What ``ray start`` said last, without its colours and frames."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text("utf-8", "replace"))
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    return " ".join(lines[-3:]) or "it said nothing"
