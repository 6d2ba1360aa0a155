"""Why a point's routing, or its log-probabilities, cannot be captured: rules as in :mod:`specsweep.orchestrator.rules`, silent about every point that is timed.

A capture is worth its engine time only if it is of what it says: of an engine whose recorder tells every expert that a pass loads, of a
target that has experts, of a full batch, and of prompts that are text to their end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from specsweep.orchestrator.identity import canonical_json, capture, captures_routing, recipe

Config = Mapping[str, Any]
PADDED_SHARE = 0.02  # of a prompt that may be padding: a cut between tokens, not a text that ended

_NO_RECORDER = {
    "llamacpp": "llama.cpp has no recorder of experts",
    "hf": "its server records no experts",
    "openai_chat": "chat completions say nothing of experts",
    "vllm": (
        "vLLM tells the experts request by request (--enable-return-routed-experts), without passes and without those of rejected drafts, "
        "which is a lower bound of what a pass loads"
    ),
}


def captures(config: Config) -> bool:
    return bool(capture(config))


def captures_logprobs(config: Config) -> bool:
    return capture(config).get("capture") == "logprobs"


def one_a_start(config: Config) -> bool:
    """Whether an engine captures once and never again: TensorRT-LLM's window of iterations begins with its start and is written once."""
    return bool(config["engine"]["name"] == "trtllm")


def engine_records(config: Config) -> str | None:
    engine = config["engine"]["name"]
    if not captures_routing(config) or engine not in _NO_RECORDER:
        return None
    return f"capture={config['capture']}: {_NO_RECORDER[engine]}; take engine=sglang, whose recorder counts every expert of every pass"


def simulated_recorder(config: Config) -> str | None:
    if not captures_routing(config) or config["engine"]["name"] != "sim" or config["engine"]["dialect"] == "sglang":
        return None
    return f"capture={config['capture']}: only SGLang's wire has a recorder; set engine.dialect=sglang"


def files_are_here(config: Config) -> str | None:
    if not captures_routing(config) or config["cluster"]["kind"] != "attach":
        return None
    return (
        f"capture={config['capture']}: an attached server was started without its recorder, or writes its files out of reach; "
        "let specsweep start the engine (cluster=local)"
    )


def target_has_experts(config: Config) -> str | None:
    if not captures_routing(config) or config["engine"]["name"] == "sim":  # where the preset says it
        return None
    experts, name = config["target"].get("experts") or {}, config["target"]["name"]
    missing = [key for key in ("count", "per_token", "layers") if not experts.get(key)]
    if not missing:
        return None
    return (
        f"capture={config['capture']}: target {name} is dense, as far as its file says; capture a mixture of experts, whose file has "
        f"target.experts with {', '.join(missing)}"
    )


def drafts_are_verified(config: Config) -> str | None:
    if not captures_routing(config) or config["drafter"]["method"] == "none":
        return None
    if one_a_start(config):
        return (
            f"capture={config['capture']} with drafter {config['drafter']['name']}: the passes of {config['engine']['name']} are told apart by "
            "the tokens that were sent, and drafts are none of those; set drafter=none, or engine=sglang"
        )
    if int(config["workload"]["osl"]) > 1:
        return None
    return (
        f"capture={config['capture']} with drafter {config['drafter']['name']}: an answer of workload.osl=1 ends with the prefill and "
        "verifies nothing; set workload.osl above 1, or drafter=none for the prefill"
    )


def batch_is_full(config: Config) -> str | None:
    if not captures_routing(config) or config["workload"]["prompts"] >= config["batch_size"]:
        return None
    size, prompts = config["batch_size"], config["workload"]["prompts"]
    return f"capture={config['capture']} sends each prompt once: batch_size={size} needs workload.prompts={size}, there are {prompts}"


def prompts_are_text(config: Config) -> str | None:
    """Padding is one sentence over and over: it would be captured as if it were real prompts."""
    if not captures(config):
        return None
    isl, workload = int(config["isl"]), config["workload"]
    reach = _reach(canonical_json(recipe(workload)), isl)
    if reach is None or isl * (1 - PADDED_SHARE) <= reach:
        return None
    return (
        f"capture={config['capture']}: of the {workload['prompts']} prompts of workload {workload['name']} the shortest has {reach} tokens of "
        f"text, the rest of isl={isl} would be padding, which no text is like; set isl={reach // 10 * 10} or less, or workload.corpus=FILE "
        "with texts of that length"
    )


