"""Which Ray nodes run clients, and how a team is spread over them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.placement import Node, spread, usable


def row(name: str, cpus: float = 4.0, gpus: float = 0.0, *, alive: bool = True, address: str = "") -> dict[str, Any]:
    resources = {"CPU": cpus, "GPU": gpus, "memory": 1e9}
    return {
        "NodeID": f"id-{name}",
        "Alive": alive,
        "NodeManagerHostname": name,
        "NodeManagerAddress": address or f"10.0.0.{len(name)}",
        "NodeName": f"ray-{name}",
        "Resources": {k: v for k, v in resources.items() if v},
    }


def names(rows: list[dict[str, Any]], wanted: tuple[str, ...] = ()) -> list[str]:
    return [node.name for node in usable(rows, wanted)]


def test_nodes_with_gpus_or_without_cpus_run_no_clients() -> None:
    assert names([row("gpu", gpus=8), row("b"), row("head", cpus=0), row("gone", alive=False), row("a", cpus=2.5)]) == ["a", "b"]
    assert [node.cores for node in usable([row("a", cpus=2.5)])] == [2]


def test_nodes_with_gpus_are_used_if_there_is_nothing_else() -> None:
    assert names([row("gpu", gpus=8), row("head", cpus=0), row("half", cpus=0.5)]) == ["gpu"]


@pytest.mark.parametrize("wanted", ["bb", "10.1.1.1", "ray-bb", "id-bb"])
def test_a_node_is_chosen_by_any_of_its_names(wanted: str) -> None:
    assert names([row("a"), row("bb", address="10.1.1.1"), row("ccc")], (wanted,)) == ["bb"]


def test_what_is_not_there_is_named_with_what_is() -> None:
    with pytest.raises(ValueError, match=r"nodes: 'x' is no node of this Ray cluster, which has a \(10\.0\.0\.1, 4 CPUs\)"):
        usable([row("a"), row("gone", alive=False)], ("a", "x"))
    with pytest.raises(ValueError, match=r"no node .* has a CPU .* it has head \(10\.0\.0\.4, 0 CPUs\)"):
        usable([row("head", cpus=0)])
    with pytest.raises(ValueError, match="no living node"):
        usable([])


def test_a_free_node_is_taken_before_one_that_another_team_uses() -> None:
    nodes = [Node("a", "a", "", 4), Node("b", "b", "", 4)]
    assert [n.name for n in spread(nodes, 1, own={}, everybody={"a": 2, "b": 1})] == ["b"]
    assert [n.name for n in spread(nodes, 1, own={"b": 1}, everybody={"a": 4, "b": 1})] == ["a"]  # but a team spreads first of all


@given(
    cores=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    others=st.lists(st.integers(0, 12), min_size=6, max_size=6),
)
def test_every_beginning_of_a_team_is_spread_evenly_and_no_node_is_overfull(cores: list[int], counts: list[int], others: list[int]) -> None:
    nodes = [Node(str(i), f"n{i}", "", n) for i, n in enumerate(cores)]
    team: list[str] = []
    for count in counts:  # a team that grows
        busy = Counter(team) + Counter({str(i): others[i] for i in range(len(nodes))})
        team += [node.node_id for node in spread(nodes, count, own=Counter(team), everybody=busy)]
    for size in range(min(len(team), sum(cores)) + 1):
        on = Counter(team[:size])
        assert all(on[node.node_id] <= node.cores for node in nodes)
        roomy = [on[node.node_id] for node in nodes if on[node.node_id] < node.cores]
        assert max(on.values(), default=0) - min(roomy, default=max(on.values(), default=0)) <= 1
