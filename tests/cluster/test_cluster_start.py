"""Servers come up on a real cluster, wait where they have to, and say why they do not come."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cluster.harness import Cluster
from cluster.node import NodeSpec
from cluster.servers import ENGINE, ENGINE_FILES, fleet, server
from specsweep.k8s.ends import LogCause
from specsweep.k8s.errors import Conflict, Forbidden, Invalid, StartRetryable, StartTerminal
from specsweep.k8s.manifests import server_objects
from specsweep.k8s.server import serve
from specsweep.k8s.specs import ClaimMount, SecretRef

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ONE = NodeSpec("one")
IMPATIENT = {"spec": {"containers": [{"name": "main", "startupProbe": {"periodSeconds": 1, "failureThreshold": 2}}]}}
LOADS = """
import signal, time
def end(*_):
    raise KeyboardInterrupt("terminated")
signal.signal(signal.SIGTERM, end)
time.sleep(600)
"""


def asked(url: str, body: Any = None) -> str:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


async def test_an_engine_comes_up_answers_over_its_pods_address_and_leaves_nothing(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    spec = server(tenant, ENGINE, health_path="/health", files=ENGINE_FILES, gpus=8, gpu_product="NVIDIA-B200", shm="64Mi")
    waited: list[str] = []
    async with fleet(tenant) as found:
        async with serve(found, spec, None, progress=lambda starting: waited.append(starting.waits_for)) as engine:
            assert engine.node == tenant.node("one")
            assert engine.image_digest.startswith("sha256:")
            answer = await asyncio.to_thread(asked, f"{engine.url}/v1/completions", {"model": "m", "prompt": [1, 2, 3], "max_tokens": 4})
            assert json.loads(answer)["usage"]["completion_tokens"] == 4
            assert "listening on" in await engine.log()
            assert engine.ended() is None
            assert {kind for kind, _ in await tenant.objects()} == {"jobs", "pods", "services", "configmaps"}
        assert await tenant.objects() == set()
    assert "its health path to answer" in waited


async def test_a_pod_has_what_its_spec_says(cluster: Cluster, tmp_path: Path) -> None:
    """Paths, variables, secrets, claims, sizes, identity: as the container itself finds them."""
    tenant = await cluster.tenant(ONE)
    (tmp_path / "config.json").write_text("{}")
    await tenant.secret("hub", token="value-of-the-secret")
    await tenant.claim("weights", tmp_path)
    look = """
import json, os, pathlib, socket
found = {"env": dict(os.environ), "weights": os.listdir("/weights")}
shm = os.statvfs("/dev/shm")
found["shm"] = shm.f_blocks * shm.f_bsize
try:
    pathlib.Path("/weights/new").write_text("")
except OSError as error:
    found["write"] = error.strerror
