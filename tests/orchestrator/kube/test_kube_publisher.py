"""Whoever looks from outside sees what the sweep's store says, soon after it said it; the sweep notices nothing, whatever fails."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from k8s_fake_api import Server, connected, failed
from store_samples import axes, measurement, plan, record, trace

from specsweep.k8s.specs import Owner
from specsweep.orchestrator.kube import publisher, status_document
from specsweep.orchestrator.kube.publisher import Glance, publishing, status_name
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_status import SweepStatus

OWNER = Owner("batch/v1", "Job", "sweep-demo-1", "uid-1")
NAME = status_name("demo")
VALUES = [axes(batch_size=1), axes(batch_size=8)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "results")
    made.write_plan(plan("demo", VALUES))
    made.event("demo", "run_started")
    return made


def land(store: Store, values: dict[str, Any]) -> None:
    store.commit(record(values), measurement(valid=False), trace())
    store.event("demo", "point_started", point_id=record(VALUES[1])["point_id"])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


def told(api_server: Server) -> SweepStatus | None:
    found = api_server.objects.get(("configmaps", NAME))
    return status_document.read(found["data"]["status.json"])[0] if found else None


def measured(api_server: Server) -> int:
    status = told(api_server)
    return status.measured if status else -1


async def test_what_the_store_says_is_told_and_belongs_to_the_job(store: Store) -> None:
    glance = Glance(store.root, "demo")
    with store.lock():
        async with connected() as (api_server, api):
            async with publishing(api, OWNER, "demo", glance.look, glance.news, pause_s=0.01):
                await until(lambda: measured(api_server) == 0)
                land(store, VALUES[0])
                await until(lambda: measured(api_server) == 1)
                land(store, VALUES[1])  # as it ends: not before the last word
            assert measured(api_server) == 2
            found = api_server.objects["configmaps", NAME]
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == ["uid-1"]
    assert found["metadata"]["labels"]["specsweep.io/sweep"] == "demo"


async def test_nothing_is_looked_at_while_nothing_happens() -> None:
    looks: list[int] = []
    moment = [0]

    def look() -> SweepStatus:
        looks.append(1)
        return dataclasses.replace(status_document.nothing_known("demo", 3), now_s=float(len(looks)), left_s=1.0)

    async with (
        connected() as (api_server, api),
        publishing(api, OWNER, "demo", look, lambda: moment[0], pause_s=0.005),
    ):
        await until(lambda: ("configmaps", NAME) in api_server.objects)
        await asyncio.sleep(0.1)
        assert len(looks) == 1
        sent = len(api_server.requests)
        moment[0] = 1
        await until(lambda: len(looks) == 2)
        await asyncio.sleep(0.05)
        assert len(api_server.requests) == sent, "time that goes by is no news"


async def test_trouble_is_told_once_and_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "AGAIN_S", 0.01)
    said: list[str] = []
    glance = Glance(store.root, "demo")
    async with connected() as (api_server, api):
        api_server.answers = [lambda _: failed(403, "Forbidden", 'cannot patch resource "configmaps"')] * 2
        async with publishing(api, OWNER, "demo", glance.look, glance.news, pause_s=0.01, say=said.append):
            await until(lambda: measured(api_server) == 0)
    (words,) = said
    assert "patch configmaps in namespace bench is missing" in words


async def test_an_error_of_ours_harms_no_sweep() -> None:
    def look() -> SweepStatus:
        raise ZeroDivisionError("of ours")

    said: list[str] = []
    async with connected() as (_, api), publishing(api, OWNER, "demo", look, lambda: 0, pause_s=0.01, say=said.append):
        await until(lambda: bool(said))


def test_a_status_is_the_same_after_its_travel(store: Store) -> None:
    land(store, VALUES[0])
    status = Glance(store.root, "demo").look()
    assert status.problems
    assert status.sessions
    found, when = status_document.read(status_document.document(status, "2026-11-30T12:00:00+00:00"))
    assert found == status
    assert when.isoformat() == "2026-11-30T12:00:00+00:00"


def test_a_status_of_another_version_is_read_as_far_as_it_goes() -> None:
    facts = {"sweep": "demo", "points": 3, "unheard_of": 1, "sessions": [{"session_id": "s", "what": "w", "points": 3, "measured": 1,
             "failed": 0, "missing": 2, "colour": "red"}]}  # fmt: skip
    found, _ = status_document.read(json.dumps({"schema_version": 1, "at_utc": "2026-11-30T12:00:00+00:00", "status": facts}))
    assert (found.points, found.measured, found.sessions[0].measured) == (3, 0, 1)
    for text in ("", "[]", '{"schema_version": 9, "status": {}}', json.dumps({"schema_version": 1, "status": {"sessions": [{}]}})):
        with pytest.raises(ValueError, match=r".+"):
            status_document.read(text)


def test_a_status_fits_into_a_config_map_however_much_failed(store: Store) -> None:
    land(store, VALUES[0])
    status = Glance(store.root, "demo").look()
    many = dataclasses.replace(
        status,
        problems=(dataclasses.replace(status.problems[0], reason="x" * 10_000),) * 5000,
        sessions=status.sessions * 500,
    )
    assert len(status_document.document(many, "2026-11-30T12:00:00+00:00")) < 400_000


BASE = {"cluster": {"kind": "kubernetes"}, "tracking": {"enabled": False}}


def inside(api_server: Server, monkeypatch: pytest.MonkeyPatch, *, job: bool = True) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("SPECSWEEP_JOB", "sweep-demo-1")
    if job:
        api_server.put("jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sweep-demo-1", "uid": "uid-1"}})


async def test_the_pod_of_a_job_tells_how_far_it_is(api_server: Server, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    inside(api_server, monkeypatch)
    said: list[str] = []
    with store.lock():
        async with publisher.telling(BASE, store.root, "demo", said.append):
            await until(lambda: measured(api_server) == 0)
            running = told(api_server)
        land(store, VALUES[0])
        land(store, VALUES[1])
        store.event("demo", "run_finished")
        await asyncio.to_thread(publisher.tell_end, BASE, store.root, "demo")
    ended = told(api_server)
    assert running is not None
    assert ended is not None
    assert (running.state, ended.state, ended.measured) == ("running", "finished", 2)
    assert said == []


@pytest.mark.parametrize("kind", ["local", "kubernetes"])
async def test_whoever_is_no_such_pod_tells_nothing(api_server: Server, store: Store, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    inside(api_server, monkeypatch)
    if kind == "kubernetes":
        monkeypatch.delenv("SPECSWEEP_JOB")  # a run from a shell
    base = {**BASE, "cluster": {"kind": kind}}
    async with publisher.telling(base, store.root, "demo", lambda words: None):
        pass
    await asyncio.to_thread(publisher.tell_end, base, store.root, "demo")
    assert api_server.requests == []


async def test_a_job_that_is_gone_is_said_and_the_run_goes_on(api_server: Server, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    inside(api_server, monkeypatch, job=False)
    said: list[str] = []
    ran = False
    async with publisher.telling(BASE, store.root, "demo", said.append):
        ran = True
    assert ran
    assert "cannot be told outside of its pod" in said[0]


async def test_what_the_run_raises_is_the_runs(api_server: Server, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    inside(api_server, monkeypatch)
    with pytest.raises(ZeroDivisionError):
        async with publisher.telling(BASE, store.root, "demo", lambda words: None):
            raise ZeroDivisionError
