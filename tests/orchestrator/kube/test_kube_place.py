"""Starting an engine on a cluster whose API server is away: the place is lost for a while, and the session is not."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from k8s_fake_api import Server
from plan_samples import plan_of

from specsweep.k8s import server as k8s_server
from specsweep.k8s.errors import ApiError, KubernetesError, Unreachable
from specsweep.orchestrator.clusters import Launch
from specsweep.orchestrator.clusters import kubernetes as place_of_pods
from specsweep.orchestrator.clusters.kubernetes import KubernetesCluster
from specsweep.orchestrator.engines import EngineSpec
from specsweep.orchestrator.errors import ClusterRetryable, ClusterTerminal

WORDS = ("sweep=smoke", "cluster=kubernetes", "engine=sim", "cluster.image=reg/specsweep:1", "drafter=none", "batch_size=1")
AWAY = Unreachable("the API server does not answer")


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[KubernetesError | None]:
    """How each start of a server goes: the error that it raises, or None."""
    outcomes: list[KubernetesError | None] = []

    @asynccontextmanager
    async def serve(*_: Any, **__: Any) -> AsyncIterator[Any]:
        if (error := outcomes.pop(0)) is not None:
            raise error

        async def log() -> str:
            return ""

        yield SimpleNamespace(url="http://10.0.0.7:8000", evidence={}, log=log)

    monkeypatch.setattr(k8s_server, "serve", serve)
    monkeypatch.setattr(place_of_pods, "AWAY_PAUSE_S", 0.0)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    return outcomes


async def start(folder: Path, *more: str) -> list[str]:
    """Returns what was said."""
    config = plan_of(*WORDS, *more).sessions[0].config
    place, said = KubernetesCluster.from_config(config), list[str]()
    launch = Launch(folder, "s1", config, session_id="1" * 64, say=said.append)
    async with place.opened("smoke", ["1" * 64], said.append), place.start(EngineSpec("sim", ("sim",), "tiny"), launch) as engine:
        assert engine.base_url == "http://10.0.0.7:8000"
    return said


async def test_it_is_waited_for(api_server: Server, starts: list[KubernetesError | None], tmp_path: Path) -> None:
    starts[:] = [AWAY, AWAY, None]
    said = await start(tmp_path)
    assert [words for words in said if "it is waited for" in words] == [said[0]] * 2
    assert starts == []


async def test_what_the_server_says_is_no_absence(api_server: Server, starts: list[KubernetesError | None], tmp_path: Path) -> None:
    starts[:] = [ApiError("admission webhook denied the request", status=400), None]
    with pytest.raises(ClusterTerminal, match="webhook denied"):
        await start(tmp_path)
    assert starts == [None]


async def test_not_for_longer_than_a_session_may_last(
    api_server: Server, starts: list[KubernetesError | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts[:] = [AWAY, None]
    clock = itertools.count(0.0, 40.0)
    monkeypatch.setattr(place_of_pods, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(ClusterRetryable, match="does not answer"):
        await start(tmp_path, "cluster.deadlines.session_s=30")
    assert starts == [None]


def test_how_long_silence_is_borne_is_a_setting() -> None:
    assert KubernetesCluster.from_config(plan_of(*WORDS).sessions[0].config).dying_s == 150
    assert KubernetesCluster.from_config(plan_of(*WORDS, "cluster.deadlines.silence_s=20").sessions[0].config).dying_s == 20
