"""What the two heads of the tiny target have in common: rows to learn from, one decoder layer that drafts, training, validation.

    python heads.py PROMPTS      (once, after corpus.py; writes rows.npz: 512-token rows, half of each greedy row is the target's own)

A head sees, in row i, hidden states of the target at token i and the embedding of token i + 1, and predicts token i + 2. From the second
drafted token on it is fed its own output instead of the target's: training runs those steps too ("training-time test", EAGLE-3, arXiv
2503.01840, section 3), with the attention that the engine has then: the first step's keys up to row i, and the keys of the later steps of
the same row. Half of the rows are continued greedily by the target, since that is what drafts are checked against at temperature 0.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn
from transformers import LlamaForCausalLM

HERE = Path(__file__).parent
STEPS = 5  # drafted tokens per row in validation
TRAINED_STEPS = 4  # and in training
ROW = 512  # tokens
GREEDY = 224  # of them by the target itself, in greedy rows
WEIGHTS = {"code": 0.45, "docs": 0.3, "fiction": 0.25}
SCORED = 160  # places per row that the loss looks at
STEP_WEIGHT = 0.85  # loss of step s counts this to the power of s
SAMPLED_ROWS = 640  # of each split "train"
HELD_OUT_ROWS = 16
THETA, HEADS, KV_HEADS, HEAD_DIM, EPSILON = 100000.0, 4, 2, 64, 1e-6
Cache = list[tuple[torch.Tensor, torch.Tensor]]


class Head(Protocol):
    def first(self, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """From the target's states (embedding, after layer 1, …, after the last layer, before its norm): what step 0 is fed. B × T × hidden."""

    def step(self, embedded: torch.Tensor, hidden: torch.Tensor, number: int, cache: Cache) -> tuple[torch.Tensor, torch.Tensor]:
        """Step ``number``: what the target's output layer reads, and what the next step is fed."""

    def parameters(self) -> Any: ...


class Norm(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, EPSILON)


def linear(weight: torch.Tensor) -> nn.Linear:
    out = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    out.weight.data.copy_(weight)
    return out


def rotated(x: torch.Tensor, first_position: int) -> torch.Tensor:
    """Rotary embedding in the Llama (half-split) layout; x is B × heads × T × head_dim."""
    positions = torch.arange(first_position, first_position + x.shape[2], dtype=torch.float32)
    angles = positions[:, None] * THETA ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


