"""Runs in an environment with torch and transformers, started by greedy.py: the best next tokens after given texts, in float32.

    python near_tie.py MODEL < [[id, …], …]      → JSON on stdout, for each text {"best": [[id, logit], …], "eos": [id, …]}

No cache, no batch, one thread: the plainest reading of the model that there is.
"""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM

SHOWN = 3


def main(folder: str) -> None:
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    end = model.generation_config.eos_token_id
    ends = [] if end is None else [end] if isinstance(end, int) else list(end)
    found = []
    for ids in json.load(sys.stdin):
        values, tokens = model(torch.tensor([ids])).logits[0, -1].topk(SHOWN)
        found.append({"best": [list(pair) for pair in zip(tokens.tolist(), values.tolist(), strict=True)], "eos": ends})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    with torch.inference_mode():
        main(sys.argv[1])
