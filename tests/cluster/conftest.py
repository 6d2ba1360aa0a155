"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cluster.build import CONTROL_PLANE, missing
from cluster.harness import Cluster, running_cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test's time only its own part: which of them happens to start the cluster, or Kueue, or Ray's operator, is chance."""
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.timeout(func_only=True))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Skips, and says why, where it cannot be."""
    if os.geteuid() != 0:
        pytest.skip("pods need namespaces of their own, and those need root")
    if absent := missing(*CONTROL_PLANE):
        pytest.skip(f"{' and '.join(absent)} not built; `make control-plane` builds them")
    with running_cluster() as found:
        yield found


@pytest.fixture(autouse=True)
def each_test_leaves_no_node_and_no_fault(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        kubelet = request.getfixturevalue("cluster").kubelet
        kubelet.check()
        kubelet.remove_all()
