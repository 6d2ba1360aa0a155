"""Whether the head of a Ray cluster is still the one that we joined. Sockets only; nothing is sent.

Ray takes the death of a head badly: a minute after it the core ends every process that uses it, and if a new head answers at the old
address before that, the core ends at the first call, since its cluster's id is another one. Neither can be caught. So a connection to the
head's GCS is held: the kernel closes it in the moment in which that process ends. A host that vanishes closes nothing; it is given up
when it has taken no new connection for a quarter of Ray's minute.

Each connection is held for a few seconds only, since the server gives up one on which nobody speaks after two minutes.
"""

from __future__ import annotations

import socket
import threading
import time

GIVEN_UP_S = 15.0  # Ray itself: 60 s
LOOK_S = 2.0


def wait_until_lost(address: str, ended: threading.Event, *, given_up_s: float = GIVEN_UP_S, look_s: float = LOOK_S) -> bool:
    """Blocks until the server at ``host:port`` is gone: True. False if ``ended`` was set before that, seen after ``look_s`` at the latest."""
    held = _connected(address, look_s)
    answered = time.monotonic()
    try:
        while not ended.is_set():
            if held is None:
                ended.wait(look_s)
            elif _closes(held, look_s):
                return not ended.is_set()
            fresh = _connected(address, look_s)
            if fresh is not None:
                if held is not None:
                    held.close()
                held, answered = fresh, time.monotonic()
            elif time.monotonic() - answered > given_up_s:
                return not ended.is_set()
        return False
    finally:
        if held is not None:
            held.close()


def _connected(address: str, timeout_s: float) -> socket.socket | None:
    host, _, port = address.rpartition(":")
    try:
        return socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
    except OSError:
        return None


def _closes(connection: socket.socket, wait_s: float) -> bool:
    """Whether the other side closes within ``wait_s``. What it says is of no interest."""
    end = time.monotonic() + wait_s
    while (left := end - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            if not connection.recv(4096):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False
