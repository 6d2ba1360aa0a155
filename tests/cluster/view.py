"""A process's own view of this machine's files, as lines of a shell script that sets it up.

It is an overlay of the root: everything is there, anything may be written, and nothing of that is seen outside. Folders and memory
are mounted where they are wanted, even where this machine has no such folder. The script runs in a mount namespace of its own, and all
of it ends with that.

Tools are named by their full path: the script may run with the variables of the program that it is for.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OWN = ("/", "/proc", "/sys", "/dev", "/tmp", "/run")  # handled by themselves, with all below
DEFAULT_SHM = 64 * 2**20  # as container runtimes give it


@dataclass(frozen=True, slots=True)
class Bind:
    """``source`` None: memory (tmpfs) of that size, shared by nobody."""

    source: Path | None
    target: str
    read_only: bool = False
    size: int | None = None


def root_of(folder: Path) -> str:
    """Where the view is, quoted for a shell."""
    return shlex.quote(str(folder / "root"))


def view(folder: Path, binds: Sequence[Bind], *, read_only: bool = False) -> list[str]:
    """``folder``: an empty one of this machine's. Then ``chroot`` to :func:`root_of` it."""
    mount, mkdir = tool("mount"), tool("mkdir")
    top, root = shlex.quote(str(folder)), root_of(folder)
    lines = [
        f"{mount} -t tmpfs tmpfs {top}",  # an overlay's upper folder may not be on an overlay
        f"{mkdir} {top}/upper {top}/work {top}/root",
        f"{mount} -t overlay overlay -o lowerdir=/,upperdir={top}/upper,workdir={top}/work {root}",
        f"{tool('chmod')} 755 {root}/root",  # an interpreter may live there, and the user may be anybody
        *(f"{mount} --rbind /{name} {root}/{name}" for name in ("proc", "sys", "dev")),
        f"{mount} -t tmpfs -o size={DEFAULT_SHM} tmpfs {root}/dev/shm",
        *(f"{mount} --bind {path} {root}{path}" for path in map(shlex.quote, _other_mounts())),
        f"{tool('rm')} -f {root}/etc/resolv.conf",  # nobody is asked for other names: that would be waited for
    ]
    for bind in binds:
        target = root + shlex.quote(os.path.realpath(bind.target))  # a link to /run would lead out of the view
        if bind.source is None:
            size = f" -o size={bind.size},mode=1777" if bind.size else ""
            lines += [f"{mkdir} -p {target}", f"{mount} -t tmpfs{size} tmpfs {target}"]
            continue
        made = tool("touch") if bind.source.is_file() else f"{mkdir} -p"
        lines += [f"{made} {target}", f"{mount} --bind {shlex.quote(str(bind.source))} {target}"]
        if bind.read_only:
            lines.append(f"{mount} -o remount,bind,ro {target}")
    if read_only:
        lines.append(f"{mount} -o remount,ro {root}")
    return lines


@cache
def tool(name: str) -> str:
    """Its full path. Raises FileNotFoundError that names it."""
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not on this machine's PATH (util-linux, coreutils and iproute2 are needed)")
    return found


def _other_mounts() -> list[str]:
    """Where further file systems of this machine are mounted: an overlay of its root does not have them."""
    found = {line.split()[4].encode().decode("unicode_escape") for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    outside = (path for path in found if path not in OWN and not path.startswith(tuple(f"{own}/" for own in OWN if own != "/")))
    return sorted(path for path in outside if Path(path).exists())
