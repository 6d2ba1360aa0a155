"""The client processes of a sweep: one Ray, and the teams that measure on it.

One Python process can stamp some tens of thousands of chunks a second before it becomes the bottleneck that it measures, so
larger batches are split over several (:mod:`specsweep.client.team`). They are Ray actors, on a private node of this host or on the
nodes of a Ray cluster. Sessions that run at the same time have a team each, used from a thread each; Ray is started once for all.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from specsweep.client import host
from specsweep.client.host import this_host
from specsweep.client.joined_ray import JoinedRay
from specsweep.client.local_ray import LocalRay
from specsweep.client.placement import Node, spread, usable
from specsweep.client.point_load import Endpoint, PointLoad, PointResult, default_processes
from specsweep.client.shared_ray import SharedRay
from specsweep.client.team import ClientsUnavailable, LostActor, Member, Team

__all__ = [
    "ClientPool",
    "ClientsUnavailable",
    "Endpoint",
    "LostActor",
    "Member",
    "PointLoad",
    "PointResult",
    "Team",
    "default_processes",
]

_NODES_S = 120.0  # until a node of a Ray cluster may run clients: workers wait for their head, and may pull their image
_LOOK_S = 0.2


class ClientPool:
    """The Ray of a sweep's client processes, and the teams that run on it. For many threads at once.

    ``address`` None: a private Ray node on this host. ``"auto"``: the Ray cluster of which this host is a node already. ``"host:port"``
    (of the cluster's GCS, usually port 6379): this host becomes a node of that cluster, one without CPUs, until :meth:`close`; Ray
    lets a driver in only beside a raylet on its own host, which must see the cluster's nodes and be seen by them on all ports. Client
    processes then run on the nodes of the cluster that have CPUs, as if they were ours alone, and on nodes with GPUs only if there
    are no others. ``nodes``: on these alone, by host name, IP address, or the name that Ray knows them by. Nothing is shipped to
    them: they must run the same image.
    """

    def __init__(self, max_processes: int = 8, *, address: str | None = None, nodes: Sequence[str] = ()) -> None:
        if max_processes < 1:
            raise ValueError(f"max_processes={max_processes}: must be at least 1")
        if nodes and address is None:
            raise ValueError(f"nodes={list(nodes)!r}: without the address of a Ray cluster there is only this host")
        self._max_processes = max_processes
        self._address = address
        self._wanted = tuple(nodes)
        self._ray = _shared_ray(address, max_processes)
        self._lock = threading.Lock()  # of the teams and of who is placed where
        self._teams: list[Team] = []
        self._closed = False

    def start(self) -> None:
        """Starts Ray ahead of time, so that the first point does not wait for it.

        Of a Ray cluster that is starting, too, the first node with CPUs is waited for: its head comes up before all others. Raises
        :class:`ClientsUnavailable` with Ray's words if Ray does not start, or if no node may run a client.
        """
        with self.using():
            end = time.monotonic() + (0.0 if self._address is None else _NODES_S)
            while not self._has_cpus() and time.monotonic() < end and not self._closed:
                time.sleep(_LOOK_S)
            self.nodes()

    def close(self) -> None:
        """Ends all teams, even while they measure, and our Ray. The pool cannot be used afterwards."""
        with self._lock:
            self._closed = True
            teams = tuple(self._teams)
        for team in teams:
            team.close()
        self._ray.close()

    def team(self) -> Team:
        """A new team, without actors yet."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the client pool is closed")
            team = Team(self)
            self._teams.append(team)
            return team

    @property
    def cores(self) -> int:
        """How many client processes have a core each: this host's CPUs, or those of the chosen Ray nodes. Starts Ray in that case.

        Points that are measured at the same time should not use more together (:class:`specsweep.client.gate.Gate`).
        """
        if self._address is None:
            return host.cores()
        with self.using():
            return sum(node.cores for node in self.nodes())

    def processes(self, batch_size: int, asked: int | None = None) -> int:
        """How many client processes a point uses. ``asked``: the user's number.

        On this host that may be more than it has cores. On a Ray cluster it may not: then the default is lowered, and an ``asked`` that
        does not fit is a ``ValueError``.
        """
        wanted = min(batch_size, asked or default_processes(batch_size, self._max_processes))
        if self._address is None or wanted <= (cores := self.cores):
            return wanted
        if asked:
            raise ValueError(f"{asked} client processes were asked for; the Ray nodes that may run them have {cores} CPUs together")
        return cores

    # -- for the teams

    @contextmanager
    def using(self) -> Iterator[int]:
        """Ray is there, and stays; yields its epoch (see :class:`SharedRay`). Raises :class:`ClientsUnavailable`."""
        entered = False
        try:
            with self._ray.use() as epoch:
                entered = True
                yield epoch
        except RuntimeError as error:
            if entered or self._closed:
                raise
            raise ClientsUnavailable(str(error)) from error

    @property
    def ray(self) -> SharedRay:
        return self._ray

    def nodes(self) -> list[Node]:
        """Where client processes may run now. Inside of :meth:`using` only."""
        import ray

        if self._address is None:
            return [Node(ray.get_runtime_context().get_node_id(), this_host().name, "", host.cores())]
        try:
            return usable(cast(Any, ray).nodes(), self._wanted)
        except ValueError as error:
            raise ClientsUnavailable(str(error)) from error

    def _has_cpus(self) -> bool:
        import ray

        return any(row["Alive"] and row["Resources"].get("CPU", 0) >= 1 for row in cast(Any, ray).nodes())

    def recruit(self, team: Team, count: int) -> list[Node]:
        """The nodes of the next ``count`` actors of ``team``."""
        nodes = self.nodes()
        with self._lock:
            everybody = Counter(node_id for other in self._teams for node_id in other.placed)
            chosen = spread(nodes, count, own=Counter(team.placed), everybody=everybody)
            team.placed += [node.node_id for node in chosen]
        return chosen

    def forget(self, team: Team) -> None:
        with self._lock:
            if team in self._teams:
                self._teams.remove(team)


def _shared_ray(address: str | None, max_processes: int) -> SharedRay:
    if address is not None:
        joined = JoinedRay(address)
        shared = SharedRay(joined, joined.start)
        joined.when_lost = shared.stop_if_dead
        return shared
    local = LocalRay()
    return SharedRay(local, lambda: local.start(num_cpus=max(4, max_processes)))
