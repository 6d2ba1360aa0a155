"""Ends what a process left behind when it ended itself, however it ended.

Ray asks the kernel to kill its node processes together with the process that started them, but the raylet's own children are
not covered: after a ``kill -9`` two agents live on for about a minute, and a worker that does not look up from its work for
longer. So the pool starts this little program beside Ray. It holds one end of a pipe and waits, which costs nothing; the pipe
ends with the process at the other end, or when that closes it, and then every Ray process that has a file open below Ray's
temporary folder is killed, and the folder removed. (All of them have their logs there. Their environment would not do: workers
and agents rename themselves, which overwrites it.) Alone in its session, this program is not hit by the Ctrl-C of a terminal.

Standard library only, so that it starts in a few milliseconds: ``python -I -S reaper.py FOLDER < pipe``.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator

_PATIENCE_S = 5.0


def ray_processes(folder: str) -> list[int]:
    """Ids of the processes of the Ray node whose temporary folder this is. The driver holds files there too and is none of them."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid() and _is_of_ray(entry.path, folder):
            found.append(int(entry.name))
    return found


def _is_of_ray(process: str, folder: str) -> bool:
    below = folder.rstrip("/") + "/"
    try:
        with open(f"{process}/cmdline", "rb") as file:
            command = file.read()
        if not command.startswith(b"ray::") and below.encode() not in command:
            return False
        return any(path.startswith(below) for path in _open_files(process))  # deleted files included
    except OSError:  # ended meanwhile, or not ours
        return False


def _open_files(process: str) -> Iterator[str]:
    for fd in os.scandir(f"{process}/fd"):
        try:
            yield os.readlink(fd.path)
        except OSError:  # closed meanwhile
            continue


def end_all(folder: str) -> None:
    """Kills until nothing is left: a process may have started another one while the list was made."""
    deadline = time.monotonic() + _PATIENCE_S
    while (pids := ray_processes(folder)) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.02)


def main() -> None:
    folder = sys.argv[1]
    while os.read(0, 4096):
        pass
    end_all(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
