"""The routing of a simulated mixture of experts, and the recorder that SGLang has for it.

Every token of every layer picks its experts uniformly and independently, without replacement, from a share of them: all, unless the
model says otherwise of the prompt's category. A preset may so leave a quarter of the experts out for random tokens, as the paper's text
has it; which ones differs by layer. Real routing is less even. The simulator shows that a capture works, and what such routing looks like.

A step only notes how many tokens it held; the draws are made when a dump is asked for, off the clock of the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specsweep.client.sim.torch_dump import Tensor, dumped

Counts = np.ndarray[Any, np.dtype[np.int32]]
_CHUNK = 16_384  # tokens that are drawn at once


@dataclass(frozen=True, slots=True)
class Mixture:
    """``layers`` with experts, each with ``experts`` of which a token takes ``top_k``."""

    layers: int
    experts: int
    top_k: int


def draw(mixture: Mixture, tokens: int, rng: np.random.Generator, *, share: float = 1.0) -> Counts:
    """``[layer, expert]``: how many of ``tokens`` tokens each expert got, each token ``top_k`` different ones, all choices equally likely.

    ``share``: of the experts of each layer that are chosen from at all; the same ones in every call."""
    within = max(round(mixture.experts * share), mixture.top_k)
    found = np.zeros((mixture.layers, mixture.experts), np.int32)
    for layer in range(mixture.layers):
        for start in range(0, tokens, _CHUNK):
            chosen = _subsets(within, mixture.top_k, min(_CHUNK, tokens - start), rng)
            if within < mixture.experts:
                chosen = np.random.default_rng(layer).permutation(mixture.experts)[chosen]
            found[layer] += np.bincount(chosen.ravel(), minlength=mixture.experts).astype(np.int32)
    return found


def _subsets(n: int, k: int, count: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """``[count, k]``: uniform subsets of ``range(n)`` (Floyd's algorithm, for all at once)."""
    chosen = np.empty((count, k), np.int64)
    for i, top in enumerate(range(n - k, n)):
        pick = rng.integers(0, top + 1, size=count)
        taken = (chosen[:, :i] == pick[:, np.newaxis]).any(axis=1)
        chosen[:, i] = np.where(taken, top, pick)
    return chosen


class Recorder:
    """SGLang's expert distribution recorder in mode per_pass: obeys three orders, and writes files as SGLang does, one of rank 0."""

    def __init__(self, mixture: Mixture, folder: Path, *, seed: int, clock: Callable[[], float] = time.time) -> None:
        self._mixture, self._folder, self._clock = mixture, folder, clock
        self._rng = np.random.default_rng(seed)
        self._recording = False
        self._passes: list[tuple[int, Mapping[float, int]]] = []  # number, and tokens by the share of experts that they choose from

    def step(self, number: int, tokens: int | Mapping[float, int]) -> None:
        """``tokens`` of a step; where they do not all choose from all experts, by the share that they choose from."""
        shares = {1.0: tokens} if isinstance(tokens, int) else dict(tokens)
        if self._recording and any(shares.values()):
            self._passes.append((number, shares))

    def order(self, path: str) -> str | None:
        """Obeys, and gives SGLang's answer; None for a path that is none of the recorder's."""
        name = path.removeprefix("/").removesuffix("_expert_distribution_record")
        if path != f"/{name}_expert_distribution_record" or name not in ("start", "stop", "dump"):
            return None
        if name == "dump":
            self._dump()
            return "Dump expert distribution record.\n"
        if name == "start":
            self._passes.clear()
        self._recording = name == "start"
        return f"{name.capitalize()} recording the expert distribution.\n"

    def _counts(self, tokens: Mapping[float, int]) -> Counts:
        found = np.zeros((self._mixture.layers, self._mixture.experts), np.int32)
        for share, n in tokens.items():
            found += draw(self._mixture, n, self._rng, share=share)
        return found

    def _dump(self) -> None:
        mixture = self._mixture
        records = [
            {
                "forward_pass_id": number,
                "rank": 0,
                "gatherer_key": "primary",
                "global_physical_count": Tensor.of(self._counts(tokens)),
            }
            for number, tokens in self._passes
        ]
        places = np.tile(np.arange(mixture.experts, dtype=np.int64), (mixture.layers, 1))
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"expert_distribution_recorder_{self._clock()}_0.pt"
        path.write_bytes(dumped({"records": records, "last_physical_to_logical_map": Tensor.of(places)}, name=path.stem))
        self._passes.clear()
