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
MOST_EXPERTS = 65_536  # on the places of one layer, well above any model that is served


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
    if not all(isinstance(record, dict) for record in records):
        raise RoutingDumpError(f"{name}: its records are not each a dict of one pass")
    numbers = _whole(name, records, "rank")
    if len(set(numbers)) != 1:
        raise RoutingDumpError(f"{name}: its records do not name one rank")
    counts = _counts(name, [record.get("global_physical_count") for record in records], len(data))
    ids = np.array(_whole(name, records, "forward_pass_id"), np.int64)
    return _Rank(name, numbers[0], counts, ids, _map(name, dump, counts.shape[1:]))


def _whole(name: str, records: Sequence[Mapping[str, Any]], key: str) -> list[int]:
    """One field of every record. A field may be of any kind, and is neither compared nor printed before it is known to be a number."""
    found = [record.get(key) for record in records]
    numbers = [n for n in found if type(n) is int and -(2**63) <= n < 2**63]
    if len(numbers) != len(found):
        raise RoutingDumpError(f"{name}: a record without {key}, or with one that is no whole number of 64 bits")
    return numbers


def _counts(name: str, found: Sequence[object], size: int) -> Counts:
    """The tables of all passes of a file of ``size`` bytes."""
    tables = [table for table in found if isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind in "iu"]
    shapes = {table.shape for table in tables}
    if len(tables) != len(found) or len(shapes) != 1:
        raise RoutingDumpError(f"{name}: global_physical_count is not the same table of layers and experts in every record")
    layers, experts = shapes.pop()
    if not layers or not experts or experts > MOST_EXPERTS:
        raise RoutingDumpError(f"{name}: counts of {layers} layers and {experts} experts; 1 to {MOST_EXPERTS} experts can be in a layer")
    if sum(table.nbytes for table in tables) > size:
        raise RoutingDumpError(f"{name}: its tables of counts are larger than the file, so they are not one for each pass")
    least, most = min(int(table.min()) for table in tables), max(int(table.max()) for table in tables)
    if least < 0 or most > np.iinfo(np.int32).max:
        raise RoutingDumpError(f"{name}: a count of {least} to {most} tokens is none")
    return np.stack(tables).astype(np.int32)


def _map(name: str, dump: Mapping[str, Any], shape: tuple[int, ...]) -> Ids | None:
    """None where every expert is at its own place: without redundant experts nothing has to be mapped.

    Every expert has at least one place, so the numbers of experts are below that of places."""
    found = dump.get("last_physical_to_logical_map")
    if found is None:
        return None
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype.kind not in "iu":
        raise RoutingDumpError(f"{name}: last_physical_to_logical_map does not fit counts of {shape[0]} layers and {shape[1]} experts")
    if found.min() < 0 or found.max() >= shape[1]:
        raise RoutingDumpError(
            f"{name}: last_physical_to_logical_map does not fit: it names experts {found.min()} to {found.max()}, on {shape[1]} places"
        )
    return None if (found == np.arange(shape[1])).all() else found.astype(np.int64)