found["file"] = pathlib.Path("/etc/specsweep/a.txt").read_text()
found["account"] = os.path.exists("/var/run/secrets/kubernetes.io")
pathlib.Path("/scratch/found.json").write_text(json.dumps(found))
os.chdir("/scratch")
os.execvp("python", ["python", "-m", "http.server", "8000", "--bind", "0.0.0.0"])
"""
    spec = server(
        tenant,
        ("python", "-c", look),
        env={"DOLLAR": "$(HOME)", "PLACE": "{files}"},
        secret_env={"HF_TOKEN": SecretRef("hub", "token")},
        files={"a.txt": "from a ConfigMap"},
        claims=(ClaimMount("weights", "/weights"),),
        shm="32Mi",
    )
    async with fleet(tenant) as found, serve(found, spec, None) as running:
        seen = json.loads(await asyncio.to_thread(asked, f"{running.url}/found.json"))
    assert seen["weights"] == ["config.json"]
    assert seen["write"] == "Read-only file system"
    assert seen["shm"] == 32 * 2**20
    assert seen["file"] == "from a ConfigMap"
    assert seen["account"] is False
    env = seen["env"]
    assert (env["HF_TOKEN"], env["HOME"], env["DOLLAR"], env["PLACE"]) == ("value-of-the-secret", "/scratch", "$(HOME)", "/etc/specsweep")
    assert not Path("/scratch").exists()


@pytest.mark.parametrize(
    ("fields", "error", "kind", "says"),
    [
        ({"secret_env": {"HF_TOKEN": SecretRef("hub", "token")}}, StartTerminal, "container config", 'secret "hub" not found'),
        ({"argv": ("no-such-program",)}, StartTerminal, "command", "executable file not found in $PATH"),
        ({"argv": ("sh", "-c", "echo loading; echo bad flag --tp >&2; exit 2")}, StartRetryable, "unknown", "bad flag --tp"),
        ({"argv": ("sh", "-c", "echo torch.OutOfMemoryError; exit 1")}, StartTerminal, "GPU memory", "lower the batch"),
        ({"argv": ("true",)}, StartRetryable, "unknown", "ended with code 0"),
        ({"argv": ("sh", "-c", "echo still loading; sleep 600"), "startup_s": 2}, StartTerminal, "never healthy", "health path"),
        (
            {"argv": ("python", "-c", LOADS), "placement": {"template": IMPATIENT}},
            StartTerminal,
            "never healthy",
            "KeyboardInterrupt: terminated",
        ),
        (
            {"argv": ("python", "-c", "x = bytearray(10**9)"), "memory": "100Mi"},
            StartTerminal,
            "host memory",
            "memory=100Mi",
        ),
    ],
    ids=["secret", "command", "crash", "gpu-memory", "code-0", "never-healthy", "startup-probe", "host-memory"],
)
async def test_what_does_not_come_says_why_and_leaves_nothing(
    cluster: Cluster, fields: dict[str, Any], error: type[Exception], kind: str, says: str
) -> None:
    tenant = await cluster.tenant(ONE)
    spec = server(tenant, **fields)

    def classify(log: str) -> LogCause | None:
        return LogCause("GPU memory", "lower the batch") if "OutOfMemoryError" in log else None

    async with fleet(tenant) as found:
        with pytest.raises(error) as failure:
            async with serve(found, spec, None, classify=classify):
                pytest.fail("it came")
        assert await tenant.objects() == set()
    assert failure.value.kind == kind  # type: ignore[attr-defined]
    assert says in str(failure.value)
    evidence = failure.value.evidence  # type: ignore[attr-defined]
    assert {"job.json", "pod.json", "events.txt"} <= evidence.keys()


async def test_the_log_of_a_crash_is_kept(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo line $i; done; kill -SEGV $$"
    async with fleet(tenant) as found:
        with pytest.raises(StartRetryable) as failure:
            async with serve(found, server(tenant, ("sh", "-c", script)), None):
                pytest.fail("it came")
    assert "SIGSEGV" in str(failure.value)
    assert failure.value.evidence["log.txt"].splitlines()[:2] == ["line 1", "line 2"]
    assert "Started" in failure.value.evidence["events.txt"]
    assert "Scheduled" in failure.value.evidence["events.txt"]


async def test_what_a_startup_probe_ended_was_not_ended_by_somebody(cluster: Cluster) -> None:
    """Its last words are those of a program that a person has stopped; the kubelet's events say what it was."""
    tenant = await cluster.tenant(ONE)
    async with fleet(tenant) as found:
        with pytest.raises(StartTerminal, match=r"its startup probe had it killed after \d+ s, .*Connect.*larger startup budget"):
            async with serve(found, server(tenant, ("python", "-c", LOADS), placement={"template": IMPATIENT}), None):
                pytest.fail("it came")


async def test_somebody_elses_job_of_that_name_is_left_alone(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    spec = server(tenant)
    container = {"name": "x", "image": "local/specsweep:test", "command": ["sleep", "600"]}
    job = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}, "metadata": {"name": spec.name}}
    async with cluster.admin() as admin:
        await admin.create(f"/apis/batch/v1/namespaces/{tenant.namespace}/jobs", job)
    async with fleet(tenant) as found:
        with pytest.raises(Conflict, match="is not ours"):
            async with serve(found, spec, None):
                pytest.fail("it came")
    assert ("jobs", spec.name) in await tenant.objects()
    assert not {kind for kind, _ in await tenant.objects()} & {"services"}


async def test_a_misspelt_field_of_a_template_is_refused_and_named(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    template = {"spec": {"containers": [{"name": "main", "startupProbe": {"periodsSeconds": 1}}]}}
    async with fleet(tenant) as found:
        with pytest.raises(Invalid, match=r'unknown field "spec\.template\.spec\.containers\[0\]\.startupProbe\.periodsSeconds"'):
            async with serve(found, server(tenant, placement={"template": template}), None):
                pytest.fail("it came")
    assert await tenant.objects() == set()


async def test_what_an_earlier_life_left_with_other_settings_is_replaced(cluster: Cluster) -> None:
    tenant = await cluster.tenant(ONE)
    before, now = server(tenant, gpus=8, env={"A": "1"}), server(tenant, gpus=8, env={"A": "2"})
    async with fleet(tenant) as found:
        left = await found.create(server_objects(before, None))
        async with serve(found, now, None) as running:
            (pod,) = await tenant.pods()
            assert pod["metadata"]["name"] == running.pod
            assert pod["metadata"]["ownerReferences"][0]["uid"] != left["metadata"]["uid"]
            assert {"name": "A", "value": "2"} in pod["spec"]["containers"][0]["env"]
        assert await tenant.objects() == set()


@pytest.mark.parametrize(("verb", "resource"), [("create", "jobs"), ("create", "services"), ("watch", "pods")])
async def test_a_missing_right_is_named(cluster: Cluster, verb: str, resource: str) -> None:
    tenant = await cluster.tenant(ONE)
    await tenant.forbid(verb, resource)
    with pytest.raises(Forbidden, match=f"the right to {verb} {resource}"):
        async with fleet(tenant) as found, serve(found, server(tenant), None):
            pytest.fail("it came")
    assert await tenant.objects() == set()
