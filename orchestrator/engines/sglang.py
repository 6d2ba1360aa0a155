"""SGLang: the launch side.

Pinned in every arm: radix cache off, stream interval 1, the batch limit (with any speculation SGLang otherwise caps it at 48,
and only there, without a word), the CUDA graphs' range in requests, and the overlap scheduler. ``output_ids`` stay cumulative
in 0.5.7, whose incremental stream loses tokens when it lags; newer versions send them incrementally, which is much less JSON.

All three numbers of a drafter are always given: left out, SGLang chooses a tree. Facts were read from the sources of 0.5.7 and
0.5.23; no SGLang with speculation has run here, since it needs CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from specsweep.orchestrator.engines import EngineSpec, ModelFormat, SessionModels
from specsweep.orchestrator.engines._arguments import arguments, drafter_path, given_environment, model_argument, served_by, without_unset
from specsweep.orchestrator.engines._sglang_rules import DRAFTERS, broken, warnings
from specsweep.orchestrator.engines.versions import at_least, declared_version, installed
from specsweep.orchestrator.identity import captures_routing

ALGORITHMS = {"eagle3": "EAGLE3", "mtp": "NEXTN", "draft_model": "STANDALONE", "ngram": "NGRAM", "dflash": "DFLASH"}
WITH_WEIGHTS = frozenset({"eagle3", "draft_model", "dflash"})
RECORDER_DIR = "SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR"
OVERLAP_BY_DEFAULT = "0.5.23"  # speculation with the overlap scheduler; before, it is asked for in the environment


class Sglang:
    name = "sglang"
    drafters = DRAFTERS
    attach_only = False
    model_format: ModelFormat = "hf"
    in_our_image = False
    fact_paths = ("/server_info", "/get_server_info")

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return broken(config)

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        python = str(engine.get("python") or "python3")
        if installed(python, "sglang"):
            return None
        return f"there is no SGLang in the environment of {python}; set engine.python=/path/to/python of one that has it"

    def stateful(self, drafter: Mapping[str, Any]) -> bool:
        return bool(drafter["method"] == "ngram")  # one trie of generated text for all requests

    def warn(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return warnings(config)

    def spec(self, config: Mapping[str, Any], models: SessionModels, *, n_ctx_per_slot: int) -> EngineSpec:
        engine, target = config["engine"], config["target"]
        version = declared_version(engine)
        newer = at_least(version, "0.5.23")
        max_batch = int(engine["max_batch"])
        recording = recorder(config)
        overlap = engine.get("overlap_schedule", True) is not False and not recording
        shared = {
            "tp-size": int(target.get("tensor_parallel") or 1),
            "ep-size": int(target.get("expert_parallel") or 1),
            "dtype": engine.get("dtype"),
            "max-running-requests": max_batch,
            "disable-radix-cache": True,
            "stream-interval": 1,
            "incremental-streaming-output": True if newer else None,
            ("cuda-graph-max-bs-decode" if newer else "cuda-graph-max-bs"): None if recording else max_batch,
            "mem-fraction-static": float(engine.get("mem_fraction_static") or 0.85),
            "disable-overlap-schedule": None if overlap else True,
            "moe-runner-backend": engine.get("moe_backend"),
            "enable-metrics": True,
            **recording,
        }
        drafting = speculation(config, models)
        attention = config["drafter"].get("attention_backend") or engine.get("attention_backend")
        sizes = {"context-length": n_ctx_per_slot}
        given = dict(engine.get("args") or {})
        model, revision = model_argument(target, models.target)
        head = {"model-path": model, "revision": revision, "served-model-name": str(target["name"]), "host": "{host}", "port": "{port}"}
        python = str(engine.get("python") or "python3")
        return EngineSpec(
            engine=self.name,
            argv=(
                *served_by(config, local=(python, "-m", "sglang.launch_server"), image=("python3", "-m", "sglang.launch_server")),
                *arguments({**head, **shared, **sizes, "attention-backend": attention, **drafting, **given}),
            ),
            env={
                **_scheduler(config, version, overlap),
                **({RECORDER_DIR: "{files}/routing"} if recording else {}),
                **given_environment(engine),
            },
            recorder_files=rank_count(config) if recording else 0,
            model_name=str(target["name"]),
            version=str(version) if version else None,
            port=engine.get("port"),
            startup_timeout_s=float(engine.get("startup_timeout_s") or 1800.0),
            gpus=int(target.get("gpus") or 0),
            flags={**without_unset(shared), **given, "target_sha256": models.target_sha256},
            drafter_flags={
                "method": config["drafter"]["method"],
                **without_unset({k: v for k, v in drafting.items() if k != "speculative-draft-model-path"}),
                **without_unset({"attention-backend": attention}),
                "sha256": models.drafter_sha256,
            },
            unstable_flags=sizes,
        )

    def facts(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        info = next((a for path in self.fact_paths if isinstance(a := answers.get(path), dict)), {})
        states = info.get("internal_states") or [{}]
        memory = states[0].get("memory_usage") or {} if isinstance(states[0], dict) else {}
        found: dict[str, Any] = {"version": str(info.get("version", "unknown"))}
        kept = ("max_running_requests", "disable_radix_cache", "stream_interval", "attention_backend", "disable_overlap_schedule")
        return (
            found
            | {k: info[k] for k in kept if k in info}
            | ({"unstable": {"kv_tokens": memory["token_capacity"]}} if "token_capacity" in memory else {})
        )


def recorder(config: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of a session that captures its routing; empty for one that is timed.

    Without graphs and overlap, as SGLang's own tests have it: a graph routes padding too, and an overlapped pass may end after the
    recorder stopped. A shared expert that is fused with the routed ones would be counted as one of them."""
    if not captures_routing(config):
        return {}
    return {
        "expert-distribution-recorder-mode": "per_pass",
        "expert-distribution-recorder-buffer-size": -1,
        "disable-cuda-graph": True,
        "disable-shared-experts-fusion": True,
    }


