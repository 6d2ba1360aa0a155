"""On which Ray nodes client processes run. Pure: rows of ``ray.nodes()`` in, nodes out.

A node that has GPUs runs engines, and a client there would take the engine's cores; it is used only if no other node has any. A node
without CPUs (a head of KubeRay's, or the node by which we joined) was told to run nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    node_id: str
    name: str  # host name, for people
    address: str
    cores: int


def usable(rows: Sequence[Mapping[str, Any]], wanted: Sequence[str] = ()) -> list[Node]:
    """The nodes that may run clients, in a fixed order. ``wanted``: only those with one of these host names, addresses or Ray names.

    Raises ``ValueError`` if one of ``wanted`` is not there, or if none is left.
    """
    alive = [row for row in rows if row["Alive"]]
    for name in wanted:
        if not any(name in _names(row) for row in alive):
            raise ValueError(f"nodes: {name!r} is no node of this Ray cluster, which has {_list(alive)}")
    chosen = [row for row in alive if not wanted or set(wanted) & _names(row)]
    able = [row for row in chosen if row["Resources"].get("CPU", 0) >= 1]
    without_gpu = [row for row in able if not row["Resources"].get("GPU")]
    if not able:
        raise ValueError(f"no node of the Ray cluster has a CPU to run a client on; it has {_list(chosen)}")
    nodes = [
        Node(row["NodeID"], row["NodeManagerHostname"], row["NodeManagerAddress"], int(row["Resources"]["CPU"]))
        for row in without_gpu or able
    ]
    return sorted(nodes, key=lambda node: (node.name, node.address, node.node_id))


def spread(nodes: Sequence[Node], count: int, *, own: Mapping[str, int], everybody: Mapping[str, int]) -> list[Node]:
    """Where the next ``count`` processes of a team go, one entry each.

    ``own`` and ``everybody``: processes by node id that the team, and all teams, have already. One after the other goes to the node
    with the fewest of its team, so that the first n of a team are always spread as evenly as n allows. No team has more processes on a
    node than this has cores, unless all are full. Among equals the least busy node is taken.
    """
    mine, all_ = dict(own), dict(everybody)
    chosen = []
    for _ in range(count):

        def rank(node: Node) -> tuple[bool, int, float]:
            n = mine.get(node.node_id, 0)
            return n >= node.cores, n, all_.get(node.node_id, 0) / max(node.cores, 1)

        best = min(nodes, key=rank)
        chosen.append(best)
        for counts in (mine, all_):
            counts[best.node_id] = counts.get(best.node_id, 0) + 1
    return chosen


def _names(row: Mapping[str, Any]) -> set[str]:
    return {str(row[key]) for key in ("NodeManagerHostname", "NodeManagerAddress", "NodeName", "NodeID") if row.get(key)}


def _list(rows: Sequence[Mapping[str, Any]]) -> str:
    words = [f"{row['NodeManagerHostname']} ({row['NodeManagerAddress']}, {row['Resources'].get('CPU', 0):g} CPUs)" for row in rows]
    return ", ".join(words) or "no living node"
