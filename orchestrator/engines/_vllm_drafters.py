"""vLLM's ``--speculative-config``: each drafter in its spelling. DL is ``num_speculative_tokens`` for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsweep.orchestrator.engines import SessionModels
from specsweep.orchestrator.engines._arguments import drafter_path, model_argument

# method → (vLLM's own name of it, whether it has weights of its own, the first version that runs it)
METHODS: Mapping[str, tuple[str, bool, str]] = {
    "ngram": ("ngram", False, "0.13"),
    "draft_model": ("draft_model", True, "0.15.1"),
    "eagle3": ("eagle3", True, "0.13"),
    "mtp": ("mtp", False, "0.13"),
    "suffix": ("suffix", False, "0.13"),
    "pard": ("draft_model", True, "0.16"),
    "dflash": ("dflash", True, "0.20"),
}
DRAFTERS = frozenset({"none", *METHODS})
PROMPT_LOOKUP_DEFAULT = 5  # vLLM's own default of both prompt_lookup_max and prompt_lookup_min


def speculative_config(config: Mapping[str, Any], models: SessionModels) -> dict[str, Any] | None:
    """None for drafter ``none``. Raises ConfigError for a drafter with weights that has no model."""
    drafter = config["drafter"]
    method = drafter["method"]
    if method == "none":
        return None
    name, has_weights, _ = METHODS[method]
    found: dict[str, Any] = {"method": name, "num_speculative_tokens": int(config["draft_length"])}
    if has_weights:
        found["model"], revision = model_argument(drafter, drafter_path(drafter, models))
        if revision:
            found["revision"] = revision
    if method == "ngram":
        match = int(drafter.get("match_size") or PROMPT_LOOKUP_DEFAULT)
        found |= {"prompt_lookup_max": match, "prompt_lookup_min": int(drafter.get("match_size_min") or match)}
    if method in ("draft_model", "pard"):
        found["draft_tensor_parallel_size"] = int(config["target"].get("tensor_parallel") or 1)  # anything else is refused
    if method == "pard":
        found["parallel_drafting"] = True
    if drafter.get("sampling"):
        found["draft_sample_method"] = drafter["sampling"]
    return found | dict(drafter.get("args") or {})
