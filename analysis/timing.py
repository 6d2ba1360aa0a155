"""Times and rates from the stamps of a trace. Each name has one meaning:

* **TTFT** is the time from the send to the first generated token. It is never a step time.
* **Step time** is the gap between two steps of one request. ``step_ms`` takes all gaps of the steady window; ``step_ms_decode`` only those
  that overlap no request's send → first token, because a closed loop refills its slots and those prefills stretch everybody's steps.
* **User TPS** counts the tokens after the first chunk over the time after it, whatever the chunk sizes: how many tokens a step
  brings must not change it. Time per output token is its pooled inverse, and is *not* the gap between chunks.
* **Output TPS** is given for the whole span and for the steady window.

Latencies and user TPS are of requests started in the window and followed to their end; step times are of gaps inside the window.
Requests in flight share steps, so every interval here is clustered two ways, by conversation and by block of time (see
:mod:`specsweep.analysis.stats`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specsweep.analysis.columns import Chunks, Floats, Index, Ints, Mask, Requests, chunks, columns, flat, sums_by
from specsweep.analysis.stats import Crossed, Interval, block_rate, cell_sums, crossed_interval, t_quantile, two_way
from specsweep.analysis.window import Window
from specsweep.client.trace import RequestTrace

# Blocks of time have to outlast what makes neighbouring steps alike (a prefill, a busy moment of the host), not a whole request:
# what a request does to several blocks is counted by conversation. A dozen leaves eleven degrees of freedom.
BLOCKS = 12


@dataclass(frozen=True, slots=True)
class Blocks:
    """A stretch of time cut into :data:`BLOCKS` equal parts."""

    start: int
    stop: int

    @property
    def seconds(self) -> float:
        return (self.stop - self.start) / BLOCKS / 1e9

    def number(self, t: Ints) -> Index:
        """The block of each time; times outside belong to the nearest block."""
        part = (t - self.start) * BLOCKS // max(self.stop - self.start, 1)
        return np.clip(part, 0, BLOCKS - 1).astype(np.intp)

    def overlap(self, begin: Ints, end: Ints) -> Floats:
        """Seconds of each interval in each block, of shape (intervals, BLOCKS)."""
        edges = np.linspace(self.start, self.stop, BLOCKS + 1)
        low = np.maximum(begin[:, None], edges[None, :-1])
        high = np.minimum(end[:, None], edges[None, 1:])
        return np.asarray(np.maximum(high - low, 0.0) / 1e9)


# --- rates ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests with a rate: at least one token after the first chunk, at a later time. One entry a request."""

    requests: Requests
    index: Index  # into ``requests``
    tokens: Floats  # after the first chunk
    seconds: Floats

    @property
    def tps(self) -> Floats:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class UserTps:
    mean: Interval  # over requests of their own rates
    pooled: Interval  # sum of tokens / sum of times
    per_request: Rates
    shared_rel_var: float  # relative variance of the mean that all conversations have in common: their steps


def rates(requests: Requests) -> Rates:
    tokens = (requests.tokens - requests.first_tokens).astype(np.float64)
    seconds = (requests.last - requests.first) / 1e9
    index = np.flatnonzero((requests.first >= 0) & (tokens > 0) & (seconds > 0))
    return Rates(requests, index, tokens[index], seconds[index])


def user_tps(requests: Requests) -> UserTps | None:
    """None if no request has a token after its first chunk."""
    found = rates(requests)
    if not found.index.size:
        return None
    blocks = Blocks(int(requests.first[found.index].min()), int(requests.last[found.index].max()))
    arrived = _arrived(chunks(requests), blocks, len(requests), after_first=True)[found.index]
    passed = blocks.overlap(requests.first[found.index], requests.last[found.index])
    cluster = requests.cluster[found.index]
    # Each block's part in how far a rate lies from the estimate: the parts add up to the whole difference exactly.
    mean = float(found.tps.mean())
    cells = _by_cluster((arrived - mean * passed) / found.seconds[:, None] / found.index.size, cluster)
    weights = _by_cluster(passed / found.seconds[:, None], cluster)
    pooled = float(found.tokens.sum() / found.seconds.sum())
    pooled_cells = _by_cluster((arrived - pooled * passed) / found.seconds.sum(), cluster)
    return UserTps(
        mean=crossed_interval(mean, cells, weights),
        pooled=crossed_interval(pooled, pooled_cells, _by_cluster(passed, cluster)),
        per_request=found,
        shared_rel_var=float(two_way(cells, weights).shared) / mean**2,
    )


