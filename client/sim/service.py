"""The simulated engine in real time: requests in, events out at each step's end, with the truth of both written down.

Everything between the socket and the engine lives here, and neither of them is known: a connection is a :class:`Sink`, time is a function
and a :class:`Timer`. So an hour of service can be played in a test in milliseconds.

A step begins where the one before was planned to end, not where the server got round to it, so that the server's own lag does not
add to the simulated step times. Only a lag of more than a whole step is given up: the engine would otherwise race to catch up.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from specsweep.client.sim.engine import Emission, SimEngine, SimRequest
from specsweep.client.sim.service_settings import ServiceSettings
from specsweep.client.sim.troubles import Plan
from specsweep.client.sim.truth import TrueChunk, TrueRequest, TrueStep, TruthLog, prompt_key
from specsweep.client.sim.wire import Answer, Counts, Part, Refusal, WireRequest

SLICE = 16  # chunks that leave between two looks at the sockets: below a millisecond
LOG_MARGIN_NS = 3_000_000  # before the end of a step nothing is written to the truth log: the chunks of the step come first


class Sink(Protocol):
    """Where one answer goes. Nothing may be called after ``end`` or ``abort``."""

    def refuse(self, refusal: Refusal) -> None: ...

    def open(self, *, stream: bool) -> None:
        """The head of a stream."""
        ...

    def send(self, events: list[bytes], *, last: bool) -> None:
        """All events of one step in one write; ``last``: and the end of the answer."""
        ...

    def abort(self, *, orderly: bool) -> None:
        """Ends the connection in the middle; ``orderly``: what was written still arrives."""
        ...


class Timer(Protocol):
    def at(self, t_ns: int) -> None: ...


@dataclass(slots=True)
class _Stream:
    answer: Answer
    sink: Sink
    plan: Plan
    truth: TrueRequest
    held: list[Part] = field(default_factory=list)
    opened: bool = False
    tokens: int = 0  # that left the engine


class Service:
    """``died`` is called when a trouble kills the engine: with True the whole process goes at once, with False the server outlives it.

    ``soon``: a loop's ``call_soon``; without it a step leaves in one go.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        *,
        timer: Callable[[Callable[[], None]], Timer],
        clock_ns: Callable[[], int],
        unix_ns: int,
        log: TruthLog,
        categories: Mapping[str, str] | None = None,
        length_ratios: Mapping[str, float] | None = None,
        died: Callable[[bool], None],
        soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.settings, self.wire = settings, settings.wire()
        self.engine: SimEngine = settings.engine()
        self.recorder = settings.recorder()
        self.dead = False
        self._troubles = settings.troubles
        self._timer = timer(self._end_step)
        self._clock_ns, self._unix_ns = clock_ns, unix_ns  # Unix time at the clock's zero
        self._log = log
        self._categories = dict(categories or {})
        self._length_ratios = dict(length_ratios or {})  # prompt key → tokens as the model counts them, for each that is served
        self._died = died
        self._soon = soon
        self._leaving: deque[Emission] = deque()  # of the step that has ended
        self._streams: dict[int, _Stream] = {}
        self._unstarted: list[_Stream] = []
        self._slots = list(range(settings.limits.max_batch))
        self._arrived = 0
        self._busy = False
        self._planned_ns = 0
        self._step_ns = 0
        self._random = random.Random(f"{settings.seed}:merge")
        self._decodes = self._finished = self._aborted = self._longest = 0
        self._prompt_s = self._decode_s = 0.0

    # --- requests --------------------------------------------------------------------------------------------------------------

    def accept(self, body: bytes, sink: Sink) -> int | None:
        """Takes one request. Returns its number, or None if it was refused and is done with."""
        limit = self._troubles.overload_limit
        refusal = self.wire.dead() if self.dead else self.wire.overloaded() if limit and len(self._streams) >= limit else None
        asked = self.wire.parse(body) if refusal is None else refusal
        if isinstance(asked, Refusal):
            sink.refuse(asked)
            return None
        ordinal, self._arrived = self._arrived, self._arrived + 1
        now_ns = self._clock_ns()
        stream = self._stream(asked, ordinal, sink, now_ns)
        self._streams[ordinal] = stream
        self._unstarted.append(stream)
        if self.wire.early_head:
            self._open(stream)
        answer = stream.answer
        self.engine.submit(
            SimRequest(
                request_id=ordinal,
                n_prompt=asked.n_prompt,
                max_tokens=asked.max_tokens,
                category=stream.truth.category,
                temperature=asked.temperature,
                n_cached=answer.n_cached,
                ignore_eos=asked.ignore_eos,
                prompt_key=answer.seed if asked.prompt else None,
                isl=max(1, round(asked.n_prompt * self._length_ratios.get(stream.truth.key, 1.0))),
            ),
            now_ns / 1e9,
        )
        if not self._busy:
            self._begin_step(now_ns)
        return ordinal

    def abandon(self, ordinal: int) -> None:
        """The client of a request has gone."""
        stream = self._streams.get(ordinal)
        if stream is not None:
            self._aborted += 1
            self._forget(stream, "aborted")

    def _stream(self, asked: WireRequest, ordinal: int, sink: Sink, now_ns: int) -> _Stream:
        key = prompt_key(asked.prompt) if asked.prompt else ""
        known = key in self._categories or not self._categories  # warm-up prompts are not, and a warm-up that fails would end the session
        plan = self._troubles.plan(ordinal, asked.max_tokens, self.settings.seed) if known else Plan()
        seed = int(key, 16) if key else ordinal
        answer = Answer(
            request=asked,
            request_id=_request_id(self.settings.dialect, self.settings.seed, ordinal),
            seed=seed,
            arrived_s=self._unix_s(now_ns),
            n_prompt=asked.n_prompt + plan.extra_prompt,
            n_cached=int(asked.n_prompt * plan.cached),
            lost_at=plan.lost_at,
        )
        category = self._categories.get(key, "")
        return _Stream(answer, sink, plan, TrueRequest(ordinal, answer.request_id, key, category, asked.n_prompt, now_ns))

    # --- steps -----------------------------------------------------------------------------------------------------------------

    def _begin_step(self, start_ns: int) -> None:
        end_s = self.engine.begin_step(0.0)
        self._busy = end_s is not None
        if end_s is None:
            self._log.flush()
            return
        while len(self._unstarted) > self.engine.counters.waiting:
            started = self._unstarted.pop(0)
            started.answer.started_s = self._unix_s(start_ns)
            started.answer.slot = self._slots.pop() if self._slots else 0
        self._step_ns = round(end_s / self.settings.speedup * 1e9)
        self._planned_ns = start_ns + self._step_ns
        self._timer.at(self._planned_ns)
        self._log.drain(self._planned_ns - LOG_MARGIN_NS, self._clock_ns)

    def _end_step(self) -> None:
        if self.recorder is not None:
            self.recorder.step(self.engine.step, self.engine.tokens_by_expert_share)
        self._leaving.extend(self.engine.end_step())
        self._leave_some()

    def _leave_some(self) -> None:
        """Chunks of the step in slices, with a look at the sockets between them: else requests wait there until the last chunk is written."""
        planned_ns = self._planned_ns
        end_s = self._unix_s(planned_ns)
        for _ in range(len(self._leaving) if self._soon is None else min(SLICE, len(self._leaving))):
            emission = self._leaving.popleft()
            stream = self._streams.get(emission.request_id)
            if stream is not None:
                self._leave(stream, emission, end_s, planned_ns)
        if self._leaving and self._soon is not None:
            self._soon(self._leave_some)
            return
        if self._kill():
            return
        now_ns = self._clock_ns()
        self._begin_step(planned_ns if now_ns - planned_ns < self._step_ns else now_ns)

    def _kill(self) -> bool:
        troubles, step = self._troubles, self.engine.step
        if troubles.dies_after_steps and step >= troubles.dies_after_steps:
            self._log.flush()
            self._died(True)
            return True
        if troubles.fails_after_steps and step >= troubles.fails_after_steps:
            self.dead = True
            for stream in tuple(self._streams.values()):
                self._fail(stream)
            self._log.flush()
            self._died(False)
            return True
        return False

    def _leave(self, stream: _Stream, emission: Emission, end_s: float, planned_ns: int) -> None:
        """One request's share of the step that just ended, merged with what was held back."""
        tokens, plan = emission.tokens, stream.plan
        if plan.ends_after is not None and (emission.finish or stream.tokens + tokens >= plan.ends_after):
            self._end_badly(stream)
            return
        stream.tokens += tokens
        self._decodes += not (emission.first or emission.resumed)
        stream.truth.steps.append(TrueStep(emission.step, tokens, emission.drafted, emission.accepted))
        stream.held.append(Part(tokens, emission.drafted, emission.accepted, end_s, emission.resumed))
        if not emission.finish and not emission.first and self._holds(stream):
            return
        parts, stream.held = stream.held, []
        events = self.wire.chunk(stream.answer, parts, emission.finish)
        if emission.finish:
            events += self.wire.finish(stream.answer, emission.finish)
        if not stream.opened:
            self._open(stream)
        now_ns = self._clock_ns()
        if events:
            stream.sink.send(events, last=bool(emission.finish))
        left = sum(part.tokens for part in parts)
        stream.truth.chunks.append(TrueChunk(now_ns, left, len(parts), now_ns - planned_ns))
        if emission.finish:
            self._finished += 1
            self._forget(stream, emission.finish)

    def _holds(self, stream: _Stream) -> bool:
        interval, unit = self._troubles.stream_interval, self.wire.interval_unit
        if interval > 1:
            waiting = len(stream.held) if unit == "steps" else sum(part.tokens for part in stream.held)
            if waiting < interval:
                return True
        return bool(self._troubles.merge_share) and self._random.random() < self._troubles.merge_share

    def _end_badly(self, stream: _Stream) -> None:
        if stream.plan.ending == "error":
            self._fail(stream)
            return
        if stream.plan.ending == "cut":
            stream.sink.abort(orderly=False)
        self._forget(stream, stream.plan.ending)  # a stall: the sink is left as it is

    def _fail(self, stream: _Stream) -> None:
        events = self.wire.fail("")
        if events is None:
            stream.sink.abort(orderly=True)
        else:
            if not stream.opened:
                self._open(stream)
            stream.sink.send(events, last=True)
        self._forget(stream, "error")

    def _open(self, stream: _Stream) -> None:
        stream.opened = True
        stream.sink.open(stream=stream.answer.request.stream)

    def _forget(self, stream: _Stream, finish: str) -> None:
        truth, answer = stream.truth, stream.answer
        if finish not in ("length", "stop"):
            self.engine.abort(truth.ordinal)
        truth.finish = finish
        self._log.add(truth)
        del self._streams[truth.ordinal]
        if answer.started_s:
            self._slots.append(answer.slot)
            if answer.first_s:
                self._prompt_s += answer.first_s - answer.started_s
                self._decode_s += answer.newest_s - answer.first_s
        elif stream in self._unstarted:
            self._unstarted.remove(stream)
        self._longest = max(self._longest, answer.request.n_prompt + answer.sent)

    # --- what it says of itself ------------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        c = self.engine.counters
        more = 1 + self._troubles.wrong_counters
        return Counts(
            drafts=c.drafts,
            draft_tokens=c.draft_tokens,
            accepted_tokens=round(c.accepted_tokens * more),
            accepted_per_pos=[round(n * more) for n in c.accepted_per_pos],
            prompt_tokens=c.prompt_tokens,
            cached_prompt_tokens=c.cached_prompt_tokens,
            generation_tokens=c.generation_tokens,
            preemptions=c.preemptions,
            running=c.running,
            waiting=c.waiting,
            steps=self.engine.step,
            decodes=self._decodes,
            prompt_s=self._prompt_s,
            decode_s=self._decode_s,
            longest=self._longest,
            finished=self._finished,
            aborted=self._aborted,
        )

    def about(self) -> dict[str, object]:
        """What no engine says: that this is none, and what it was made of."""
        served, model = self.settings.served, self.engine.model
        return {
            "simulated": True,
            "dialect": self.settings.dialect,
            "model": model.name,
            "drafter": served.drafter,
            "draft_length": served.draft_length,
            "fit": dict(model.fit),
            "speedup": self.settings.speedup,
            "seed": self.settings.seed,
            **({"counter": True} if self.settings.counter else {}),
            **({"experts_per_token": model.target.experts_per_token} if self.recorder is not None else {}),
        }

    def _unix_s(self, clock_ns: int) -> float:
        return (clock_ns + self._unix_ns) / 1e9


def _request_id(dialect: str, seed: int, ordinal: int) -> str:
    number = random.Random(f"{seed}:id:{ordinal}").getrandbits(128)
    return f"{number:032x}" if dialect == "sglang" else f"cmpl-{number & 0xFFFFFFFFFFFFFFFF:016x}"
