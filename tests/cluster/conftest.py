"""One cluster for all tests of this folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from cluster.build import CONTROL_PLANE, missing
from cluster.disturbed import undisturbed
from cluster.harness import Cluster, no_namespaces, running_cluster
from cluster.kuberay import start_kuberay
from cluster.kueue import start_kueue

GUARD_S = 300  # for a test that hangs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test's time only its own part: which of them happens to start the cluster, or Kueue, or Ray's operator, is chance."""
    for item in items:
        if item.get_closest_marker("cluster"):
            own = item.get_closest_marker("timeout")
            item.add_marker(pytest.mark.timeout(*(own.args if own else (GUARD_S,)), func_only=True), append=False)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Skips, and says why, where it cannot be."""
    if os.geteuid() != 0:
        pytest.skip("pods need namespaces of their own, and those need root")
    if refused := no_namespaces():
        pytest.skip(f"pods need namespaces of their own, and this root may not make them: {refused}")
    if absent := missing(*CONTROL_PLANE):
        pytest.skip(f"{' and '.join(absent)} not built; `make control-plane` builds them")
    with running_cluster() as found:
        yield found


@pytest.fixture(scope="session")
def expected(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Of a sweep that nobody disturbs: the acceptance length of each point."""
    return asyncio.run(undisturbed(tmp_path_factory.mktemp("undisturbed"), cluster.plane.kubeconfig()))


@pytest.fixture(scope="session")
def queued_cluster(cluster: Cluster) -> Cluster:
    """With Kueue, once for all tests."""
    if missing("kueue"):
        pytest.skip("Kueue is not built; `make control-plane` builds it")
    start_kueue(cluster.plane)
    return cluster


@pytest.fixture(scope="session")
def ray_operator(cluster: Cluster) -> Cluster:
    """With KubeRay's operator, once for all tests."""
    if missing("kuberay"):
        pytest.skip("KubeRay's operator is not built; `make control-plane` builds it")
    start_kuberay(cluster.plane)
    return cluster


@pytest.fixture(autouse=True)
def each_test_leaves_no_node_and_no_fault(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        kubelet = request.getfixturevalue("cluster").kubelet
        kubelet.check()
        kubelet.remove_all()
