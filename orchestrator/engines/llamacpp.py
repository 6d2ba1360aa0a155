"""llama.cpp, embedded: the whole llama-server out of the ``xllamacpp`` wheel, in a process of its own.

One server has one draft length (it cannot be changed by request), so a session has one DL. Three settings are pinned in every
arm because their defaults would falsify a comparison: prompt caching is off (``cache_prompt``, ``cache_ram``), the context is
split evenly over the slots, and drafts have no minimum length or probability, so that DL means DL. The n-gram drafter ignores
the draft model's ``n_max``; its own ``size_m`` is the draft length.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from specsweep.orchestrator.engines import EngineSpec, ModelFormat, SessionModels
from specsweep.orchestrator.errors import ConfigError

MAX_DRAFT_LENGTH = 64
NGRAM_MATCH_DEFAULT = 12  # llama.cpp's own default of size_n


class LlamaCpp:
    name = "llamacpp"
    drafters = frozenset({"none", "ngram", "draft_model"})
    attach_only = False
    model_format: ModelFormat = "gguf"
    fact_paths = ("/props",)

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        found = []
        drafter, length = config["drafter"]["method"], config.get("draft_length")
        if drafter != "none" and length is not None and int(length) > MAX_DRAFT_LENGTH:
            found.append(("draft_length_limit", f"llama.cpp drafts at most {MAX_DRAFT_LENGTH} tokens here; draft_length is {length}"))
        if int(config["target"].get("tensor_parallel") or 1) > 1:
            found.append(("tensor_parallel", "llama.cpp has no tensor parallelism over ranks; set target.tensor_parallel=1"))
        if config["cluster"]["kind"] == "local" and (reason := self.missing(config["engine"])):
            found.append(("engine_version", reason))
        return found

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        wanted = engine.get("version")
        if not wanted or str(wanted) == installed_version():
            return None
        return f"engine.version={wanted} is asked for, but xllamacpp {installed_version()} is installed"

    def stateful(self, drafter: Mapping[str, Any]) -> bool:
        return False

    def warn(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return []

    def spec(self, config: Mapping[str, Any], models: SessionModels, *, n_ctx_per_slot: int) -> EngineSpec:
        engine, drafter = config["engine"], config["drafter"]
        slots = int(engine["max_batch"])
        threads = int(engine.get("threads") or os.cpu_count() or 1)
        settings: dict[str, Any] = {
            "model": str(models.target),
            "n_parallel": slots,
            "n_ctx": n_ctx_per_slot * slots,
            "threads": threads,
            "drafter": _drafter_settings(config, models),
            "args": dict(engine.get("args") or {}),
        }
        method = drafter["method"]
        return EngineSpec(
            engine=self.name,
            argv=(sys.executable, "-m", "specsweep.orchestrator.engines.llamacpp_server", "{files}/server.json", "{port}"),
            files={"server.json": json.dumps(settings, indent=2)},
            model_name=str(config["target"]["name"]),
            version=installed_version(),
            port=engine.get("port"),
            startup_timeout_s=float(engine.get("startup_timeout_s") or 120.0),
            gpus=int(config["target"].get("gpus") or 0),
            flags={
                "max_batch": slots,
                "threads": threads,
                "prefix_cache": False,
                "target_sha256": models.target_sha256,
                "args": settings["args"],
            },
            drafter_flags={
                "method": method,
                **{k: v for k, v in settings["drafter"].items() if k != "path"},
                "sha256": models.drafter_sha256,
            },
            unstable_flags={"n_ctx": settings["n_ctx"]},
        )

    def facts(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        props = answers.get("/props") or {}
        found: dict[str, Any] = {"build": str(props.get("build_info", "unknown"))}
        if "total_slots" in props:
            found["slots"] = int(props["total_slots"])
        return found


@functools.cache
def installed_version() -> str:
    try:
        return version("xllamacpp")
    except PackageNotFoundError:  # pragma: no cover - a dependency of ours
        return "unknown"


def _drafter_settings(config: Mapping[str, Any], models: SessionModels) -> dict[str, Any]:
    drafter = config["drafter"]
    method = drafter["method"]
    if method == "none":
        return {"type": "none"}
    length = int(config["draft_length"])
    if method == "ngram":
        return {"type": "ngram_simple", "size_n": int(drafter.get("match_size") or NGRAM_MATCH_DEFAULT), "size_m": length}
    if method == "draft_model":
        if models.drafter is None:
            raise ConfigError(f"drafter {drafter['name']!r} has no model: set drafter.model (source, path)")
        return {"type": "draft_simple", "path": str(models.drafter), "n_max": length, "n_min": 0, "p_min": 0.0}
    raise ConfigError(f"engine llamacpp has no drafter method {method!r}; it has {', '.join(sorted(LlamaCpp.drafters))}")


LAUNCHER = LlamaCpp()
