"""A spec that cannot be right says which field, which value, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from k8s_samples import program, server, sweep

from specsweep.k8s.errors import SpecError
from specsweep.k8s.quantities import quantity
from specsweep.k8s.specs import ClaimMount, Placement, SecretRef


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"image": ""}, "image=''"),
        ({"image": "a b"}, "image='a b'"),
        ({"argv": ()}, "argv="),
        ({"cpu": "lots"}, "cpu='lots' is not a quantity"),
        ({"memory": "0"}, "memory='0'"),
        ({"extra_resources": {"rdma/ib": "x"}}, "rdma/ib='x'"),
        ({"env": {"1A": "b"}}, "env='1A'"),
        ({"env": {"A": "b"}, "secret_env": {"A": SecretRef("s", "k")}}, r"env\.A is given as a value and as a Secret"),
        ({"env": {"HF_TOKEN": "x"}, "secret_env": {}}, r"env\.HF_TOKEN holds a secret.*kubectl create secret"),
        ({"env": {"INNOCENT": "hf_" + "a1" * 12}}, r"env\.INNOCENT holds a secret"),
        ({"files": {"../b": ""}}, "files='../b'"),
        ({"files": {"/a": ""}}, "files='/a'"),
        ({"files": {"a..b": ""}}, "files='a..b'"),
        ({"files": {"a/" + "b" * 252: ""}}, "files='a/b"),
        ({"files": {"a": "x" * 1_000_001}}, "files='1000002 bytes'"),
        ({"claims": (ClaimMount("w", "models"),)}, "mount_path='models'"),
        ({"claims": (ClaimMount("w", "/m"), ClaimMount("v", "/m"))}, "mount_path='/m'"),
    ],
)
def test_a_wrong_program(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        program(**fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "Fig7"}, "name='Fig7'"),
        ({"labels": {"a": "b c"}}, r"labels\.a='b c'"),
        ({"port": 0}, "port=0"),
        ({"health_path": "health"}, "health_path='health'"),
        ({"startup_s": 0}, "startup_s=0"),
        ({"probe_period_s": 0}, "probe_period_s=0"),
        ({"gpus": -1}, "gpus=-1"),
        ({"gpu_resource": "gpu"}, "gpu_resource='gpu'"),
        ({"shm": "128Gi"}, "shm='128Gi'.*memory=128Gi"),
        ({"grace_s": -1}, "grace_s=-1"),
        ({"ttl_s": -1}, "ttl_s=-1"),
    ],
)
def test_a_wrong_server(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        server(**fields)


def test_a_wrong_placement_or_sweep() -> None:
    with pytest.raises(SpecError, match=r"node_selector\.gpu='a b'.*kubectl get nodes"):
        Placement(node_selector={"gpu": "a b"})
    with pytest.raises(SpecError, match="queue_priority='high'"):
        Placement(queue_priority="high")
    with pytest.raises(SpecError, match="final_codes"):
        sweep(final_codes=(0,))
    with pytest.raises(SpecError, match="retries=-1"):
        sweep(retries=-1)


@pytest.mark.parametrize(
    ("text", "number"),
    [("16", 16), ("500m", 0.5), ("64Gi", 64 * 2**30), ("1.5G", 1.5e9), ("2e3", 2000), ("1E", 1e18), (".5", 0.5), ("1k", 1000)],
)
def test_quantities_are_the_numbers_that_kubernetes_reads(text: str, number: float) -> None:
    assert quantity(text, field="f") == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "1e", "--1", "0x1", "1Ki2"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(SpecError, match="f="):
        quantity(text, field="f")
