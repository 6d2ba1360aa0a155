"""What a run of a sweep that was killed left in the cluster: engines that the next one needs stay for it, the others are ended."""

from __future__ import annotations

import pytest
from k8s_fake_api import Server

from specsweep.orchestrator.clusters.kubernetes import KubernetesCluster
from specsweep.orchestrator.kube.settings import Settings
from specsweep.orchestrator.kube.specs import session_labels

COME, OVER = "c" * 64, "0" * 64
KINDS = {"jobs": "Job", "services": "Service", "configmaps": "ConfigMap"}


@pytest.fixture
async def place(api_server: Server, monkeypatch: pytest.MonkeyPatch) -> KubernetesCluster:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    for name, sweep, session in (("needed", "fig7", COME), ("measured", "fig7", OVER), ("of-another", "fig8", OVER)):
        for plural, kind in KINDS.items():
            metadata = {"name": name, "labels": session_labels(sweep, session), "annotations": {}}
            version = "batch/v1" if plural == "jobs" else "v1"
            api_server.put(plural, {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {}})
    return KubernetesCluster(Settings.of({"cluster": {"kind": "kubernetes"}}))


def names(api_server: Server) -> set[str]:
    return {name for plural, name in api_server.objects if plural in KINDS and not name.startswith("run-")}


async def test_engines_of_sessions_that_are_measured_are_ended(api_server: Server, place: KubernetesCluster) -> None:
    said: list[str] = []
    async with place.opened("fig7", [COME], said.append):
        assert names(api_server) == {"needed", "of-another"}
    assert "ending what an earlier run left of sessions that are measured: measured" in said


async def test_a_run_with_nothing_to_measure_ends_them_all(api_server: Server, place: KubernetesCluster) -> None:
    async with place.opened("fig7", (), lambda words: None):
        assert names(api_server) == {"of-another"}


async def test_where_nothing_was_left_nothing_is_said(api_server: Server, place: KubernetesCluster) -> None:
    said: list[str] = []
    async with place.opened("fig9", [COME], said.append):
        pass
    assert said == []
    assert names(api_server) == {"needed", "measured", "of-another"}
