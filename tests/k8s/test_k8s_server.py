"""A server from its objects to their end: ready, not coming, dying, adopted, and gone in every case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import k8s_pods as seen
import pytest
from aiohttp import web
from k8s_fake_api import FAST, Pods, Server, connected, failed
from k8s_samples import OWNER, program, server

from specsweep.k8s.ends import LogCause
from specsweep.k8s.errors import Conflict, Forbidden, RemovalError, StartError, StartRetryable, StartTerminal
from specsweep.k8s.fleet import Fleet, Pace
from specsweep.k8s.manifests import server_objects
from specsweep.k8s.names import SWEEP
from specsweep.k8s.outcomes import Starting, Terminal
from specsweep.k8s.server import serve
from specsweep.k8s.verdict import Budgets
from specsweep.k8s.watch import Patience

SPEC = server(grace_s=0, startup_s=10**8)
POD = f"{SPEC.name}-x7k2p"
PACE = Pace(first_look_s=0.02, longest_look_s=0.05, delete_s=10.0)
FAR = Budgets(*[10**9] * 8)  # the samples' times are of another day
NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


@pytest.fixture(autouse=True)
def samples_are_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "NOW", datetime.now(UTC))


@asynccontextmanager
async def fleet(*states: dict[str, Any], stuck: bool = False, pace: Pace = PACE) -> AsyncIterator[tuple[Server, Fleet, Pods]]:
    async with connected(FAST) as (api_server, api):
        pods = Pods(api_server, *states, stuck=stuck)
        async with Fleet(api, {SWEEP: "fig7"}, pace=pace, patience=Patience(5, 60, 5)) as found:
            yield api_server, found, pods
        await pods.stop()


def left(api_server: Server) -> list[tuple[str, str]]:
    return sorted(key for key in api_server.objects if key[0] != "events")


async def test_a_server_is_followed_until_it_is_ready_and_is_gone_afterwards() -> None:
    states = [seen.unscheduled(NO_NODE, 5), seen.creating(), seen.up(started=5, ready=False), seen.up(started=9, ready=True)]
    waited: list[str] = []
    async with fleet() as (api_server, found, pods):

        def progress(starting: Starting) -> None:
            waited.append(starting.waits_for)
            pods.show(SPEC.name, states.pop(0))

        async with serve(found, SPEC, OWNER, budgets=FAR, progress=progress) as running:
            assert (running.url, running.node, running.pod) == ("http://10.42.3.9:8000", seen.NODE, POD)
            assert running.image_digest == "sha256:6f1e3a"
            assert running.ended() is None
            assert await running.end() is None
            assert {key[0] for key in api_server.objects} == {"configmaps", "services", "jobs", "pods"}
            api_server.logs[POD] = "INFO ready\n"
            assert await running.log() == "INFO ready\n"
        assert left(api_server) == []
        assert running.evidence == {}
    assert [words in text for words, text in zip(("its pod", NO_NODE, "to be created", "health"), waited, strict=True)] == [True] * 4


@pytest.mark.parametrize(
    ("state", "log", "kind", "says"),
    [
        (seen.creating("CreateContainerConfigError", 'secret "hub" not found'), "", StartTerminal, 'secret "hub" not found'),
        (seen.ended(1), "CUDA out of memory\n", StartTerminal, "lower the batch"),
        (seen.ended(1), "Traceback\nKeyError\n", StartRetryable, "KeyError"),
        (seen.pod("Failed", reason="Evicted", message="The node was low on resource: memory"), "", StartRetryable, "low on resource"),
    ],
)
async def test_a_server_that_does_not_come_gives_its_reason_and_evidence_and_is_gone(
    state: dict[str, Any], log: str, kind: type[StartError], says: str
) -> None:
    async with fleet(seen.creating(), state) as (api_server, found, _):
        api_server.logs[POD] = log
        api_server.put(
            "events", {**seen.event("Pulled", "Successfully pulled image", 5), "metadata": {"name": "e"}, "involvedObject": {"uid": "x"}}
        )
        with pytest.raises(kind, match=says) as raised:
            async with serve(
                found, SPEC, OWNER, budgets=FAR, classify=lambda text: LogCause("memory", "lower the batch") if "CUDA" in text else None
            ):
                pytest.fail("it is not ready")
        assert raised.value.message.startswith(SPEC.name)
        evidence = raised.value.evidence
        assert {"pod.json", "job.json", "where.json", "log.txt"} - ({"log.txt"} if not log else set()) <= set(evidence)
        assert log.strip() in evidence.get("log.txt", "")
        assert seen.NODE in evidence["where.json"]
        assert left(api_server) == []


async def test_what_only_events_tell_is_seen_while_nothing_runs() -> None:
    waited: list[str] = []
    async with fleet(seen.creating()) as (api_server, found, pods):

        def progress(starting: Starting) -> None:
            waited.append(starting.waits_for)
            if "to be created" in starting.waits_for:
                event = seen.event("FailedMount", 'configmap "gone" not found', 5)
                uid = api_server.objects["pods", POD]["metadata"]["uid"]
                api_server.put("events", {**event, "metadata": {"name": "e"}, "involvedObject": {"uid": uid}})
            elif "FailedMount" in starting.waits_for:
                pods.show(SPEC.name, seen.up(started=5, ready=True))

        async with serve(found, SPEC, OWNER, budgets=FAR, progress=progress):
            pass
    assert 'configmap "gone" not found' in waited[-1]


async def test_the_startup_budget_is_the_specs() -> None:
    async with fleet(seen.up(started=60, ready=False)) as (api_server, found, _):
        with pytest.raises(StartTerminal, match="waited 30 s for its health path"):
            async with serve(found, server(grace_s=0, startup_s=30), OWNER, budgets=FAR):
                pytest.fail("it is not ready")
        assert left(api_server) == []


async def test_a_deadline_comes_though_nothing_changes() -> None:
    async with fleet(seen.unscheduled(NO_NODE, 1)) as (api_server, found, _):
        budgets = Budgets(queue_s=2.5)
        with pytest.raises(StartTerminal, match=NO_NODE) as raised:
            async with serve(found, SPEC, OWNER, budgets=budgets):
                pytest.fail("it is not ready")
        assert raised.value.kind == "no node"
        assert left(api_server) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (seen.ended(1), "code 1"),
        (seen.up(started=9, ready=False), "was ready"),
        (seen.up(started=9, ready=True, deleting=True), "being deleted"),
        (None, "no pod|Job controller|gone"),
    ],
    ids=["ended", "not ready", "deleted", "gone"],
)
async def test_a_server_that_dies_while_it_is_used_is_noticed_and_its_evidence_is_kept(change: dict[str, Any] | None, says: str) -> None:
    async with fleet(seen.up(started=9, ready=True)) as (api_server, found, pods):
        async with serve(found, SPEC, OWNER, budgets=FAR) as running:
            api_server.logs[POD] = "CUDA error\nHF_TOKEN=hf_" + "a1" * 10
            if change is None:
                api_server.remove("pods", POD)
            else:
                pods.show(SPEC.name, change)
            while running.ended() is None:
                await asyncio.sleep(0.01)
            with pytest.raises(AssertionError, match=says):
                raise AssertionError(running.ended())
            assert (await running.end()) is not None
        assert "job.json" in running.evidence
        if change is not None:
            assert "CUDA error" in running.evidence["log.txt"]
            assert "hf_" not in running.evidence["log.txt"]
        assert left(api_server) == []


async def test_what_took_a_pod_away_is_known_after_it_is_gone() -> None:
    evicted = seen.condition("DisruptionTarget", "True", 1, "EvictionByEvictionAPI", "Eviction API: evicting")
    async with fleet(seen.up(started=9, ready=True)) as (api_server, found, pods):
        async with serve(found, SPEC, OWNER, budgets=FAR) as running:
            up = seen.up(started=9, ready=True, deleting=True)
            pods.show(SPEC.name, {**up, "status": {**up["status"], "conditions": [*up["status"]["conditions"], evicted]}})
            api_server.remove("pods", POD)
            while POD in found._pods.objects:
                await asyncio.sleep(0.01)
            end = await running.end()
            assert end is not None
            assert end.kind == "evicted"
            assert "EvictionByEvictionAPI" in (running.ended() or "")
        assert "EvictionByEvictionAPI" in running.evidence["pod.json"]
        assert left(api_server) == []


async def test_the_log_tells_what_the_end_of_a_running_server_means() -> None:
    async with fleet(seen.up(started=9, ready=True)) as (api_server, found, pods):
        async with serve(
            found, SPEC, OWNER, budgets=FAR, classify=lambda log: LogCause("memory", "m") if "CUDA" in log else None
        ) as running:
            api_server.logs[POD] = "CUDA"
            pods.show(SPEC.name, seen.ended(1))
            while running.ended() is None:
                await asyncio.sleep(0.01)
            end = await running.end()
        assert isinstance(end, Terminal)
        assert end.kind == "memory"


async def test_a_job_that_is_deleted_as_soon_as_it_is_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsweep.k8s.fleet.SHOWN_S", 0.05)
    async with fleet() as (api_server, found, _):

        def made_and_deleted(request: Any) -> Any:
            api_server.answers.append(made_and_deleted)
            if request.method != "POST" or not request.path.endswith("/jobs"):
                return None
            job = {**api_server.bodies[-1], "metadata": {**api_server.bodies[-1]["metadata"], "uid": "short", "resourceVersion": "1"}}
            return web.json_response(job, status=201)

        api_server.answers = [made_and_deleted]
        with pytest.raises(StartRetryable, match="Job is gone"):
            async with serve(found, SPEC, OWNER, budgets=FAR):
                pytest.fail("it is not there")
        assert left(api_server) == []


async def test_what_the_block_raises_comes_out_and_the_server_is_gone() -> None:
    async with fleet(seen.up(started=9, ready=True)) as (api_server, found, _):
        with pytest.raises(KeyError, match="mine"):
            async with serve(found, SPEC, OWNER, budgets=FAR):
                raise KeyError("mine")
        assert left(api_server) == []


async def test_cancelling_twice_leaves_nothing() -> None:
    async with fleet(seen.up(started=9, ready=True)) as (api_server, found, _):
        ready = asyncio.Event()

        async def use() -> None:
            async with serve(found, SPEC, OWNER, budgets=FAR):
                ready.set()
                await asyncio.sleep(60)

        using = asyncio.create_task(use())
        await ready.wait()
        using.cancel()
        await asyncio.sleep(0.02)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        assert left(api_server) == []


async def test_a_server_that_runs_already_is_taken_over_with_its_new_owner() -> None:
    async with fleet() as (api_server, found, pods):
        job = await found.create(server_objects(SPEC, None))
        pods.show(SPEC.name, seen.up(started=9, ready=True))
        async with serve(found, SPEC, OWNER, budgets=FAR) as running:
            assert running.ended() is None
            assert api_server.objects["jobs", SPEC.name]["metadata"]["uid"] == job["metadata"]["uid"]
            assert api_server.objects["jobs", SPEC.name]["metadata"]["ownerReferences"][0]["uid"] == OWNER.uid


@pytest.mark.parametrize("why", ["other settings", "over"])
async def test_what_an_earlier_life_left_is_replaced(why: str) -> None:
    async with fleet(seen.up(started=9, ready=True)) as (api_server, found, _):
        old = server_objects(server(grace_s=0, startup_s=10**8, gpus=4) if why == "other settings" else SPEC, None)[-1]
        if why == "over":
            old["status"] = {"conditions": [seen.condition("Failed", "True", 5, "BackoffLimitExceeded", "m")]}
        uid = api_server.put("jobs", old)["metadata"]["uid"]
        async with serve(found, SPEC, OWNER, budgets=FAR):
            assert api_server.objects["jobs", SPEC.name]["metadata"]["uid"] != uid


async def test_somebody_elses_job_of_that_name_is_named_and_stays() -> None:
    async with fleet() as (api_server, found, _):
        theirs = server_objects(SPEC, None)[-1]
        theirs["metadata"]["labels"] = {"team": "other"}
        api_server.put("jobs", theirs)
        with pytest.raises(Conflict, match="is not ours"):
            async with serve(found, SPEC, OWNER, budgets=FAR):
                pytest.fail("it is not ours")
        assert left(api_server) == [("jobs", SPEC.name)]


async def test_a_pod_whose_node_is_gone_is_removed_by_force() -> None:
    async with fleet(seen.up(started=9, ready=True), stuck=True, pace=Pace(0.02, 0.05, delete_s=0.3)) as (api_server, found, pods):
        async with serve(found, SPEC, OWNER, budgets=FAR):
            pass
        assert pods.forced == [POD]
        assert left(api_server) == []


async def test_what_cannot_be_removed_is_said_and_does_not_hide_the_first_error() -> None:
    async with fleet(seen.up(started=9, ready=True), stuck=True, pace=Pace(0.02, 0.05, delete_s=0.15)) as (api_server, found, _):
        api_server.on_delete = lambda plural, obj, options: plural in ("pods", "jobs")
        with pytest.raises(RemovalError, match="may still hold GPUs"):
            async with serve(found, SPEC, OWNER, budgets=FAR):
                pass
        with pytest.raises(KeyError, match="mine") as raised:
            async with serve(found, SPEC, OWNER, budgets=FAR):
                raise KeyError("mine")
        assert any("may still hold GPUs" in note for note in raised.value.__notes__)


async def test_a_missing_right_is_named_and_nothing_is_left() -> None:
    words = 'jobs.batch is forbidden: User "u" cannot create resource "jobs" in API group "batch" in the namespace "bench"'
    async with fleet() as (api_server, found, _):

        def no_jobs(request: Any) -> Any:
            api_server.answers.append(no_jobs)
            return failed(403, "Forbidden", words) if request.method == "POST" and request.path.endswith("/jobs") else None

        api_server.answers = [no_jobs]
        with pytest.raises(Forbidden, match=r"the right to create jobs\.batch in namespace bench is missing"):
            async with serve(found, SPEC, OWNER, budgets=FAR):
                pytest.fail("it cannot start")
        assert left(api_server) == []


async def test_many_servers_share_two_watches_and_their_calls_grow_with_their_number_only() -> None:
    specs = [server(name=f"s{i}", grace_s=0, startup_s=10**8, program=program(files={}, argv=("serve",))) for i in range(8)]
    async with fleet(seen.creating(), seen.up(started=9, ready=True), pace=Pace(first_look_s=20.0)) as (api_server, found, _):

        async def use(spec: Any) -> None:
            async with serve(found, spec, OWNER, budgets=FAR):
                await asyncio.sleep(0.05)

        await asyncio.gather(*(use(spec) for spec in specs))
        watches = [request for request in api_server.requests if request.query.get("watch") == "true"]
        assert len(watches) == 2
        # Before its pod and while that is created: events of the Job, then of both; once more for a change that comes in between.
        assert len(api_server.seen("GET", "/events")) <= len(specs) * 6
        assert left(api_server) == []


async def test_of_several_pods_of_a_job_the_latest_that_stays_counts() -> None:
    async with fleet() as (api_server, found, _):
        job = await found.create(server_objects(SPEC, None))
        owner = {"kind": "Job", "name": SPEC.name, "uid": job["metadata"]["uid"]}
        for name, created, deleting in (("old", 300, False), ("new", 100, False), ("leaving", 10, True)):
            pod = seen.up(started=5, ready=True, created=created, deleting=deleting)
            pod["metadata"].update(name=name, uid=name, labels=dict(SPEC.labels), ownerReferences=[owner])
            api_server.put("pods", pod)
        versions = found.versions
        while (shown := found.picture(SPEC.name, job["metadata"]["uid"])[0]) is None or shown["metadata"]["name"] != "new":
            versions = await found.changed(versions, 5.0)


async def test_an_api_server_that_is_away_for_a_while_is_waited_for() -> None:
    async with fleet(seen.up(started=9, ready=True)) as (api_server, found, _):
        async with serve(found, SPEC, OWNER, budgets=FAR) as running:
            api_server.answers = [lambda _: "drop"] * 6
        assert running.evidence == {}
        assert left(api_server) == []
