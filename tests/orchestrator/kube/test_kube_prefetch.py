"""Every model of a plan is fetched once, onto the volume, as its engines load it; what is there is left alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from k8s_fake_api import Pods, Server
from k8s_pods import condition, ended, up
from plan_samples import plan_of

from specsweep.k8s.names import object_name
from specsweep.orchestrator import models
from specsweep.orchestrator.kube import prefetch
from specsweep.orchestrator.kube.prefetch import Wanted, models_of
from specsweep.orchestrator.kube.specs import fingerprint
from specsweep.orchestrator.kube.submission import job_name
from specsweep.orchestrator.model_sources import snapshot_sha256
from specsweep.orchestrator.preparation import Preparation

Command = Callable[..., Any]
WORDS = ("cluster=kubernetes", "cluster.image=reg/specsweep:1", "cluster.weights.claim=weights", "name=fig7")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = f"target.model={{source: hub, repo: org/model, revision: {COMMIT}}}"
TOKENIZER = {"config.json": "{}", "tokenizer.json": "{}"}


class Hub:
    """What is asked of the hub, and a cache in the place of its files."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def fetch(self, repo: str, revision: str, file: str | None, cache: Path, progress: Any, *, weights: bool = False) -> Path:
        self.asked.append((repo, weights))
        folder = cache / "models--org--model" / "snapshots" / revision
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {**TOKENIZER, **({"model.safetensors": "w" * 1000} if weights else {})}.items():
            (folder / name).write_text(text)
        return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    found = Hub()
    monkeypatch.setattr(models, "fetch_from_hub", found.fetch)
    return found


def write(tmp_path: Path, *wanted: Wanted) -> list[str]:
    file = tmp_path / "models.json"
    file.write_text(json.dumps([{"name": w.name, "spec": dict(w.spec), "weights": w.weights} for w in wanted]))
    return [str(file), str(tmp_path / "weights")]


MODEL = Wanted("target m", {"source": "hub", "repo": "org/model", "revision": COMMIT}, True)


def test_each_model_once_in_the_format_of_its_engine() -> None:
    words = (*WORDS, "drafter=none,draft_model", "target=tiny", "draft_length=2,3")
    plans = (plan_of(*words, "engine=vllm", "engine.image=r/vllm:1"), plan_of(*words, "engine=llamacpp"))
    found = models_of(session.config for plan in plans for session in plan.sessions)
    assert [(w.name, w.spec.get("convert", "f16"), w.weights) for w in found] == [
        ("target tiny", None, True),
        ("drafter draft_model", None, True),
        ("target tiny", "f16", True),
        ("drafter draft_model", "f16", True),
    ]


def test_an_engine_without_weights_needs_a_tokenizer_and_one_with_them_all() -> None:
    (only,) = models_of(session.config for session in plan_of(*WORDS, "engine=sim", "drafter=ngram", HUB).sessions)
    assert not only.weights
    plans = (plan_of(*WORDS, "engine=sim", "drafter=ngram", HUB), plan_of(*WORDS, "engine=vllm", "engine.image=r:1", "drafter=ngram", HUB))
    found = models_of(session.config for plan in plans for session in plan.sessions)
    assert [(model.spec["repo"], model.weights) for model in found] == [("org/model", True)]


