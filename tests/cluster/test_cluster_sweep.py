"""A whole sweep in the cluster, as a user has it: the chart, `specsweep submit`, and points that are those of a run at home."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import pytest

from cluster import charts
from cluster.charts import install
from cluster.harness import Cluster, until
from cluster.images import SYSTEM_PATH, Image
from cluster.node import NodeSpec
from cluster.sweeps import settings, specsweep, submitted
from specsweep.orchestrator.engines.vllm_env import built, problem
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

NODES = tuple(NodeSpec(name) for name in "abc")
GRID = (
    "sweep=smoke",
    "engine=sim,sim_sglang",
    "target=one_gpu,eight_gpus",
    "drafter=none,ngram,draft_model",
    "draft_length=3",
    "batch_size=1,4",
    "workload.osl=32",
    "engine.speedup=0.2",  # slow enough for several simulators to be on time on two cores
)
POINTS = 2 * 2 * 3 * 2


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """A user's own config groups: another wire, and two sizes of one target."""
    files = {
        "engine/sim_sglang.yaml": "defaults: [sim, _self_]\ndialect: sglang\n",
        "target/one_gpu.yaml": "defaults: [tiny, _self_]\npod: {gpus: 1, gpu_product: NVIDIA-B200}\n",
        "target/eight_gpus.yaml": "defaults: [tiny, _self_]\ntensor_parallel: 8\npod: {gpus: 8, gpu_product: NVIDIA-B200}\n",
    }
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "groups"


async def test_a_sweep_of_two_engines_on_three_nodes_is_the_sweep_at_home(cluster: Cluster, tmp_path: Path, groups: Path) -> None:
    tenant = await cluster.tenant(*NODES, rules=())
    for name in ("results", "mlflow"):
        (tmp_path / name).mkdir()
        await tenant.claim(name, tmp_path / name)
    values = ("mlflow.enabled=true", "mlflow.persistence.existingClaim=mlflow", "results.existingClaim=results")
    user = await install(tenant, *values)
    words = (*GRID, "--config-dir", str(groups))
    sweep = await submitted(
        tenant,
        tmp_path / "results",
        "both",
        [
            *words,
            f"cluster.service_account={charts.ACCOUNT}",
            "cluster.max_parallel_sessions=4",
            f"tracking.uri=http://{charts.ACCOUNT}-mlflow:5000",
        ],
        user=user,
    )
    assert await sweep.finished() in ("Complete", "Failed")
    home = tmp_path / "home"
    await specsweep("run", *words, "cluster=local", "name=both", f"store={home}", "tracking.enabled=false", kubeconfig=user, code=None)

    there, here = ({d["point"]["point_id"]: d for d in store.sweep("both").records()} for store in (sweep.store, Store(home)))
    assert there.keys() == here.keys()
    assert len(there) == POINTS
    for point_id, document in there.items():
        assert document["point"]["status"] == "measured", document["point"]["error"]
        ours, theirs = (d["measurement"]["metrics"] for d in (document, here[point_id]))
        assert ours["al_decode"] == pytest.approx(theirs["al_decode"], rel=0.15)
        assert 1 / 3 < ours["step_ms_mean"] / theirs["step_ms_mean"] < 3, "pods share this machine's cores with all that runs beside them"
        assert document["measurement"]["simulated"] is True
        env = document["point"]["env"]
        assert env["host"]["gpus"] == (8 if "eight" in document["point"]["axes"]["target"] else 1)
        assert env["host"]["image_digest"].startswith("sha256:")
        assert env["unstable"]["node"] in {tenant.node(name) for name in "abc"}
    nodes = {d["point"]["env"]["unstable"]["node"] for d in there.values()}
    assert len(nodes) > 1, "sessions ran side by side"

    mlflow.set_tracking_uri(f"sqlite:///{next((tmp_path / 'mlflow').rglob('*.db'))}")
    runs = mlflow.search_runs(experiment_names=["both"], output_format="list")
    assert len([run for run in runs if "point_id" in run.data.tags]) == POINTS

    engines = [job for job in await sweep.jobs() if job["metadata"]["labels"].get("app.kubernetes.io/component") == "engine"]
    assert not engines
    told = await specsweep("status", "both", *settings(tenant), kubeconfig=user)
    assert f"{POINTS} of {POINTS} points measured" in told
    await specsweep("cancel", "both", *settings(tenant), kubeconfig=user)
    assert not {name for kind, name in await tenant.objects() if "both" in name or "sim" in name}


