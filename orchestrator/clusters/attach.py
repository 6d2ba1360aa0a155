"""A server that is already running: nothing is started, nothing is ended, and its log is not ours to read."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from specsweep.client.scrape import is_healthy
from specsweep.orchestrator.clusters import Launch, OnePlace, RunningEngine
from specsweep.orchestrator.engines import EngineSpec
from specsweep.orchestrator.errors import ClusterTerminal, ConfigError, EngineTerminal
from specsweep.orchestrator.fields import endpoint


@dataclass(frozen=True, slots=True)
class AttachedEngine:
    base_url: str
    model_name: str
    headers: tuple[tuple[str, str], ...]
    files: None = None
    node: str = ""

    def ended(self) -> str | None:
        return None

    async def end(self, words: str) -> EngineTerminal:
        return EngineTerminal(f"the server at {self.base_url} {words}")

    async def log(self) -> str:
        return ""

    def cpu_seconds(self) -> None:
        """Its processes may run anywhere."""

    def host_facts(self) -> dict[str, Any]:
        """Its host is not known; the endpoint's name stands for it."""
        return {"attached": True}


@dataclass(frozen=True, slots=True)
class AttachCluster(OnePlace):
    base_url: str
    headers: tuple[tuple[str, str], ...]
    kind: str = "attach"

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> AttachCluster:
        """``cluster.endpoint``: the URL; ``cluster.token_env``: the environment variable that holds the bearer token, if one is needed."""
        settings = config["cluster"]
        url = endpoint(settings.get("endpoint") or config.get("endpoint"))
        token_env = settings.get("token_env")
        if not token_env:
            return cls(url, ())
        token = os.environ.get(str(token_env), "").strip()  # a file's last line break is no part of it
        if not token:
            raise ConfigError(
                f"cluster.token_env={token_env!r}: the environment has no such variable; export it, or set cluster.token_env=null"
            )
        if not token.isascii() or not token.isprintable():
            raise ConfigError(f"cluster.token_env={token_env!r}: the variable holds characters that no HTTP header may have")
        return cls(url, (("Authorization", f"Bearer {token}"),))

    @asynccontextmanager
    async def start(self, spec: EngineSpec, launch: Launch) -> AsyncIterator[AttachedEngine]:
        if not await is_healthy(self.base_url + spec.health_path, headers=dict(self.headers), any_answer=True):
            raise ClusterTerminal(f"nothing answers at endpoint={self.base_url}; is the server running and reachable from here?")
        yield AttachedEngine(self.base_url, spec.model_name, self.headers)

    async def quiet(self, engine: RunningEngine, wait_s: float, busy: Callable[[float], None] = lambda share: None) -> None:
        """What else keeps the engine's host busy cannot be seen from here."""
