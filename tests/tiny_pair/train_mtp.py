"""Trains a multi-token prediction layer for the tiny target, and writes the target with it as a checkpoint that vLLM's ``mtp`` runs:

    python train_mtp.py CPU_SECONDS OUT      (after corpus.py and heads.py; torch and transformers, vLLM's environment has both)

vLLM knows no Llama with MTP. MiMo (arXiv 2505.07608) is Qwen2 with MTP, and Qwen2 is Llama with biases in q, k and v: the tiny target is a
MiMo whose biases are zero. OUT gets links to the target's files and, as the second shard, only what the target has not: the MTP layer and
those zeros. vLLM goes by ``architectures``. ``model_type`` stays ``llama``, which every transformers knows without code from elsewhere; with
``qwen2`` AutoTokenizer would cut texts as Qwen does, whatever tokenizer.json says, and the target would read other tokens than it learned.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from heads import HEAD_DIM, HEADS, HERE, KV_HEADS, Attention, Cache, Mlp, Norm, linear, load_target, train, validate
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

PEAK_RATE = 2e-3
PREFIX = "model.mtp_layers.0."
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
LINKED = ("chat_template.jinja", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


class MtpLayer(nn.Module):
    """MiMo's: the last hidden state before the final norm and the embedding of the next token, each normed, through one projection."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        last, hidden = target.model.layers[-1], target.config.hidden_size
        self.token_layernorm = Norm(torch.ones(hidden))
        self.hidden_layernorm = Norm(target.model.norm.weight)
        self.input_proj = linear(torch.cat([torch.eye(hidden), torch.eye(hidden) / 2], 1))
        self.input_layernorm = Norm(last.input_layernorm.weight)
        self.self_attn = Attention(last.self_attn, widen=0)
        self.post_attention_layernorm = Norm(last.post_attention_layernorm.weight)
        self.mlp = Mlp(last.mlp)
        self.final_layernorm = Norm(target.model.norm.weight)

    def first(self, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return states[-1]

    def step(self, embedded: torch.Tensor, hidden: torch.Tensor, number: int, cache: Cache) -> tuple[torch.Tensor, torch.Tensor]:
        if number == 0:  # vLLM blanks the embedding at position 0
            embedded = torch.cat([torch.zeros_like(embedded[:, :1]), embedded[:, 1:]], 1)
        both = torch.cat([self.hidden_layernorm(hidden), self.token_layernorm(embedded)], -1)
        x = self.input_proj(both)
        x = x + self.self_attn(self.input_layernorm(x), number, cache)
        x = x + self.mlp(self.post_attention_layernorm(x))
        out = self.final_layernorm(x)
        return out, out


def zero_biases(layers: int) -> dict[str, torch.Tensor]:
    sizes = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
    blocks = [f"model.layers.{i}." for i in range(layers)] + [PREFIX]
    return {f"{block}self_attn.{p}_proj.bias": torch.zeros(n, dtype=torch.float16) for block in blocks for p, n in sizes.items()}


def save(layer: MtpLayer, target: Any, out: Path) -> None:
    config = json.loads((HERE / "target" / "config.json").read_text())
    for only_llama in ("attention_bias", "mlp_bias", "pretraining_tp"):
        config.pop(only_llama)
    config |= {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1, "use_sliding_window": False}
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    own = {PREFIX + name: w.to(torch.float16).contiguous() for name, w in layer.state_dict().items()}
    own |= zero_biases(target.config.num_hidden_layers)
    save_file(own, out / SHARDS[1], {"format": "pt"})
    for name, source in [(SHARDS[0], "model.safetensors"), *((n, n) for n in LINKED)]:
        (out / name).unlink(missing_ok=True)
        (out / name).symlink_to(os.path.relpath(HERE / "target" / source, out.resolve()))
    with safe_open(HERE / "target" / "model.safetensors", "pt") as theirs:
        where = dict.fromkeys(theirs.keys(), SHARDS[0]) | dict.fromkeys(own, SHARDS[1])
    size = sum((out / shard).stat().st_size for shard in SHARDS)
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(where.items()))}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def main(budget_s: str, out: str) -> None:
    target = load_target()
    layer = MtpLayer(target)
    train(layer, target, float(budget_s), PEAK_RATE)
    layer.half().float()  # what is validated is what is stored
    validate(layer, target)
    save(layer, target, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
