"""Runs in an environment with torch: a small random mixture of experts through transformers, and its routing in the forms of all engines.

Prints as JSON ``chosen[prompt][token][layer][slot]`` by the router's logits of transformers, the truth, and writes into the folder of its argument:
``vllm.jsonl`` and ``sglang.jsonl``, an answer a prompt; ``recorder/``, SGLang's dump by the real torch; ``statistics/``, TensorRT-LLM's. A pass is a prompt.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

LAYERS, EXPERTS, TOP_K, VOCABULARY = 3, 8, 2, 64


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=LAYERS, num_attention_heads=4, head_dim=8,
        num_key_value_heads=2, num_experts=EXPERTS, num_experts_per_tok=TOP_K, vocab_size=VOCABULARY, max_position_embeddings=128,
        decoder_sparse_step=1, mlp_only_layers=[], output_router_logits=True,
    )  # fmt: skip
    model = Qwen3MoeForCausalLM(config).eval()
    truth, vllm, sglang = [], [], []
    for length in (7, 12, 20):
        ids = torch.randint(0, VOCABULARY, (1, length))
        with torch.no_grad():
            logits = model(ids).router_logits
        chosen = np.stack([torch.topk(layer, TOP_K).indices.numpy() for layer in logits], axis=1)  # token, layer, slot
        truth.append(chosen.tolist())
        buffer = io.BytesIO()
        np.save(buffer, chosen.astype(np.uint8))
        vllm.append({"choices": [{"index": 0, "text": "", "routed_experts": base64.b64encode(buffer.getvalue()).decode()}]})
        raw = torch.from_numpy(chosen.astype(np.int32)).contiguous().numpy().tobytes()
        sglang.append({"meta_info": {"prompt_tokens": length, "completion_tokens": 1, "routed_experts": base64.b64encode(raw).decode()}})
    (folder / "vllm.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in vllm))
    (folder / "sglang.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in sglang))
    counts = [
        np.stack([np.bincount(np.array(of)[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)]).astype(np.int32)
        for of in truth
    ]
    records = [
        {"forward_pass_id": n, "rank": 0, "gatherer_key": "primary", "global_physical_count": torch.from_numpy(of)}
        for n, of in enumerate(counts)
    ]
    (folder / "recorder").mkdir()
    places = torch.arange(EXPERTS).repeat(LAYERS, 1)
    torch.save({"records": records, "last_physical_to_logical_map": places}, folder / "recorder" / "expert_distribution_recorder_1.0_0.pt")
    (folder / "statistics").mkdir()
    (folder / "statistics" / "meta_info.json").write_text(json.dumps({"num_experts": EXPERTS, "num_experts_per_token": TOP_K}))
    tensors = {f"{n}_{layer}": of[layer] for n, of in enumerate(counts) for layer in range(LAYERS)}
    save_file(tensors, folder / "statistics" / "rank0.safetensors")
    print(json.dumps(truth))


main()
