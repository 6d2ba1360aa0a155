"""vLLM: the launch side, for one GPU, for many, and for the CPU build.

What is pinned in every arm, since its default would falsify a comparison or hide steps: prefix caching off, stream interval 1,
sampling defaults of vLLM and not of the model's ``generation_config.json``, the scheduler mode (vLLM turns asynchronous
scheduling on for some drafters and off for others by itself), the batch limit, and room in the token budget for every draft of
a full batch. CUDA graphs are counted in tokens, so their range is batch limit × (1 + DL).

Versions differ in what they can do and how it is spelled; :mod:`specsweep.orchestrator.engines.versions` says which one a config
declares. The limits below were read from vLLM's sources of 0.13.0 to 0.33.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specsweep.orchestrator.engines import EngineSpec, ModelFormat, SessionModels
from specsweep.orchestrator.engines._arguments import arguments, given_environment, model_argument, served_by, without_unset
from specsweep.orchestrator.engines._vllm_drafters import DRAFTERS, speculative_config
from specsweep.orchestrator.engines._vllm_rules import broken
from specsweep.orchestrator.engines.versions import at_least
from specsweep.orchestrator.engines.vllm_env import installed_version, interpreter, problem, running_version

PORT = 8000
TOKEN_BUDGET = 8192  # --max-num-batched-tokens at the least: vLLM's own default on large GPUs up to 0.32
PREFILL_ROOM = 2048  # tokens of that budget beside a full batch of drafts


class Vllm:
    name = "vllm"
    drafters = DRAFTERS
    attach_only = False
    model_format: ModelFormat = "hf"
    in_our_image = False
    fact_paths = ("/version", "/server_info?config_format=json")

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return broken(config)

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        return problem(engine)

    def installed(self, engine: Mapping[str, Any]) -> str:
        return f"vLLM {installed_version(interpreter(engine))} of {interpreter(engine)}"

    def stateful(self, drafter: Mapping[str, Any]) -> bool:
        return bool(drafter["method"] == "suffix")

    def warn(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return []

    def spec(self, config: Mapping[str, Any], models: SessionModels, *, n_ctx_per_slot: int) -> EngineSpec:
        engine, target = config["engine"], config["target"]
        gpus = int(target.get("gpus") or 0)
        max_batch = int(engine["max_batch"])
        method = config["drafter"]["method"]
        length = 0 if method == "none" else int(config["draft_length"])
        on_cpu = gpus == 0
        speculation = speculative_config(config, models)
        version = running_version(config)
        shared = {
            "dtype": engine.get("dtype"),
            "tensor-parallel-size": int(target.get("tensor_parallel") or 1),
            "enable-expert-parallel": int(target.get("expert_parallel") or 1) > 1 or None,
            "max-num-seqs": max_batch,
            "enable-prefix-caching": False,
            "async-scheduling": bool(engine.get("async_scheduling")),
            "generation-config": "vllm",
            "stream-interval": 1,
            "enforce-eager": True if on_cpu else None,
            "gpu-memory-utilization": None if on_cpu else float(engine.get("gpu_memory_utilization") or 0.9),
            "disable-uvicorn-access-log": True,
        }
        sizes = {
            "max-model-len": n_ctx_per_slot,
            "max-num-batched-tokens": _token_budget(engine, max_batch, length),
            "max-cudagraph-capture-size": None if on_cpu else max_batch * (1 + length),
        }
        drafting = {
            "speculative-config": json.dumps(speculation, separators=(",", ":")) if speculation else None,
            "per-request-spec-decode-metrics": str(engine.get("step_truth") or "detailed")
            if speculation and at_least(version, "0.29")
            else None,
        }
        given = dict(engine.get("args") or {})
        model, revision = model_argument(target, models.target)
        head = {"model": model, "revision": revision, "served-model-name": str(target["name"]), "host": "{host}", "port": "{port}"}
        return EngineSpec(
            engine=self.name,
            argv=(
                *served_by(
                    config,
                    local=(interpreter(engine), "-m", "vllm.entrypoints.openai.api_server"),
                    image=("python3", "-m", "vllm.entrypoints.openai.api_server"),
                ),
                *arguments({**head, **shared, **sizes, **drafting, **given}),
            ),
            env={
                "VLLM_NO_USAGE_STATS": "1",
                "DO_NOT_TRACK": "1",
                "VLLM_SERVER_DEV_MODE": "1",  # /server_info: the resolved config, for the record
                **({"VLLM_CPU_KVCACHE_SPACE": str(engine.get("cpu_kv_cache_gib") or 1)} if on_cpu else {}),
                **({"HF_HUB_OFFLINE": "1"} if target.get("model", {}).get("source") != "hub" else {}),
                **given_environment(engine),
            },
            model_name=str(target["name"]),
            version=str(version) if version else None,
            port=engine.get("port"),
            startup_timeout_s=float(engine.get("startup_timeout_s") or 1800.0),
            gpus=gpus,
            flags={**without_unset(shared), **given, "target_sha256": models.target_sha256},
            drafter_flags={
                "method": method,
                **without_unset(
                    {"speculative-config": _without_paths(speculation), "step_truth": drafting["per-request-spec-decode-metrics"]}
                ),
                "sha256": models.drafter_sha256,
            },
            unstable_flags=without_unset(sizes),
        )

    def facts(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        answer = answers.get("/version")
        found: dict[str, Any] = {"version": str(answer["version"]) if isinstance(answer, dict) and "version" in answer else "unknown"}
        info = answers.get(self.fact_paths[1])
        if isinstance(info, dict):
            cache = (info.get("vllm_config") or {}).get("cache_config") or {}
            found |= {k: cache[k] for k in ("block_size", "enable_prefix_caching", "cache_dtype") if k in cache}
            found |= {"unstable": {"num_gpu_blocks": cache["num_gpu_blocks"]}} if "num_gpu_blocks" in cache else {}
        return found


def _token_budget(engine: Mapping[str, Any], max_batch: int, length: int) -> int:
    return int(engine.get("max_batched_tokens") or max(TOKEN_BUDGET, max_batch * (1 + length) + PREFILL_ROOM))


def _without_paths(speculation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Where a drafter lies is no part of an environment; its hash is."""
    return {k: v for k, v in speculation.items() if k != "model"} if speculation else None


LAUNCHER = Vllm()
