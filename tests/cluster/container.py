"""One container: a process with its own view of this machine.

The files that it sees are this machine's under an overlay: it may write anywhere and changes nothing outside, and its volumes are
where its pod mounts them (``/dev/shm``, ``/weights``, ``/etc/specsweep``), so that paths in commands and configs are true. It is in its
pod's network namespace, under the pod's host name, in a control group with its memory limit, with the user and the capabilities that its
pod asks for. Where its node is to be another host, its monotonic clock has another origin.

A shell does the setting up and is then replaced, step by step, by the command itself: its process id, exit code and signals are the
container's own.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.memory import Group
from cluster.view import Bind, root_of, tool, view

NOT_FOUND = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start "
    "container process: error during container init: exec: {name}: executable file not found in $PATH"
)

HOST_NAME = 63  # characters, as a kubelet cuts it


class StartError(Exception):
    """The command cannot be started; the runtime's words."""


@dataclass(frozen=True, slots=True)
class Launch:
    argv: Sequence[str]
    env: Mapping[str, str]
    binds: Sequence[Bind]
    hosts: Path  # its /etc/hosts
    network: Path  # the namespace's file
    folder: Path  # for its root
    log: Path
    memory: int | None = None
    user: int | None = None
    group: int | None = None
    drop_all: bool = False
    working_dir: str = "/"
    read_only_root: bool = False
    hostname: str = ""
    ahead_s: int = 0  # of its CLOCK_MONOTONIC


class Process:
    """A container that was started."""

    def __init__(self, process: asyncio.subprocess.Process, group: Group, launch: Launch) -> None:
        self._process = process
        self._group = group
        self._launch = launch
        self._over = asyncio.create_task(self._ended())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> tuple[int, bool]:
        """The exit code as containers have it (128 + signal), and whether the kernel ended it for its memory. Nothing of it is left."""
        return await asyncio.shield(self._over)

    async def _ended(self) -> tuple[int, bool]:
        code = await self._process.wait()
        out_of_memory = self._group.out_of_memory()
        await asyncio.to_thread(self._group.end)
        return (code if code >= 0 else 128 - code), out_of_memory and code != 0

    async def stop(self, grace_s: float) -> None:
        """TERM, and KILL after the grace period. Returns when it is over."""
        if grace_s > 0:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace_s)
                return
        self._signal(signal.SIGKILL)
        await self._process.wait()

    async def run(self, argv: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Runs a command inside of it, as an exec probe does. Returns exit code and output; raises TimeoutError."""
        enter = [tool("nsenter"), f"--target={self.pid}", "--mount", "--net", "--uts", "--root", "--wd"]
        process = await asyncio.create_subprocess_exec(
            *enter, *argv, env=dict(self._launch.env), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), timeout_s)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, output.decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


async def start(launch: Launch, name: str) -> Process:
    """``name``: unique, of its control group. Raises StartError."""
    if not _is_there(launch):
        raise StartError(NOT_FOUND.format(name=f'"{launch.argv[0]}"'))
    group = await asyncio.to_thread(Group, name, launch.memory)
    launch.folder.mkdir(parents=True, exist_ok=True)
    enter = [
        *(tool("setpriv"), "--pdeathsig", "KILL", tool("nsenter"), f"--net={launch.network}", "--"),
        *(tool("unshare"), "--mount", "--uts", "--propagation", "private", *_clock(launch), "--"),
        *(tool("sh"), "-ec", _script(launch, group), "sh"),
    ]
    with launch.log.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *enter,
            *launch.argv,
            env=dict(launch.env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return Process(process, group, launch)


def _script(launch: Launch, group: Group) -> str:
    """What is done before the command takes the process over."""
    hosts = Bind(launch.hosts, "/etc/hosts")
    lines = [
        f"echo 0 > {group.entry}",
        *([f"echo {shlex.quote(launch.hostname[:HOST_NAME])} > /proc/sys/kernel/hostname"] if launch.hostname else []),
        *view(launch.folder, [*launch.binds, hosts], read_only=launch.read_only_root),
        f"exec {tool('chroot')} {root_of(launch.folder)} {tool('setpriv')} {' '.join(_rights(launch))} -- {_in_folder(launch)}",
    ]
    return "\n".join(lines)


def _clock(launch: Launch) -> list[str]:
    return ["--time", "--monotonic", str(launch.ahead_s)] if launch.ahead_s else []


def _in_folder(launch: Launch) -> str:
    # chroot begins in the root; only where another folder is wanted, a shell goes there.
    if launch.working_dir == "/":
        return '"$@"'
    there = f'cd {shlex.quote(launch.working_dir)} && exec "$@"'
    shell = tool("sh")
    return f'{shell} -c {shlex.quote(there)} {shell} "$@"'


def _rights(launch: Launch) -> list[str]:
    rights = ["--pdeathsig", "KILL"]
    if launch.user:
        group = launch.group if launch.group is not None else 0
        rights += ["--reuid", str(launch.user), "--regid", str(group), "--clear-groups"]
    if launch.drop_all:
        rights += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    return rights


def _is_there(launch: Launch) -> bool:
    name = launch.argv[0]
    if "/" in name:  # it may be on one of its volumes
        return Path(name).exists() or any(name.startswith(bind.target.rstrip("/") + "/") for bind in launch.binds)
    return shutil.which(name, path=launch.env.get("PATH", "")) is not None