def rank_count(config: Mapping[str, Any]) -> int:
    """Every rank of the scheduler writes its own."""
    return int(config["target"].get("tensor_parallel") or 1)


def speculation(config: Mapping[str, Any], models: SessionModels) -> dict[str, Any]:
    """SGLang's flags of the drafter. DL is ``speculative-num-steps``; ``speculative-num-draft-tokens`` counts verified nodes, root included."""
    drafter = config["drafter"]
    method = drafter["method"]
    if method == "none":
        return {}
    length = int(config["draft_length"])
    found: dict[str, Any] = {"speculative-algorithm": ALGORITHMS[method]}
    if method in WITH_WEIGHTS:
        path, revision = model_argument(drafter, drafter_path(drafter, models))
        found |= {"speculative-draft-model-path": path, "speculative-draft-model-revision": revision}
    if method == "ngram":
        found["speculative-num-draft-tokens"] = length + 1
        if drafter.get("match_size"):
            found["speculative-ngram-max-match-window-size"] = int(drafter["match_size"])
    elif method == "dflash":
        found["speculative-dflash-block-size"] = length + 1
    else:
        topk = int(drafter.get("topk") or 1)
        found["speculative-num-steps"] = length
        found["speculative-eagle-topk"] = topk
        found["speculative-num-draft-tokens"] = length + 1 if topk == 1 else int(drafter["num_draft_tokens"])
    return found | dict(drafter.get("args") or {})


def _scheduler(config: Mapping[str, Any], version: Version | None, overlap: bool) -> dict[str, str]:
    """Before 0.5.23 speculation turns the overlap scheduler off, which the baseline keeps, unless it is asked for."""
    chain = int(config["drafter"].get("topk") or 1) == 1
    if overlap and chain and config["drafter"]["method"] in ("eagle3", "mtp") and not at_least(version, OVERLAP_BY_DEFAULT):
        return {"SGLANG_ENABLE_SPEC_V2": "1"}
    return {}


LAUNCHER = Sglang()
