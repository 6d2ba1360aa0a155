"""From settings to a method with its weights: what a replica does once, before it serves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from specsweep.orchestrator.engines.hf_server.chain import Chain, NewDrafter
from specsweep.orchestrator.engines.hf_server.drafters import DraftModel, Medusa, MedusaHeads, PromptLookup
from specsweep.orchestrator.engines.hf_server.steps import Method


class LoadingError(ValueError):
    """A checkpoint that does not fit; the message names the field of the config."""


@dataclass(frozen=True, slots=True)
class Loaded:
    method: Method
    vocab_size: int


def load(settings: Mapping[str, Any]) -> Loaded:
    """``settings``: as the launcher writes them. Raises LoadingError, and what transformers raises for a folder that holds no model."""
    torch.set_num_threads(int(settings["threads"]))
    model = _model(settings["target"], settings)
    drafter = _drafter(settings["drafter"], model, settings)
    return Loaded(Chain(model, _end_tokens(model), drafter, int(settings["drafter"]["length"])), int(model.config.vocab_size))


def _drafter(drafter: Mapping[str, Any], target: Any, settings: Mapping[str, Any]) -> NewDrafter | None:
    method = drafter["method"]
    if method == "none":
        return None
    if method == "ngram":
        longest, shortest = int(drafter["match_size"]), int(drafter["match_size_min"])
        return lambda _: PromptLookup(longest, shortest)
    if method == "medusa":
        heads = medusa_heads(Path(drafter["weights"]["name"]), target)
        if int(drafter["length"]) > heads.heads:
            raise LoadingError(f"draft_length={drafter['length']}: these Medusa heads draft {heads.heads} tokens; use a smaller one")
        return lambda _: Medusa(heads)
    if method == "draft_model":
        small = _model(drafter["weights"], settings)
        ours, theirs = target.config.vocab_size, small.config.vocab_size
        if ours != theirs:
            raise LoadingError(f"drafter.model has a vocabulary of {theirs}, the target one of {ours}: its tokens mean something else")
        return lambda sampler: DraftModel(small, sampler)
    raise LoadingError(f"drafter.method={method} is not known to this server")


def medusa_heads(folder: Path, target: Any) -> MedusaHeads:
    """Raises LoadingError for a folder that holds no heads, or heads of another hidden size."""
    try:
        config = json.loads((folder / "config.json").read_text())
        heads, layers = int(config["medusa_num_heads"]), int(config["medusa_num_layers"])
        weights = {name: w.to(target.device, target.dtype) for name, w in load_file(folder / "model.safetensors").items()}
        found = MedusaHeads(weights, heads, layers, target.get_output_embeddings())
    except (OSError, KeyError, ValueError) as error:
        raise LoadingError(f"drafter.model: {folder} holds no Medusa heads ({type(error).__name__}: {error})") from error
    size, wanted = weights["0.0.linear.weight"].shape[-1], target.config.hidden_size
    if size != wanted:
        raise LoadingError(f"drafter.model: these Medusa heads are for a hidden size of {size}, the target has {wanted}")
    return found


def _model(weights: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """``weights``: ``name``, a folder or a repository of the hub, which has a ``revision`` too."""
    named = {"revision": weights["revision"]} if "revision" in weights else {}
    model: Any = AutoModelForCausalLM.from_pretrained(weights["name"], dtype=settings["dtype"] or "auto", **named, **settings["args"])
    device: Any = "cuda" if settings["gpus"] else "cpu"  # Ray shows a replica its own GPU only
    return model.eval().requires_grad_(False).to(device)


def _end_tokens(model: Any) -> frozenset[int]:
    """Those of the generation config, which chat models have more of, else the model's own."""
    found = model.generation_config.eos_token_id
    if found is None:
        found = model.config.eos_token_id
    return frozenset(found if isinstance(found, list) else () if found is None else (found,))
