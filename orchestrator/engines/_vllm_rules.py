"""What vLLM cannot do, or does otherwise than the numbers would say. Each rule names its fields, its version and what to change."""

from __future__ import annotations

from specsweep.orchestrator.engines._launch_rules import Config, Rules, apply, gpus, topk
from specsweep.orchestrator.engines._vllm_drafters import METHODS
from specsweep.orchestrator.engines.versions import at_least
from specsweep.orchestrator.engines.vllm_env import running_version

MAX_DRAFT_LENGTH = 128  # config/speculative.py


def broken(config: Config) -> list[tuple[str, str]]:
    return apply(RULES, config)


def _version_has_drafter(config: Config) -> str | None:
    method, version = config["drafter"]["method"], running_version(config)
    if method not in METHODS or at_least(version, METHODS[method][2]):
        return None
    return f"vLLM {version} does not run drafter method {method}: it needs {METHODS[method][2]} or newer (engine.version, engine.image)"


def _version_has_eagle3_for_target(config: Config) -> str | None:
    """Model classes that learned SupportsEagle3 later than EAGLE3 itself."""
    later = {"qwen3_next": "0.27.1", "deepseek_v3": "0.28"}
    kind, version = str(config["target"].get("architecture") or ""), running_version(config)
    if config["drafter"]["method"] != "eagle3" or kind not in later or at_least(version, later[kind]):
        return None
    return f"vLLM {version} has no EAGLE3 for {kind}: the model class lacks the interface; it needs {later[kind]} or newer"


def _draft_length_limit(config: Config) -> str | None:
    length = config["draft_length"]
    if config["drafter"]["method"] == "none" or length is None or int(length) <= MAX_DRAFT_LENGTH:
        return None
    return f"draft_length={length}: vLLM drafts at most {MAX_DRAFT_LENGTH} tokens"


def _mtp_multiple(config: Config) -> str | None:
    layers, length = int(config["target"].get("mtp_predict") or 1), config["draft_length"]
    if config["drafter"]["method"] != "mtp" or int(length) % layers == 0:
        return None
    return f"draft_length={length}: vLLM's MTP drafts in multiples of what the checkpoint predicts (target.mtp_predict={layers})"


def _no_tree(config: Config) -> str | None:
    if topk(config) == 1:
        return None
    return f"drafter.topk={config['drafter']['topk']}: vLLM has no dynamic draft tree; it drafts chains (topk 1)"


def _expert_parallel(config: Config) -> str | None:
    target = config["target"]
    tensor, expert = int(target.get("tensor_parallel") or 1), int(target.get("expert_parallel") or 1)
    if expert in (1, tensor):
        return None
    return f"target.expert_parallel={expert}: vLLM spreads experts over all {tensor} tensor-parallel ranks or none; use 1 or {tensor}"


def _async_drafters(config: Config) -> str | None:
    method = config["drafter"]["method"]
    if not config["engine"].get("async_scheduling") or method not in ("ngram", "suffix"):
        return None
    return f"engine.async_scheduling=true: vLLM has no asynchronous scheduling with {method}; set it false for all arms of the comparison"


def _cpu_sampling(config: Config) -> str | None:
    if gpus(config) or config["drafter"]["method"] == "none" or float(config["temperature"]) == 0:
        return None
    return (
        f"temperature={config['temperature']:g}: the CPU build verifies drafts against an uninitialised temperature "
        "(vllm/utils/cpu_triton_utils.py in 0.32.0); only temperature=0 is true there"
    )


def _head_length(config: Config) -> str | None:
    """0.13 stops drafting for the whole batch, without a word, once a sequence passes the head's length; newer ones raise it."""
    drafter, version = config["drafter"], running_version(config)
    limit = drafter.get("max_position_embeddings")
    if drafter["method"] != "eagle3" or not limit or version is None or at_least(version, "0.14"):
        return None
    need = int(config["isl"]) + int(config["workload"]["osl"]) + int(config["draft_length"])
    if need <= int(limit):
        return None
    return (
        f"isl={config['isl']} and workload.osl={config['workload']['osl']} pass the {limit} positions of drafter {drafter['name']}: "
        f"vLLM {version} then stops drafting silently; use a newer version or a head with drafter.max_position_embeddings >= {need}"
    )


RULES: Rules = (
    ("version_has_drafter", _version_has_drafter),
    ("version_has_eagle3", _version_has_eagle3_for_target),
    ("draft_length_limit", _draft_length_limit),
    ("mtp_multiple", _mtp_multiple),
    ("no_tree", _no_tree),
    ("expert_parallel", _expert_parallel),
    ("async_drafters", _async_drafters),
    ("cpu_sampling", _cpu_sampling),
    ("head_length", _head_length),
)
