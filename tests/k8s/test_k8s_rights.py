"""Every right that is missing is named, each is asked for once, and none reaches beyond what the Role gives."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from k8s_fake_api import connected

from specsweep.k8s.rights import FOR_A_QUEUE, NEEDED, missing

ROLE = {  # what the chart's Role is to grant, and no more
    "jobs.batch": {"create", "get", "list", "watch", "patch", "delete"},
    "services": {"create", "get", "list", "watch", "patch", "delete"},
    "configmaps": {"create", "get", "list", "watch", "patch", "delete"},
    "pods": {"get", "list", "watch", "delete"},
    "pods/log": {"get", "list", "watch"},
    "events": {"get", "list", "watch"},
    "persistentvolumeclaims": {"get"},
}


def test_the_needed_rights_are_those_of_the_role() -> None:
    found: dict[str, set[str]] = {}
    for right in NEEDED:
        name = f"{right.resource.plural}/{right.subresource}" if right.subresource else right.resource.full_name
        found.setdefault(name, set()).add(right.verb)
    assert found == ROLE
    assert [(right.verb, right.resource.full_name) for right in FOR_A_QUEUE] == [("get", "localqueues.kueue.x-k8s.io")]


async def test_missing_rights_are_named_with_verb_resource_and_namespace() -> None:
    async with connected() as (api_server, api):

        def review(request: web.Request) -> web.Response:
            api_server.answers.append(review)
            asked: dict[str, Any] = api_server.bodies[-1]
            attributes = asked["spec"]["resourceAttributes"]
            no = (attributes["verb"], attributes["resource"]) == ("watch", "events") or attributes.get("subresource") == "log"
            return web.json_response({**asked, "status": {"allowed": not no}}, status=201)

        api_server.answers = [review]
        found = await missing(api)
        log = [f"{verb} pods/log in namespace bench" for verb in ("get", "list", "watch")]
        assert sorted(found) == sorted(["watch events in namespace bench", *log])
        assert len(api_server.requests) == len(NEEDED)
        jobs = [
            body["spec"]["resourceAttributes"] for body in api_server.bodies if body["spec"]["resourceAttributes"]["resource"] == "jobs"
        ]
        assert {(item["namespace"], item["group"]) for item in jobs} == {("bench", "batch")}


async def test_all_rights_there_is_no_news() -> None:
    async with connected() as (_, api):
        assert await missing(api) == []
