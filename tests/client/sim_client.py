"""A perfect client in virtual time over a simulated engine, and the trace that it would have recorded.

The closed loop of a real point: one request per slot in flight, a first wave with staggered caps, then the main requests. Chunks arrive the
moment they leave, so that whatever the analysis finds differs from the engine's own record only by what the analysis does.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from specsweep.client.load_plan import ramp_caps
from specsweep.client.sim.engine import Emission, Limits, SimEngine, SimRequest
from specsweep.client.sim.model import SimModel
from specsweep.client.trace import ActorReport, EngineCounters, GaugeSample, Phase, PointTrace, RequestTrace, Turn

START_NS = 1_000_000_000_000
SEND_GAP_S = 20e-6  # from the last chunk of one answer to the next request of that slot


@dataclass(frozen=True)
class Load:
    """``requests`` main requests over ``prompts`` prompts (default: all different), whose keys start at ``first_key``."""

    batch_size: int
    requests: int
    max_tokens: int = 200
    n_prompt: int = 100
    categories: Sequence[str] = ("",)
    prompts: int | None = None
    first_key: int = 0
    ignore_eos: bool = False
    temperature: float = 0.0


@dataclass
class Run:
    trace: PointTrace
    engine: SimEngine
    steps: list[tuple[float, float]] = field(default_factory=list)  # start and end of every engine step, s
    emissions: list[Emission] = field(default_factory=list)


def run_point(model: SimModel, draft_length: int, load: Load, *, seed: int = 0, limits: Limits | None = None) -> Run:
    size = load.batch_size
    engine = SimEngine(model, draft_length=draft_length, limits=limits or Limits(max(size, 1)), seed=seed)
    planned = _plan(load)
    rows: dict[int, RequestTrace] = {}
    arrivals: list[tuple[float, int, SimRequest, RequestTrace]] = []
    upcoming = iter(planned)
    for slot in range(size):
        request, row = next(upcoming)
        row.slot = slot
        heapq.heappush(arrivals, (0.0, row.index, request, row))
    run = Run(PointTrace(size, [row for _, row in planned], [], simulated=True, meta={"dialect": "sim"}), engine)
    now, queue_empty = 0.0, 0.0
    while True:
        while arrivals and arrivals[0][0] <= now:
            sent, _, request, row = heapq.heappop(arrivals)
            row.t_send_ns = _ns(sent)
            rows[request.request_id] = row
            engine.submit(request, sent)
        end = engine.begin_step(now)
        if end is None:
            if not arrivals:
                break
            now = arrivals[0][0]
            continue
        run.steps.append((now, end))
        run.trace.gauges.append(GaugeSample(now, engine.counters.running, engine.counters.waiting))
        now = end
        for emission in engine.end_step():
            run.emissions.append(emission)
            row = rows[emission.request_id]
            _record(row, emission, _ns(now))
            if emission.finish and (following := next(upcoming, None)) is not None:
                following[1].slot = row.slot
                queue_empty = now
                heapq.heappush(arrivals, (now + SEND_GAP_S, following[1].index, *following))
    run.trace.actors = [_report(size, queue_empty, now)]
    run.trace.counters = _counters(engine)
    run.trace.running_max = max(look.running for look in run.trace.gauges)
    return run


def _plan(load: Load) -> list[tuple[SimRequest, RequestTrace]]:
    prompts = load.prompts or load.requests
    found = []
    for i in range(load.batch_size + load.requests):
        main = i - load.batch_size
        key = load.first_key + (main % prompts if main >= 0 else prompts + i)
        cap = load.max_tokens if main >= 0 else ramp_caps(load.batch_size, load.max_tokens)[i]
        category = load.categories[key % len(load.categories)]
        request = SimRequest(i, load.n_prompt, cap, category, load.temperature, ignore_eos=load.ignore_eos, prompt_key=key)
        found.append((request, _row(request, "main" if main >= 0 else "ramp", max(main, 0) // prompts)))
    return found


def _row(request: SimRequest, phase: Phase, pass_index: int) -> RequestTrace:
    name = f"p{request.prompt_key}"
    return RequestTrace(
        index=request.request_id,
        prompt_id=name,
        conversation_id=name,
        turn=0,
        category=request.category,
        phase=phase,
        pass_index=pass_index,
        n_prompt=request.n_prompt,
        max_tokens=request.max_tokens,
        actor=0,
        slot=0,
        t_send_ns=0,
        t_end_ns=0,
        connect_ns=0,
        attempts=1,
        ended="complete",
        read=Turn(outcome="ok", status=200, step_state="exact", n_prompt_server=request.n_prompt, n_completion_server=0),
    )


def _record(row: RequestTrace, emission: Emission, now: int) -> None:
    turn = row.read
    turn.chunk_t_ns.append(now)
    turn.chunk_tokens.append(emission.tokens)
    turn.step_t_ns.append(now)
    turn.step_tokens.append(emission.tokens)
    turn.step_drafted.append(emission.drafted)
    turn.step_accepted.append(emission.accepted)
    turn.step_coalesced.append(False)
    turn.n_completion_server = (turn.n_completion_server or 0) + emission.tokens
    if emission.finish:
        turn.finish_reason, turn.last_cut = emission.finish, emission.tokens < emission.accepted + 1
        row.t_end_ns = now


def _ns(seconds: float) -> int:
    return START_NS + round(seconds * 1e9)


def _counters(engine: SimEngine) -> EngineCounters:
    c = engine.counters
    return EngineCounters(
        drafts=float(c.drafts),
        draft_tokens=float(c.draft_tokens),
        accepted_tokens=float(c.accepted_tokens),
        accepted_per_pos=tuple(float(n) for n in c.accepted_per_pos),
        prompt_tokens=float(c.prompt_tokens),
        cached_prompt_tokens=float(c.cached_prompt_tokens),
        generation_tokens=float(c.generation_tokens),
        preemptions=float(c.preemptions),
    )


def _report(slots: int, queue_empty_s: float, wall_s: float) -> ActorReport:
    return ActorReport(
        actor=0,
        host="virtual",
        pid=1,
        slots=slots,
        t_start_ns=START_NS,
        t_queue_empty_ns=_ns(queue_empty_s),
        wall_s=wall_s,
        cpu_s=0.01 * wall_s,
        lag_ms_p50=0.001,
        lag_ms_p99=0.002,
        lag_ms_max=0.01,
        lag_samples=1000,
        connections=slots,
        retries=0,
    )
