"""What a cluster lacks is a failure with exit code 3, what our rights hide is a note, and nothing that was checked is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from k8s_fake_api import Server, failed

from specsweep.orchestrator.kube.examination import ray_cluster

Command = Callable[..., Any]
WORDS = ("sweep=smoke", "cluster=kubernetes", "engine=sim", "cluster.image=reg/specsweep:1")
GPUS = (*WORDS, "cluster.pod.gpus=8", "cluster.pod.gpu_product=NVIDIA-B200")


def node(name: str, product: str, gpus: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def findings(specsweep: Command, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, tuple[bool, bool, str]]:
    """By name: ok, fatal, and what was found."""
    assert await specsweep("doctor", *words, "--json") == code
    return {f["name"]: (f["ok"], f["fatal"], f["fact"]) for f in json.loads(capsys.readouterr().out)}


async def test_a_cluster_that_has_all(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    api_server.put("nodes", node("a", "NVIDIA-B200", 8))
    api_server.put(
        "persistentvolumeclaims", {"metadata": {"name": "w"}, "spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound"}}
    )
    api_server.put("secrets", {"metadata": {"name": "hub"}})
    found = await findings(specsweep, capsys, *GPUS, "cluster.weights.claim=w", "cluster.hub_token.secret=hub")
    assert all(ok for ok, _, _ in found.values())
    assert found["context"][2] == "lab, namespace bench"
    assert found["GPU nodes"][2] == "NVIDIA-B200: 1 node with 8 GPUs"
    assert "Service, Job" in found["dry run of engine sim, tiny"][2]
    assert found["dry run of the sweep's Job"][0]
    assert "load" not in found, "this machine has nothing to do with it"
    posts = [r for r in api_server.seen("POST") if not r.path.endswith("selfsubjectaccessreviews")]
    assert posts
    assert all(r.query.get("dryRun") == "All" for r in posts)


async def test_what_is_missing_is_a_failure(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    api_server.put("nodes", node("a", "NVIDIA-L4", 1))
    found = await findings(specsweep, capsys, *GPUS, "cluster.weights.claim=w", code=3)
    assert found["GPU NVIDIA-B200"][:2] == (False, True)
    assert found["volume w"][:2] == (False, True)


async def test_what_is_hidden_is_a_note(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request: web.Request) -> web.Response | None:
        api_server.answers.append(answer)
        return failed(403, "Forbidden", 'User "u" cannot list resource "nodes"') if request.path.endswith("/nodes") else None

    api_server.answers = [answer]
    found = await findings(specsweep, capsys, *GPUS)
    assert found["GPU nodes"] == (False, False, "not visible with this Role")


async def test_objects_that_the_cluster_refuses(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request: web.Request) -> web.Response | None:
        api_server.answers.append(answer)
        refused = request.path.endswith("/jobs") and api_server.bodies[-1]["metadata"]["name"].startswith("sim-")
        return failed(422, "Invalid", 'Job.batch "sim" is invalid: spec.template.spec.tolerations[0].operator') if refused else None

    api_server.answers = [answer]
    found = await findings(specsweep, capsys, *WORDS, code=3)
    assert found["dry run of the sweep's Job"][0]
    assert "tolerations[0].operator" in found["dry run of engine sim, tiny"][2]


async def test_no_gpus_are_missed_where_none_are_wanted(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert "GPU nodes" not in await findings(specsweep, capsys, *WORDS)


async def test_no_way_to_a_cluster(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "'lba' is not in" in (await findings(specsweep, capsys, *WORDS, "cluster.context=lba", code=3))["context"][2]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("bench-ray-head-svc:6379", "bench-ray"),
        ("ray-head-svc.bench.svc:6379", "ray"),
        ("10.0.0.3:6379", None),
        ("auto", None),
        (None, None),
    ],
)
def test_the_ray_cluster_of_an_address(address: str | None, name: str | None) -> None:
    assert ray_cluster(address) == name


async def test_settings_with_which_nothing_can_be_planned(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await findings(specsweep, capsys, "cluster=kubernetes", code=2)
    assert found["plan"][:2] == (False, True)
    assert "cluster.image is not set" in found["plan"][2]
    assert found["context"][2] == "lab, namespace bench", "the cluster is looked at all the same"
