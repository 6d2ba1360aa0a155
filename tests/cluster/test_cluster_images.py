"""Images that do not come: some are waited for, others end the wait at once, since a pod that waits holds its GPUs."""

from __future__ import annotations

import pytest

from cluster.harness import Cluster
from cluster.images import Image, PullError
from cluster.node import NodeSpec
from cluster.servers import fleet, server
from specsweep.k8s.errors import StartRetryable, StartTerminal
from specsweep.k8s.server import serve
from specsweep.k8s.verdict import Budgets

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ONE = NodeSpec("one")
PULLING = 'failed to pull image "{name}": rpc error: code = {code} desc = failed to pull and unpack image "{name}": {words}'


def trouble(name: str, words: str, code: str = "Unknown") -> PullError:
    """In containerd's words."""
    return PullError("ErrImagePull", PULLING.format(name=name, code=code, words=words))


async def test_a_pull_that_is_cancelled_six_times_is_waited_for(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    name = f"registry.example/{tenant.namespace}:1"
    cancelled = trouble(name, "failed to copy: context canceled", "Canceled")
    cluster.kubelet.images.put(name, *[cancelled] * 6, Image())
    waited: list[str] = []
    async with (
        fleet(tenant) as found,
        serve(found, server(tenant, image=name, gpus=8), None, progress=lambda starting: waited.append(starting.waits_for)) as running,
    ):
        assert running.ended() is None
    for reason in ("ErrImagePull", "ImagePullBackOff"):
        assert any(reason in words and "context canceled" in words for words in waited), waited


async def test_a_registry_that_stays_away_is_waited_for_until_the_deadline(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    name = f"registry.example/{tenant.namespace}:1"
    cluster.kubelet.images.put(name, trouble(name, "dial tcp 10.1.1.1:443: connect: connection refused"))
    async with fleet(tenant) as found:
        with pytest.raises(StartTerminal, match=r"waited 3 s for its image .*connection refused") as failure:
            async with serve(found, server(tenant, image=name, gpus=8), None, budgets=Budgets(pull_s=3)):
                pytest.fail("it came")
        assert await tenant.objects() == set()
    assert failure.value.kind == "image"


@pytest.mark.parametrize(
    ("words", "error", "kind", "advice"),
    [
        ("manifest unknown: manifest unknown", StartTerminal, "image", "correct the image's name and tag"),
        (
            "failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://registry.example: 401 Unauthorized",
            StartTerminal,
            "image access",
            "name a pull secret",
        ),
        ("write /var/lib/containerd/ingest/data: no space left on device", StartRetryable, "node disk", "another node"),
    ],
    ids=["unknown", "unauthorized", "no-space"],
)
async def test_what_no_waiting_heals_gives_the_gpus_back_at_once(
    cluster: Cluster, words: str, error: type[StartTerminal | StartRetryable], kind: str, advice: str
) -> None:
    tenant = await cluster.tenant(ONE)
    name = f"registry.example/{tenant.namespace}:1"
    cluster.kubelet.images.put(name, trouble(name, words))
    async with fleet(tenant) as found:
        with pytest.raises(error, match=advice) as failure:  # the budgets are of minutes: nothing waits for them
            async with serve(found, server(tenant, image=name, gpus=8), None):
                pytest.fail("it came")
        assert await tenant.objects() == set()
        assert failure.value.kind == kind
        assert words in str(failure.value)
        assert tenant.node("one") in str(failure.value)
        assert words.split(": ")[-1] in failure.value.evidence["events.txt"]
        async with serve(found, server(tenant, name="next", gpus=8), None) as running:
            assert running.node == tenant.node("one")


@pytest.mark.parametrize(
    ("name", "says"),
    [("nobody/has-it:1", "docker.io/nobody/has-it:1: not found"), ("Not/A-Name", "invalid reference format")],
    ids=["no-such-image", "no-such-name"],
)
async def test_a_name_that_is_none(cluster: Cluster, name: str, says: str) -> None:
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found:
        with pytest.raises(StartTerminal, match="correct the image's name") as failure:
            async with serve(found, server(tenant, image=name), None):
                pytest.fail("it came")
    assert failure.value.kind == "image"
    assert says in str(failure.value)
