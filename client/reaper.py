"""Ends what a process left behind when it ended itself, however it ended.

Ray asks the kernel to kill its node processes together with the process that started them, but the raylet's own children are
not covered: after a ``kill -9`` two agents live on for about a minute, and a worker that does not look up from its work for
longer. So the pool starts this little program beside Ray. It holds one end of a pipe and waits, which costs nothing; the pipe
ends with the process at the other end, and then every process that carries the mark in its environment is killed and the
temporary folder removed. Being alone in its session, it is not hit by the Ctrl-C of a terminal.

Standard library only, so that it starts in a few milliseconds: ``python -I -S reaper.py MARK FOLDER < pipe``.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

_PATIENCE_S = 5.0


def marked(mark: bytes) -> list[int]:
    """Process ids that were started with ``mark`` (``NAME=value``) in their environment and have not ended."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()  # empty for a zombie
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            found.append(int(entry.name))
    return found


def end_all(mark: bytes) -> None:
    """Kills until nothing is left: a process may have started another one while the list was made."""
    deadline = time.monotonic() + _PATIENCE_S
    while (pids := marked(mark)) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.02)


def main() -> None:
    mark, folder = sys.argv[1].encode(), sys.argv[2]
    while os.read(0, 4096):
        pass
    end_all(mark)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
