"""Trains Medusa heads for the tiny target on a CPU (torch and transformers; vLLM's environment has both), after corpus.py and heads.py:

    python train_medusa.py SECONDS OUT

Medusa-1 (arXiv 2401.10774): head k is a residual block on the target's last hidden state at token i and predicts token i + 2 + k, with the
target frozen. The tensors have the names of the published heads (``{head}.{layer}.linear``). The published ones have an output layer each;
these borrow the target's, which is 2 MB a head that need not be stored. What a head learns is the target's own greedy token, since that is
what its drafts are checked against at temperature 0.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from heads import GREEDY, WEIGHTS, linear, load_target
from safetensors.torch import save_file
from torch import nn

HEADS, LAYERS = 4, 2
PEAK_RATE, BATCH = 3e-3, 512  # places
ROWS = 160  # their states are kept, so that a step of training needs no pass of the target
HEAD_WEIGHT = 0.8  # the paper's: the loss of head k counts this to the power of k


class ResidualBlock(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = linear(torch.zeros(hidden, hidden))
        self.linear.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.silu(self.linear(x))


@torch.no_grad()
def read_by(target: Any, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The target's last hidden states, B × T × hidden, and the tokens that it would write after each, B × T."""
    states = [target.model(input_ids=part, use_cache=False).last_hidden_state for part in rows.split(4)]
    return torch.cat(states), torch.cat([target.lm_head(s).argmax(-1) for s in states])


def train(heads: Any, target: Any, budget_s: float) -> None:
    rng = np.random.default_rng(0)
    rows = np.load("rows.npz")["train"]
    rows = torch.from_numpy(rows[rng.permutation(len(rows))[:ROWS]].astype(np.int64))
    hidden, written = read_by(target, rows)
    last = rows.shape[1] - HEADS
    optimizer = torch.optim.AdamW(heads.parameters(), PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    start, step = time.time(), 0
    while (done := (time.time() - start) / budget_s) < 1:
        for group in optimizer.param_groups:
            group["lr"] = max(PEAK_RATE * min(1, (step + 1) / 20) * min(1, (1 - done) / 0.7), 1e-5)
        row, place = torch.from_numpy(rng.integers(0, len(rows), BATCH)), torch.from_numpy(rng.integers(0, last, BATCH))
        states = hidden[row, place]
        found = [
            F.cross_entropy(F.linear(head(states), target.lm_head.weight), written[row, place + number])
            for number, head in enumerate(heads, start=1)
        ]
        sum(HEAD_WEIGHT**k * loss for k, loss in enumerate(found)).backward()
        torch.nn.utils.clip_grad_norm_(heads.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 20 == 0:
            print(step, round(time.time() - start), "loss by head", [round(loss.item(), 3) for loss in found], flush=True)


@torch.no_grad()
def validate(heads: Any, target: Any) -> None:
    """Prints, by group, the share of held-out places whose first 1, 2, … drafts all are the target's greedy tokens."""
    data = np.load("rows.npz")
    for group in WEIGHTS:
        rows = torch.from_numpy(data[f"val_{group}"].astype(np.int64))
        hidden, written = read_by(target, rows)
        places, rates = slice(rows.shape[1] - GREEDY, -HEADS), []  # what the target wrote itself
        alive = torch.ones_like(written[:, places], dtype=torch.bool)
        for number, head in enumerate(heads, start=1):
            drafted = F.linear(head(hidden[:, places]), target.lm_head.weight).argmax(-1)
            alive &= drafted == written[:, places.start + number : written.shape[1] - HEADS + number]
            rates.append(alive.float().mean().item())
        print(f"{group}: AR by position {[round(r, 3) for r in rates]}, AL at DL 3: {1 + sum(rates[:3]):.2f}", flush=True)


def save(heads: Any, hidden: int, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "medusa", "medusa_num_heads": HEADS, "medusa_num_layers": LAYERS, "hidden_size": hidden}
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file({name: w.to(torch.float16).contiguous() for name, w in heads.state_dict().items()}, out / "model.safetensors", {"format": "pt"})


def main(budget_s: str, out: str) -> None:
    target = load_target()
    hidden = target.config.hidden_size
    heads = nn.ModuleList(nn.Sequential(*(ResidualBlock(hidden) for _ in range(LAYERS))) for _ in range(HEADS))
    train(heads, target, float(budget_s))
    heads.half().float()  # what is validated is what is stored
    validate(heads, target)
    save(heads, hidden, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
