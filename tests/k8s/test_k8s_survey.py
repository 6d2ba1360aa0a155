"""What is there, what is missing and what our rights hide are three things, each with its word."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from k8s_fake_api import Server, connected, failed

from specsweep.k8s.errors import Unauthorized
from specsweep.k8s.survey import Fact, Needs, survey


def node(name: str, product: str | None, gpus: int, *, ready: bool = True, cordoned: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product} if product else {}},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "allocatable": {"cpu": "128", **({"nvidia.com/gpu": str(gpus)} if gpus else {})},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def claim(name: str, *modes: str, phase: str = "Bound") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"accessModes": list(modes)}, "status": {"phase": phase}}


def with_condition(name: str, kind: str, status: str, message: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": kind, "status": status, "message": message}]}}


def of(facts: list[Fact], what: str) -> tuple[str, str]:
    (found,) = [fact for fact in facts if fact.what == what]
    return found.state, found.text


def hides(api_server: Server, *plurals: str) -> None:
    def answer(request: web.Request) -> web.Response | None:
        api_server.answers.append(answer)
        hidden = next((plural for plural in plurals if f"/{plural}" in request.path), None)
        return failed(403, "Forbidden", f'{hidden} is forbidden: User "u" cannot list resource "{hidden}"') if hidden else None

    api_server.answers = [answer]


async def test_a_cluster_that_has_all() -> None:
    async with connected() as (api_server, api):
        for obj in (node("a", "NVIDIA-B200", 8), node("b", "NVIDIA-B200", 8), node("c", "NVIDIA-L4", 1), node("d", None, 0)):
            api_server.put("nodes", obj)
        api_server.put("persistentvolumeclaims", claim("weights", "ReadOnlyMany"))
        api_server.put("secrets", {"metadata": {"name": "hub"}, "data": {"token": "c2VjcmV0"}})
        api_server.put("localqueues", with_condition("gpus", "Active", "True"))
        api_server.put("rayclusters", with_condition("ray", "HeadPodReady", "True"))
        needs = Needs(gpus={"NVIDIA-B200": 8}, claims=("weights",), secrets={"hub": "token"}, queue="gpus", ray_cluster="ray")
        facts = await survey(api, needs)
        (asked,) = api_server.seen("GET", "/secrets/hub")
    assert {fact.state for fact in facts} == {"there"}
    assert of(facts, "API server")[1] == "Kubernetes v1.37.2, namespace bench"
    assert of(facts, "GPU nodes")[1] == "NVIDIA-B200: 2 nodes with 16 GPUs; NVIDIA-L4: 1 node with 1 GPU"
    assert "PartialObjectMetadata" in asked.headers["Accept"], "the secret's values are not asked for"


async def test_a_cluster_that_lacks_things() -> None:
    async with connected() as (api_server, api):
        api_server.put("nodes", node("a", "NVIDIA-L4", 1))
        api_server.put("nodes", node("b", "NVIDIA-B200", 8, ready=False))
        api_server.put("nodes", node("c", "NVIDIA-B200", 8, cordoned=True))
        api_server.put("persistentvolumeclaims", claim("weights", "ReadWriteOnce", phase="Pending"))
        api_server.put("persistentvolumeclaims", claim("results", "ReadWriteOnce"))
        api_server.put("persistentvolumeclaims", claim("lost", "ReadWriteMany", phase="Lost"))
        api_server.put("localqueues", with_condition("gpus", "Active", "False", "Can't submit new workloads to clusterQueue"))
        needs = Needs(
            gpus={"NVIDIA-B200": 8},
            claims=("weights", "lost", "none", "results"),
            shared_claims=("weights",),
            secrets={"hub": "token"},
            queue="gpus",
            ray_cluster="ray",
        )
        facts = await survey(api, needs)
    assert of(facts, "GPU NVIDIA-B200") == (
        "missing",
        "no ready node has the label nvidia.com/gpu.product=NVIDIA-B200; there is NVIDIA-L4: 1 node with 1 GPU",
    )
    assert of(facts, "volume weights") == ("doubtful", "Pending, ReadWriteOnce: only one node can load from it at a time")
    assert of(facts, "volume results") == ("there", "Bound, ReadWriteOnce"), "nothing is loaded from it"
    assert of(facts, "volume lost")[0] == "doubtful"
    assert of(facts, "volume none")[0] == "missing"
    assert of(facts, "secret hub")[0] == "missing"
    assert of(facts, "secret hub")[1] == (
        "there is none of that name in namespace bench: kubectl -n bench create secret generic hub --from-file=token=FILE"
    )
    assert of(facts, "queue gpus")[0] == "doubtful"
    assert "Can't submit new workloads" in of(facts, "queue gpus")[1]
    assert of(facts, "Ray cluster ray") == (
        "missing",
        "namespace bench has no RayCluster of that name: kubectl -n bench get rayclusters",
    )


@pytest.mark.parametrize(("product", "what"), [("NVIDIA-B200", "GPU NVIDIA-B200"), ("", "GPU")])
async def test_gpus_of_two_nodes_are_not_those_of_one(product: str, what: str) -> None:
    async with connected() as (api_server, api):
        for name in "ab":
            api_server.put("nodes", node(name, "NVIDIA-B200", 4))
        facts = await survey(api, Needs(gpus={product: 8}))
        assert of(facts, what) == ("missing", "an engine needs 8 on one node, and no ready node has more than 4")
        assert {fact.what for fact in await survey(api, Needs(gpus={product: 4}))} == {"API server", "rights", "GPU nodes"}


async def test_no_gpu_at_all_is_missing() -> None:
    async with connected() as (api_server, api):
        api_server.put("nodes", node("a", None, 0))
        assert of(await survey(api, Needs()), "GPU nodes")[0] == "missing"


async def test_what_a_namespaced_role_does_not_show_is_hidden_and_the_rest_is_told() -> None:
    async with connected() as (api_server, api):
        hides(api_server, "nodes", "secrets")
        api_server.put("persistentvolumeclaims", claim("weights", "ReadWriteMany"))
        facts = await survey(api, Needs(claims=("weights",), secrets={"hub": "token"}))
    assert of(facts, "GPU nodes") == ("hidden", "not visible with this Role")
    assert of(facts, "secret hub") == ("hidden", "not visible with this Role")
    assert of(facts, "volume weights")[0] == "there"


async def test_only_what_is_needed_is_looked_for() -> None:
    async with connected() as (_, api):
        assert {fact.what for fact in await survey(api, Needs())} == {"API server", "rights", "GPU nodes"}


async def test_each_missing_right_is_a_fact() -> None:
    async with connected() as (api_server, api):

        def deny(request: web.Request) -> web.Response | None:
            api_server.answers.append(deny)
            if not request.path.endswith("selfsubjectaccessreviews"):
                return None
            body = api_server.bodies[-1]
            return web.json_response({**body, "status": {"allowed": body["spec"]["resourceAttributes"]["verb"] != "patch"}}, status=201)

        api_server.answers = [deny]
        facts = [fact for fact in await survey(api, Needs()) if fact.what == "rights"]
    assert {fact.state for fact in facts} == {"missing"}
    assert sorted(fact.text.split(":")[0] for fact in facts) == [
        "patch configmaps in namespace bench",
        "patch jobs.batch in namespace bench",
        "patch services in namespace bench",
    ]


async def test_who_is_not_known_gets_no_facts() -> None:
    async with connected() as (api_server, api):
        api_server.answers = [lambda _: failed(401, "Unauthorized", "Unauthorized")]
        with pytest.raises(Unauthorized):
            await survey(api, Needs())
