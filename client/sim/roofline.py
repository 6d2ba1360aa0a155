"""How long one lockstep step of the whole batch lasts: the longer of memory traffic and arithmetic, plus what overlaps with neither.

* Memory: the weights once per step, of routed experts only the share that the step's tokens touch; the KV cache of every request once,
  however many of its tokens are verified. That is why verifying drafts is nearly free for a small batch of a dense model and is not for a
  mixture of experts, where each further token touches further experts.
* Arithmetic: every verified or prefilled token, rejected drafts included, and attention over its context. That is why long drafts lose at
  large batch sizes.
* Overhead: a fixed part, and one by token for what scales with tokens and hides behind nothing (routing, logits, rejection sampling).
* Drafting comes on top, pass after pass: a chain drafter runs once per draft token, each pass with weights, KV and overhead of its own.

Efficiencies are shares of the hardware's peak that are reached; they and the overheads are what a preset fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specsweep.client.sim.settings import ModelError, Section, number


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one step has to do, summed over the batch. Everything counts tokens, but for requests and passes."""

    decode_requests: int = 0
    verified_tokens: int = 0  # of decoding requests: each its last token and its drafts
    context_tokens: int = 0  # KV entries read for decoding requests
    attended_pairs: int = 0  # decoding query tokens × their contexts
    prefill_tokens: int = 0
    prefill_context_tokens: int = 0  # KV entries read for prefill chunks
    prefill_pairs: int = 0  # prefill query tokens × their contexts
    draft_passes: int = 0  # one after the other, each for the whole batch
    drafting_requests: int = 0
    sampling_requests: int = 0  # of the drafting ones: at a temperature above 0
    expert_share: float = 1.0  # of the experts that the step's tokens choose from


@dataclass(frozen=True, slots=True)
class Hardware:
    """Of all GPUs together. ``bandwidth``: bytes/s, ``compute``: FLOP/s, both at peak."""

    name: str
    gpus: int
    bandwidth: float
    compute: float


