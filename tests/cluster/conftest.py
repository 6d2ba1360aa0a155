"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cluster.build import CONTROL_PLANE, GROUPS, build, missing
from cluster.harness import Cluster, running_cluster


def pytest_collection_finish(session: pytest.Session) -> None:
    """Here and not in the fixture: a build of minutes is not the first test's time."""
    asked = os.environ.get("SPECSWEEP_CONTROL_PLANE") == "1" and not session.config.option.collectonly
    if asked and any(item.get_closest_marker("cluster") for item in session.items):
        build(*GROUPS)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Skips, and says why, where it cannot be."""
    if os.geteuid() != 0:
        pytest.skip("pods need namespaces of their own, and those need root")
    if absent := missing(*CONTROL_PLANE):
        pytest.skip(
            f"{' and '.join(absent)} not built; `make control-plane` builds them (minutes), SPECSWEEP_CONTROL_PLANE=1 before the tests"
        )
    with running_cluster() as found:
        yield found


@pytest.fixture(autouse=True)
def each_test_leaves_no_node_and_no_fault(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        kubelet = request.getfixturevalue("cluster").kubelet
        kubelet.check()
        kubelet.remove_all()
