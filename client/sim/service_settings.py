"""What a simulated server is started with: one JSON object, read with complaints that name the field."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.client.sim.engine import Limits, SimEngine
from specsweep.client.sim.model import NO_DRAFTER, SimModel, load_model
from specsweep.client.sim.settings import ModelError, Section
from specsweep.client.sim.troubles import Troubles, read_troubles
from specsweep.client.sim.wire import WIRES, Served, Wire, wire

if TYPE_CHECKING:
    from specsweep.client.sim.routing import Recorder

VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23", "trtllm": "1.2.0", "llamacpp": "b11434-simulated"}
STEP_TRUTH = ("detailed", "summary", "none")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """``speedup``: how much faster than the model the simulated time runs. ``prompts``: a file of prompt key → category."""

    served: Served
    model: str | Mapping[str, Any]
    dialect: str
    limits: Limits
    troubles: Troubles
    seed: int = 0
    speedup: float = 1.0
    head: str = ""
    topk: int | None = None
    counter: bool = False  # every effect of the model turned round
    prompts: Path | None = None
    truth_log: Path | None = None
    expert_layers: int = 0  # whose routing the recorder records; 0: it was not asked for
    expert_folder: Path = Path()  # where it writes

    def wire(self) -> Wire:
        return wire(self.dialect, self.served)

    def arm(self) -> SimModel:
        """The model of target and drafter. ``head`` names the drafter in the model's file; its method else."""
        return load_model(self.model, self.head or self.served.drafter, topk=self.topk, dialect=self.dialect, counter=self.counter)

    def engine(self) -> SimEngine:
        served = self.served
        return SimEngine(
            self.arm(),
            draft_length=served.draft_length,
            limits=self.limits,
            seed=self.seed,
            trim_last_draft=self.wire().trims_last_draft,
        )

    def recorder(self) -> Recorder | None:
        """SGLang's expert recorder, if it was asked for. Raises :class:`ModelError` for a model without experts."""
        if not self.expert_layers:
            return None
        target = self.arm().target
        if not target.expert_count:
            raise ModelError(f"expert_layers={self.expert_layers}: the model is dense; take one whose target has an expert_count")
        from specsweep.client.sim.routing import Mixture, Recorder  # with NumPy, which a plan does without

        return Recorder(Mixture(self.expert_layers, target.expert_count, target.experts_per_token), self.expert_folder, seed=self.seed)


def read_service(value: Mapping[str, Any], *, folder: Path = Path()) -> ServiceSettings:
    """``folder``: where relative paths begin.

    Raises :class:`~specsweep.client.sim.settings.ModelError` for a field that is missing, unknown or makes no sense."""
    section = Section(value, "")
    dialect = section.text("dialect", "vllm")
    if dialect not in WIRES:
        raise ModelError(f"dialect={dialect!r}: the simulator speaks {', '.join(WIRES)}")
    truth = section.text("step_truth", "detailed")
    if truth not in STEP_TRUTH:
        raise ModelError(f"step_truth={truth!r}: expected one of {', '.join(STEP_TRUTH)}")
    drafter, length = section.text("drafter", NO_DRAFTER), section.integer("draft_length", 0)
    max_batch, max_model_len = section.integer("max_batch", 256, low=1), section.integer("max_model_len", 8192, low=2)
    kv_tokens = section.raw("kv_tokens", None)
    if kv_tokens is not None and kv_tokens < max_model_len:
        raise ModelError(f"kv_tokens={kv_tokens} cannot hold one request of max_model_len={max_model_len} tokens: give at least that many")
    batched = section.raw("max_batched_tokens", None) or max(8192, max_batch * (1 + length))
    troubles = read_troubles(section.raw("troubles", None))
    if troubles.stream_interval > 1 and dialect == "llamacpp":
        raise ModelError(f"troubles.stream_interval={troubles.stream_interval}: llamacpp has no stream interval; leave it at 1")
    expert_layers = section.integer("expert_layers", 0)
    if expert_layers and dialect != "sglang":
        raise ModelError(f"expert_layers={expert_layers}: {dialect} has no recorder that can be asked over HTTP; take dialect=sglang")
    prompts, log = section.raw("prompts", None), section.raw("truth_log", None)
    found = ServiceSettings(
        served=Served(
            model=section.text("model_name", "sim"),
            version=section.raw("version", None) or VERSIONS[dialect],
            vocab_size=section.integer("vocab_size", 128_256, low=2),
            max_model_len=max_model_len,
            max_batch=max_batch,
            max_batched_tokens=batched,
            kv_tokens=kv_tokens,
            drafter=drafter,
            draft_length=length,
            step_truth=truth,
            incremental=bool(section.raw("incremental", True)),
            stream_interval=troubles.stream_interval,
            started_s=time.time(),
        ),
        model=section.raw("model", "tiny"),
        dialect=dialect,
        limits=Limits(max_batch, batched, kv_tokens),
        troubles=troubles,
        seed=section.integer("seed", 0),
        speedup=section.number("speedup", 1.0, above=True),
        head=section.text("head", ""),
        topk=section.integer("topk", 0) or None,
        counter=bool(section.raw("counter", False)),
        prompts=folder / prompts if prompts else None,
        truth_log=folder / log if log else None,
        expert_layers=expert_layers,
        expert_folder=folder / section.text("expert_folder", "routing"),
    )
    section.finish()
    return found