@dataclass(frozen=True, slots=True)
class Target:
    """Bytes, FLOPs and seconds."""

    weights: float  # read by every step
    kv_per_token: float
    flops_per_token: float
    experts: float = 0.0  # bytes of all routed experts
    expert_count: int = 0  # of a layer
    experts_per_token: int = 0
    routing_reuse: float = 0.0  # share of a draft token's experts that its request's tokens before it in the step need anyway
    flops_per_pair: float = 0.0  # attention of one query token to one context token, all layers
    bandwidth_efficiency: float = 1.0
    kv_efficiency: float = 1.0
    compute_efficiency: float = 1.0  # of the few tokens that decoding brings, spread over many experts
    prefill_efficiency: float = 1.0  # of the large matrices of a prefill
    overhead: float = 0.0
    overhead_per_token: float = 0.0
    overhead_per_request: float = 0.0
    expert_share: Mapping[str, float] = field(
        default_factory=dict
    )  # of a category's tokens: the share of the experts that they choose from

    def touched(self, work: StepWork) -> float:
        """The share of the routed experts that a step's tokens need: uniform routing, independent but for ``routing_reuse``."""
        if not self.expert_count:
            return 0.0
        drafts = work.verified_tokens - work.decode_requests
        tokens = work.decode_requests + drafts * (1.0 - self.routing_reuse) + work.prefill_tokens
        count = max(self.expert_count * work.expert_share, self.experts_per_token)
        return float(1.0 - (1.0 - self.experts_per_token / count) ** tokens) * count / self.expert_count


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Of one draft pass over the batch; zero for drafters that need no model. Bytes, FLOPs and seconds."""

    weights: float = 0.0
    kv_per_token: float = 0.0
    flops_per_token: float = 0.0
    kv_efficiency: float = 1.0
    pass_overhead: float = 0.0
    sampling_overhead: float = 0.0  # of every step that drafts at a temperature above 0: rejection sampling over whole distributions
    step_overhead: float = 0.0  # of every step that has anybody to draft for, e.g. a look-up on the host
    passes_per_step: int | None = None  # None: one per draft token


def step_seconds(work: StepWork, hardware: Hardware, target: Target, draft: DraftCost) -> float:
    """Seconds of one step. A step of no tokens takes none."""
    tokens = work.verified_tokens + work.prefill_tokens
    if not tokens:
        return 0.0
    weights = target.weights + target.experts * target.touched(work)
    context = work.context_tokens + work.prefill_context_tokens
    memory = weights / target.bandwidth_efficiency + context * target.kv_per_token / target.kv_efficiency
    decode_flops = work.verified_tokens * target.flops_per_token + work.attended_pairs * target.flops_per_pair
    prefill_flops = work.prefill_tokens * target.flops_per_token + work.prefill_pairs * target.flops_per_pair
    arithmetic = (decode_flops / target.compute_efficiency + prefill_flops / target.prefill_efficiency) / hardware.compute
    body = max(memory / hardware.bandwidth, arithmetic)
    overhead = target.overhead + target.overhead_per_token * work.verified_tokens + target.overhead_per_request * work.decode_requests
    return body + overhead + _draft_seconds(work, hardware, target, draft)


def _draft_seconds(work: StepWork, hardware: Hardware, target: Target, draft: DraftCost) -> float:
    """The drafter also reads every prompt: its prefill is arithmetic, beside the passes."""
    seconds = work.prefill_tokens * draft.flops_per_token / (hardware.compute * target.prefill_efficiency)
    if not work.drafting_requests:
        return seconds
    memory = draft.weights / target.bandwidth_efficiency + work.context_tokens * draft.kv_per_token / draft.kv_efficiency
    arithmetic = work.drafting_requests * draft.flops_per_token / (hardware.compute * target.compute_efficiency)
    one_pass = max(memory / hardware.bandwidth, arithmetic) + draft.pass_overhead
    seconds += draft.sampling_overhead if work.sampling_requests else 0.0
    return seconds + draft.step_overhead + work.draft_passes * one_pass


def read_hardware(section: Section) -> Hardware:
    gpus = section.integer("gpus", low=1)
    found = Hardware(
        name=section.text("name"),
        gpus=gpus,
        bandwidth=gpus * section.number("bandwidth_gb_s", above=True) * 1e9,
        compute=gpus * section.number("tflops", above=True) * 1e12,
    )
    section.finish()
    return found


def read_target(section: Section) -> Target:
    count, per_token = section.integer("expert_count", 0), section.integer("experts_per_token", 0)
    experts = section.number("experts_gb", 0.0)
    if per_token > count or (experts > 0) != (per_token > 0):
        raise ModelError(
            f"{section.path}: experts_gb={experts:g}, expert_count={count}, experts_per_token={per_token} do not fit together: "
            "a mixture of experts gives all three with experts_per_token at most expert_count, a dense model none"
        )
    found = Target(
        weights=section.number("weights_gb") * 1e9,
        kv_per_token=section.number("kv_bytes_per_token"),
        flops_per_token=section.number("gflop_per_token") * 1e9,
        experts=experts * 1e9,
        expert_count=count,
        experts_per_token=per_token,
        routing_reuse=section.number("routing_reuse", 0.0, high=1),
        flops_per_pair=section.number("mflop_per_pair", 0.0) * 1e6,
        bandwidth_efficiency=section.number("bandwidth_efficiency", 1.0, above=True, high=1),
        kv_efficiency=section.number("kv_efficiency", 1.0, above=True, high=1),
        compute_efficiency=section.number("compute_efficiency", 1.0, above=True, high=1),
        prefill_efficiency=section.number("prefill_efficiency", 1.0, above=True, high=1),
        overhead=section.number("overhead_ms", 0.0) / 1e3,
        overhead_per_token=section.number("overhead_us_per_token", 0.0) / 1e6,
        overhead_per_request=section.number("overhead_us_per_request", 0.0) / 1e6,
        expert_share={
            str(c): number(v, f"{section.name_of('expert_share')}.{c}", above=True, high=1)
            for c, v in section.entries("expert_share", {}).items()
        },
    )
    section.finish()
    return found


def read_draft_cost(section: Section) -> DraftCost:
    passes = section.raw("passes_per_step", None)
    if passes is not None and (not isinstance(passes, int) or isinstance(passes, bool) or passes < 0):
        raise ModelError(f"{section.name_of('passes_per_step')}={passes!r}: expected a whole number of at least 0, or nothing")
    return DraftCost(
        weights=section.number("weights_gb", 0.0) * 1e9,
        kv_per_token=section.number("kv_bytes_per_token", 0.0),
        flops_per_token=section.number("gflop_per_token", 0.0) * 1e9,
        kv_efficiency=section.number("kv_efficiency", 1.0, above=True, high=1),
        pass_overhead=section.number("pass_overhead_ms", 0.0) / 1e3,
        sampling_overhead=section.number("sampling_overhead_ms", 0.0) / 1e3,
        step_overhead=section.number("step_overhead_ms", 0.0) / 1e3,
        passes_per_step=passes,
    )
