"""Manners and meanings towards an API server, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from k8s_fake_api import FAST, access, connected, failed, serving
from k8s_samples import OWNER, server

from specsweep.k8s.answers import error_of, retry_after_s
from specsweep.k8s.api import Api
from specsweep.k8s.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Outdated, Unauthorized, Unreachable
from specsweep.k8s.manifests import server_objects
from specsweep.k8s.resources import CONFIG_MAPS, JOBS, LOCAL_QUEUES, NODES, PODS, Request
from specsweep.k8s.transport import Manners, Transport

FORBIDDEN = 'jobs.batch is forbidden: User "system:serviceaccount:bench:default" cannot create resource "jobs" in API group "batch" in the namespace "bench"'


def config_map(name: str = "one", **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "bench", "labels": labels}, "data": {}}


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (Request("get", PODS, "bench", "p"), "/api/v1/namespaces/bench/pods/p"),
        (Request("list", JOBS, "bench"), "/apis/batch/v1/namespaces/bench/jobs"),
        (Request("get", PODS, "bench", "p", "log"), "/api/v1/namespaces/bench/pods/p/log"),
        (Request("list", NODES, "bench"), "/api/v1/nodes"),
        (Request("get", LOCAL_QUEUES, "bench", "q"), "/apis/kueue.x-k8s.io/v1beta2/namespaces/bench/localqueues/q"),
    ],
)
def test_paths(request_: Request, path: str) -> None:
    assert request_.path == path


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: failed(429, "TooManyRequests", "slow down"),
        lambda _: failed(500, "InternalError", "etcd"),
        lambda _: failed(503, "ServiceUnavailable", "starting"),
        lambda _: "drop",
    ],
)
async def test_what_may_heal_is_asked_again(answer: Any) -> None:
    async with connected() as (api_server, api):
        api_server.put("configmaps", config_map())
        api_server.answers = [answer, answer]
        assert (await api.get(CONFIG_MAPS, "one"))["metadata"]["name"] == "one"
        assert len(api_server.requests) == 3


async def test_the_server_says_how_long_to_wait() -> None:
    async with connected() as (api_server, api):
        api_server.put("configmaps", config_map())
        api_server.answers = [lambda _: failed(429, "TooManyRequests", "slow down", **{"Retry-After": "0.2"})]
        began = time.monotonic()
        await api.get(CONFIG_MAPS, "one")
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    ("header", "seconds"), [("2", 2.0), ("", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("99999", 60.0), ("-1", 0.0)]
)
def test_retry_after(header: str, seconds: float) -> None:
    assert retry_after_s({"Retry-After": header}) == seconds


def test_pauses_grow_and_are_never_the_same_for_all() -> None:
    manners = Manners(first_pause_s=1.0, longest_pause_s=8.0)
    for attempt, whole in enumerate((1.0, 2.0, 4.0, 8.0, 8.0)):
        pauses = {manners.pause_s(attempt) for _ in range(20)}
        assert len(pauses) > 1
        assert all(whole / 2 <= pause <= whole for pause in pauses)


async def test_no_server_is_said_after_our_patience() -> None:
    async with serving() as api_server:
        url = api_server.url
    async with Transport(access(url), manners=Manners(patience_s=0.05, first_pause_s=0.01)) as transport:
        with pytest.raises(
            Unreachable, match=r"get pods in namespace bench \(p\).*asked \d+ times.*kubectl cluster-info|kubectl cluster-info.*asked"
        ):
            await Api(transport, "bench").get(PODS, "p")


async def test_a_server_that_takes_the_request_and_says_nothing_is_left_after_the_timeout() -> None:
    async with connected(Manners(timeout_s=0.05, patience_s=0.1, first_pause_s=0.01)) as (api_server, api):
        api_server.scripts = [[30.0]] * 20
        with pytest.raises(Unreachable):
            await api.transport.call(Request("watch", PODS, "bench", query={"watch": "true", "resourceVersion": "1000"}))


async def test_a_server_that_only_fails_is_quoted_after_our_patience() -> None:
    async with connected(Manners(patience_s=0.05, first_pause_s=0.02)) as (api_server, api):
        api_server.answers = [lambda _: failed(500, "InternalError", "failed calling webhook")] * 20
        with pytest.raises(ApiError, match="failed calling webhook") as raised:
            await api.get(PODS, "p")
        assert raised.value.status == 500


@pytest.mark.parametrize(
    ("status", "message", "kind", "says"),
    [
        (401, "Unauthorized", Unauthorized, "kubectl auth whoami"),
        (
            403,
            FORBIDDEN,
            Forbidden,
            r"the right to create jobs\.batch in namespace bench is missing.*Role.*system:serviceaccount:bench:default",
        ),
        (403, 'pods "x" is forbidden: exceeded quota: team', Invalid, "exceeded quota: team"),
        (404, "not found", NotFound, r"create jobs\.batch in namespace bench"),
        (409, "already exists", Conflict, "already exists"),
        (422, 'Job.batch "x" is invalid: spec.template', Invalid, r"spec\.template"),
        (418, "teapot", ApiError, "teapot"),
    ],
)
def test_answers_become_errors_with_the_servers_words(status: int, message: str, kind: type[ApiError], says: str) -> None:
    error = error_of(status, json.dumps({"kind": "Status", "message": message, "reason": "R"}).encode(), Request("create", JOBS, "bench"))
    assert type(error) is kind
    assert (error.status, error.reason) == (status, "R")
    with pytest.raises(kind, match=says):
        raise error


def test_an_answer_that_is_no_status_is_quoted() -> None:
    assert "<html>bad gateway" in error_of(502, b"<html>bad gateway", Request("get", PODS, "n", "p")).message
    assert "no message" in error_of(404, b"", Request("get", PODS, "n", "p")).message


async def test_what_cannot_heal_is_not_asked_again() -> None:
    async with connected() as (api_server, api):
        api_server.answers = [lambda _: failed(403, "Forbidden", FORBIDDEN)]
        with pytest.raises(Forbidden):
            await api.create(config_map())
        assert len(api_server.requests) == 1


async def test_a_server_that_has_just_started_and_refuses_everybody_is_asked_again() -> None:
    async with connected() as (api_server, api):
        await api.create(config_map())
        api_server.answers = [lambda _: failed(403, "Forbidden", FORBIDDEN), lambda _: failed(401, "Unauthorized", "Unauthorized")]
        with pytest.raises(Conflict):  # the server's own answer, at the third asking
            await api.create(config_map())


async def test_after_an_absence_a_first_refusal_is_not_believed_either() -> None:
    async with connected() as (api_server, api):
        api_server.answers = [lambda _: "drop", lambda _: failed(403, "Forbidden", FORBIDDEN)]
        await api.create(config_map())
        assert len(api_server.requests) == 3


async def test_a_right_that_stays_away_is_taken_for_lost() -> None:
    async with connected() as (api_server, api):
        await api.create(config_map())
        api_server.answers = [lambda _: failed(403, "Forbidden", FORBIDDEN)] * 1000
        with pytest.raises(Forbidden, match="the right to create configmaps"):
            await api.create(config_map())
        assert len(api_server.requests) > 2


async def test_credentials_that_ran_out_are_renewed_once() -> None:
    async with serving() as api_server:
        api_server.put("configmaps", config_map())

        def only_new(request: web.Request) -> web.Response | None:
            return None if request.headers["Authorization"] == "Bearer new" else failed(401, "Unauthorized", "Unauthorized")

        async def renew() -> Any:
            return access(api_server.url, "new")

        api_server.answers = [only_new] * 4
        async with Transport(access(api_server.url, "old"), manners=FAST, renew=renew) as transport:
            assert (await Api(transport, "bench").get(CONFIG_MAPS, "one"))["metadata"]["name"] == "one"
        api_server.answers = [lambda _: failed(401, "Unauthorized", "Unauthorized")] * 4
        async with Transport(access(api_server.url, "old"), manners=FAST, renew=renew) as transport:
            with pytest.raises(Unauthorized):
                await Api(transport, "bench").get(CONFIG_MAPS, "one")


async def test_the_clusters_time_is_kept_from_its_answers() -> None:
    ahead = datetime.now(UTC) + timedelta(hours=2)
    async with connected() as (api_server, api):
        api_server.answers = [lambda _: web.json_response({}, headers={"Date": ahead.strftime("%a, %d %b %Y %H:%M:%S GMT")})]
        await api.get(CONFIG_MAPS, "one")
        assert abs((api.now() - ahead).total_seconds()) < 60


async def test_long_lists_come_in_pages_and_with_their_kind() -> None:
    async with connected() as (api_server, api):
        for i in range(501):
            api_server.put("configmaps", config_map(f"c{i:03}", a="b" if i else "c"))
        found, version = await api.find(CONFIG_MAPS)
        assert [obj["metadata"]["name"] for obj in found] == [f"c{i:03}" for i in range(501)]
        assert {(obj["apiVersion"], obj["kind"]) for obj in found} == {("v1", "ConfigMap")}
        assert version == str(api_server.version)
        assert len(api_server.requests) == 2
        assert len((await api.find(CONFIG_MAPS, selector="a=c"))[0]) == 1


async def test_a_list_whose_rest_expired_begins_again() -> None:
    async with connected() as (api_server, api):
        for i in range(501):
            api_server.put("configmaps", config_map(f"c{i:03}"))
        api_server.answers = [lambda _: None, lambda _: failed(410, "Expired", "continue token too old")]
        found, _ = await api.find(CONFIG_MAPS)
        assert len({obj["metadata"]["name"] for obj in found}) == len(found) == 501


async def test_creating_names_us_as_field_manager_and_a_dry_run_keeps_nothing() -> None:
    async with connected() as (api_server, api):
        await api.create(config_map(), dry_run=True)
        assert dict(api_server.requests[-1].query) == {"fieldManager": "specsweep", "fieldValidation": "Strict", "dryRun": "All"}
        assert not api_server.objects
        await api.create(config_map())
        assert dict(api_server.requests[-1].query) == {"fieldManager": "specsweep", "fieldValidation": "Strict"}
        assert ("configmaps", "one") in api_server.objects


async def test_an_object_of_ours_with_the_same_content_is_adopted() -> None:
    async with connected() as (_, api):
        wanted = server_objects(server(), None)[-1]
        made, before = await api.create_or_adopt(wanted)
        again, adopted = await api.create_or_adopt(wanted)
        assert (before, adopted) == (False, True)
        assert again["metadata"]["uid"] == made["metadata"]["uid"]


async def test_an_adopted_object_gets_the_present_owner() -> None:
    async with connected() as (api_server, api):
        await api.create_or_adopt(server_objects(server(), None)[-1])
        found, adopted = await api.create_or_adopt(server_objects(server(), OWNER)[-1])
        assert adopted
        assert found["metadata"]["ownerReferences"][0]["uid"] == OWNER.uid
        assert api_server.seen("PATCH")[0].headers["Content-Type"] == "application/merge-patch+json"


async def test_a_create_whose_answer_got_lost_meets_itself() -> None:
    async with connected() as (api_server, api):
        wanted = server_objects(server(), None)[-1]

        def made_but_lost(request: web.Request) -> str:
            api_server.put("jobs", api_server.bodies[-1])
            return "drop"

        api_server.answers = [made_but_lost]
        found, adopted = await api.create_or_adopt(wanted)
        assert adopted
        assert found["metadata"]["name"] == wanted["metadata"]["name"]


async def test_what_is_not_ours_is_named_and_left_alone() -> None:
    async with connected() as (api_server, api):
        theirs = server_objects(server(), None)[-1]
        theirs["metadata"]["labels"] = {"app": "theirs"}
        api_server.put("jobs", theirs)
        with pytest.raises(
            Conflict, match=r"jobs\.batch fig7-3f2a91c0e2 in namespace bench exists and is not ours.*theirs.*kubectl delete jobs"
        ) as raised:
            await api.create_or_adopt(server_objects(server(), None)[-1])
        assert not isinstance(raised.value, Outdated)
        assert [request.method for request in api_server.requests] == ["POST", "GET"]


async def test_an_object_of_ours_with_other_settings_is_outdated() -> None:
    async with connected() as (_, api):
        await api.create_or_adopt(server_objects(server(), None)[-1])
        with pytest.raises(Outdated, match="other settings"):
            await api.create_or_adopt(server_objects(server(gpus=4), None)[-1])


async def test_an_object_that_is_being_deleted_is_waited_for() -> None:
    async with connected() as (api_server, api):
        dying = server_objects(server(), None)[-1]
        dying["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
        old = api_server.put("jobs", dying)
        creating = asyncio.create_task(api.create_or_adopt(server_objects(server(), None)[-1]))
        while len(api_server.seen("GET")) < 2:
            await asyncio.sleep(0.01)
        assert not creating.done()
        api_server.remove("jobs", old["metadata"]["name"])
        found, adopted = await creating
        assert not adopted
        assert found["metadata"]["uid"] != old["metadata"]["uid"]


async def test_deleting_takes_dependents_first_and_is_no_error_when_gone() -> None:
    async with connected() as (api_server, api):
        made = api_server.put("configmaps", config_map())
        await api.delete(CONFIG_MAPS, "one", uid="of another")
        assert ("configmaps", "one") in api_server.objects, "another one by that name stays"
        await api.delete(CONFIG_MAPS, "one", uid=made["metadata"]["uid"], grace_s=0)
        assert api_server.bodies[-1] == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": made["metadata"]["uid"]},
            "gracePeriodSeconds": 0,
        }
        await api.delete(CONFIG_MAPS, "one")
        await api.gone(CONFIG_MAPS, "one", within_s=5)


async def test_what_does_not_go_is_said_with_what_holds_it() -> None:
    async with connected() as (api_server, api):
        held = config_map()
        held["metadata"]["finalizers"] = ["foregroundDeletion"]
        api_server.put("configmaps", held)
        with pytest.raises(TimeoutError, match=r"configmaps one is still there.*foregroundDeletion"):
            await api.gone(CONFIG_MAPS, "one", within_s=0.2)
        await api.gone(CONFIG_MAPS, "one", uid="an earlier one", within_s=0.2)


async def test_logs_of_a_container_that_runs_and_of_the_one_before() -> None:
    async with connected() as (api_server, api):
        api_server.logs = {"p": "line\n"}
        assert await api.log("p", "main", lines=20) == "line\n"
        query = dict(api_server.requests[-1].query)
        assert (query["container"], query["tailLines"], "previous" in query) == ("main", "20", False)
        await api.log("p", "main", previous=True)
        assert api_server.requests[-1].query["previous"] == "true"
        with pytest.raises(NotFound):
            await api.log("gone", "main")


async def test_events_of_objects_in_the_order_of_time() -> None:
    async with connected() as (api_server, api):
        for name, uid, last in (
            ("e1", "a", "2026-11-30T12:00:02Z"),
            ("e2", "b", "2026-11-30T12:00:01Z"),
            ("e3", "c", "2026-11-30T12:00:00Z"),
        ):
            api_server.put("events", {"metadata": {"name": name}, "involvedObject": {"uid": uid}, "lastTimestamp": last})
        assert [event["metadata"]["name"] for event in await api.events("a", "b")] == ["e2", "e1"]


async def test_the_token_is_sent_and_never_said() -> None:
    async with connected(Manners(patience_s=0)) as (api_server, api):
        api_server.answers = [lambda _: failed(500, "InternalError", "x")]
        with pytest.raises(ApiError) as raised:
            await api.get(PODS, "p")
        assert api_server.requests[0].headers["Authorization"] == "Bearer secret-token"
        assert "secret-token" not in repr(raised.value) + str(raised.value)
