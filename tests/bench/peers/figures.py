"""The true figures of a run, from the server's log, each by the definition of the client that is compared with it.

Clients mean different things by one word, and an honest comparison asks each for what it defines. So there are two times between
tokens (from chunk to chunk, which is a step; and per token of a request) and two acceptance lengths (of verify steps, before an answer's
end cuts the last one; and of chunks, as they arrived).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsweep.client.sim.truth import TrueRequest

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """What a client reports under ``name``, and what was true by the same definition."""

    name: str
    reported: float
    true: float

    @property
    def error(self) -> float:
        """Relative: 0.01 is one per cent too much."""
        return self.reported / self.true - 1


# Keys of the figures of a run. ``token_ms``: per token of a request; without drafting it is a step time too.
FIGURES = ("ttft_ms_mean", "ttft_ms_p50", "step_ms_mean", "step_ms_p50", "token_ms_mean", "al", "user_tps")
Reported = dict[str, Pair]


def ttft_ms(truth: Sequence[TrueRequest]) -> Floats:
    """From the request's arrival to its first chunk."""
    return np.array([(r.chunks[0].t_ns - r.t_arrived_ns) / 1e6 for r in truth])


def step_ms(truth: Sequence[TrueRequest]) -> Floats:
    """All times from chunk to chunk of a request."""
    return np.concatenate([np.diff([c.t_ns for c in r.chunks]) for r in truth]) / 1e6


def token_ms(truth: Sequence[TrueRequest]) -> tuple[Floats, Floats]:
    """Of each request with more than one chunk: time per token after the first one, and how many tokens those are."""
    found = [(_decode_ns(r) / 1e6 / (r.tokens - 1), r.tokens - 1) for r in truth if len(r.chunks) > 1]
    values = np.array(found, dtype=np.float64).reshape(-1, 2)
    return values[:, 0], values[:, 1]


def al_pooled(truth: Sequence[TrueRequest]) -> float:
    """Tokens per verify step before any cut, over all steps: what the engine's counters say."""
    steps = [s for r in truth for s in r.steps if s.drafted]
    return 1 + sum(s.accepted for s in steps) / len(steps)


def al_chunks(truth: Sequence[TrueRequest]) -> float:
    """Tokens per chunk after the first ones, the cut last chunks included, over all chunks."""
    return sum(r.tokens - r.chunks[0].tokens for r in truth) / sum(len(r.chunks) - 1 for r in truth)


def user_tps(truth: Sequence[TrueRequest]) -> float:
    """Tokens after the first chunk by the time after it: mean over requests."""
    return float(np.mean([(r.tokens - r.chunks[0].tokens) / _decode_ns(r) * 1e9 for r in truth if len(r.chunks) > 1]))


def _decode_ns(request: TrueRequest) -> int:
    return request.chunks[-1].t_ns - request.chunks[0].t_ns


@dataclass(frozen=True, slots=True)
class Served:
    """How the server did. ``lag``: by which share its steps were longer than they were to be."""

    requests: int
    chunks: int
    first_ns: int  # arrival of the first request
    last_ns: int  # the last chunk
    lag: float

    @property
    def seconds(self) -> float:
        return (self.last_ns - self.first_ns) / 1e9

    @property
    def chunks_per_s(self) -> float:
        return self.chunks / self.seconds


def served(truth: Sequence[TrueRequest], planned_step_ms: float) -> Served:
    return Served(
        requests=len(truth),
        chunks=sum(len(r.chunks) for r in truth),
        first_ns=min(r.t_arrived_ns for r in truth),
        last_ns=max(r.chunks[-1].t_ns for r in truth),
        lag=float(step_ms(truth).mean()) / planned_step_ms - 1,
    )


def centre(key: str, name: str, reported: tuple[float, float], true: Floats) -> Reported:
    """Mean and median of one figure as pairs."""
    return {
        f"{key}_mean": Pair(f"{name}, mean", reported[0], float(true.mean())),
        f"{key}_p50": Pair(f"{name}, median", reported[1], float(np.median(true))),
    }
