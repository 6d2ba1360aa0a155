"""A sweep is handed over with the words it was asked for with; what cannot be right is told before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from k8s_fake_api import Server
from plan_samples import write_groups

from specsweep.orchestrator.kube import submission
from specsweep.orchestrator.kube.config_files import packed, unpacked

Command = Callable[..., Any]
WORDS = ("sweep=smoke", "cluster=kubernetes", "engine=sim", "cluster.image=reg/specsweep:1")
JOB = submission.job_name("smoke")


def job_of(api_server: Server) -> dict[str, Any]:
    return api_server.objects["jobs", JOB]


def main_of(job: dict[str, Any]) -> dict[str, Any]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return dict(container)


def claim(name: str, *modes: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"accessModes": list(modes)}, "status": {"phase": "Bound"}}


async def test_the_job_runs_the_same_words(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("submit", *WORDS, "batch_size=1,4", "engine.version=0.10") == 0
    job = job_of(api_server)
    main = main_of(job)
    assert main["command"] == ["specsweep"]
    assert main["args"] == ["run", *WORDS, "batch_size=1,4", "engine.version=0.10", "store=/scratch/results", "cache=/scratch/cache"]
    env = {variable["name"]: variable.get("value") for variable in main["env"]}
    assert env["SPECSWEEP_JOB"] == JOB, "the pod gives all that it starts to its own Job"
    assert job["metadata"]["labels"]["specsweep.io/sweep"] == "smoke"
    assert json.loads(job["metadata"]["annotations"][submission.OVERRIDES]) == [*WORDS, "batch_size=1,4", "engine.version=0.10"]
    (rule,) = [rule for rule in job["spec"]["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert rule["onExitCodes"]["values"] == [2, 3, 4, 5], "and not 6, 75 and 130: those may be over at the next try"
    told = capsys.readouterr()
    assert f"smoke (4 points in 2 sessions) was handed over as Job {JOB} in namespace bench" in told.out
    assert "specsweep status smoke cluster=kubernetes" in told.out
    assert "kubectl get jobs,pods -l specsweep.io/sweep=smoke -n bench" in told.out
    assert "cluster.results.claim is not set" in told.err


async def test_results_and_models_go_to_the_volumes_whatever_was_typed(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.put("persistentvolumeclaims", claim("results", "ReadWriteOnce"))
    api_server.put("persistentvolumeclaims", claim("weights", "ReadWriteMany"))
    words = (*WORDS, "cluster.results.claim=results", "cluster.weights.claim=weights", "store=/home/me/r", "cache=/home/me/c")
    assert await specsweep("submit", *words) == 0
    job = job_of(api_server)
    args = main_of(job)["args"]
    assert [word for word in args if word.startswith(("store=", "cache="))] == ["store=/results/smoke", "cache=/weights"]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in main_of(job)["volumeMounts"]}
    assert (mounts["/results"], mounts["/weights"]) == (False, False)
    assert "store=/home/me/r is a folder of this machine: results go to claim results, in /results/smoke" in capsys.readouterr().err


async def test_a_volume_that_nobody_may_write_is_mounted_so(api_server: Server, specsweep: Command) -> None:
    api_server.put("persistentvolumeclaims", claim("weights", "ReadOnlyMany"))
    assert await specsweep("submit", *WORDS, "cluster.weights.claim=weights") == 0
    assert "cache=/scratch/cache" in main_of(job_of(api_server))["args"]
    (mount,) = [mount for mount in main_of(job_of(api_server))["volumeMounts"] if mount["mountPath"] == "/weights"]
    assert mount["readOnly"]


async def test_a_claim_that_is_not_there_is_told_before(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("submit", *WORDS, "cluster.results.claim=reslts") == 2
    assert "cluster.results.claim=reslts: namespace bench has no PersistentVolumeClaim of that name" in capsys.readouterr().err
    assert ("jobs", JOB) not in api_server.objects


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sweep=smoke",), "cluster=local is of kind local"),
        (("sweep=smoke", "cluster=kubernetes", "engine=sim"), "cluster.image is not set"),
        (("sweep=smoke", "cluster=kubernetes", "engine=vllm", "cluster.image=r/s:1", "engine.image=null"), "engine.image is not set"),
        ((*WORDS, "cluster.pod.cpus=3"), "cluster.pod.cpus is not known; cluster.pod has"),
        ((*WORDS, "cluster.pod.cpu=many"), "many"),
        ((*WORDS, "cluster.sweep.memory=lots"), "lots"),
        ((*WORDS, "+engine.env.HF_TOKEN=hf_abcdefghijklmnopqrstu"), "a secret in it could be read by everybody"),
        ((*WORDS, "+engine.pod.env.API_KEY=abc"), "a secret in it could be read by everybody"),
        ((*WORDS, "tracking.uri=http://me:pass@mlflow:5000"), "a secret in it could be read by everybody"),
        ((*WORDS, "cluster.pod.template={spec: {restartPolicy: Always}}"), "spec.restartPolicy='Always': it stays 'Never'"),
        ((*WORDS, "target.pod={template: {metadata: {labels: {specsweep.io/sweep: x}}}}"), "would hide the pod from us"),
        ((*WORDS, "cluster.pod.tolerations=[gpu]"), "a toleration is a mapping"),
        ((*WORDS, "batch_size=0"), "batch_size=0"),
        ((*WORDS, "tracking.uri=sqlite:////tmp/mlflow.db"), "that database is on this machine, and pods see volumes only"),
    ],
)
async def test_bad_input_reaches_no_cluster(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert await specsweep("submit", *words) == 2
    found = capsys.readouterr()
    assert told in found.err
    assert "pass@" not in found.err
    assert api_server.requests == []


async def test_the_users_own_groups_travel_with_it(api_server: Server, specsweep: Command, tmp_path: Path) -> None:
    mine = write_groups(tmp_path / "mine", {"sweep/own": "name: own\naxes: {engine: sim, drafter: [none, ngram], target: tiny}\n"})
    (mine / "notes.yaml").write_text("not: a group\n")
    words = ("sweep=own", "cluster=kubernetes", "cluster.image=reg/specsweep:1")
    assert await specsweep("submit", *words, "--config-dir", str(mine)) == 0
    name = submission.job_name("own")
    files = api_server.objects["configmaps", name]
    assert list(files["data"]) == ["config-1..sweep..own.yaml"]
    job = api_server.objects["jobs", name]
    assert main_of(job)["args"][-2:] == ["--config-dir", "/etc/specsweep/config-1"]
    (volume,) = [volume for volume in job["spec"]["template"]["spec"]["volumes"] if volume["name"] == "files"]
    assert volume["configMap"]["items"] == [{"key": "config-1..sweep..own.yaml", "path": "config-1/sweep/own.yaml"}]


def test_groups_are_the_same_after_their_travel(tmp_path: Path) -> None:
    first = write_groups(tmp_path / "a", {"engine/mine": "name: mine\n", "target/sub/b": "name: ü\n"})
    second = write_groups(tmp_path / "b", {"engine/mine": "name: other\n"})
    folders = unpacked(packed([first, second]), tmp_path / "there")
    assert [Path(folder).name for folder in folders] == ["config-1", "config-2"]
    assert (Path(folders[0]) / "target/sub/b.yaml").read_text(encoding="utf-8") == "name: ü\n"
    assert (Path(folders[1]) / "engine/mine.yaml").read_text() == "name: other\n"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("engine/mine", "env: {HF_TOKEN: hf_abcdefghijklmnopqrstuvwx}\n", "holds a token"),
        ("engine/my engine", "name: mine\n", "files='config-1/engine/my engine.yaml'"),
        ("engine/large", "# " + "x" * 1_000_001, "a ConfigMap holds 1000000"),
    ],
)
async def test_groups_that_no_config_map_may_hold(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, told: str
) -> None:
    mine = write_groups(tmp_path / "mine", {name: text})
    assert await specsweep("submit", *WORDS, "--config-dir", str(mine)) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "hf_abc" not in err
    assert api_server.requests == []


async def test_programs_get_the_same_as_json(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("submit", *WORDS, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {
        "sweep": "smoke", "job": JOB, "namespace": "bench", "ran_already": False, "points": 4, "sessions": 2, "cells_left_out": 0
    }  # fmt: skip


async def test_the_way_to_the_cluster_is_not_that_from_inside(api_server: Server, specsweep: Command, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    assert await specsweep("submit", *WORDS, f"cluster.kubeconfig={config}", "cluster.context=lab", "cluster.namespace=other") == 0
    args = main_of(job_of(api_server))["args"]
    assert str(config) not in " ".join(args)
    assert args[-2:] == ["cluster.kubeconfig=null", "cluster.context=null"]
    assert "cluster.namespace=other" in args


async def test_a_model_on_the_weights_volume_need_not_be_here(api_server: Server, specsweep: Command) -> None:
    api_server.put("persistentvolumeclaims", claim("weights", "ReadWriteMany"))
    words = (*WORDS, "cluster.weights.claim=weights", "drafter=none", "target.model={source: path, path: /weights/llama}")
    assert await specsweep("submit", *words) == 0
    assert await specsweep("submit", *WORDS, "target.model={source: path, path: /elsewhere/llama}", "drafter=none") == 2


async def test_the_tracking_server_is_the_one_that_pods_see(
    api_server: Server, specsweep: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert await specsweep("submit", *WORDS) == 0
    assert "is this machine; name the server as pods see it" in capsys.readouterr().err
    assert "MLFLOW_TRACKING_URI" not in {variable["name"] for variable in main_of(job_of(api_server))["env"]}
    api_server.remove("jobs", JOB)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert await specsweep("submit", *WORDS) == 0
    assert {"name": "MLFLOW_TRACKING_URI", "value": "http://mlflow:5000"} in main_of(job_of(api_server))["env"]


async def test_what_is_only_on_this_machine_is_said(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    api_server.put("persistentvolumeclaims", claim("weights", "ReadWriteMany"))
    model = f"target.model={{source: path, path: /weights/llama, tokenizer: {Path(__file__).parents[2]}/tiny_pair}}"
    words = (*WORDS, "cluster.weights.claim=weights", "drafter=none", model, "tracking.uri=http://localhost:5000")
    assert await specsweep("submit", *words) == 0
    told = capsys.readouterr().err
    assert "target.model.tokenizer=" in told
    assert "target.model.path=" not in told, "it is on a volume"
    assert "workload.corpus" not in told, "it comes with the image"
    assert "tracking.uri=http://localhost:5000 is this machine" in told
    assert await specsweep("submit", *WORDS, "name=other") == 0
    assert "target tiny is part of specsweep's source tree" in capsys.readouterr().err


async def test_submitting_again_says_that_it_runs(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("submit", *WORDS) == 0
    assert await specsweep("submit", *WORDS) == 0
    assert "runs already, with the same words" in capsys.readouterr().out
    assert await specsweep("submit", *WORDS, "seed=1") == 3
    assert "runs with other settings; cancel it first" in capsys.readouterr().err


async def test_a_dry_run_keeps_nothing(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert await specsweep("submit", *WORDS, "--dry-run") == 0
    (job,) = yaml.safe_load_all(capsys.readouterr().out)
    assert (job["kind"], job["metadata"]["name"]) == ("Job", JOB)
    (asked,) = api_server.seen("POST", "/jobs")
    assert asked.query["dryRun"] == "All"
    assert ("jobs", JOB) not in api_server.objects


async def test_a_secret_in_a_group_that_is_not_even_used_does_not_travel(
    api_server: Server, specsweep: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_groups(tmp_path / "groups", {"engine/other": "args: {api_key: hunter2}\n"})
    assert await specsweep("submit", *WORDS, "--config-dir", str(tmp_path / "groups")) == 2
    told = capsys.readouterr().err
    assert "other.yaml holds a secret at args.api_key" in told
    assert "hunter2" not in told
    assert api_server.requests == []


async def test_variables_of_this_machine_are_said_not_to_be_the_pods(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", "/mnt")
    assert await specsweep("submit", *WORDS, "store=${oc.env:SCRATCH}/r", "hardware=${oc.env:SCRATCH}") == 0
    told = capsys.readouterr().err
    assert told.count("${oc.env:SCRATCH} is read in the sweep's pod") == 1, "the store is on a volume whatever it says"
