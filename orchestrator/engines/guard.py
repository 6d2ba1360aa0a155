"""Starts an engine that knows nothing of us, and takes it down with us: ``python -I -S guard.py COMMAND ARGUMENT…``.

A killed sweep cannot clean up, and engines are not one process: vLLM's core and SGLang's scheduler outlive the API server that
started them. So between the orchestrator and the engine stands this process. It leads the engine's process group, asks the
kernel for a signal at its parent's death (PR_SET_PDEATHSIG), and then kills the group. It ends as the engine ended, with its
code or by its signal, so that whoever waits for it sees the engine's end; what the engine left behind in the group goes too.

Standard library only, so that it costs a few milliseconds and some 10 MB.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1
GROUP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def parent_death_signal(number: int) -> None:
    """Linux only; elsewhere the cluster's own clean-up has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def main() -> None:
    parent = os.getppid()
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # never kill the group of whoever started us

    def orphaned(*_: object) -> None:
        os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGUSR1, orphaned)
    parent_death_signal(signal.SIGUSR1)
    if os.getppid() != parent:  # it died before the call
        sys.exit(1)
    try:
        engine = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: parent_death_signal(signal.SIGKILL))
    except OSError as error:
        print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(127)

    def pass_on(number: int, _: FrameType | None) -> None:
        engine.send_signal(number)

    for number in GROUP_SIGNALS:
        signal.signal(number, pass_on)
    code = engine.wait()
    _end_the_rest()
    if code < 0:
        if -code in GROUP_SIGNALS:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _end_the_rest() -> None:
    """Kills what is left of the group, but not us."""
    group = os.getpgrp()
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if name.isdecimal() and int(name) != os.getpid():
            try:
                if os.getpgid(int(name)) == group:
                    os.kill(int(name), signal.SIGKILL)
            except OSError:  # ended meanwhile
                continue


if __name__ == "__main__":
    main()
