"""Commands against the API server of tests/k8s, found as a user's are: by a kubeconfig."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[2] / "k8s"))
sys.path.append(str(Path(__file__).parents[1]))

from k8s_fake_api import Server, serving

from specsweep.orchestrator import cli

Command = Callable[..., Any]


@pytest.fixture
async def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """Namespace ``bench`` of context ``lab``."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    async with serving() as server:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": "bench"}}],
            "clusters": [{"name": "lab", "cluster": {"server": server.url}}],
            "users": [{"name": "me", "user": {"token": "of-me"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield server


@pytest.fixture
def specsweep() -> Command:
    """Runs a command beside the API server; gives its exit code."""

    async def run(*words: str) -> int:
        return await asyncio.to_thread(cli.main, list(words))

    return run
