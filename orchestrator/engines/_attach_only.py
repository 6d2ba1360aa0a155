"""Engines whose server this version does not start: they are measured where they already run (``cluster=attach``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsweep.orchestrator.engines import EngineSpec, ModelFormat, SessionModels
from specsweep.orchestrator.errors import ConfigError


class AttachOnly:
    attach_only = True
    model_format: ModelFormat = "hf"
    in_our_image = False

    def __init__(self, name: str, drafters: frozenset[str], fact_paths: tuple[str, ...]) -> None:
        self.name = name
        self.drafters = drafters
        self.fact_paths = fact_paths

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        if config["cluster"]["kind"] != "attach":
            return [("attach_only", f"engine {self.name} is not started by this version; use cluster=attach endpoint=http://host:port")]
        return []

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        return None

    def stateful(self, drafter: Mapping[str, Any]) -> bool:
        return bool(drafter["method"] == "suffix")

    def warn(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return []

    def spec(self, config: Mapping[str, Any], models: SessionModels, *, n_ctx_per_slot: int) -> EngineSpec:
        raise ConfigError(f"engine {self.name} can only be attached to: cluster=attach endpoint=http://host:port")

    def facts(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        answer = answers.get("/version")
        return {"version": str(answer["version"]) if isinstance(answer, dict) and "version" in answer else "unknown"}