@cache
def _reach(recipe_json: str, isl: int) -> int | None:
    from specsweep.client.workload import WorkloadError, shortest_text

    try:
        return shortest_text(json.loads(recipe_json), isl)
    except WorkloadError:  # a workload that makes no prompts at all is told where points are named
        return None


_NO_LOGPROBS = {
    "hf": "its server gives no log-probabilities",
    "openai_chat": "a chat template of the server's own stands between prompt and answer, and tokens come without ids",
}
_UNVERIFIED = {  # engines whose log-probabilities are not the target's where something is drafted
    "llamacpp": "llama.cpp computes no probability of a draft token that it accepts, and says 0 for its logarithm",
    "trtllm": "TensorRT-LLM does not give log-probabilities with every drafter",
}
EVERY_TEMPERATURE = (0.0, 1.0)  # at others some engines report before the temperature and some after it


def engine_gives_logprobs(config: Config) -> str | None:
    engine = config["engine"]
    reason = _NO_LOGPROBS.get(engine["name"]) or _NO_LOGPROBS.get(engine.get("dialect"))
    if not captures_logprobs(config) or reason is None:
        return None
    return f"capture=logprobs: {reason}; take engine=vllm, sglang, trtllm or llamacpp, which give the target's own"


def simulated_logprobs(config: Config) -> str | None:
    if not captures_logprobs(config) or config["engine"]["name"] != "sim" or config["engine"]["dialect"] == "vllm":
        return None
    return "capture=logprobs: the simulator gives log-probabilities on vLLM's wire alone; set engine.dialect=vllm"


def logprobs_are_the_targets(config: Config) -> str | None:
    reason = _UNVERIFIED.get(config["engine"]["name"])
    if not captures_logprobs(config) or config["drafter"]["method"] == "none" or reason is None:
        return None
    return f"capture=logprobs with drafter {config['drafter']['name']}: {reason}; set drafter=none, whose answers are the same at temperature=0"


def logprobs_mean_one_thing(config: Config) -> str | None:
    """Of a greedy token, and of one that is sampled from the whole distribution as it is, every engine reports the same number."""
    if not captures_logprobs(config):
        return None
    temperature, workload = float(config["temperature"]), config["workload"]
    ways = "temperature=0 (surprisal of the greedy token) or 1 (an estimate of the entropy)"
    if temperature not in EVERY_TEMPERATURE:
        return f"capture=logprobs: at temperature={temperature:g} some engines report before the temperature and some after it; set {ways}"
    if temperature == 0 or (float(workload["top_p"]) == 1 and int(workload["top_k"]) <= 0):
        return None
    return (
        f"capture=logprobs: workload.top_p={workload['top_p']} workload.top_k={workload['top_k']} cut the distribution that tokens are drawn from; "
        f"set workload.top_p=1 workload.top_k=-1, or temperature=0"
    )


def logprobs_need_no_drafter(config: Config) -> str | None:
    """A warning: the number is the target's own with every drafter, and costs an engine start and a capture for each."""
    if not captures_logprobs(config) or config["drafter"]["method"] == "none" or config["engine"]["name"] in _UNVERIFIED:
        return None
    return (
        f"capture=logprobs with drafter {config['drafter']['name']}: the log-probabilities are the target's own, with every drafter the same but "
        "for rounding; drafter=none is enough"
    )


def drafter_is_captured(config: Config) -> str | None:
    """A warning."""
    if not captures_routing(config) or config["drafter"]["method"] == "none":
        return None
    return (
        f"capture={config['capture']} with drafter {config['drafter']['name']}: passes that verify hold its drafts, rejected ones included, "
        "and passes of a draft model with experts of its own are among them"
    )


def kernels_route_themselves(config: Config) -> str | None:
    """A warning: which kernel a version takes is known when it runs, and a capture without a routed token fails then."""
    engine, target = config["engine"], config["target"]
    if not captures_routing(config) or engine["name"] != "sglang" or engine.get("moe_backend") or target.get("architecture") != "gpt_oss":
        return None
    return (
        f"capture={config['capture']}: SGLang's default kernels for {target['name']} choose the experts themselves and pass the recorder by; "
        "set engine.moe_backend=triton"
    )
