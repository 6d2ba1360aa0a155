"""Engine ``hf``: a transformers model served by Ray Serve, one request at a time per replica. The server is the package ``hf_server``.

For methods that no serving engine has yet, ported by hand. Nothing is batched: ``engine.max_batch`` is the number of replicas, so a batch
size of 4 is four processes with a model each, that share the cores (or GPUs) they run on. Its speed says nothing of a serving engine's;
its acceptance does. The wire is vLLM's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from specsweep.orchestrator.engines import EngineSpec, ModelFormat, SessionModels
from specsweep.orchestrator.engines._arguments import drafter_path, given_environment, model_argument
from specsweep.orchestrator.engines._launch_rules import Config, Rules, apply, gpus, topk
from specsweep.orchestrator.engines.hf_env import interpreter, problem, version

WITH_WEIGHTS = frozenset({"draft_model", "medusa"})
DTYPES = ("float32", "bfloat16", "float16")


class Hf:
    name = "hf"
    drafters = frozenset({"none", "ngram", *WITH_WEIGHTS})
    attach_only = False
    model_format: ModelFormat = "hf"
    in_our_image = False
    fact_paths = ("/version",)

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return apply(RULES, config)

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        return problem(engine)

    def stateful(self, drafter: Mapping[str, Any]) -> bool:
        return False

    def warn(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return []

    def spec(self, config: Mapping[str, Any], models: SessionModels, *, n_ctx_per_slot: int) -> EngineSpec:
        engine, target = config["engine"], config["target"]
        replicas = int(engine["max_batch"])
        cores = int(engine.get("threads") or os.cpu_count() or 1)
        drafting = _drafting(config, models)
        target_weights = _weights(target, models.target)
        drafter_weights = _weights(config["drafter"], models.drafter) if drafting["method"] in WITH_WEIGHTS else {}
        shared = {
            "replicas": replicas,
            "threads": max(1, cores // replicas),
            "dtype": engine.get("dtype"),
            "gpus": gpus(config),
            "args": dict(engine.get("args") or {}),
        }
        settings = {
            **shared,
            "model_name": str(target["name"]),
            "max_model_len": n_ctx_per_slot,
            "target": target_weights,
            "drafter": {**drafting, "weights": drafter_weights},
        }
        return EngineSpec(
            engine=self.name,
            argv=(interpreter(engine), "-m", "specsweep.orchestrator.engines.hf_server.serve", "{files}/server.json", "{port}"),
            files={"server.json": json.dumps(settings, indent=2)},
            env={
                **({} if "revision" in {**target_weights, **drafter_weights} else {"HF_HUB_OFFLINE": "1"}),
                "TOKENIZERS_PARALLELISM": "false",
                **given_environment(engine),
            },
            model_name=str(target["name"]),
            version=version(engine),
            port=engine.get("port"),
            startup_timeout_s=float(engine.get("startup_timeout_s") or 600.0),
            gpus=gpus(config),
            flags={**shared, "target_sha256": models.target_sha256},
            drafter_flags={**drafting, "sha256": models.drafter_sha256},
            unstable_flags={"max_model_len": n_ctx_per_slot},
        )

    def facts(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        answer = answers.get("/version")
        found = dict(answer) if isinstance(answer, Mapping) else {}
        return {"version": str(found.get("transformers", "unknown")), **{k: found[k] for k in ("torch", "ray") if k in found}}


def _drafting(config: Config, models: SessionModels) -> dict[str, Any]:
    """The drafter's part of the settings but for its weights. Raises ConfigError for a drafter with weights that has no model."""
    drafter = config["drafter"]
    method = str(drafter["method"])
    if method in WITH_WEIGHTS:
        drafter_path(drafter, models)
    found: dict[str, Any] = {"method": method, "length": 0 if method == "none" else int(config["draft_length"])}
    if method == "ngram":
        longest = int(drafter.get("match_size") or 4)
        found |= {"match_size": longest, "match_size_min": int(drafter.get("match_size_min") or longest)}
    return found


def _weights(group: Mapping[str, Any], path: Any) -> dict[str, Any]:
    name, revision = model_argument(group, path)
    return {"name": name} | ({"revision": revision} if revision else {})


def _only_here(config: Config) -> str | None:
    if config["cluster"]["kind"] == "local":
        return None
    return "engine hf runs on this machine (cluster=local): it is made of specsweep itself, and no image of it is published"


def _chain_only(config: Config) -> str | None:
    return None if topk(config) == 1 else f"drafter.topk={topk(config)}: engine hf drafts a chain, leave it unset"


def _known_dtype(config: Config) -> str | None:
    dtype = config["engine"].get("dtype")
    return (
        None if dtype is None or dtype in DTYPES else f"engine.dtype={dtype}: choose one of {', '.join(DTYPES)}, or null (the checkpoint's)"
    )


def _one_gpu_a_replica(config: Config) -> str | None:
    found, replicas = gpus(config), int(config["engine"]["max_batch"] or 1)
    if replicas % max(1, found) == 0:
        return None
    return (
        f"target.gpus={found} and engine.max_batch={replicas}: each replica is on one GPU, and every GPU has as many; "
        f"use a multiple of {found} for engine.max_batch, or fewer GPUs"
    )


def _no_parallelism(config: Config) -> str | None:
    size = int(config["target"].get("tensor_parallel") or 1)
    return (
        None if size == 1 else f"target.tensor_parallel={size}: engine hf does not split a model; choose a smaller target or another engine"
    )


def _enough_heads(config: Config) -> str | None:
    heads, length = config["drafter"].get("heads"), config["draft_length"]
    if heads is None or config["drafter"]["method"] != "medusa" or length is None or int(length) <= int(heads):
        return None
    return f"draft_length={length}: drafter {config['drafter']['name']} has {heads} Medusa heads, which draft a token each"


def _match_sizes(config: Config) -> str | None:
    drafter = config["drafter"]
    longest, shortest = int(drafter.get("match_size") or 4), drafter.get("match_size_min")
    if drafter["method"] != "ngram" or shortest is None or 1 <= int(shortest) <= longest:
        return None
    return f"drafter.match_size_min={shortest}: must be from 1 to drafter.match_size={longest}"


RULES: Rules = (
    ("only_here", _only_here),
    ("hf_chain", _chain_only),
    ("hf_dtype", _known_dtype),
    ("hf_gpus", _one_gpu_a_replica),
    ("tensor_parallel", _no_parallelism),
    ("hf_heads", _enough_heads),
    ("hf_match_size", _match_sizes),
)
LAUNCHER = Hf()
