"""Writes the files beside it with the real torch: ``PYTHON make.py``, where PYTHON is an interpreter that has torch.

``sglang_per_pass_<rank>.pt`` have the structure of a dump of SGLang's expert distribution recorder in mode per_pass
(sglang/srt/eplb/expert_distribution.py, ``_DetailAccumulator.dump``): one file a rank; here two ranks of one tensor-parallel server,
which see the same tokens. Four layers of which the first is dense, six logical experts on eight physical places, top 2; two passes of
5 and 3 tokens, and between them a pass of a dense draft head, which routes nothing and has the number of the pass before it.
``odd_tensors.pt`` holds the views, kinds and devices that a dump could hold.
"""

from __future__ import annotations

from pathlib import Path

import torch

HERE = Path(__file__).parent
LAYERS, LOGICAL, PHYSICAL, TOP_K = 4, 6, 8, 2
MAP = torch.tensor([[0, 1, 2, 3, 4, 5, 0, layer] for layer in range(LAYERS)])


def counts(tokens: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros((LAYERS, PHYSICAL), dtype=torch.int)
    for layer in range(1, LAYERS):
        for _ in range(tokens):
            chosen = torch.randperm(PHYSICAL, generator=generator)[:TOP_K]
            found[layer, chosen] += 1
    return found


def dump(rank: int) -> dict[str, object]:
    passes = [(1, counts(5, 1)), (1, torch.zeros((LAYERS, PHYSICAL), dtype=torch.int)), (2, counts(3, 2))]
    records = [
        {"forward_pass_id": number, "rank": rank, "gatherer_key": "primary", "global_physical_count": count.cpu().clone()}
        for number, count in passes
    ]
    return {"records": records, "last_physical_to_logical_map": MAP}


def main() -> None:
    for rank in (0, 1):
        torch.save(dump(rank), HERE / f"sglang_per_pass_{rank}.pt")
    base = torch.arange(24, dtype=torch.int16).reshape(2, 3, 4)
    torch.save(
        {
            "transposed": base.transpose(0, 2),
            "part": base[1, 1:, ::2],
            "scalar": torch.tensor(2.5, dtype=torch.float64),
            "empty": torch.zeros((0, 4)),
            "flags": torch.tensor([True, False]),
            "bytes": torch.tensor([255], dtype=torch.uint8),
            "half": torch.tensor([0.5], dtype=torch.float16),
            "nested": [{"a": (1, None, "text", 1.5, True)}],
        },
        HERE / "odd_tensors.pt",
    )


if __name__ == "__main__":
    main()
