"""A continuous-batching engine with speculative decoding, in virtual time, whose truth is known to the token.

It emits what a perfect client would have seen of it (:class:`PointTrace`), so that the analysis can be held against numbers that
were put in: step times, prefill stalls, acceptance by position, answer lengths. Faults of real streams are switched on one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from specsweep.client.trace import ActorReport, EngineCounters, PointTrace, RequestTrace, Turn

START_NS = 1_000_000_000_000


@dataclass(frozen=True)
class FakePrompt:
    """``accept``: chance that the draft at each position is accepted, given the one before was. ``answer``: tokens until EOS."""

    prompt_id: str
    accept: tuple[float, ...] = ()
    answer: int = 10_000
    category: str = "mixed"
    n_prompt: int = 100


@dataclass(frozen=True)
class FakeEngine:
    batch_size: int = 1
    draft_length: int = 0  # 0: no drafter
    step_ms: float = 10.0
    step_noise: Callable[[np.random.Generator, int], float] | None = None  # (rng, step number) -> factor on step_ms
    prefill_ms: float = 20.0
    max_tokens: int = 60
    seed: int = 0
    draft_share: float = 1.0  # of the steps that draft at all (an n-gram drafter has misses)
    draft_sizes: tuple[int, ...] = ()  # drawn from, where given: a drafter with drafts of various lengths
    knows_drafts: bool = True  # False: the stream does not say what was drafted
    server_clock: bool = False
    states: str = "exact"
    counts: bool = True  # whether the engine has counters
    extra: dict[str, float] = field(default_factory=dict)  # added to the counters: somebody else's traffic, a miscount


@dataclass
class _Live:
    row: RequestTrace
    prompt: FakePrompt
    left: int
    drafts: int = 0


def run(engine: FakeEngine, prompts: Sequence[FakePrompt], *, requests: int | None = None, send_gap_ns: int = 20_000) -> PointTrace:
    """The closed loop of a client over the engine: a first wave of ramp-up prompts with staggered caps, then the main requests."""
    rng = np.random.default_rng(engine.seed)
    queue = _plan(engine, prompts, requests)
    size = engine.batch_size
    now, step = START_NS, 0
    live: list[_Live] = []
    finished: list[RequestTrace] = []
    waiting = [(queue.pop(0), slot, START_NS) for slot in range(min(size, len(queue)))]
    queue_empty = START_NS if not queue else 0
    totals = dict.fromkeys(("drafts", "draft_tokens", "accepted_tokens", "generation_tokens", "prompt_tokens"), 0.0)
    per_position = [0.0] * engine.draft_length
    while waiting or live:
        for (row, prompt), slot, sent in waiting:  # prefills, one after the other; everybody waits for them
            row.slot, row.t_send_ns = slot, sent
            now = max(now, sent) + round(engine.prefill_ms * 1e6)
            totals["prompt_tokens"] += prompt.n_prompt
            turn = row.read
            _emit(turn, now, 1, 0, 0)
            live.append(_Live(row, prompt, min(row.max_tokens, prompt.answer) - 1))
        waiting = []
        if any(request.left > 0 for request in live):
            factor = 1.0 if engine.step_noise is None else engine.step_noise(rng, step)
            now += round(engine.step_ms * 1e6 * factor)
            step += 1
        for request in list(live):
            if request.left > 0:
                _decode(engine, request, now, rng, totals, per_position)
            if request.left <= 0:
                live.remove(request)
                _finish(engine, request, now, totals)
                finished.append(request.row)
                if queue:
                    waiting.append((queue.pop(0), request.row.slot, now + send_gap_ns))
                    if not queue:
                        queue_empty = now + 2 * send_gap_ns
    counters = EngineCounters(accepted_per_pos=tuple(per_position), preemptions=0.0, cached_prompt_tokens=0.0, **totals)
    if engine.extra:
        counters = counters - EngineCounters(**{k: -v for k, v in engine.extra.items()})
    return PointTrace(
        batch_size=size,
        requests=sorted(finished, key=lambda r: r.index),
        actors=[report(size, START_NS, queue_empty or now, (now - START_NS) / 1e9)],
        counters=counters if engine.counts else None,
        running_max=float(size),
        simulated=True,
        meta={"dialect": "fake"},
    )


def report(slots: int, start_ns: int, queue_empty_ns: int, wall_s: float, **changed: float) -> ActorReport:
    """A client process that was never late."""
    healthy = ActorReport(
        actor=0,
        host="here",
        pid=1,
        slots=slots,
        t_start_ns=start_ns,
        t_queue_empty_ns=queue_empty_ns,
        wall_s=wall_s,
        cpu_s=0.05 * wall_s,
        lag_ms_p50=0.01,
        lag_ms_p99=0.05,
        lag_ms_max=0.2,
        lag_samples=1000,
        connections=slots,
        retries=0,
    )
    return replace(healthy, **changed)


def _plan(engine: FakeEngine, prompts: Sequence[FakePrompt], requests: int | None) -> list[tuple[RequestTrace, FakePrompt]]:
    size = engine.batch_size
    count = max(len(prompts), 4 * size) if requests is None else requests
    ramp = [FakePrompt(f"ramp{i}", prompts[0].accept, category="ramp") for i in range(size)]
    staggered = [max(4, engine.max_tokens * (i + 1) // size) for i in range(size)]
    planned = [(_row(i, p, "ramp", 0, cap), p) for i, (p, cap) in enumerate(zip(ramp, staggered, strict=True))]
    for i in range(count):
        prompt = prompts[i % len(prompts)]
        planned.append((_row(size + i, prompt, "main", i // len(prompts), engine.max_tokens), prompt))
    return planned


def _row(index: int, prompt: FakePrompt, phase: str, pass_index: int, max_tokens: int) -> RequestTrace:
    return RequestTrace(
        index=index,
        prompt_id=prompt.prompt_id,
        conversation_id=prompt.prompt_id,
        turn=0,
        category=prompt.category,
        phase=phase,
        pass_index=pass_index,
        n_prompt=prompt.n_prompt,
        max_tokens=max_tokens,
        actor=0,
        slot=0,
        t_send_ns=0,
        t_end_ns=0,
        connect_ns=0,
        attempts=1,
        ended="complete",
        read=Turn(),
    )


def _decode(
    engine: FakeEngine, request: _Live, now: int, rng: np.random.Generator, totals: dict[str, float], per_position: list[float]
) -> None:
    drafted = 0
    if engine.draft_length and rng.random() < engine.draft_share:
        drafted = int(rng.choice(engine.draft_sizes)) if engine.draft_sizes else engine.draft_length
    accepted = 0
    while accepted < drafted and rng.random() < request.prompt.accept[accepted]:
        per_position[accepted] += 1
        accepted += 1
    totals["drafts"] += drafted > 0
    totals["draft_tokens"] += drafted
    totals["accepted_tokens"] += accepted
    tokens = min(accepted + 1, request.left)
    request.left -= tokens
    request.row.read.last_cut = tokens < accepted + 1
    _emit(request.row.read, now, tokens, drafted if engine.knows_drafts else -1, accepted if engine.knows_drafts else -1)


def _emit(turn: Turn, now: int, tokens: int, drafted: int, accepted: int) -> None:
    turn.chunk_t_ns.append(now)
    turn.chunk_tokens.append(tokens)
    turn.step_t_ns.append(now)
    turn.step_tokens.append(tokens)
    turn.step_drafted.append(drafted)
    turn.step_accepted.append(accepted)
    turn.step_coalesced.append(False)


def _finish(engine: FakeEngine, request: _Live, now: int, totals: dict[str, float]) -> None:
    row, turn = request.row, request.row.read
    turn.outcome, turn.status, turn.step_state = "ok", 200, engine.states
    turn.finish_reason = "stop" if request.prompt.answer <= row.max_tokens else "length"
    turn.n_prompt_server, turn.n_completion_server = row.n_prompt, sum(turn.chunk_tokens)
    if engine.server_clock:
        turn.step_server_ms = [(t - turn.step_t_ns[0]) / 1e6 for t in turn.step_t_ns]
    row.t_end_ns = now
    totals["generation_tokens"] += turn.n_completion_server


def fail(row: RequestTrace, after_tokens: int = 0, kind: str = "stream_error") -> None:
    """The request broke off after some tokens."""
    turn = row.read
    turn.outcome, turn.error_kind, turn.error, turn.finish_reason = "failed", kind, "the server said: out of memory", ""
    for values in (
        turn.chunk_t_ns,
        turn.chunk_tokens,
        turn.step_t_ns,
        turn.step_tokens,
        turn.step_drafted,
        turn.step_accepted,
        turn.step_coalesced,
    ):
        del values[after_tokens:]


def merge_pairs(row: RequestTrace) -> None:
    """Every two decode chunks arrive as one, as a busy API server sends them."""
    turn = row.read
    kept = [0, *range(2, len(turn.step_t_ns), 2)]
    sizes = [sum(turn.step_tokens[max(i - 1, 0) if i else 0 : i + 1]) for i in kept]
    if len(turn.step_t_ns) % 2 == 0:
        kept.append(len(turn.step_t_ns) - 1)
        sizes.append(turn.step_tokens[-1])
    turn.step_t_ns = turn.chunk_t_ns = [turn.step_t_ns[i] for i in kept]
    turn.step_tokens = turn.chunk_tokens = sizes
    turn.step_drafted = turn.step_accepted = [-1] * len(kept)
    turn.step_coalesced = [False] * len(kept)
    turn.step_state = "merged"


def forget_steps(row: RequestTrace) -> None:
    """What a chat endpoint leaves: times, a usage count, nothing about steps."""
    turn = row.read
    turn.step_t_ns, turn.step_tokens, turn.step_drafted, turn.step_accepted, turn.step_coalesced = [], [], [], [], []
    turn.step_state, turn.last_cut = "unknown", False
