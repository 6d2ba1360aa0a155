"""Evidence is whole, bounded, free of secrets, and taken even where parts cannot be read."""

from __future__ import annotations

import json

import k8s_pods as seen
from k8s_fake_api import connected, failed

from specsweep.k8s import evidence

NAME = "fig7-3f2a91c0e2-x7k2p"
SECRET = "hf_" + "a1B2" * 6


async def test_pod_job_events_logs_and_place() -> None:
    async with connected() as (api_server, api):
        api_server.logs[NAME] = "line 1\nCUDA error\n"
        pod = seen.ended(1, containers=[seen.status(seen.terminated(1), restarts=2)])
        pod["metadata"]["managedFields"] = [{"manager": "kubelet"}]
        events = [seen.event("BackOff", "Back-off pulling image", 60, 5), seen.event("FailedScheduling", "0/3 nodes", 90, new_style=True)]
        texts = await evidence.gather(api, pod=pod, job=seen.job(), events=events)
    assert set(texts) == {"pod.json", "job.json", "events.txt", "log.txt", "previous-log.txt", "where.json"}
    assert "managedFields" not in json.loads(texts["pod.json"])["metadata"]
    assert json.loads(texts["where.json"]) == {
        "pod": NAME,
        "node": seen.NODE,
        "image_id": "docker.io/vllm/vllm-openai@sha256:6f1e3a",
        "image_digest": "sha256:6f1e3a",
    }
    assert "BackOff (× 3): Back-off pulling image" in texts["events.txt"]
    assert "FailedScheduling: 0/3 nodes" in texts["events.txt"]
    assert texts["log.txt"].endswith("CUDA error\n")
    assert api_server.requests[-1].query["previous"] == "true"


async def test_no_secret_is_kept() -> None:
    async with connected() as (api_server, api):
        api_server.logs[NAME] = f"HF_TOKEN={SECRET}\nAuthorization: Bearer {SECRET}\n"
        pod = seen.up(started=5, ready=True)
        pod["spec"]["containers"][0]["env"] = [{"name": "DB_PASSWORD", "value": "plain-secret"}, {"name": "X", "value": SECRET}]
        texts = await evidence.gather(api, pod=pod, job=None, events=[seen.event("Failed", f"token {SECRET} refused", 5)])
    everything = "\n".join(texts.values())
    assert SECRET not in everything
    assert "plain-secret" not in everything
    assert "DB_PASSWORD" in everything


async def test_what_cannot_be_read_is_said_instead() -> None:
    async with connected() as (api_server, api):
        gone = await evidence.gather(api, pod=seen.ended(1), job=None, events=[])
        api_server.answers = [lambda _: failed(400, "BadRequest", 'container "main" is waiting to start: ContainerCreating')]
        early = await evidence.gather(api, pod=seen.creating(), job=None, events=[])
    assert gone["log.txt"] == "(no log: the pod is gone)"
    assert "is waiting to start" in early["log.txt"]
    assert "events.txt" not in gone


async def test_a_long_log_keeps_its_end() -> None:
    async with connected() as (api_server, api):
        api_server.logs[NAME] = "x" * (evidence.MAX_TEXT + 100) + "the end"
        texts = await evidence.gather(api, pod=seen.ended(1), job=None, events=[])
    assert texts["log.txt"].endswith("the end")
    assert len(texts["log.txt"]) < evidence.MAX_TEXT + 100


async def test_nothing_there_is_nothing_taken() -> None:
    async with connected() as (_, api):
        assert await evidence.gather(api, pod=None, job=None, events=[]) == {}


def test_the_digest_of_what_runs() -> None:
    assert evidence.image_digest(seen.up(started=5, ready=True)) == "sha256:6f1e3a"
    assert evidence.image_digest(seen.creating()) == ""
    bare = seen.up(started=5, ready=True)
    bare["status"]["containerStatuses"][0]["imageID"] = "sha256:abc"
    assert evidence.image_digest(bare) == "sha256:abc"
