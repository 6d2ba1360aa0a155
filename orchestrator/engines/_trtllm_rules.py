"""What TensorRT-LLM cannot do, and what it does otherwise than the numbers would say."""

from __future__ import annotations

from specsweep.orchestrator.engines._launch_rules import Config, Rules, apply, expert_parallel_divides, gpus, topk
from specsweep.orchestrator.engines.versions import at_least, declared_version

DRAFTERS = frozenset({"none", "ngram", "draft_model", "eagle3", "mtp", "pard", "dflash"})


def broken(config: Config) -> list[tuple[str, str]]:
    return apply(BROKEN, config)


def warnings(config: Config) -> list[tuple[str, str]]:
    return apply(WARNINGS, config)


def overlap(config: Config) -> bool:
    """Whether this arm runs with the overlap scheduler: as asked, but for the drafters that have none."""
    asked = config["engine"].get("overlap_schedule", True) is not False
    return asked and not _without_overlap(config)


def _without_overlap(config: Config) -> bool:
    method, newer = config["drafter"]["method"], at_least(declared_version(config["engine"]), "1.3")
    return method == "ngram" or (method == "draft_model" and not newer)


def _needs_gpu(config: Config) -> str | None:
    if gpus(config) > 0:
        return None
    return f"target {config['target']['name']} has gpus=0: TensorRT-LLM runs on GPUs only"


def _version_has_drafter(config: Config) -> str | None:
    method, version = config["drafter"]["method"], declared_version(config["engine"])
    if method not in ("pard", "dflash") or at_least(version, "1.3"):
        return None
    return f"TensorRT-LLM {version} has no {method}; it needs 1.3 or newer (engine.version, engine.image)"


def _tree(config: Config) -> str | None:
    drafter, version = config["drafter"], declared_version(config["engine"])
    if topk(config) == 1:
        return None
    if drafter["method"] != "eagle3":
        return f"drafter.topk={drafter['topk']}: drafter method {drafter['method']} has no tree in TensorRT-LLM"
    if not at_least(version, "1.3"):
        return f"drafter.topk={drafter['topk']}: TensorRT-LLM {version} says itself not to use its trees; it needs 1.3 or newer"
    if drafter.get("num_draft_tokens") is None:
        return f"drafter.topk={drafter['topk']} is a tree: say how many nodes are verified, the root included (drafter.num_draft_tokens)"
    return None


def _qwen3_next_mtp(config: Config) -> str | None:
    version = declared_version(config["engine"])
    if config["drafter"]["method"] != "mtp" or config["target"].get("architecture") != "qwen3_next" or at_least(version, "1.3"):
        return None
    return f"TensorRT-LLM {version} has no MTP for qwen3_next (its issue 10313; merged for 1.3)"


def _greedy_only(config: Config) -> str | None:
    """Late 1.2 release candidates: one-model drafters ignore the temperature when they accept, so the output is not a sample of the target."""
    drafter, version = config["drafter"], declared_version(config["engine"])
    one_model = drafter["method"] == "mtp" or (drafter["method"] == "eagle3" and drafter.get("one_model", True) is not False)
    if float(config["temperature"]) == 0 or not one_model or version is None or at_least(version, "1.3"):
        return None
    if drafter.get("allow_advanced_sampling"):
        return None
    return (
        f"temperature={config['temperature']:g}: one-model drafters of TensorRT-LLM {version} accept greedily whatever the temperature; "
        "set drafter.allow_advanced_sampling=true (late 1.2 release candidates know it) or drafter.one_model=false"
    )


def _overlap_differs(config: Config) -> str | None:
    if not _without_overlap(config) or config["engine"].get("overlap_schedule") is False:
        return None
    return (
        f"TensorRT-LLM has no overlap scheduler with {config['drafter']['name']} while the baseline keeps it: the speedup holds the difference; "
        "set engine.overlap_schedule=false for all arms to compare the algorithms alone"
    )


BROKEN: Rules = (
    ("needs_gpu", _needs_gpu),
    ("version_has_drafter", _version_has_drafter),
    ("no_tree", _tree),
    ("qwen3_next_mtp", _qwen3_next_mtp),
    ("greedy_only", _greedy_only),
    ("expert_parallel", expert_parallel_divides),
)
WARNINGS: Rules = (("overlap_differs", _overlap_differs),)
