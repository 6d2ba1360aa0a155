"""The log that is meant, whole, without secrets, and without a gap where the connection was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from k8s_fake_api import Server
from k8s_pods import ended, up

from specsweep.k8s.names import labels
from specsweep.orchestrator.kube import logs

Command = Callable[..., Any]
AT = "2026-11-30T12:00:0{}.00000000{}Z {}\n"


def show(api_server: Server, name: str, state: dict[str, Any], component: str, session: str | None = None, at: str = "1") -> None:
    metadata = {**state["metadata"], "name": name, "labels": labels(component, sweep="fig7", session=session)}
    metadata["creationTimestamp"] = f"2026-11-30T12:00:0{at}Z"
    api_server.put("pods", {**state, "metadata": metadata})


async def test_the_newest_pod_of_the_sweep_speaks(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    show(api_server, "sweep-1", ended(137), "sweep", at="1")
    show(api_server, "sweep-2", up(started=5, ready=True), "sweep", at="2")
    show(api_server, "engine", up(started=5, ready=True), "engine", "abcdef0123456789", at="3")
    api_server.logs = {"sweep-1": "old\n", "sweep-2": "one\nHF_TOKEN=hf_abcdefghijklmnopqrst\nthree\n", "engine": "Loading weights\n"}
    assert await specsweep("logs", "fig7", "cluster=kubernetes") == 0
    assert capsys.readouterr().out == "one\nHF_TOKEN=[redacted]\nthree\n"
    assert await specsweep("logs", "fig7", "cluster=kubernetes", "--tail", "1") == 0
    assert capsys.readouterr().out == "three\n"


@pytest.mark.parametrize("words", [("--session", "abcdef"), ("--session", "abcdef0123456789ffff"), ("--engine", "vllm-e")])
async def test_an_engine_speaks(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], words: Any) -> None:
    show(api_server, "vllm-eagle3-dl4-aa-x", up(started=5, ready=True), "engine", "abcdef0123456789")
    show(api_server, "vllm-none-bb-x", up(started=5, ready=True), "engine", "1234567890123456")
    api_server.logs = {"vllm-eagle3-dl4-aa-x": "this\n", "vllm-none-bb-x": "other\n"}
    assert await specsweep("logs", "fig7", "cluster=kubernetes", *words) == 0
    assert capsys.readouterr().out == "this\n"


async def test_what_there_is_is_named(api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]) -> None:
    show(api_server, "vllm-none-bb-x", up(started=5, ready=True), "engine", "1234567890123456")
    assert await specsweep("logs", "fig7", "cluster=kubernetes", "--session", "99") == 2
    assert "there is vllm-none-bb-x (session 1234567890123456)" in capsys.readouterr().err
    assert await specsweep("logs", "fig7", "cluster=kubernetes") == 2
    assert "sweep fig7 has no pod in namespace bench" in capsys.readouterr().err
    assert await specsweep("logs", "fig7") == 2


async def test_a_sweep_or_a_namespace_that_is_not_there_is_named(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await specsweep("logs", "nosuch", "cluster=kubernetes") == 2
    assert "sweep 'nosuch' is not in namespace bench; sweeps there: none" in capsys.readouterr().err
    for command in ("logs", "status"):
        assert await specsweep(command, "fig7", "cluster=kubernetes", "cluster.namespace=nowhere") == 2
        assert "there is no namespace nowhere in this cluster" in capsys.readouterr().err


async def test_following_goes_on_after_a_lost_connection(
    api_server: Server, specsweep: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PAUSE_S", 0.01)
    show(api_server, "sweep-1", up(started=5, ready=True), "sweep")
    parts = ["".join(AT.format(i, i, f"line {i}") for i in (1, 2)), "".join(AT.format(i, i, f"line {i}") for i in (2, 3, 4))]
    asked: list[str] = []

    def answer(request: web.Request) -> Any:
        api_server.answers.append(answer)
        if not request.path.endswith("/log"):
            return None
        asked.append(request.query.get("sinceTime", ""))
        if len(asked) == 3:
            show(api_server, "sweep-1", ended(0), "sweep")
        return web.Response(text=parts[len(asked) - 1]) if len(asked) <= 2 else web.Response(text="")

    api_server.answers = [answer]
    async with asyncio.timeout(30):
        assert await specsweep("logs", "fig7", "cluster=kubernetes", "--follow") == 0
    assert capsys.readouterr().out.splitlines() == ["line 1", "line 2", "line 3", "line 4"]
    assert asked[1] == "2026-11-30T12:00:02Z"
