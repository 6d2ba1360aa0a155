"""How a mixture of experts spreads the tokens of a batch: numbers from counts, and the file in which the counts are kept.

A forward pass has to load every expert that at least one of its tokens is routed to, so the *unique experts* of a pass in a layer are the
weights that it reads there, and the *share of unused experts* is what it saves. The *imbalance* is the load of the busiest expert over
the mean load of all experts of the layer, which is what expert parallelism waits for. All three are of one pass; over the *whole*
capture they are of the sum of its passes, as if one pass had held all tokens of the batch: engines prefill long prompts in chunks, and
a figure over 32 prompts of 8,000 tokens means their sum.

Layers without experts are recorded by some engines as layers that never route. They are told apart by that, keep their index, and are no
part of any number.

The file, ``routing.npz`` (a zip of NumPy arrays, no pickles), holds:

==============  ==============================  ===============================================================
``counts``      int32 [pass, layer, expert]     tokens routed to each place, as the engine counted them
``pass_ids``    int64 [pass]                    the engine's own numbers of its passes; they may repeat
``logical_of``  int64 [layer, place], or empty  the expert of each place, where experts have copies; else places are experts
``top_k``       int64 [1]                       experts per token; 0: not known
``by_slot``     int64 [slot, layer, expert]     tokens by their first, second, … expert; only of captures token by token
==============  ==============================  ===============================================================
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

VERSION = 1
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Routing:
    """One capture. ``counts[pass, layer, place]`` in tokens; ``logical_of[layer, place]``: which expert is there, None if the place is.
    ``by_slot[slot, layer, expert]``: tokens whose first, second, … chosen expert it is, of all passes; None where the engine does not tell."""

    counts: Array
    pass_ids: Array
    logical_of: Array | None = None
    top_k: int | None = None
    by_slot: Array | None = None

    def __post_init__(self) -> None:
        if self.counts.ndim != 3 or 0 in self.counts.shape or self.counts.dtype.kind not in "iu":
            raise ValueError(f"counts of shape {self.counts.shape}: whole numbers by pass, layer and expert are needed")
        if self.pass_ids.shape != self.counts.shape[:1]:
            raise ValueError(f"{self.pass_ids.shape} pass_ids for {self.counts.shape[0]} passes")
        if self.logical_of is not None and self.logical_of.shape != self.counts.shape[1:]:
            raise ValueError(f"logical_of of shape {self.logical_of.shape} for layers and places of {self.counts.shape[1:]}")
        if self.logical_of is not None and not _names_experts(self.logical_of, self.counts.shape[2]):
            raise ValueError(f"logical_of has to name experts of 0 to {self.counts.shape[2] - 1}: every expert has a place")
        if self.by_slot is not None and (self.by_slot.ndim != 3 or self.by_slot.shape[1:] != self.counts.shape[1:]):
            raise ValueError(f"by_slot of shape {self.by_slot.shape} for layers and experts of {self.counts.shape[1:]}")


def _names_experts(logical_of: Array, places: int) -> bool:
    return logical_of.dtype.kind in "iu" and bool(logical_of.min() >= 0 and logical_of.max() < places)


def by_expert(routing: Routing) -> Array:
    """``counts[pass, layer, expert]``: copies of one expert added up. The last axis is as long as the highest expert asks for."""
    if routing.logical_of is None:
        return routing.counts
    passes, layers, _ = routing.counts.shape
    found = np.zeros((passes, layers, int(routing.logical_of.max()) + 1), routing.counts.dtype)
    for layer in range(layers):
        for place, expert in enumerate(routing.logical_of[layer]):
            found[:, layer, expert] += routing.counts[:, layer, place]
    return found


def routed_layers(counts: Array) -> Array:
    """The indices of the layers that have experts: those that ever route."""
    return np.flatnonzero(counts.any(axis=(0, 2)))


def unique_experts(counts: Array) -> Array:
    """``[pass, layer]``: experts that at least one token of the pass went to."""
    return np.asarray(np.count_nonzero(counts, axis=2))


def imbalance(counts: Array) -> Array:
    """``[pass, layer]``: load of the busiest expert over the mean of all; NaN where a layer routes nothing."""
    mean = counts.mean(axis=2)
    return np.asarray(np.divide(counts.max(axis=2), mean, out=np.full(mean.shape, np.nan), where=mean > 0))


def variation(loads: Array) -> Array:
    """Coefficient of variation over the last axis: 0 if every expert gets the same, √(experts − 1) if one gets all; NaN of nothing routed."""
    mean = loads.mean(axis=-1)
    return np.asarray(np.divide(loads.std(axis=-1), mean, out=np.full(mean.shape, np.nan), where=mean > 0))


def evenness(loads: Array) -> Array:
    """Entropy of the loads over the last axis as a share of the largest: 1 if every expert gets the same, 0 if one gets all; NaN of nothing routed."""
    total = loads.sum(axis=-1, keepdims=True, dtype=np.float64)
    share = np.divide(loads, total, out=np.full(loads.shape, np.nan), where=total > 0)
    logs = np.log(share, out=np.zeros(share.shape), where=share > 0)
    return np.asarray(-(share * logs).sum(axis=-1) / np.log(loads.shape[-1]))


def summarise(routing: Routing) -> dict[str, Any]:
    """JSON-able numbers of a capture, by layer and over all layers.

    ``per_pass`` holds mean, least and most over the passes that route in that layer, ``whole`` the sum of all passes. Raises ``ValueError``
    if nothing was routed, and if ``top_k`` is known and the layers of a pass do not hold a whole number of tokens each, all the same.
    """
    counts = by_expert(routing)
    layers = routed_layers(counts)
    if not len(layers):
        raise ValueError("no token was routed")
    counts = counts[:, layers, :]
    tokens = _tokens(counts, routing.top_k)
    experts = counts.shape[2]
    unique, uneven = unique_experts(counts), imbalance(counts)
    busy = unique > 0
    total = counts.sum(axis=0, dtype=np.int64)[np.newaxis]
    whole_unique, whole_uneven = unique_experts(total)[0], imbalance(total)[0]
    whole_variation, whole_evenness = variation(total)[0], evenness(total)[0]
    by_layer = [
        {
            "layer": int(layer),
            "unique_mean": float(unique[busy[:, i], i].mean()),
            "unique_min": int(unique[busy[:, i], i].min()),
            "unique_max": int(unique[busy[:, i], i].max()),
            "unused_share_mean": float(1 - unique[busy[:, i], i].mean() / experts),
            "imbalance_mean": float(np.nanmean(uneven[:, i])),
            "whole_unique": int(whole_unique[i]),
            "whole_unused_share": float(1 - whole_unique[i] / experts),
            "whole_imbalance": float(whole_uneven[i]),
            "whole_variation": float(whole_variation[i]),
            "whole_evenness": float(whole_evenness[i]),
        }
        for i, layer in enumerate(layers)
    ]
    return {
        "version": VERSION,
        "passes": int(counts.shape[0]),
        "layers": len(layers),
        "dense_layers": int(routing.counts.shape[1] - len(layers)),
        "experts": int(experts),
        "places": int(routing.counts.shape[2]),
        "top_k": routing.top_k,
        "tokens": None if tokens is None else int(tokens.sum()),
        "tokens_per_pass": None if tokens is None else {"mean": float(tokens.mean()), "min": int(tokens.min()), "max": int(tokens.max())},
        "unique_mean": float(unique[busy].mean()),
        "unused_share_mean": float(1 - unique[busy].mean() / experts),
        "whole_unused_share_mean": float(1 - whole_unique.mean() / experts),
        "whole_unused_share_max": float(1 - whole_unique.min() / experts),
        "imbalance_mean": float(np.nanmean(uneven)),
        "by_layer": by_layer,
    }


def _tokens(counts: Array, top_k: int | None) -> Array | None:
    """Tokens of each pass. Every layer routes every token to ``top_k`` experts, so all layers of a pass must say the same."""
    if top_k is None:
        return None
    routed = counts.sum(axis=2, dtype=np.int64)
    for number, row in enumerate(routed):
        found = set(row[row > 0].tolist())
        if len(found) > 1 or any(n % top_k for n in found):
            raise ValueError(
                f"pass {number}: its layers routed {', '.join(map(str, sorted(found)[:4]))} times, which is not one number of tokens at "
                f"{top_k} experts a token; target.experts.per_token is wrong, or the recorder lost some"
            )
    return np.asarray(routed.max(axis=1) // top_k)


def to_npz(routing: Routing) -> bytes:
    buffer = io.BytesIO()
    arrays: dict[str, Array] = {
        "counts": routing.counts.astype(np.int32),
        "pass_ids": routing.pass_ids.astype(np.int64),
        "logical_of": np.zeros((0, 0), np.int64) if routing.logical_of is None else routing.logical_of.astype(np.int64),
        "top_k": np.array([routing.top_k or 0], np.int64),
    }
    if routing.by_slot is not None:
        arrays["by_slot"] = routing.by_slot.astype(np.int64)
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own flags
    return buffer.getvalue()


def from_npz(data: bytes) -> Routing:
    """Raises ``ValueError`` for a file that :func:`to_npz` did not write."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            logical, top_k = found["logical_of"], int(found["top_k"][0])
            slots = found.get("by_slot")
            return Routing(found["counts"], found["pass_ids"], logical if logical.size else None, top_k or None, slots)
    except (zipfile.BadZipFile, KeyError, IndexError, EOFError, OSError) as error:
        raise ValueError(f"not a routing.npz: {type(error).__name__}: {error}") from error