async def test_the_real_engines_on_the_tiny_pair(cluster: Cluster, tmp_path: Path) -> None:
    """llama.cpp as pods, one GPU each: what it measures is no simulation, and speculation shows."""
    tenant = await cluster.tenant(*NODES)
    (tmp_path / "results").mkdir()
    (tmp_path / "weights").mkdir()
    await tenant.claim("weights", tmp_path / "weights")
    grid = ["sweep=smoke", "engine=llamacpp", "drafter=none,draft_model", "batch_size=1,2", "target.pod={gpus: 1}", "engine.threads=1"]
    sweep = await submitted(tenant, tmp_path / "results", "real", [*grid, "cluster.weights.claim=weights", "tracking.enabled=false"])
    await sweep.finished()
    found = sweep.documents()
    assert len(found) == 4, await sweep.logs()
    for document in found:
        assert document["point"]["status"] == "measured", document["point"]["error"]
        assert not document["measurement"].get("simulated")
    drafted = [d["measurement"]["metrics"]["al_decode"] for d in found if d["point"]["axes"]["drafter"] == "draft_model"]
    assert all(al > 1.2 for al in drafted)


@pytest.mark.own_env
async def test_the_real_vllm_on_the_tiny_pair(cluster: Cluster, tmp_path: Path) -> None:
    """From an image of its own, with the model on a volume that its pod may only read."""
    if (lacks := problem({})) is not None:
        pytest.skip(lacks)
    tenant = await cluster.tenant(*NODES)
    for name in ("results", "weights"):
        (tmp_path / name).mkdir()
    await tenant.claim("weights", tmp_path / "weights")
    cluster.kubelet.images.put("local/vllm:0.32.0", Image(env={"PATH": f"{built().parent}:{SYSTEM_PATH}"}))
    grid = [
        "sweep=smoke",
        "engine=vllm",
        "engine.image=local/vllm:0.32.0",
        "engine.dtype=float32",
        "drafter=none,draft_model",
        "batch_size=1,2",
    ]
    place = [
        "cluster.weights.claim=weights",
        "target.pod={gpus: 1}",
        "cluster.pod.memory=8Gi",
        "cluster.pod.shm=1Gi",
        "cluster.deadlines.startup_s=240",
    ]
    sweep = await submitted(tenant, tmp_path / "results", "real", [*grid, *place, "tracking.enabled=false"])
    await sweep.finished()
    found = sweep.documents()
    assert len(found) == 4, await sweep.logs()
    for document in found:
        assert document["point"]["status"] == "measured", document["point"]["error"]
        assert document["point"]["env"]["engine"]["version"].startswith("0.32")
    drafted = [d["measurement"]["metrics"]["al_decode"] for d in found if d["point"]["axes"]["drafter"] == "draft_model"]
    assert all(al > 1.2 for al in drafted)


async def test_eight_gpus_are_waited_for_in_the_schedulers_words(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(NodeSpec("a", gpus=4))
    (tmp_path / "results").mkdir()
    grid = ["sweep=smoke", "engine=sim", "drafter=none", "batch_size=1", "target.pod={gpus: 8}", "tracking.enabled=false"]
    sweep = await submitted(tenant, tmp_path / "results", "large", [*grid, "cluster.deadlines.queue_s=3"])
    assert await sweep.finished() == "Failed"
    (failed,) = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("point.json")]
    assert failed["error"]["kind"] == "ClusterTerminal"
    assert "Insufficient nvidia.com/gpu" in failed["error"]["message"]


async def test_a_right_that_is_missing_is_named_before_anything_starts(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    await tenant.claim("results", tmp_path)
    await tenant.forbid("create", "jobs")
    said = await specsweep("submit", *settings(tenant), "sweep=smoke", "engine=sim", kubeconfig=tenant.kubeconfig, code=3)
    assert "create jobs" in said
    doctor = await specsweep("doctor", *settings(tenant), "engine=sim", "target=tiny", kubeconfig=tenant.kubeconfig, code=3)
    assert "create jobs.batch" in doctor


async def test_a_sweep_is_cancelled_in_the_middle_and_leaves_only_its_results(cluster: Cluster, tmp_path: Path) -> None:
    tenant = await cluster.tenant(NodeSpec("a"))
    (tmp_path / "results").mkdir()
    grid = ["sweep=smoke", "engine=sim", "drafter=none,ngram", "batch_size=1,2", "engine.speedup=0.2", "tracking.enabled=false"]
    sweep = await submitted(tenant, tmp_path / "results", "halfway", grid)
    await sweep.until_measured(1)
    await specsweep("cancel", "halfway", *settings(tenant), kubeconfig=tenant.kubeconfig)
    assert await tenant.objects() == set()
    before = sweep.measured()
    assert 1 <= before < 4
    await specsweep("submit", *settings(tenant), "name=halfway", *grid, kubeconfig=tenant.kubeconfig)
    await sweep.finished()

    async def all_there() -> bool:
        return sweep.measured() == 4

    await until(all_there, "the rest of the points")
    assert len(sweep.events("point_started")) <= 4 + 1, "what was measured is not measured again"
