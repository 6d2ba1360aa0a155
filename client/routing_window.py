"""TensorRT-LLM's expert statistics: a window of iterations that is fixed when the engine starts, and written when its last one has run.

Nothing can be started or stopped, so the window is made long, and after the capture it is filled up: one short prompt that decodes, again
and again, until the files appear. What is in them is then everything that ran since the start: the engine's own warm-up, ours, the
capture, the filling. The capture is cut out by its tokens. The filling is known (passes of its prompt's length, then of one token each),
and before it stand passes whose tokens sum up to exactly what was sent. If they do not, nothing is captured.

Read from ``tensorrt_llm/_torch/expert_statistic.py``: ``meta_info.json`` (``num_experts``, which counts slots, and ``num_experts_per_token``) and
``rank{r}.safetensors``, keys ``"{iteration}_{layer}"``, each with the tokens that went to each slot.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specsweep.client.routing_dump import Counts, RoutingDump, RoutingDumpError, agreed
from specsweep.client.routing_recorder import RecorderError
from specsweep.client.warmup import ask

META = "meta_info.json"
FILL_PROMPT = 17  # tokens of the filling prompt
FILL_TIMEOUT_S = 600.0
SETTLE_S = 1.0  # in which ranks write what the last iteration made due


@dataclass(slots=True)
class Window:
    """``folder``: on this machine. ``files``: ranks. ``iterations``: length of the window. ``body``: a request of :data:`FILL_PROMPT` prompt tokens
    that decodes ``tokens`` more, whatever it says."""

    url: str
    folder: Path
    files: int
    iterations: int
    body: bytes
    tokens: int
    headers: Mapping[str, str]
    fills: int = 0  # that were sent

    async def start(self) -> None:
        """It began with the engine."""

    async def stop(self) -> None:
        """It ends when it is full."""

    async def dump(self) -> dict[str, bytes]:
        """Fills the window up and gives the content of the files by name. Raises :class:`RecorderError` if none appear."""
        for _ in range(2 + 2 * self.iterations // self.tokens):
            wrong = await ask(self.url, self.body, headers=dict(self.headers), timeout_s=FILL_TIMEOUT_S)
            self.fills += 1
            if wrong is not None:
                raise RecorderError(f"the window of expert statistics cannot be filled up: {wrong}")
            if len(list(self.folder.glob("rank*.safetensors"))) >= self.files:
                await asyncio.sleep(SETTLE_S)
                return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}
        raise RecorderError(
            f"more than {self.iterations} iterations ran and no expert statistics are in {self.folder}: kernels that choose experts themselves "
            "count nothing; set engine.moe_backend to one whose top-k is computed before it (CUTLASS)"
        )


def read_trtllm(files: Mapping[str, bytes], *, wanted: int, fills: int, top_k: int | None = None) -> RoutingDump:
    """The passes of a capture of ``wanted`` tokens, after which the window was filled up ``fills`` times.

    Raises :class:`RoutingDumpError` for files that are not the engine's, and for a capture that cannot be told from the rest."""
    window, known = read_window(files, top_k=top_k)
    first, last = _cut(_tokens(window.counts, known, window.pass_ids.tolist()), wanted, fills)
    return RoutingDump(window.counts[first:last], window.pass_ids[first:last], None, window.ranks, window.ranks_added, 0)


def read_window(files: Mapping[str, bytes], *, top_k: int | None = None) -> tuple[RoutingDump, int]:
    """All passes of the window, whatever ran in them, and the experts a token. Raises :class:`RoutingDumpError` for files that are not the engine's."""
    try:
        meta = json.loads(files[META])
        experts, known = int(meta["num_experts"]), int(meta["num_experts_per_token"])
    except (KeyError, ValueError, TypeError) as error:
        raise RoutingDumpError(f"{META} is missing or does not say num_experts and num_experts_per_token: {error!r}") from error
    if top_k is not None and top_k != known:
        raise RoutingDumpError(f"the engine routes each token to {known} experts, target.experts.per_token={top_k}")
    ranks = [
        (name, _rank(name, files[name], experts)) for name in sorted(files) if name.startswith("rank") and name.endswith(".safetensors")
    ]
    if not ranks:
        raise RoutingDumpError("no rank wrote its statistics")
    iterations = sorted(set.union(*({i for i, _ in found} for _, found in ranks)))
    layers = 1 + max(layer for _, found in ranks for _, layer in found)
    tables = [_table(found, iterations, layers, experts) for _, found in ranks]
    counts, added = agreed(tables)
    return RoutingDump(counts, np.array(iterations, np.int64), None, len(ranks), added, 0), known


def _rank(name: str, data: bytes, experts: int) -> dict[tuple[int, int], Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        found = {_key(key): values for key, values in load(data).items()}
    except (SafetensorError, ValueError, KeyError) as error:
        raise RoutingDumpError(f"{name}: not the engine's statistics: {error}") from error
    for values in found.values():
        if values.shape != (experts,) or values.dtype.kind not in "iu" or values.min() < 0 or values.max() > np.iinfo(np.int32).max:
            raise RoutingDumpError(f"{name}: counts of shape {values.shape} and type {values.dtype}; {experts} experts are needed")
    if not found:
        raise RoutingDumpError(f"{name} holds no iteration")
    return found


def _key(text: str) -> tuple[int, int]:
    iteration, _, layer = text.partition("_")
    return int(iteration), int(layer)


def _table(found: Mapping[tuple[int, int], Any], iterations: Sequence[int], layers: int, experts: int) -> Counts:
    place = {iteration: i for i, iteration in enumerate(iterations)}
    table = np.zeros((len(iterations), layers, experts), np.int32)
    for (iteration, layer), values in found.items():
        table[place[iteration], layer] = values
    return table


def _tokens(counts: Counts, top_k: int, iterations: Sequence[int]) -> list[int]:
    """Of each pass, by its busiest layer; all that have experts route the same tokens, which is checked where the numbers are made."""
    routed = counts.sum(axis=2, dtype=np.int64).max(axis=1)
    if (routed % top_k).any():
        broken = int(np.flatnonzero(routed % top_k)[0])
        raise RoutingDumpError(
            f"iteration {iterations[broken]} routed {int(routed[broken])} times, which is no number of tokens at {top_k} experts each"
        )
    return [int(n) // top_k for n in routed]


def _cut(tokens: Sequence[int], wanted: int, fills: int) -> tuple[int, int]:
    """Where the capture begins and ends among the passes: before the last ``fills`` fillings, or one less if the last came too late."""
    starts: list[int] = []  # of the fillings, the last one first
    for place in range(len(tokens) - 1, -1, -1):
        if tokens[place] == FILL_PROMPT:
            starts.append(place)
        if tokens[place] not in (1, FILL_PROMPT) or len(starts) == fills:
            break
    for last in starts[:-3:-1] if len(starts) == fills else starts[-1:]:
        total, first = 0, last
        while first > 0 and total < wanted:
            first -= 1
            total += tokens[first]
        if total == wanted:
            return first, last
    raise RoutingDumpError(
        f"no run of passes before the {fills} fillings holds the {wanted} tokens that were sent: the capture cannot be told from the rest"
    )
