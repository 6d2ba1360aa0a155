"""TensorRT-LLM: ``trtllm-serve`` with the PyTorch backend, one generated YAML per session.

NVIDIA's curated YAMLs are not used: they set ``stream_interval: 20``, relaxed acceptance and batch limits of 4 in places. Pinned in
every arm: block reuse off, stream interval 1, CUDA graphs up to the batch limit (128 by default), no relaxed acceptance. Keys that
a version does not know are errors there, so the YAML is spelled by version: "1.2" as in the 1.2 release candidates, newer from 1.3 on.

Facts were read from snapshots of both; no TensorRT-LLM has run here, since it needs CUDA.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

import yaml

from specsweep.orchestrator.engines import EngineSpec, ModelFormat, SessionModels
from specsweep.orchestrator.engines._arguments import drafter_path, given_environment, model_argument, without_unset
from specsweep.orchestrator.engines._trtllm_rules import DRAFTERS, broken, overlap, warnings
from specsweep.orchestrator.engines.versions import at_least, declared_version
from specsweep.orchestrator.identity import captures_routing

TOKEN_BUDGET = 8192  # max_num_tokens at the least
PREFILL_ROOM = 2048
CAPTURE_ITERATIONS = 4096  # of the window of expert statistics: more than warm-ups and a capture need, and filled up in a minute or two


class TrtLlm:
    name = "trtllm"
    drafters = DRAFTERS
    attach_only = False
    model_format: ModelFormat = "hf"
    in_our_image = False
    fact_paths = ("/version",)

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return broken(config)

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        command = str(engine.get("command") or "trtllm-serve")
        return None if shutil.which(command) else f"{command} is not on the PATH; set engine.command=/path/to/trtllm-serve"

    def stateful(self, drafter: Mapping[str, Any]) -> bool:
        return bool(drafter["method"] == "ngram" and drafter.get("shared_pool"))

    def warn(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return warnings(config)

    def spec(self, config: Mapping[str, Any], models: SessionModels, *, n_ctx_per_slot: int) -> EngineSpec:
        engine, target = config["engine"], config["target"]
        version = declared_version(engine)
        max_batch = int(engine["max_batch"])
        length = 0 if config["drafter"]["method"] == "none" else int(config["draft_length"])
        budget = int(engine.get("max_batched_tokens") or max(TOKEN_BUDGET, max_batch * (1 + length) + PREFILL_ROOM, n_ctx_per_slot))
        drafting = speculation(config, models)
        shared = {
            "kv_cache_config": {"enable_block_reuse": False, "free_gpu_memory_fraction": float(engine.get("kv_memory_fraction") or 0.85)},
            "cuda_graph_config": {"enable_padding": True, "max_batch_size": max_batch},
            "enable_iter_perf_stats": True,
            "return_perf_metrics": True,
            "stream_interval": 1,
            "enable_attention_dp": False,
            **({"moe_config": {"backend": engine["moe_backend"]}} if engine.get("moe_backend") else {}),
            **dict(engine.get("args") or {}),
        }
        # Where the scheduler mode differs between arms, the drafter forces it, and the plan has said so.
        scheduler = {} if overlap(config) else {"disable_overlap_scheduler": True}
        settings = {**shared, **scheduler, **({"speculative_config": drafting} if drafting else {})}
        flags = {
            "backend": "pytorch",
            "tp_size": int(target.get("tensor_parallel") or 1),
            "ep_size": int(target["expert_parallel"]) if target.get("expert_parallel") else None,
            "max_batch_size": max_batch,
        }
        sizes = {"max_num_tokens": budget, "max_seq_len": n_ctx_per_slot}
        config_flag = "config" if at_least(version, "1.3") else "extra_llm_api_options"
        command = {"host": "{host}", "port": "{port}", **flags, **sizes, config_flag: "{files}/engine.yaml"}
        return EngineSpec(
            engine=self.name,
            argv=(
                str(engine.get("command") or "trtllm-serve"),
                model_argument(target, models.target)[0],
                *(part for name, value in command.items() if value is not None for part in (f"--{name}", str(value))),
            ),
            env={**statistics(config), **given_environment(engine)},
            recorder_files=int(target.get("tensor_parallel") or 1) if statistics(config) else 0,
            files={"engine.yaml": yaml.safe_dump(settings, sort_keys=False)},
            model_name=str(target["name"]),
            version=str(version) if version else None,
            port=engine.get("port"),
            startup_timeout_s=float(engine.get("startup_timeout_s") or 3600.0),
            gpus=int(target.get("gpus") or 0),
            flags={**without_unset(flags), **shared, "target_sha256": models.target_sha256},
            drafter_flags={
                "method": config["drafter"]["method"],
                **{k: v for k, v in drafting.items() if k not in ("speculative_model_dir", "speculative_model")},
                **scheduler,
                "sha256": models.drafter_sha256,
            },
            unstable_flags=sizes,
        )

    def facts(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        answer = answers.get("/version")
        return {"version": str(answer["version"]) if isinstance(answer, dict) and "version" in answer else "unknown"}


def statistics(config: Mapping[str, Any]) -> dict[str, str]:
    """Environment of a session that captures its routing; empty for one that is timed. Within the window no CUDA graph is used."""
    if not captures_routing(config):
        return {}
    return {"EXPERT_STATISTIC_ITER_RANGE": f"0-{CAPTURE_ITERATIONS}", "EXPERT_STATISTIC_PATH": "{files}/routing"}


def speculation(config: Mapping[str, Any], models: SessionModels) -> dict[str, Any]:
    """The ``speculative_config`` of the YAML; empty for drafter ``none``. DL is ``max_draft_len`` (MTP in 1.2: a number of layers)."""
    drafter = config["drafter"]
    method = drafter["method"]
    if method == "none":
        return {}
    newer = at_least(declared_version(config["engine"]), "1.3")
    length = int(config["draft_length"])
    model = {("speculative_model" if newer else "speculative_model_dir"): _model(drafter, models)} if method not in ("ngram", "mtp") else {}
    if method == "eagle3":
        one_model = drafter.get("one_model", True) is not False
        found = {"decoding_type": "Eagle3" if newer else "Eagle", "max_draft_len": length, **model, "eagle3_one_model": one_model}
        if int(drafter.get("topk") or 1) > 1:
            found |= {
                "use_dynamic_tree": True,
                "dynamic_tree_max_topK": int(drafter["topk"]),
                "max_total_draft_tokens": int(drafter["num_draft_tokens"]) - 1,
            }
    elif method == "mtp":
        found = {
            "decoding_type": "MTP",
            ("max_draft_len" if newer else "num_nextn_predict_layers"): length,
            "use_relaxed_acceptance_for_thinking": False,
        }
    elif method == "ngram":
        found = {
            "decoding_type": "NGram",
            "max_draft_len": length,
            "max_matching_ngram_size": int(drafter.get("match_size") or 4),
            "is_public_pool": bool(drafter.get("shared_pool")),
        }
    else:
        found = {
            "decoding_type": {"draft_model": "DraftTarget", "pard": "PARD", "dflash": "DFlash"}[method],
            "max_draft_len": length,
            **model,
        }
    if drafter.get("allow_advanced_sampling") is not None:
        found["allow_advanced_sampling"] = bool(drafter["allow_advanced_sampling"])
    return found | dict(drafter.get("args") or {})


def _model(drafter: Mapping[str, Any], models: SessionModels) -> str:
    return model_argument(drafter, drafter_path(drafter, models))[0]


LAUNCHER = TrtLlm()
