"""What engines write about the routing of a mixture of experts, as one form: how many tokens each expert got, in each layer, in each pass.

SGLang's expert distribution recorder (mode ``per_pass``) writes one file a rank: records with ``forward_pass_id``, ``rank`` and
``global_physical_count`` (layers × physical experts), and the map from physical to logical experts as it was at the end. Read from
``sglang/srt/eplb/expert_distribution.py`` of 0.5.7; three things in it are easily overlooked.

* Under tensor parallelism every rank routes every token, and the ranks' counts are copies of each other; with DeepEP or data-parallel
  attention each rank counts what it routed itself, and the counts add up. Nothing in the file says which. So ranks that agree in
  everything are taken once, and ranks that do not are added.
* A draft head counts its passes itself and shares the recorder: pass numbers repeat. Passes are matched between ranks by their order.
* Passes that route nothing (a dense draft head) are recorded as zeros. They are left out, and counted.

A layer that never routes (the first layers of DeepSeek R1 are dense) stays in the form, as zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsweep.client.torch_file import TorchFileError, load

Counts = np.ndarray[Any, np.dtype[np.int32]]
Ids = np.ndarray[Any, np.dtype[np.int64]]


class RoutingDumpError(ValueError):
    """The engine's files are not what its recorder writes, or hold no routed token."""


@dataclass(frozen=True, slots=True)
class RoutingDump:
    """``counts[pass, layer, physical expert]``: tokens routed there. ``pass_ids``: the engine's own numbers, which may repeat."""

    counts: Counts
    pass_ids: Ids
    physical_to_logical: Ids | None  # [layer, physical expert]; None: an expert is where it is
    ranks: int
    ranks_added: bool  # False: all ranks told the same, and one was taken
    empty_passes: int  # that routed nothing and were left out


def read_sglang(files: Mapping[str, bytes]) -> RoutingDump:
    """From the files of one dump, by name, one a rank. Raises :class:`RoutingDumpError` naming the file."""
    if not files:
        raise RoutingDumpError("the recorder wrote no file")
    ranks = [_rank(name, data) for name, data in sorted(files.items())]
    first = ranks[0]
    for other in ranks[1:]:
        if other.counts.shape != first.counts.shape or not np.array_equal(other.pass_ids, first.pass_ids):
            raise RoutingDumpError(
                f"{other.name} has {len(other.pass_ids)} passes of {other.counts.shape[1:]} layers and experts, {first.name} has "
                f"{len(first.pass_ids)} of {first.counts.shape[1:]}: files of two dumps, or of two models"
            )
    if len({rank.number for rank in ranks}) != len(ranks):
        raise RoutingDumpError(f"two of {', '.join(rank.name for rank in ranks)} are of the same rank: files of two dumps")
    counts, added = agreed([rank.counts for rank in ranks])
    routed = counts.any(axis=(1, 2))
    if not routed.any():
        raise RoutingDumpError(
            f"none of {len(counts)} recorded passes routed a token. MoE kernels that do their own routing pass the recorder by: "
            "set engine.moe_backend=triton, or another one whose top-k is computed before it"
        )
    return RoutingDump(counts[routed], first.pass_ids[routed], first.physical_to_logical, len(ranks), added, int((~routed).sum()))


def agreed(tables: Sequence[Counts]) -> tuple[Counts, bool]:
    """The counts of all ranks together, and whether they were added: ranks that tell the same saw the same tokens."""
    if all(np.array_equal(table, tables[0]) for table in tables[1:]):
        return tables[0], False
    return np.stack(list(tables)).sum(axis=0, dtype=np.int32), True


@dataclass(frozen=True, slots=True)
class _Rank:
    name: str
    number: int
    counts: Counts
    pass_ids: Ids
    physical_to_logical: Ids | None


def _rank(name: str, data: bytes) -> _Rank:
    try:
        dump = load(data)
    except TorchFileError as error:
        raise RoutingDumpError(f"{name}: {error}") from error
    if not isinstance(dump, dict) or not isinstance(dump.get("records"), list):
        raise RoutingDumpError(f"{name} holds no records; the recorder must run in mode per_pass")
    records: Sequence[Any] = dump["records"]
    if not records:
        raise RoutingDumpError(f"{name} holds no pass: nothing ran between start and stop of the recorder")
    numbers = {record.get("rank") if isinstance(record, dict) else None for record in records}
    if len(numbers) != 1 or not isinstance(number := numbers.pop(), int):
        raise RoutingDumpError(f"{name}: its records do not name one rank")
    found = [record.get("global_physical_count") for record in records]
    shapes = {count.shape if isinstance(count, np.ndarray) and count.ndim == 2 and count.dtype.kind in "iu" else None for count in found}
    if len(shapes) != 1 or (shape := shapes.pop()) is None:
        raise RoutingDumpError(f"{name}: global_physical_count is not the same table of layers and experts in every record")
    counts = np.stack(found).astype(np.int64)
    if counts.min() < 0 or counts.max() > np.iinfo(np.int32).max:
        raise RoutingDumpError(f"{name}: a count of {int(counts.min())} to {int(counts.max())} tokens is none")
    ids = [record.get("forward_pass_id") for record in records]
    if not all(isinstance(i, int) for i in ids):
        raise RoutingDumpError(f"{name}: a record without forward_pass_id")
    return _Rank(name, number, counts.astype(np.int32), np.array(ids, np.int64), _map(name, dump, shape))


def _map(name: str, dump: Mapping[str, Any], shape: tuple[int, ...]) -> Ids | None:
    """None where every expert is at its own place: without redundant experts nothing has to be mapped."""
    found = dump.get("last_physical_to_logical_map")
    if found is None:
        return None
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype.kind not in "iu" or found.min(initial=0) < 0:
        raise RoutingDumpError(f"{name}: last_physical_to_logical_map does not fit counts of {shape[0]} layers and {shape[1]} experts")
    return None if (found == np.arange(shape[1])).all() else found.astype(np.int64)