@dataclass(frozen=True, slots=True)
class SteadyTps:
    interval: Interval
    block_s: float
    tokens: Floats  # per block
    between_rel_var: float  # relative variance from conversations that span several blocks


def steady_tps(requests: Requests, window: Window) -> SteadyTps | None:
    """Over all requests with tokens in the window, those of the first wave included: they fill slots, too."""
    blocks = Blocks(window.open_ns, window.close_ns)
    arrived = _arrived(chunks(requests), blocks, len(requests))
    tokens = arrived.sum(0)
    if tokens.sum() <= 0:
        return None
    crossed = _per_slot_time(requests, blocks, arrived)
    between = float(crossed.between) / float(tokens.sum()) ** 2
    return SteadyTps(block_rate(tokens, blocks.seconds, between=between), blocks.seconds, tokens, between)


def whole_span_tps(requests: Requests) -> Interval | None:
    """Tokens of all requests / (last arrival - first send), as the SPEED-Bench paper has it."""
    stop, start = int(requests.last.max(initial=-1)), int(requests.send.min())
    if stop <= start or requests.tokens.sum() <= 0:
        return None
    blocks = Blocks(start, stop)
    arrived = _arrived(chunks(requests), blocks, len(requests))
    value = float(requests.tokens.sum()) / ((stop - start) / 1e9)
    clusters = len(requests.clusters)
    if clusters < 3:
        return Interval(value, None, None, "none: fewer than three conversations", clusters)
    # Ramp-up and tail make blocks unlike by construction, so residuals are against slot time, which they share.
    crossed = _per_slot_time(requests, blocks, arrived)
    factor = float(np.exp(t_quantile(crossed.freedom, 0.95) * np.sqrt(crossed.variance) / max(arrived.sum(), 1.0)))
    return Interval(value, value / factor, value * factor, "two-way clustered t: conversations and blocks of time", clusters)


def _per_slot_time(requests: Requests, blocks: Blocks, arrived: Floats) -> Crossed:
    end = np.where(requests.last >= 0, requests.last, requests.send)
    occupied = blocks.overlap(requests.send, end)
    rate = arrived.sum() / max(occupied.sum(), 1e-12)
    return two_way(_by_cluster(arrived - rate * occupied, requests.cluster), _by_cluster(occupied, requests.cluster))


def _arrived(events: Chunks, blocks: Blocks, requests: int, *, after_first: bool = False) -> Floats:
    """Tokens by request and block, of the chunks that arrived between the blocks' ends."""
    inside = (events.t > blocks.start) & (events.t <= blocks.stop)
    if after_first:
        inside &= ~events.is_first
    flat_index = events.request[inside] * BLOCKS + blocks.number(events.t[inside])
    return sums_by(flat_index, events.share[inside], groups=requests * BLOCKS).reshape(requests, BLOCKS)


def _by_cluster(per_request: Floats, cluster: Index) -> Floats:
    rows = np.repeat(cluster, BLOCKS)
    cols = np.tile(np.arange(BLOCKS, dtype=np.intp), cluster.size)
    return cell_sums(rows, cols, per_request.ravel())


