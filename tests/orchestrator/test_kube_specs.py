"""From a config to what Kubernetes is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from plan_samples import plan_of

from specsweep.k8s.manifests import server_objects
from specsweep.orchestrator.engines import EngineSpec
from specsweep.orchestrator.errors import ClusterRetryable, ClusterTerminal, ConfigError, EngineRetryable, EngineTerminal
from specsweep.orchestrator.kube import outcomes
from specsweep.orchestrator.kube.settings import Settings, need_of, pod_of
from specsweep.orchestrator.kube.specs import engine_name, image_of, server_spec

OVERRIDES = ("sweep=smoke", "engine=sim", "target=tiny", "cluster=kubernetes", "cluster.image=reg/specsweep:1")
SPEC = EngineSpec("sim", ("serve", "{port}"), "tiny", files={"server.json": "{}"}, startup_timeout_s=60)


def config_of(*overrides: str) -> Any:
    return plan_of(*OVERRIDES, "drafter=ngram", "draft_length=3", *overrides).sessions[0].config


def made(*overrides: str, **fields: Any) -> Any:
    config = config_of(*overrides)
    return server_spec(SPEC, config, Settings.of(config), sweep="fig7", session_id="ab" * 32, namespace="bench", **fields)


def test_settings_are_laid_over_each_other_from_the_general_to_the_particular() -> None:
    config = config_of(
        "cluster.pod.cpu=2",
        "engine.pod={cpu: 3, env: {A: 1}, node_selector: {zone: a}}",
        "target.pod={cpu: 4, node_selector: {rack: b}, gpus: 8}",
    )
    pod = pod_of(config)
    assert (pod["cpu"], pod["memory"], pod["env"], pod["node_selector"]) == (4, "96Gi", {"A": 1}, {"zone": "a", "rack": "b"})
    assert need_of(config).gpus == 8


def test_a_point_is_the_same_point_wherever_it_runs() -> None:
    here, there = plan_of("sweep=smoke", "engine=sim", "target=tiny"), plan_of(*OVERRIDES, "engine.pod.cpu=3", "target.pod.gpus=1")
    assert [p.point_id for p in here.points] == [p.point_id for p in there.points]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (("engine.pod={cpus: 3}",), r"engine\.pod\.cpus is not known; engine\.pod has"),
        (("target.pod={gpus: many}",), r"target\.pod\.gpus='many': a whole number"),
        (("cluster.gpu_limits={NVIDIA-B200: 0}",), r"cluster\.gpu_limits\.NVIDIA-B200=0"),
        (("cluster.results={claim: r, path: results}",), r"path='results' must be absolute"),
        (("cluster.pod.memory=lots",), r"memory"),
        (("cluster.pod.shm=200Gi",), r"shm"),
        (("engine.pod={env: {HF_TOKEN: hf_abcdefghijklmnopqrstuv}}",), r"HF_TOKEN holds a secret"),
    ],
)
def test_what_cannot_be_right_is_told_with_its_field(overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        made(*overrides)


def test_an_engine_without_an_image_is_refused_by_name() -> None:
    config = {**config_of(), "engine": {**config_of()["engine"], "name": "vllm", "image": None}}
    with pytest.raises(ConfigError, match=r"engine\.image is not set"):
        image_of(config, Settings.of(config))
    unset = {**config_of(), "cluster": {**config_of()["cluster"], "image": None}}
    with pytest.raises(ConfigError, match=r"cluster\.image is not set"):
        image_of(unset, Settings.of(unset))


def test_the_pod_has_gpus_volumes_token_and_the_nodes_to_avoid() -> None:
    spec = made(
        "target.pod={gpus: 8}", "cluster.pod.gpu_product=NVIDIA-B200", "cluster.weights.claim=models", "cluster.hub_token.secret=hub", "cluster.queue=team",
        avoid={"node-7"},
    )  # fmt: skip
    job = server_objects(spec, None)[-1]
    pod = job["spec"]["template"]["spec"]
    main = pod["containers"][0]
    env = {item["name"]: item for item in main["env"]}
    assert main["resources"]["limits"]["nvidia.com/gpu"] == main["resources"]["requests"]["nvidia.com/gpu"] == "8"
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-B200"}
    assert env["HF_TOKEN"] == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert (env["HF_HUB_CACHE"]["value"], env["HF_HUB_OFFLINE"]["value"]) == ("/weights/hub", "1")
    assert [v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v] == [
        {"claimName": "models", "readOnly": True}
    ]
    assert job["spec"]["suspend"] is True
    (term,) = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchFields"][0] == {"key": "metadata.name", "operator": "NotIn", "values": ["node-7"]}


def test_names_are_found_again_and_never_shared_by_two_sweeps() -> None:
    config = config_of()
    assert engine_name(config, "fig7", "s1") == engine_name(config, "fig7", "s1")
    assert engine_name(config, "fig7", "s1") != engine_name(config, "fig8", "s1")
    assert engine_name(config, "fig7", "s1").startswith("sim-ngram-dl3-")
    long = engine_name({**config, "drafter": {**config["drafter"], "method": "x" * 90}}, "fig7", "s1")
    assert len(long) <= 63


@pytest.mark.parametrize(
    ("kind", "retryable", "expected"),
    [
        ("evicted", True, ClusterRetryable),
        ("no node", False, ClusterTerminal),
        ("image", False, ClusterTerminal),
        ("unknown", True, EngineRetryable),
        ("GPU memory", False, EngineTerminal),
        ("host memory", False, EngineTerminal),
        ("never healthy", False, EngineTerminal),
    ],
)
def test_whose_fault_an_end_was_decides_the_error(kind: str, retryable: bool, expected: type[Exception]) -> None:
    from specsweep.k8s.errors import StartRetryable, StartTerminal

    evidence = {"where.json": '{"node": "n1"}', "log.txt": "the log", "pod.json": "{}"}
    error = (StartRetryable if retryable else StartTerminal)("words", kind=kind, evidence=evidence)
    found = outcomes.as_error(error)
    assert type(found) is expected
    assert found.node == "n1"
    assert found.evidence.rstrip().endswith("the log")


def test_an_engines_last_words_are_read_by_the_table_of_its_causes() -> None:
    cause = outcomes.cause("loading\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    assert cause is not None
    assert not cause.retryable
    assert "Tried to allocate" in cause.message
    assert outcomes.cause("all is well") is None


def test_a_model_that_the_engines_pod_cannot_see_is_refused_before_it_is_started() -> None:
    spec = EngineSpec("llamacpp", ("serve", "/scratch/cache/converted/model.gguf"), "tiny")
    config = config_of("cache=/scratch/cache")
    with pytest.raises(ConfigError, match=r"only the sweep's own pod has: cluster\.weights\.claim is not set"):
        server_spec(spec, config, Settings.of(config), sweep="s", session_id="ab", namespace="bench")
    config = config_of("cache=/scratch/cache", "cluster.weights={claim: models, path: /scratch}")
    assert server_spec(spec, config, Settings.of(config), sweep="s", session_id="ab", namespace="bench").program.claims