class Attention(nn.Module):
    """Starts as the target's last layer; ``widen`` zero columns in front read the embedding in an EAGLE3 head."""

    def __init__(self, source: Any, widen: int) -> None:
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj"):
            weight = getattr(source, name).weight.detach()
            setattr(self, name, linear(torch.cat([torch.zeros(weight.shape[0], widen), weight], 1)))
        self.o_proj = linear(source.o_proj.weight.detach())

    def forward(self, x: torch.Tensor, number: int, cache: Cache) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (p(x).view(batch, length, -1, HEAD_DIM).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (rotated(k, number), v))
        q = rotated(q, number) * HEAD_DIM**-0.5
        cache.append((k, v))
        hidden_from = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = [(q @ cache[0][0].transpose(-1, -2)).masked_fill(hidden_from, float("-inf"))]
        scores += [(q * keys).sum(-1, keepdim=True) for keys, _ in cache[1:]]
        shares = torch.cat(scores, -1).softmax(-1)
        out = shares[..., :length] @ cache[0][1]
        for at, (_, values) in enumerate(cache[1:]):
            out = out + shares[..., length + at, None] * values
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, source: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (linear(getattr(source, n).weight) for n in ("gate_proj", "up_proj", "down_proj"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def load_target() -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM.from_pretrained(HERE / "target", dtype=torch.float32).eval().requires_grad_(False)


def states_and_logits(target: Any, rows: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """The residual stream before layer 1 and after every layer (the last one before the final norm), and the logits."""
    states: list[torch.Tensor] = []
    hooks = [layer.register_forward_hook(lambda _m, _i, out: states.append(out)) for layer in target.model.layers]
    hooks.insert(0, target.model.embed_tokens.register_forward_hook(lambda _m, _i, out: states.append(out)))
    with torch.no_grad():
        logits = target(input_ids=rows, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    return tuple(s[0] if isinstance(s, tuple) else s for s in states), logits


def drafts(head: Head, target: Any, rows: torch.Tensor, steps: int, places: torch.Tensor | slice = slice(None)) -> Any:
    """Yields per step: the head's logits and the target's for the same tokens, B × T × vocabulary with T = row length - steps, or only
    those of ``places`` in T (the vocabulary is most of the work)."""
    states, logits = states_and_logits(target, rows)
    length = rows.shape[1] - steps
    hidden = head.first(tuple(s[:, :length] for s in states))
    cache: Cache = []
    for number in range(steps):
        tokens = rows[:, 1 + number : 1 + number + length]
        out, hidden = head.step(F.embedding(tokens, target.model.embed_tokens.weight), hidden, number, cache)
        yield F.linear(out[:, places], target.lm_head.weight), logits[:, 1 + number : 1 + number + length][:, places]


def train(head: Any, target: Any, budget_s: float, peak_rate: float, batch: int = 2, length: int = ROW, kept: Any = None) -> None:
    """``budget_s``: of CPU time, so that a busy machine trains as long as an idle one. ``length``: of the rows, their last tokens; with shorter
    ones a batch has more of them. ``kept``: ids of a pruned vocabulary, over which both distributions are taken."""
    rows = torch.from_numpy(np.load("rows.npz")["train"].astype(np.int64))[:, -length:]
    batch = batch * ROW // length
    scored = min(SCORED * length // ROW, length - TRAINED_STEPS)
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(head.parameters(), peak_rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    start, step, means = time.process_time(), 0, np.zeros(TRAINED_STEPS)
    while (done := (time.process_time() - start) / budget_s) < 1:
        for group in optimizer.param_groups:
            group["lr"] = max(peak_rate * min(1, (step + 1) / 20) * min(1, (1 - done) / 0.7), 1e-5)
        chosen = rows[rng.choice(len(rows), batch, replace=False)]
        places = torch.from_numpy(rng.choice(length - TRAINED_STEPS, scored, replace=False))
        losses = []
        for ours, wanted in drafts(head, target, chosen, TRAINED_STEPS, places):
            if kept is not None:
                ours, wanted = ours[..., kept], wanted[..., kept]
            distance = F.kl_div(F.log_softmax(ours, -1), F.log_softmax(wanted, -1), log_target=True, reduction="none")
            losses.append(distance.sum(-1).mean())
        loss = sum(STEP_WEIGHT**s * value for s, value in enumerate(losses))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        values = np.array([value.item() for value in losses])
        means = values if step == 0 else 0.95 * means + 0.05 * values
        step += 1
        if step % 20 == 0:
            print(step, round(time.process_time() - start), "KL by step", means.round(3).tolist(), flush=True)


@torch.no_grad()
def validate(head: Head, target: Any, kept: Any = None) -> None:
    """Prints, by group, the share of held-out places whose first 1, 2, … drafts all are the target's greedy tokens, and AL at DL 3 and 5.
    ``kept``: ids of a pruned vocabulary; a target's token outside of it can never be drafted."""
    data = np.load("rows.npz")
    for group in WEIGHTS:
        rows = torch.from_numpy(data[f"val_{group}"].astype(np.int64))
        places = GREEDY - STEPS - 1
        alive, rates = torch.ones(len(rows), places, dtype=torch.bool), []
        for ours, wanted in drafts(head, target, rows, STEPS):
            if kept is not None:
                ours = torch.full_like(ours, float("-inf")).index_copy(-1, kept, ours[..., kept])
            alive &= (ours.argmax(-1) == wanted.argmax(-1))[:, -places:]
            rates.append(alive.float().mean().item())
        lengths = f"AL at DL 3: {1 + sum(rates[:3]):.2f}, at DL 5: {1 + sum(rates):.2f}"
        print(f"{group}: AR by position {[round(r, 3) for r in rates]}, {lengths}", flush=True)


def windows(rng: np.random.Generator, texts: list[str], tokenizer: Tokenizer, count: int) -> np.ndarray:
    """Rows of text at random places; characters are cut generously, so that every row is full."""
    out = []
    long_enough = [t for t in texts if len(t) > 8 * ROW]
    sizes = np.array([len(t) for t in long_enough], dtype=float)
    while len(out) < count:
        text = long_enough[rng.choice(len(long_enough), p=sizes / sizes.sum())]
        at = int(rng.integers(0, len(text) - 8 * ROW + 1))
        ids = tokenizer.encode(text[at : at + 8 * ROW]).ids
        if len(ids) >= ROW:
            out.append(ids[:ROW])
    return np.array(out)


@torch.no_grad()
def continued(target: Any, rows: np.ndarray) -> np.ndarray:
    """The rows with their last GREEDY tokens written by the target; where it ends a document it goes on."""
    kept = torch.from_numpy(rows[:, : ROW - GREEDY])
    whole = [
        target.generate(part, attention_mask=torch.ones_like(part), min_new_tokens=GREEDY, max_new_tokens=GREEDY, do_sample=False)
        for part in kept.split(64)
    ]
    return torch.cat(whole).numpy()


def main(greedy_rows: str) -> None:
    target = load_target()
    tokenizer = Tokenizer.from_file(str(HERE / "target" / "tokenizer.json"))
    corpus = json.loads(Path("corpus.json").read_text())
    rng = np.random.default_rng(0)
    train_rows, out = [], {}
    for group, weight in WEIGHTS.items():
        train_rows.append(windows(rng, corpus[group]["train"], tokenizer, round(weight * SAMPLED_ROWS)))
        train_rows.append(continued(target, windows(rng, corpus[group]["train"], tokenizer, round(weight * int(greedy_rows)))))
        out[f"val_{group}"] = continued(target, windows(rng, corpus[group]["val"], tokenizer, HELD_OUT_ROWS))
        print(group, [len(r) for r in train_rows[-2:]], flush=True)
    np.savez("rows.npz", train=np.concatenate(train_rows).astype(np.uint16), **{k: v.astype(np.uint16) for k, v in out.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