# --- single times --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """Values with the conversation and the block of time of each.

    ``distinct``: how many values there are if what the slots have in common counts once. Thirty-two requests in flight see one engine
    step, and thirty-two times the same gap says no more about a quantile than one.
    """

    values: Floats
    rows: Index
    cols: Index
    distinct: int

    def mean(self) -> Interval | None:
        if not self.values.size:
            return None
        value = float(self.values.mean())
        cells = cell_sums(self.rows, self.cols, (self.values - value) / self.values.size)
        return crossed_interval(value, cells, cell_sums(self.rows, self.cols, np.ones_like(self.values)))


def ttft_ms(requests: Requests) -> Sample:
    return _latency(requests, requests.first)


def request_latency_ms(requests: Requests) -> Sample:
    return _latency(requests, requests.last)


def user_tps_sample(found: Rates) -> Sample:
    return _sample(found.requests, found.index, found.tps)


def _latency(requests: Requests, until: Ints) -> Sample:
    index = np.flatnonzero(until >= 0)
    return _sample(requests, index, (until - requests.send)[index] / 1e6)


def _sample(requests: Requests, index: Index, values: Floats) -> Sample:
    send = requests.send[index]
    blocks = Blocks(int(send.min()), int(send.max()) + 1) if send.size else Blocks(0, 1)
    return Sample(values, requests.cluster[index], blocks.number(send), values.size)


# --- step times ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps between consecutive steps of one request, one entry a gap. Clusters are those of ``requests``."""

    ms: Floats
    tokens: Ints  # of the step that ends the gap
    request: Index
    begin: Ints  # client clock, ns, whichever clock measured the gap
    end: Ints
    coalesced: Mask
    requests: Requests

    def where(self, mask: Mask) -> Gaps:
        return Gaps(
            self.ms[mask], self.tokens[mask], self.request[mask], self.begin[mask], self.end[mask], self.coalesced[mask], self.requests
        )

    def sample(self, window: Window) -> Sample:
        blocks = Blocks(window.open_ns, window.close_ns)
        return Sample(self.ms, self.requests.cluster[self.request], blocks.number(self.end), self.end_to_end())

    def end_to_end(self) -> int:
        """How many of these gaps, one after the other, fill the time that any of them covers: the engine's own steps, counted once."""
        if not self.ms.size:
            return 0
        order = np.argsort(self.begin, kind="stable")
        begin, end = self.begin[order], self.end[order]
        reached = np.maximum.accumulate(end)
        start = np.maximum(begin, np.concatenate([begin[:1], reached[:-1]]))
        covered = np.maximum(end - start, 0).sum()
        return round(self.ms.size * float(covered) / max(float((end - begin).sum()), 1.0))


def step_gaps(requests: Sequence[RequestTrace], *, server_clock: bool) -> Gaps | None:
    """The gaps of requests whose steps are known; None if the engine's clock is asked for and a stream does not carry it."""
    reads = [r.read for r in requests]
    if server_clock and any(len(t.step_server_ms) != len(t.step_t_ns) for t in reads):
        return None
    lengths = np.array([len(t.step_t_ns) for t in reads], dtype=np.int64)
    owner = np.repeat(np.arange(len(reads), dtype=np.intp), lengths)
    t = flat([r.step_t_ns for r in reads], np.int64)
    same = owner[1:] == owner[:-1]
    ms = np.diff(flat([r.step_server_ms for r in reads], np.float64)) if server_clock else np.diff(t) / 1e6
    coalesced = flat([_flags(r.step_coalesced, len(r.step_t_ns)) for r in reads], np.bool_)
    tokens = flat([r.step_tokens for r in reads], np.int64)
    return Gaps(ms[same], tokens[1:][same], owner[1:][same], t[:-1][same], t[1:][same], coalesced[1:][same], columns(requests))


def _flags(values: Sequence[bool], length: int) -> Sequence[bool]:
    return values if len(values) == length else [False] * length


def inside(gaps: Gaps, window: Window) -> Mask:
    return np.asarray((gaps.begin >= window.open_ns) & (gaps.end <= window.close_ns))


def undisturbed(gaps: Gaps, everybody: Sequence[RequestTrace], late_ns: Mapping[int, int] | None = None) -> Mask:
    """Gaps that overlap nobody's send → first token. A request that never had a first token disturbs until its end.

    ``late_ns``: as if the stamps of these actors were so much later.
    """
    late = late_ns or {}
    shift = np.array([late.get(r.actor, 0) for r in everybody], dtype=np.int64)
    starts = np.array([r.t_send_ns for r in everybody], dtype=np.int64) + shift
    stops = (
        np.array([r.read.chunk_t_ns[0] if r.read.chunk_t_ns else max(r.t_end_ns, r.t_send_ns) for r in everybody], dtype=np.int64) + shift
    )
    own = np.array([late.get(r.actor, 0) for r in gaps.requests.rows], dtype=np.int64)[gaps.request]
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    # Of the prefills that began before a gap's end, did the one that lasted longest reach into it?
    before = np.searchsorted(starts, gaps.end + own, side="left")
    reach = np.where(before > 0, stops[np.maximum(before - 1, 0)], 0)
    return np.asarray(reach <= gaps.begin + own)
