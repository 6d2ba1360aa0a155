"""A watch gives the present picture, whatever happens to its connection, or says that it cannot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from k8s_fake_api import FAST, Server, bookmark, connected, failed, line
from k8s_pods import pod

from specsweep.k8s.api import Api
from specsweep.k8s.errors import Forbidden, Unreachable
from specsweep.k8s.resources import PODS
from specsweep.k8s.watch import Patience, Watch

SELECTOR = "sweep=fig7"


def named(name: str, version: int = 0, *, phase: str = "Pending", sweep: str = "fig7") -> dict[str, Any]:
    found = pod(phase)
    found["metadata"] = {"name": name, "uid": f"uid-{name}", "labels": {"sweep": sweep}, "resourceVersion": str(version)}
    return found


def watching(api: Api, **patience: float) -> Watch:
    return Watch(api, PODS, SELECTOR, patience=Patience(**{"silence_s": 5.0, "session_s": 60.0, "away_s": 5.0, **patience}))


async def until(watch: Watch, *names: str) -> None:
    version = -1
    while sorted(watch.objects) != sorted(names):
        version = await asyncio.wait_for(watch.changed(version), 10)


async def scripted(api_server: Server, *scripts: list[Any]) -> None:
    api_server.scripts = list(scripts)


async def test_what_is_there_at_first_and_every_change_after() -> None:
    async with connected() as (api_server, api):
        api_server.put("pods", named("a"))
        api_server.put("pods", named("other", sweep="fig8"))
        async with watching(api) as pods:
            assert list(pods.objects) == ["a"]
            api_server.put("pods", named("b"))
            await until(pods, "a", "b")
            version = pods.version
            api_server.put("pods", named("b", phase="Running"))
            await pods.changed(version, timeout_s=10)
            assert pods.objects["b"]["status"]["phase"] == "Running"
            api_server.remove("pods", "a")
            await until(pods, "b")
        assert len(api_server.requests) == 2, "one list and one watch"


async def test_a_watch_asks_for_bookmarks_and_an_end_and_goes_on_from_the_last_version() -> None:
    async with connected() as (api_server, api):
        await scripted(api_server, [line("ADDED", named("a", 150)), bookmark(170)])
        async with watching(api) as pods:
            await until(pods, "a")
            while len(api_server.seen("GET", "/pods")) < 3:
                await asyncio.sleep(0.005)
        first, second = (dict(request.query) for request in api_server.requests[1:3])
        assert (first["watch"], first["allowWatchBookmarks"], first["labelSelector"], first["resourceVersion"]) == (
            "true",
            "true",
            SELECTOR,
            "100",
        )
        assert 1 <= int(first["timeoutSeconds"]) <= 66
        assert second["resourceVersion"] == "170"


async def test_an_event_that_comes_twice_is_one_change() -> None:
    async with connected() as (api_server, api):
        await scripted(
            api_server, [line("ADDED", named("a", 150)), line("MODIFIED", named("a", 150))], [line("ADDED", named("a", 150)), bookmark(200)]
        )
        async with watching(api) as pods:
            await until(pods, "a")
            while len(api_server.requests) < 4:
                await asyncio.sleep(0.005)
            assert pods.version == 1


async def test_a_line_that_is_cut_comes_again_on_the_next_watch() -> None:
    whole = line("ADDED", named("b", 160))
    async with connected() as (api_server, api):
        await scripted(api_server, [line("ADDED", named("a", 150)), whole[: len(whole) // 2]], [whole, 30.0])
        async with watching(api) as pods:
            await until(pods, "a", "b")
        assert api_server.requests[2].query["resourceVersion"] == "150"


@pytest.mark.parametrize("gone", ["as an event", "as an answer"])
async def test_a_version_that_is_no_longer_kept_is_listed_anew(gone: str) -> None:
    too_old = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    async with connected() as (api_server, api):
        api_server.put("pods", named("a"))
        api_server.put("pods", named("b"))
        if gone == "as an event":
            await scripted(api_server, [line("ERROR", too_old)])
        else:
            api_server.answers = [lambda _: None, lambda _: failed(410, "Expired", "too old resource version")]
        async with watching(api) as pods:
            assert sorted(pods.objects) == ["a", "b"]
            api_server.objects.pop(("pods", "a"))  # its DELETED event is among those that nobody keeps
            api_server.put("pods", named("c"))
            await until(pods, "b", "c")


async def test_a_lost_connection_is_opened_again() -> None:
    async with connected() as (api_server, api):
        api_server.answers = [lambda _: None, lambda _: "drop", lambda _: failed(503, "ServiceUnavailable", "starting"), lambda _: "drop"]
        async with watching(api) as pods:
            api_server.put("pods", named("a"))
            await until(pods, "a")
        assert len(api_server.requests) == 5


async def test_a_watch_that_goes_silent_is_taken_for_dead() -> None:
    async with connected() as (api_server, api):
        await scripted(api_server, [30.0])
        # Longer than the server may be away: silence is not absence.
        async with watching(api, silence_s=0.2, away_s=0.1) as pods:
            while len(api_server.requests) < 2:
                await asyncio.sleep(0.005)
            api_server.put("pods", named("a"))
            await until(pods, "a")


async def test_garbage_on_the_stream_is_a_lost_connection() -> None:
    async with connected() as (api_server, api):
        await scripted(api_server, [b"<html>gateway timeout</html>\n"])
        async with watching(api) as pods:
            api_server.put("pods", named("a"))
            await until(pods, "a")


async def test_a_right_that_is_taken_away_ends_it_loudly_for_all_who_wait_and_read() -> None:
    words = 'pods is forbidden: User "u" cannot watch resource "pods" in API group "" in the namespace "bench"'
    async with connected() as (api_server, api):
        api_server.answers = [lambda _: None, lambda _: failed(403, "Forbidden", words)]
        async with watching(api) as pods:
            with pytest.raises(Forbidden, match="the right to watch pods in namespace bench is missing"):
                await asyncio.wait_for(pods.changed(pods.version), 10)
            with pytest.raises(Forbidden):
                _ = pods.objects


async def test_a_server_that_stays_away_ends_it_loudly() -> None:
    async with connected() as (api_server, api):
        api_server.answers = [lambda _: None, *[lambda _: "drop"] * 10_000]
        async with watching(api, away_s=0.1) as pods:
            with pytest.raises(Unreachable, match="watching pods: no answer for"):
                await asyncio.wait_for(pods.changed(pods.version), 20)


async def test_waiting_ends_by_itself_where_nothing_changes() -> None:
    async with connected() as (_, api), watching(api) as pods:
        assert await pods.changed(pods.version, timeout_s=0.01) == pods.version


async def test_no_right_to_list_is_told_at_once() -> None:
    words = 'pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "bench"'
    async with connected(FAST) as (api_server, api):
        api_server.answers = [lambda _: failed(403, "Forbidden", words)]
        with pytest.raises(Forbidden, match="the right to list pods"):
            async with watching(api):
                pass
