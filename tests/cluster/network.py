"""The pods' network: one bridge of this machine, and for each pod a network namespace with one address on it.

Each pod has all ports to itself and an address that others reach without translation, as Kubernetes promises; this machine has the
bridge's own address, where the API server and the nodes listen. There is no way out of it to the internet. Taking a pod's link down is a
partition as it happens: packets go nowhere and nobody is told.

Names say whose they are (by process id), so what a killed run left behind is told from what is in use, and removed by the next.
"""

from __future__ import annotations

import fcntl
import ipaddress
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

PREFIX = "ssw"  # interface names have 15 characters at most
NAMESPACES = Path("/run/netns")
LOCK = Path(tempfile.gettempdir()) / "specsweep-network.lock"
SECOND_BYTES = range(77, 100)


class Network:
    """10.77.0.0/16, or the next such network that this machine does not use. Use as a context manager."""

    def __init__(self) -> None:
        self._mark = f"{PREFIX}{os.getpid():x}"
        self._free = itertools.count(2)
        self._numbers: dict[str, int] = {}
        self._base = ""
        self._bridge = f"{self._mark}b"

    def __enter__(self) -> Network:
        with LOCK.open("w") as lock:  # two at once would take the same addresses
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._set_up()
        _let_through(self._bridge, "-I")
        return self

    def _set_up(self) -> None:
        remove_left_over()
        taken = _ip("-4", "-o", "addr")
        self._base = next(f"10.{second}" for second in SECOND_BYTES if f" 10.{second}." not in taken)
        _batch(
            f"link add {self._bridge} type bridge",
            f"addr add {self.host}/16 dev {self._bridge}",
            f"link set {self._bridge} up",
        )

    def __exit__(self, *exc: object) -> None:
        for name in list(self._numbers):
            self.remove(name)
        _let_through(self._bridge, "-D")
        _ip("link", "del", self._bridge)

    @property
    def host(self) -> str:
        """This machine's address on the bridge."""
        return f"{self._base}.0.1"

    def add(self, name: str) -> str:
        """A namespace for the pod of that (unique) name. Returns its address."""
        number = self._numbers[name] = next(self._free)
        space, link = self._space(name), self._link(name)
        address = str(ipaddress.ip_address(f"{self._base}.0.0") + number)
        _batch(
            f"netns add {space}",
            f"link add {link} type veth peer name eth0 netns {space}",
            f"link set {link} master {self._bridge} up",
        )
        _batch("link set lo up", f"addr add {address}/16 dev eth0", "link set eth0 up", f"route add default via {self.host}", space=space)
        return address

    def path(self, name: str) -> Path:
        """The file by which a process enters the pod's namespace."""
        return NAMESPACES / self._space(name)

    def set_link(self, name: str, *, up: bool) -> None:
        """A partition, or its end."""
        _ip("link", "set", self._link(name), "up" if up else "down")

    def set_way(self, name: str, other: str, *, up: bool) -> None:
        """A partition between two pods alone: ``name`` has no route to ``other`` ("no route to host"), and everybody else reaches both."""
        address = str(ipaddress.ip_address(f"{self._base}.0.0") + self._numbers[other])
        _batch(f"route {'del' if up else 'add'} unreachable {address}/32", space=self._space(name))

    def remove(self, name: str) -> None:
        _ip("link", "del", self._link(name), check=False)
        _ip("netns", "del", self._space(name), check=False)
        self._numbers.pop(name, None)

    def _space(self, name: str) -> str:
        return f"{self._mark}-{self._numbers[name]}"

    def _link(self, name: str) -> str:
        return f"{self._mark}v{self._numbers[name]:x}"


def remove_left_over() -> None:
    """What networks of processes that are dead left on this machine."""
    for space in _names(NAMESPACES.iterdir() if NAMESPACES.is_dir() else ()):
        _ip("netns", "del", space, check=False)
    for link in _names(Path("/sys/class/net").iterdir()):
        _ip("link", "del", link, check=False)


def _names(paths: Iterable[Path]) -> list[str]:
    """Those of processes that are no more."""
    found = []
    for path in paths:
        match = re.fullmatch(rf"{PREFIX}([0-9a-f]+)(?:b|v[0-9a-f]+|-\d+)", path.name)
        if match and not Path(f"/proc/{int(match[1], 16)}").exists():
            found.append(path.name)
    return found


def _let_through(bridge: str, how: str) -> None:
    """Container engines make the kernel filter bridges, and drop what is not theirs."""
    filtered = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if filtered.is_file() and filtered.read_text().strip() == "1" and shutil.which("iptables"):
        subprocess.run(["iptables", how, "FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"], check=how == "-I")


def _batch(*lines: str, space: str | None = None) -> None:
    _ip(*(["-netns", space] if space else []), "-batch", "-", given="\n".join(lines) + "\n")


def _ip(*arguments: str, given: str | None = None, check: bool = True) -> str:
    done = subprocess.run(["ip", *arguments], input=given, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)} {given or ''}: {done.stderr.strip()}")
    return done.stdout
