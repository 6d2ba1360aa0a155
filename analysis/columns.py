"""A trace as flat arrays: what happened many times per request, end to end, with the number of the request beside it.

The statistics are sums over groups of these arrays (``numpy.bincount``), so a point of a few thousand requests and a million
chunks is measured in a fraction of a second, and no formula is written twice for one request and for many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from specsweep.client.trace import RequestTrace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

T = TypeVar("T", bound=np.generic)

MISSING = -1  # for times (monotonic nanoseconds are positive) and counts


@dataclass(frozen=True, slots=True)
class Requests:
    """One entry a request. Times in ns; :data:`MISSING` where there is none."""

    rows: tuple[RequestTrace, ...]
    cluster: Index  # number of the prompt: the unit of every interval
    clusters: tuple[str, ...]  # its prompt_id
    send: Ints
    first: Ints  # first generated token
    last: Ints  # last generated token
    tokens: Ints  # all output tokens: the server's count where it gives one, because some tokens are never streamed
    first_tokens: Ints  # tokens of the first chunk

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Chunks:
    """One entry a chunk. ``share`` are its tokens, scaled so that a request's chunks add up to its counted tokens."""

    request: Index
    t: Ints
    share: Floats
    is_first: Mask


def columns(requests: Sequence[RequestTrace]) -> Requests:
    names = tuple(dict.fromkeys(r.prompt_id for r in requests))
    number = {name: i for i, name in enumerate(names)}
    reads = [r.read for r in requests]
    return Requests(
        rows=tuple(requests),
        cluster=np.array([number[r.prompt_id] for r in requests], dtype=np.intp),
        clusters=names,
        send=_ints(r.t_send_ns for r in requests),
        first=_ints(t.chunk_t_ns[0] if t.chunk_t_ns else MISSING for t in reads),
        last=_ints(t.chunk_t_ns[-1] if t.chunk_t_ns else MISSING for t in reads),
        tokens=_ints(output_tokens(r) for r in requests),
        first_tokens=_ints(max(t.chunk_tokens[0], 0) if t.chunk_tokens else 0 for t in reads),
    )


def output_tokens(request: RequestTrace) -> int:
    read = request.read
    return read.n_completion_server if read.n_completion_server is not None else sum(max(n, 0) for n in read.chunk_tokens)


def chunks(requests: Requests) -> Chunks:
    reads = [r.read for r in requests.rows]
    lengths = _ints(len(t.chunk_t_ns) for t in reads)
    request = np.repeat(np.arange(len(reads), dtype=np.intp), lengths)
    counted = flat([t.chunk_tokens for t in reads], np.int64)
    weight = np.maximum(counted, 0).astype(np.float64)
    streamed = np.bincount(request, weights=weight, minlength=len(reads))
    # A stream that says nothing about tokens still shows when they came: each chunk gets the same part of the usage count.
    weight = np.where(streamed[request] > 0, weight, 1.0)
    total = np.bincount(request, weights=weight, minlength=len(reads))
    factor = np.divide(requests.tokens, total, out=np.ones(len(reads)), where=total > 0)
    is_first = np.zeros(request.size, dtype=np.bool_)
    starts = np.cumsum(lengths) - lengths
    is_first[starts[lengths > 0]] = True
    return Chunks(request, flat([t.chunk_t_ns for t in reads], np.int64), weight * factor[request], is_first)


def flat(lists: Sequence[Sequence[float]], dtype: type[T]) -> NDArray[T]:
    """All lists end to end."""
    return np.fromiter(chain.from_iterable(lists), dtype=dtype, count=sum(map(len, lists)))


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def sums_by(group: Index, weights: Floats | Ints | None = None, *, groups: int = 0) -> Floats:
    """Sums of ``weights`` (of ones without them) over the entries of each group 0, 1, …"""
    values = None if weights is None else np.asarray(weights, dtype=np.float64)
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)
