"""What SGLang cannot do, and what it does otherwise than the numbers would say."""

from __future__ import annotations

from specsweep.orchestrator.engines._launch_rules import Config, Rules, apply, expert_parallel_divides, gpus, topk
from specsweep.orchestrator.engines.versions import at_least, declared_version

DRAFTERS = frozenset({"none", "ngram", "draft_model", "eagle3", "mtp", "dflash"})
TREE_BACKENDS = ("flashinfer", "fa3", "triton")  # attention that can verify a tree; trtllm_mha, chosen by itself on B200, cannot


def broken(config: Config) -> list[tuple[str, str]]:
    return apply(BROKEN, config)


def warnings(config: Config) -> list[tuple[str, str]]:
    return apply(WARNINGS, config)


def _needs_cuda(config: Config) -> str | None:
    if config["drafter"]["method"] == "none" or gpus(config) > 0:
        return None
    return f"target {config['target']['name']} has gpus=0: SGLang speculates on CUDA only"


def _version_has_drafter(config: Config) -> str | None:
    version = declared_version(config["engine"])
    if config["drafter"]["method"] != "dflash" or at_least(version, "0.5.23"):
        return None
    return f"SGLang {version} has no DFLASH; it needs 0.5.23 or newer (engine.version, engine.image)"


def _tree_has_nodes(config: Config) -> str | None:
    drafter, branches, length = config["drafter"], topk(config), config["draft_length"]
    nodes = drafter.get("num_draft_tokens")
    if drafter["method"] not in ("eagle3", "mtp", "draft_model"):
        return None if branches == 1 else f"drafter.topk={branches}: drafter method {drafter['method']} has no tree in SGLang"
    if branches == 1:
        return (
            None
            if nodes in (None, int(length) + 1)
            else f"drafter.num_draft_tokens={nodes}: a chain verifies draft_length + 1 = {int(length) + 1}"
        )
    if nodes is None:
        return f"drafter.topk={branches} is a tree: say how many nodes are verified, the root included (drafter.num_draft_tokens)"
    most = 1 + branches + branches * branches * (int(length) - 1)
    if int(length) + 1 <= int(nodes) <= most:
        return None
    return (
        f"drafter.num_draft_tokens={nodes}: a tree of topk {branches} and draft_length {length} verifies {int(length) + 1} to {most} nodes"
    )


def _tree_attention(config: Config) -> str | None:
    backend = config["drafter"].get("attention_backend") or config["engine"].get("attention_backend")
    if topk(config) == 1 or backend in TREE_BACKENDS:
        return None
    known = ", ".join(TREE_BACKENDS)
    return (
        f"drafter.topk={topk(config)}: attention backend {backend or 'auto'} cannot verify a tree; set drafter.attention_backend ({known})"
    )


def _version_has_eagle3_for_target(config: Config) -> str | None:
    """The paper reports Qwen3-Next with EAGLE3 on 0.5.7, whose model class lacks the interface: a warning, for it may be a patched image."""
    version = declared_version(config["engine"])
    if config["drafter"]["method"] != "eagle3" or config["target"].get("architecture") != "qwen3_next" or at_least(version, "0.5.23"):
        return None
    return f"SGLang {version} as released has no EAGLE3 for qwen3_next (0.5.23 has); the engine may refuse to start"


def _overlap_differs(config: Config) -> str | None:
    version, drafter = declared_version(config["engine"]), config["drafter"]
    if config["engine"].get("overlap_schedule") is False or drafter["method"] == "none" or at_least(version, "0.5.23"):
        return None
    if drafter["method"] in ("eagle3", "mtp") and topk(config) == 1:
        return None
    return (
        f"SGLang {version} has no overlap scheduler with {drafter['name']} while the baseline keeps it: the speedup holds the difference; "
        "set engine.overlap_schedule=false for all arms to compare the algorithms alone"
    )


BROKEN: Rules = (
    ("needs_cuda", _needs_cuda),
    ("version_has_drafter", _version_has_drafter),
    ("tree_has_nodes", _tree_has_nodes),
    ("tree_attention", _tree_attention),
    ("expert_parallel", expert_parallel_divides),
)
WARNINGS: Rules = (("version_has_eagle3", _version_has_eagle3_for_target), ("overlap_differs", _overlap_differs))
