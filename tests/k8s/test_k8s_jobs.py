"""A sweep is handed over once and resumed when it is over; a download runs to its end or says why not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import k8s_pods as seen
import pytest
from k8s_fake_api import FAST, Pods, Server, connected
from k8s_samples import OWNER, prefetch, program, sweep

from specsweep.k8s.errors import Conflict, StartRetryable, StartTerminal
from specsweep.k8s.fleet import Fleet, Pace
from specsweep.k8s.jobs import finish, submit
from specsweep.k8s.names import SWEEP
from specsweep.k8s.outcomes import GAVE_UP
from specsweep.k8s.verdict import Budgets
from specsweep.k8s.watch import Patience

OTHER = sweep(program=program(files={"sweep.yaml": "axes: {}\n"}, argv=("specsweep", "run")))
SPEC = prefetch(grace_s=0)
POD = f"{SPEC.name}-x7k2p"
FAR = Budgets(*[10**9] * 8)
OVER = [seen.condition("Complete", "True", 5, "CompletionsReached", "m")]


def ends(api_server: Server, name: str, *conditions: dict[str, Any]) -> None:
    job = api_server.objects["jobs", name]
    api_server.put("jobs", {**job, "status": {"conditions": list(conditions)}})


async def test_a_sweep_is_its_job_and_its_files_belong_to_it() -> None:
    async with connected() as (api_server, api):
        job, ran = await submit(api, sweep())
        assert not ran
        assert sorted(api_server.objects) == [("configmaps", "fig7"), ("jobs", "fig7")]
        (owner,) = api_server.objects["configmaps", "fig7"]["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["blockOwnerDeletion"]) == (job["metadata"]["uid"], False)


async def test_submitting_what_runs_already_changes_nothing() -> None:
    async with connected() as (_, api):
        job, _ = await submit(api, sweep())
        again, ran = await submit(api, sweep())
        assert ran
        assert again["metadata"]["uid"] == job["metadata"]["uid"]


async def test_a_sweep_that_runs_with_other_settings_is_not_touched() -> None:
    async with connected() as (api_server, api):
        job, _ = await submit(api, sweep())
        with pytest.raises(Conflict, match="sweep fig7 runs with other settings; cancel it first"):
            await submit(api, OTHER)
        assert api_server.objects["jobs", "fig7"]["metadata"]["uid"] == job["metadata"]["uid"]


@pytest.mark.parametrize("spec", [sweep(), OTHER], ids=["the same", "other settings"])
async def test_a_sweep_that_is_over_is_started_again(spec: Any) -> None:
    async with connected() as (api_server, api):
        job, _ = await submit(api, sweep())
        ends(api_server, "fig7", *OVER)
        again, ran = await submit(api, spec)
        assert not ran
        assert again["metadata"]["uid"] != job["metadata"]["uid"]
        assert api_server.objects["configmaps", "fig7"]["data"] == dict(spec.program.files)
        assert api_server.objects["configmaps", "fig7"]["metadata"]["ownerReferences"][0]["uid"] == again["metadata"]["uid"]


async def test_somebody_elses_job_stays() -> None:
    async with connected() as (api_server, api):
        await submit(api, sweep())
        ends(api_server, "fig7", *OVER)
        api_server.objects["jobs", "fig7"]["metadata"]["labels"] = {"team": "other"}
        with pytest.raises(Conflict, match="is not ours"):
            await submit(api, sweep())
        assert ("jobs", "fig7") in api_server.objects


@asynccontextmanager
async def fleet(*states: dict[str, Any]) -> AsyncIterator[tuple[Server, Fleet, Pods]]:
    async with connected(FAST) as (api_server, api):
        pods = Pods(api_server, *states)
        async with Fleet(api, {SWEEP: "fig7"}, pace=Pace(0.02, 0.05, 5.0), patience=Patience(5, 60, 5)) as found:
            yield api_server, found, pods
        await pods.stop()


async def shown(api_server: Server, name: str = SPEC.name) -> None:
    while ("pods", f"{name}-x7k2p") not in api_server.objects:
        await asyncio.sleep(0.01)


async def test_a_download_is_waited_for_and_tells_how_far_it_is() -> None:
    told: list[str] = []
    async with fleet(seen.up(started=5, ready=True)) as (api_server, found, _):
        api_server.logs[POD] = "model-00003-of-00030 10%\n"
        running = asyncio.create_task(finish(found, SPEC, OWNER, budgets=FAR, progress=told.append))
        while not any("10%" in text for text in told):
            await asyncio.sleep(0.01)
        assert not running.done()
        ends(api_server, SPEC.name, *OVER)
        await running
        assert ("jobs", SPEC.name) in api_server.objects, "its end can be looked at"


async def test_a_try_that_failed_is_not_the_end() -> None:
    told: list[str] = []
    async with fleet(seen.ended(1)) as (api_server, found, pods):
        running = asyncio.create_task(finish(found, SPEC, OWNER, budgets=FAR, progress=told.append))
        while not any("tried again" in text for text in told):
            await asyncio.sleep(0.01)
        assert not running.done()
        pods.show(SPEC.name, seen.up(started=1, ready=True))
        ends(api_server, SPEC.name, *OVER)
        await running


async def test_a_pod_that_ended_well_is_the_end_before_its_job_says_so() -> None:
    told: list[str] = []
    async with fleet(seen.ended(0, "Completed")) as (api_server, found, _):
        api_server.logs[POD] = "all 2 models are there\n"
        await finish(found, SPEC, OWNER, budgets=FAR, progress=told.append)
    assert not any("again" in text or "cause" in text for text in told)


async def test_a_program_that_gives_up_is_not_tried_again() -> None:
    told: list[str] = []
    async with fleet(seen.ended(2)) as (api_server, found, _):
        api_server.logs[POD] = "noise\nNo matching distribution found for tiny\n"
        with pytest.raises(StartTerminal, match="No matching distribution") as raised:
            await finish(found, prefetch(grace_s=0, final_codes=(2,)), OWNER, budgets=FAR, progress=told.append)
    assert raised.value.kind == GAVE_UP
    assert "noise" not in raised.value.message
    assert not [line for line in told if "another try" in line]


async def test_tries_with_the_same_end_are_told_once() -> None:
    told: list[str] = []
    async with fleet(seen.ended(1)) as (api_server, found, pods):
        api_server.logs[POD] = "Connection reset by peer\n"
        running = asyncio.create_task(finish(found, SPEC, OWNER, budgets=FAR, progress=told.append))
        await shown(api_server)
        for state in (seen.up(started=1, ready=False), seen.ended(1), seen.up(started=1, ready=False), seen.ended(1)):
            asked = len(api_server.requests)
            pods.show(SPEC.name, state)
            while len(api_server.requests) < asked + 2:
                await asyncio.sleep(0.01)
        ends(api_server, SPEC.name, *OVER)
        await running
    assert told.count("ended with code 1: Connection reset by peer; it is tried again") == 1
    assert "waits for its health path to answer" in told


async def test_after_the_last_try_it_fails_with_its_log() -> None:
    async with fleet(seen.ended(1)) as (api_server, found, _):
        api_server.logs[POD] = "403 Client Error: gated repository"
        running = asyncio.create_task(finish(found, SPEC, OWNER, budgets=FAR))
        await shown(api_server)
        ends(api_server, SPEC.name, seen.condition("Failed", "True", 1, "BackoffLimitExceeded", "m"))
        with pytest.raises(StartRetryable, match="gated repository") as raised:
            await running
        assert "gated repository" in raised.value.evidence["log.txt"]


async def test_what_no_try_can_heal_is_told_at_once() -> None:
    async with fleet(seen.creating("CreateContainerConfigError", 'secret "hub" not found')) as (_, found, _pods):
        with pytest.raises(StartTerminal, match='secret "hub" not found'):
            await finish(found, SPEC, OWNER, budgets=FAR)


async def test_a_download_that_is_deleted_is_told() -> None:
    async with fleet(seen.up(started=5, ready=True)) as (api_server, found, _):
        api_server.logs[POD] = "1 %"
        told: list[str] = []
        running = asyncio.create_task(finish(found, SPEC, OWNER, budgets=FAR, progress=told.append))
        while "1 %" not in told:
            await asyncio.sleep(0.01)
        api_server.remove("pods", POD)
        api_server.remove("jobs", SPEC.name)
        with pytest.raises(StartRetryable, match="Job is gone"):
            await running
