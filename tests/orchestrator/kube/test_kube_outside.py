"""What a sweep in a pod says at its end works where people are: by name and namespace, and through a port-forward to read."""

from __future__ import annotations

import pytest

from specsweep.orchestrator.kube.outside import Outside

INSIDE = {"SPECSWEEP_JOB": "sweep-fig7-1a2b", "POD_NAMESPACE": "bench", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize("lacking", ["SPECSWEEP_JOB", "POD_NAMESPACE"])
def test_only_the_pod_of_a_sweeps_job_has_an_outside(lacking: str) -> None:
    assert Outside.of("fig7", {name: value for name, value in INSIDE.items() if name != lacking}) is None


def test_a_sweep_is_asked_for_by_name_and_namespace() -> None:
    assert Outside("fig7", "bench").command("status") == "specsweep status fig7 cluster=kubernetes cluster.namespace=bench"


@pytest.mark.parametrize(
    ("uri", "forward", "address"),
    [
        ("http://specsweep-mlflow:5000", "kubectl -n bench port-forward svc/specsweep-mlflow 5000:5000 &", "http://localhost:5000"),
        ("http://ml.tools.svc.cluster.local", "kubectl -n tools port-forward svc/ml 5000:80 &", "http://localhost:5000"),
        ("https://mlflow.example.com", None, "https://mlflow.example.com"),
    ],
    ids=["the chart's", "another namespace's", "one outside"],
)
def test_the_report_comes_out_of_mlflow(uri: str, forward: str | None, address: str) -> None:
    found = Outside("fig7", "bench").report(uri)
    assert found[-2:] == [f"specsweep sync fig7 --from-mlflow --uri {address}", "specsweep report fig7"]
    assert found[:-2] == ([forward] if forward else [])
