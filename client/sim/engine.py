"""Continuous batching with speculative decoding, in lockstep steps: pure, without a clock, the same for the same seed.

The caller owns time. ``begin_step(now)`` decides what the batch does next and says when that ends; at that moment ``end_step()`` gives
what leaves the engine. In virtual time the caller jumps there, in real time it sleeps.

What a request accepts is drawn from a generator of its own, seeded by the engine's seed and the prompt (or the request's number). So the
acceptance of a run does not depend on how requests happened to meet in the batch, a greedy engine gives the same prompt the same steps
again, and two arms with the same prompts are paired as in reality.

Scheduling follows vLLM, whose rules the others share but for names: requests that run come first and each takes 1 + drafts of the step's
token budget; what is left goes to prefills, oldest first, in chunks. A request whose KV does not fit any more makes the youngest one give
up its cache and start over (its answer so far becomes prompt; the resumed prefill yields one undrafted token). Draft tokens are counted
before the answer is cut by its limit or EOS, as engines count them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from specsweep.client.sim.acceptance import survival
from specsweep.client.sim.model import SimModel, StepWork


@dataclass(frozen=True)
class Limits:
    """What the engine was started with. Tokens count the batch's positions of one step (``max_batched_tokens``) or its cache (``kv_tokens``)."""

    max_batch: int
    max_batched_tokens: int = 8192
    kv_tokens: int | None = None  # None: never full
    chunked_prefill: bool = True

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_batched_tokens", "kv_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value!r}: expected a whole number of at least 1")
        if self.max_batched_tokens < self.max_batch:
            raise ValueError(
                f"max_batched_tokens={self.max_batched_tokens} is below max_batch={self.max_batch}: "
                "give at least one token a step to every request"
            )


@dataclass(slots=True)
class SimRequest:
    """``n_cached``: prompt tokens that a prefix cache holds. ``prompt_key``: names the prompt; equal prompts behave alike (None: by request)."""

    request_id: int
    n_prompt: int
    max_tokens: int
    category: str = ""
    temperature: float = 0.0
    n_cached: int = 0
    ignore_eos: bool = True
    prompt_key: int | None = None
    isl: int | None = None  # the prompt's length as the model counts it, where the tokenizer that is served counts otherwise


@dataclass(frozen=True, slots=True)
class Emission:
    """What one request gets out of one step. ``drafted`` and ``accepted`` are before any cut, ``tokens`` after it."""

    request_id: int
    step: int  # the engine's step number, from 1
    tokens: int
    drafted: int = 0  # 0: an undrafted step
    accepted: int = 0
    finish: str = ""  # "length" | "stop" | "": not finished
    first: bool = False  # the token of the prefill
    resumed: bool = False  # the token of a prefill after a preemption


@dataclass(slots=True)
class SimCounters:
    """Since the engine's start. ``accepted_per_pos`` has one entry per position up to the draft length; the last two are gauges, the rest only grows."""

    drafts: int = 0  # verify steps with at least one draft token, request by request
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_pos: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    queue_s: float = 0.0  # summed over requests: from their arrival to the start of their first step
    running: int = 0
    waiting: int = 0


class _Live:
    """A request in the engine."""

    __slots__ = (
        "answer",
        "arrived",
        "cached",
        "computed",
        "emitted",
        "ends_at",
        "expert_share",
        "request",
        "rng",
        "scale",
        "share",
        "survival",
        "to_compute",
    )

    def __init__(self, request: SimRequest, arrived: float, model: SimModel, draft_length: int, seed: int) -> None:
        self.arrived: float | None = arrived  # None: it has been in a step
        key = f"r{request.request_id}" if request.prompt_key is None else f"p{request.prompt_key}"
        self.request = request
        self.rng = random.Random(f"{seed}:{key}:{request.temperature:g}")
        ease = random.Random(key).gauss(0, 1) if request.prompt_key is not None else 0.0  # of the prompt: the same under every seed
        isl = request.isl or request.n_prompt
        self.scale = isl / request.n_prompt
        self.expert_share = model.target.expert_share.get(request.category, 1.0)
        self.survival = survival(model.rates(request.category, isl, request.temperature, ease, draft_length), draft_length)
        self.share = model.draft_probability(request.category)
        own_end = None if request.ignore_eos else model.answers.draw(random.Random(f"{seed}:{key}:answer"))
        self.ends_at = own_end if own_end is not None and own_end <= request.max_tokens else None
        self.answer = request.max_tokens if self.ends_at is None else self.ends_at
        self.emitted = 0
        self.cached = min(request.n_cached, request.n_prompt - 1)
        self.computed = self.cached  # tokens whose KV is there
        self.to_compute = request.n_prompt  # what a prefill has to reach before a token leaves

    @property
    def decoding(self) -> bool:
        return self.computed >= self.to_compute

    def give_up_cache(self) -> None:
        self.computed, self.to_compute = 0, self.request.n_prompt + self.emitted