def test_what_is_complete_is_left_alone(tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    words = write(tmp_path, MODEL)
    assert prefetch.main(words) == 0
    assert hub.asked == [("org/model", True)]
    assert "[1/1] target m: complete: " in capsys.readouterr().out
    assert prefetch.main(words) == 0
    assert len(hub.asked) == 1
    assert "[1/1] target m: is there already" in capsys.readouterr().out
    (tmp_path / "weights/hub/models--org--model/snapshots" / COMMIT / "model.safetensors").write_text("cut off")
    assert prefetch.main(words) == 0
    assert len(hub.asked) == 2, "a file that is not as it was is fetched again"


def test_a_branch_is_looked_up_each_time(tmp_path: Path, hub: Hub) -> None:
    words = write(tmp_path, Wanted("target m", {**MODEL.spec, "revision": "main"}, True))
    assert [prefetch.main(words), prefetch.main(words)] == [0, 0]
    assert len(hub.asked) == 2


def test_one_that_cannot_be_had_keeps_no_other_away(tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    missing = Wanted("target gone", {"source": "path", "path": str(tmp_path / "none")}, True)
    assert prefetch.main(write(tmp_path, missing, MODEL)) == 2
    out = capsys.readouterr().out.splitlines()
    assert hub.asked == [("org/model", True)]
    assert out[-1].startswith("1 of 2 models could not be had: target gone: model.path=")


def test_how_much_was_fetched_is_said_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    import time

    monkeypatch.setattr(prefetch, "SAY_S", 0.01)
    said: list[str] = []
    slow = hub.fetch

    def fetch(*args: Any, **more: Any) -> Path:
        folder = slow(*args, **more)
        end = time.monotonic() + 20
        while not any("GB so far" in words for words in said) and time.monotonic() < end:
            time.sleep(0.01)
        return folder

    monkeypatch.setattr(models, "fetch_from_hub", fetch)
    prefetch.fetch(MODEL, tmp_path, said.append)
    assert any("GB so far" in words for words in said)


def test_a_hub_model_has_one_hash_with_and_without_its_weights(tmp_path: Path, hub: Hub) -> None:
    spec = MODEL.spec
    without = models.ensure_model(spec, tmp_path / "a", progress=lambda _: None)
    whole = models.ensure_model(spec, tmp_path / "b", progress=lambda _: None, weights=True)
    assert whole.sha256 == without.sha256
    (whole.path / "config.json").write_text('{"other": 1}')
    assert snapshot_sha256(whole.path) != whole.sha256


def test_a_sweep_fetches_weights_where_engines_cannot(tmp_path: Path, hub: Hub) -> None:
    words = (*WORDS, "engine=vllm", "engine.image=r/vllm:1", "drafter=none", HUB, f"cache={tmp_path}")
    (point,) = plan_of(*words, f"cluster.weights.path={tmp_path}").points
    Preparation(tmp_path, lambda _: None).models(point.config)
    (other,) = plan_of(*words, "cluster.weights.path=/weights").points
    Preparation(tmp_path, lambda _: None).models(other.config)
    assert hub.asked == [("org/model", True), ("org/model", False)]


async def test_the_command_waits_for_the_download_and_tells_how_far_it_is(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.put("persistentvolumeclaims", {"metadata": {"name": "weights"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    pods = Pods(api_server, up(started=5, ready=True))
    name = object_name("prefetch-fig7", fingerprint("fig7"))
    api_server.logs[f"{name}-x7k2p"] = "[1/2] target tiny: 12.30 GB so far\n"
    words = ("sweep=smoke", "engine=sim", *WORDS, "cluster.hub_token.secret=hub")
    running = asyncio.create_task(specsweep("prefetch", *words))
    async with asyncio.timeout(30):
        while not api_server.seen("GET", "/log"):
            await asyncio.sleep(0.01)
        job = api_server.objects["jobs", name]
        api_server.put("jobs", {**job, "status": {"conditions": [condition("Complete", "True", 1, "CompletionsReached", "m")]}})
        assert await running == 0
    await pods.stop()
    (main,) = job["spec"]["template"]["spec"]["containers"]
    env = {variable["name"]: variable for variable in main["env"]}
    assert env["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert env["HF_HUB_CACHE"]["value"] == "/weights/hub"
    assert [mount.get("readOnly") for mount in main["volumeMounts"] if mount["mountPath"] == "/weights"] == [False]
    told = capsys.readouterr()
    assert "12.30 GB so far" in told.err
    assert "fig7: 1 model is on volume weights" in told.out


async def test_a_model_that_cannot_be_had_is_told_once_without_objects(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.put("persistentvolumeclaims", {"metadata": {"name": "weights"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    pods = Pods(api_server, ended(2))
    name = object_name("prefetch-fig7", fingerprint("fig7"))
    api_server.logs[f"{name}-x7k2p"] = "1 of 1 models could not be had: target tiny: No matching distribution found for tiny\n"
    assert await specsweep("prefetch", "sweep=smoke", "engine=sim", *WORDS) == 2
    await pods.stop()
    told = capsys.readouterr().err
    assert told.count("No matching distribution") == 1
    assert "no known cause" not in told
    assert '"kind"' not in told
    (rule,) = [r for r in api_server.objects["jobs", name]["spec"]["podFailurePolicy"]["rules"] if r["action"] == "FailJob"]
    assert rule["onExitCodes"]["values"] == [2], "nor does the Job try again when nobody waits for it"


@pytest.mark.parametrize("first", ["prefetch", "submit"])
async def test_a_download_goes_with_its_sweep(api_server: Server, specsweep: Command, first: str) -> None:
    api_server.put("persistentvolumeclaims", {"metadata": {"name": "weights"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    pods = Pods(api_server, ended(0, "Completed"))
    words = ("sweep=smoke", "engine=sim", *WORDS)
    for command in ("prefetch", "submit") if first == "prefetch" else ("submit", "prefetch"):
        assert await specsweep(command, *words) == 0
    await pods.stop()
    sweep_job = api_server.objects["jobs", job_name("fig7")]["metadata"]["uid"]
    name = object_name("prefetch-fig7", fingerprint("fig7"))
    for kind in ("jobs", "configmaps"):
        assert [owner["uid"] for owner in api_server.objects[kind, name]["metadata"]["ownerReferences"]] == [sweep_job]


async def test_what_was_fetched_as_json(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    api_server.put("persistentvolumeclaims", {"metadata": {"name": "weights"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    pods = Pods(api_server, ended(0, "Completed"))
    assert await specsweep("prefetch", "sweep=smoke", "engine=sim", *WORDS, "--json") == 0
    await pods.stop()
    told = json.loads(capsys.readouterr().out)
    assert (told["volume"], told["models"]) == ("weights", ["target tiny"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sweep=smoke", "engine=sim", "cluster=kubernetes", "cluster.image=r:1"), "cluster.weights.claim is not set"),
        (("sweep=smoke",), "cluster=local is of kind local"),
    ],
)
async def test_bad_words(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], words: Any, told: str) -> None:
    assert await specsweep("prefetch", *words) == 2
    assert told in capsys.readouterr().err
    assert api_server.requests == []
