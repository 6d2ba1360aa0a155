"""Trains the EAGLE3 head of the tiny target on a CPU (torch and transformers; vLLM's environment has both), after corpus.py and heads.py:

    python train_eagle3.py CPU_SECONDS OUT [--fresh] [--length TOKENS] [--vocabulary SIZE]

The head is one Llama layer, in the tensor names of the published heads (fc, midlayer, norm). It has no embedding and no output layer of its
own: vLLM lends it the target's, since hidden sizes and vocabularies are equal. For the same reason there is no ``d2t``. vLLM's default for
the three states that the head reads is layers (2, n/2, n-3), which are not three for a target of four layers: the config names them.

``--fresh`` starts the layer from noise, as heads of real targets are, so that it knows of long contexts only what its rows of ``--length``
tokens teach. ``--vocabulary`` prunes the head to the most frequent tokens of the rows: it then has an output layer of its own and ``d2t``, the distance
of each of its ids to the target's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from heads import HERE, ROW, Attention, Cache, Mlp, Norm, linear, load_target, train, validate
from safetensors.torch import save_file
from torch import nn

LAYERS = (1, 2, 3)  # outputs after so many layers: low, middle, high
PEAK_RATE = 2e-3


class MidLayer(nn.Module):
    def __init__(self, source: Any, embedding_norm: torch.Tensor) -> None:
        super().__init__()
        self.input_layernorm = Norm(embedding_norm)
        self.hidden_norm = Norm(source.input_layernorm.weight)
        self.self_attn = Attention(source.self_attn, widen=len(embedding_norm))
        self.post_attention_layernorm = Norm(source.post_attention_layernorm.weight)
        self.mlp = Mlp(source.mlp)


class Eagle3Head(nn.Module):
    """Starts as the target's last layer on the state before it, that is, with the target's own prediction of one token earlier."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        last, hidden = target.model.layers[-1], target.config.hidden_size
        others = torch.zeros(hidden, hidden * (len(LAYERS) - 1))
        self.fc = linear(torch.cat([others, torch.eye(hidden)], 1))
        self.midlayer = MidLayer(last, target.model.layers[0].input_layernorm.weight)
        self.norm = Norm(target.model.norm.weight)

    def forget(self) -> None:
        """Starts from noise in place of the target's layer; only the norms and the last state's way through ``fc`` stay."""
        torch.manual_seed(0)
        for name, weight in self.midlayer.named_parameters():
            if name.endswith("_proj.weight"):
                nn.init.normal_(weight, std=0.02)

    def first(self, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return self.fc(torch.cat([states[i] for i in LAYERS], -1))

    def step(self, embedded: torch.Tensor, hidden: torch.Tensor, number: int, cache: Cache) -> tuple[torch.Tensor, torch.Tensor]:
        mid = self.midlayer
        both = torch.cat([mid.input_layernorm(embedded), mid.hidden_norm(hidden)], -1)
        hidden = hidden + mid.self_attn(both, number, cache)
        hidden = hidden + mid.mlp(mid.post_attention_layernorm(hidden))
        return self.norm(hidden), hidden


def most_frequent(size: int) -> torch.Tensor:
    """Ids of the ``size`` most frequent tokens of the training rows, ascending."""
    counts = np.bincount(np.load("rows.npz")["train"].ravel())
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:size]).astype(np.int64))


def save(head: Eagle3Head, target: Any, kept: torch.Tensor | None, length: int, out: Path) -> None:
    config = json.loads((HERE / "target" / "config.json").read_text())
    config |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
        "draft_vocab_size": config["vocab_size"] if kept is None else len(kept),
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(LAYERS), "use_aux_hidden_state": True},
    }
    if length != ROW:
        config["trained_length"] = length  # for readers; vLLM stops drafting beyond max_position_embeddings, which would hide how a head fails
    weights = {name: w.to(torch.float16).contiguous() for name, w in head.state_dict().items()}
    if kept is not None:
        weights["lm_head.weight"] = target.lm_head.weight[kept].to(torch.float16).contiguous()
        weights["d2t"] = kept - torch.arange(len(kept))
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(weights, out / "model.safetensors", {"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("budget_s", type=float)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--length", type=int, default=ROW)
    parser.add_argument("--vocabulary", type=int)
    args = parser.parse_args()
    target = load_target()
    head = Eagle3Head(target)
    if args.fresh:
        head.forget()
    kept = None if args.vocabulary is None else most_frequent(args.vocabulary)
    train(head, target, args.budget_s, PEAK_RATE, length=args.length, kept=kept)
    head.half().float()  # what is validated is what is stored
    validate(head, target, kept)
    save(head, target, kept, args.length, args.out)


if __name__ == "__main__":
    main()