@dataclass(slots=True)
class _Share:
    """What one request does in the step that runs."""

    live: _Live
    tokens: int
    drafted: int
    decode: bool


class SimEngine:
    """``draft_length``: draft tokens per step of a chain (0: no drafter). ``trim_last_draft``: never draft past the answer's limit, as
    llama.cpp does; other engines draft in full and cut what comes out.

    Raises ``ValueError`` for a draft length that does not fit the model's drafter.
    """

    def __init__(self, model: SimModel, *, draft_length: int, limits: Limits, seed: int = 0, trim_last_draft: bool = False) -> None:
        if draft_length < 0 or (draft_length > 0) != (model.acceptance is not None):
            wanted = "0 (it has no drafter)" if model.acceptance is None else "at least 1"
            raise ValueError(f"draft_length={draft_length} with drafter {model.drafter!r} of {model.name}: expected {wanted}")
        self.model, self.limits, self.draft_length, self.seed = model, limits, draft_length, seed
        self.counters = SimCounters(accepted_per_pos=[0] * draft_length)
        self.step = 0
        self.work = StepWork()  # of the step that runs or ran last
        self._trim = trim_last_draft
        self._jitter = model.jitter.factors(random.Random(f"{seed}:jitter"))
        self._running: list[_Live] = []
        self._waiting: deque[_Live] = deque()
        self._known: set[int] = set()
        self._plan: list[_Share] | None = None

    @property
    def tokens_by_expert_share(self) -> dict[float, int]:
        """Of the step that runs: tokens, by the share of the experts that they choose from."""
        found: dict[float, int] = {}
        for share in self._plan or ():
            found[share.live.expert_share] = found.get(share.live.expert_share, 0) + share.tokens
        return found

    def submit(self, request: SimRequest, now_s: float) -> None:
        """Queues a request; it can enter with the next step. Raises ``ValueError`` for one that could never be served."""
        limits, name = self.limits, f"request {request.request_id}"
        if request.n_prompt < 1 or request.max_tokens < 1:
            raise ValueError(f"{name}: n_prompt={request.n_prompt}, max_tokens={request.max_tokens}: expected at least 1 of each")
        if request.request_id in self._known:
            raise ValueError(f"{name} is in the engine already: give every request a request_id of its own")
        length = request.n_prompt + request.max_tokens
        if limits.kv_tokens is not None and length + self.draft_length > limits.kv_tokens:
            needed = f"{length} tokens" + (f" and {self.draft_length} drafts" if self.draft_length else "")
            raise ValueError(f"{name} needs a KV cache of {needed}, the engine has kv_tokens={limits.kv_tokens}")
        if not limits.chunked_prefill and length > limits.max_batched_tokens:
            raise ValueError(f"{name}: {length} tokens are more than max_batched_tokens={limits.max_batched_tokens} and cannot be chunked")
        self._known.add(request.request_id)
        self._waiting.append(_Live(request, now_s, self.model, self.draft_length, self.seed))
        self._set_gauges()

    def abort(self, request_id: int) -> None:
        """Forgets a request, wherever it is; nothing more leaves for it. An unknown one is ignored: it may just have finished."""
        if request_id not in self._known:
            return
        self._known.remove(request_id)
        self._running = [live for live in self._running if live.request.request_id != request_id]
        self._waiting = deque(live for live in self._waiting if live.request.request_id != request_id)
        if self._plan is not None:
            self._plan = [share for share in self._plan if share.live.request.request_id != request_id]
        self._set_gauges()

    def begin_step(self, now_s: float) -> float | None:
        """Starts the next step and returns when it ends, in the seconds of ``now_s``; None if there is nothing to do."""
        if self._plan is not None:
            raise RuntimeError("begin_step before end_step of the step that runs")
        plan = self._schedule()
        if not plan:
            return None
        self._plan, self.work = plan, self._work_of(plan)
        self.step += 1
        for share in plan:
            if share.live.arrived is not None:
                self.counters.queue_s += max(now_s - share.live.arrived, 0.0)
                share.live.arrived = None
        self._set_gauges()
        return now_s + self.model.step_s(self.work) * self._jitter.next()

    def end_step(self) -> list[Emission]:
        """What leaves at the end of the step that runs, in the order of the batch. Raises ``RuntimeError`` if none does."""
        if self._plan is None:
            raise RuntimeError("end_step without begin_step")
        plan, self._plan = self._plan, None
        found = [emission for share in plan if (emission := self._advance(share)) is not None]
        done = {emission.request_id for emission in found if emission.finish}
        if done:
            self._known -= done
            self._running = [live for live in self._running if live.request.request_id not in done]
        self._set_gauges()
        return found

    # --- what a step does ------------------------------------------------------------------------------------------------------

    def _schedule(self) -> list[_Share]:
        budget, plan = self.limits.max_batched_tokens, []
        free = None if self.limits.kv_tokens is None else self.limits.kv_tokens - sum(live.computed for live in self._running)
        preempted = False
        i = 0
        while i < len(self._running) and budget > 0:
            live = self._running[i]
            share = (
                self._decode_share(live, budget) if live.decoding else _Share(live, min(live.to_compute - live.computed, budget), 0, False)
            )
            while free is not None and share.tokens > free and len(self._running) > i:
                free += self._preempt(self._running.pop())
                preempted = True
            if len(self._running) <= i:  # it was the youngest itself
                break
            free = None if free is None else free - share.tokens
            budget -= share.tokens
            plan.append(share)
            i += 1
        while self._waiting and not preempted and budget > 0 and len(self._running) < self.limits.max_batch:
            live = self._waiting[0]
            need = live.to_compute - live.computed
            if free is not None and live.to_compute + 1 > free:
                break
            if not self.limits.chunked_prefill and need > budget:
                break
            tokens = min(need, budget)
            free = None if free is None else free - live.computed - tokens
            budget -= tokens
            self._running.append(self._waiting.popleft())
            plan.append(_Share(live, tokens, 0, False))
        return plan

    def _decode_share(self, live: _Live, budget: int) -> _Share:
        drafted = self.draft_length
        if drafted and live.share < 1.0 and live.rng.random() >= live.share:
            drafted = 0
        if self._trim:
            drafted = min(drafted, live.request.max_tokens - live.emitted - 1)
        drafted = min(drafted, budget - 1)
        return _Share(live, 1 + drafted, drafted, True)

    def _preempt(self, live: _Live) -> int:
        """Takes its cache away and queues it first. Returns the tokens that came free."""
        freed = live.computed
        live.give_up_cache()
        self._waiting.appendleft(live)
        self.counters.preemptions += 1
        return freed

    def _work_of(self, plan: Iterable[_Share]) -> StepWork:
        """Prompt tokens as the model counts them."""
        requests = verified = context = pairs = prefill = prefill_context = prefill_pairs = sampling = 0
        tokens, chosen_from = 0, 0.0
        for share in plan:
            scale = share.live.scale
            reach = round((share.live.computed + share.tokens) * scale)
            tokens += share.tokens
            chosen_from += share.tokens * share.live.expert_share
            if share.decode:
                requests += 1
                verified += share.tokens
                context += reach
                pairs += share.tokens * reach
                sampling += share.live.request.temperature > 0
            else:
                new = round(share.tokens * scale)
                prefill += new
                prefill_context += reach
                prefill_pairs += new * (2 * reach - new) // 2
        drafting = requests if self.draft_length else 0
        passes = self.model.draft_passes(self.draft_length) if drafting else 0
        sampling, expert_share = (sampling if drafting else 0), (chosen_from / tokens if tokens else 1.0)
        return StepWork(
            requests, verified, context, pairs, prefill, prefill_context, prefill_pairs, passes, drafting, sampling, expert_share
        )

    def _advance(self, share: _Share) -> Emission | None:
        live = share.live
        if not share.decode:
            live.computed += share.tokens
            return self._finish_prefill(live) if live.decoding else None
        accepted = 0
        if share.drafted:
            accepted = self._verify(live, share.drafted)
        tokens = min(accepted + 1, live.answer - live.emitted)
        live.computed += accepted + 1
        return self._emit(live, tokens, share.drafted, accepted)

    def _finish_prefill(self, live: _Live) -> Emission:
        first = live.emitted == 0
        if first:
            self.counters.prompt_tokens += live.request.n_prompt
            self.counters.cached_prompt_tokens += live.cached
        return self._emit(live, 1, 0, 0, first=first, resumed=not first)

    def _verify(self, live: _Live, drafted: int) -> int:
        draw, accepted, per_position = live.rng.random(), 0, self.counters.accepted_per_pos
        while accepted < drafted and draw < live.survival[accepted]:
            per_position[accepted] += 1
            accepted += 1
        self.counters.drafts += 1
        self.counters.draft_tokens += drafted
        self.counters.accepted_tokens += accepted
        return accepted

    def _emit(self, live: _Live, tokens: int, drafted: int, accepted: int, *, first: bool = False, resumed: bool = False) -> Emission:
        live.emitted += tokens
        self.counters.generation_tokens += tokens
        finish = "" if live.emitted < live.answer else "length" if live.ends_at is None else "stop"
        return Emission(live.request.request_id, self.step, tokens, drafted, accepted, finish, first, resumed)

    def _set_gauges(self) -> None:
        self.counters.running, self.counters.waiting = len(self._running), len(self._waiting)
