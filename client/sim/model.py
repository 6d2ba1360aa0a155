"""The truth of a simulation: one target with one drafter on one kind of hardware, read from a small YAML.

A file describes a target and all drafters that go with it, so that the arms of a comparison share everything but the drafter; a
:class:`SimModel` is one arm of it. Presets of targets that were published about come with the package (:func:`presets`); they state in
``fit`` what they were fitted to and how badly, and what was assumed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from specsweep.client.sim.acceptance import Acceptance, acceptance_length, read_acceptance
from specsweep.client.sim.bend import bent
from specsweep.client.sim.roofline import DraftCost, Hardware, StepWork, Target, read_draft_cost, read_hardware, read_target, step_seconds
from specsweep.client.sim.settings import ModelError, Section, number

__all__ = ["Answers", "Jitter", "ModelError", "SimModel", "StepWork", "load_model", "presets"]

NO_DRAFTER = "none"
NO_COST = DraftCost()
PRESET_FOLDER = Path(__file__).with_name("presets")


@dataclass(frozen=True, slots=True)
class Jitter:
    """Step times vary log-normally about their model value, neighbours alike: correlation falls to 1/e over ``steps`` steps."""

    sd: float = 0.0  # of the logarithm; the mean factor is 1
    steps: float = 5.0

    def factors(self, rng: random.Random) -> Jittering:
        return Jittering(self, rng)


class Jittering:
    def __init__(self, jitter: Jitter, rng: random.Random) -> None:
        self._sd, self._rng = jitter.sd, rng
        self._memory = math.exp(-1 / jitter.steps) if jitter.steps > 0 else 0.0
        self._mood = rng.gauss(0, 1)

    def next(self) -> float:
        if not self._sd:
            return 1.0
        self._mood = self._memory * self._mood + math.sqrt(1 - self._memory**2) * self._rng.gauss(0, 1)
        return math.exp(self._sd * self._mood - self._sd**2 / 2)


@dataclass(frozen=True, slots=True)
class Answers:
    """Where answers end by themselves, for requests that do not ignore EOS: log-normal lengths in tokens, at least 1."""

    median_tokens: float = 0.0  # 0: never
    spread: float = 0.0

    def draw(self, rng: random.Random) -> int | None:
        if not self.median_tokens:
            return None
        return max(1, round(self.median_tokens * math.exp(self.spread * rng.gauss(0, 1))))


@dataclass(frozen=True, slots=True)
class SimModel:
    """One arm: all that the engine needs to know of target, drafter and hardware."""

    name: str
    drafter: str
    hardware: Hardware
    target: Target
    acceptance: Acceptance | None  # None: no drafter
    draft: DraftCost = NO_COST
    jitter: Jitter = Jitter()
    answers: Answers = Answers()
    fit: Mapping[str, Any] = field(default_factory=dict)
    step_factor: float = 1.0  # of the engine whose wire is spoken

    def rates(self, category: str, isl: int, temperature: float = 0.0, ease: float = 0.0, draft_length: int = 0) -> tuple[float, ...]:
        """Conditional acceptance rates by position (the last repeats); empty without a drafter. ``ease``: of the prompt, standard normal."""
        return self.acceptance.rates(category, isl, temperature, ease, draft_length) if self.acceptance else ()

    def draft_probability(self, category: str) -> float:
        return self.acceptance.draft_probability(category) if self.acceptance else 0.0

    def acceptance_length(self, category: str, isl: int, draft_length: int, temperature: float = 0.0) -> float:
        """Expected tokens of an uncut decode step of a prompt of middling ease, the target's own token included."""
        if self.acceptance is None:
            return 1.0
        return acceptance_length(self.rates(category, isl, temperature, 0.0, draft_length), draft_length, self.draft_probability(category))

    def draft_passes(self, draft_length: int) -> int:
        """Draft passes of one step, each over the whole batch."""
        if self.acceptance is None:
            return 0
        return draft_length if self.draft.passes_per_step is None else self.draft.passes_per_step

    def step_s(self, work: StepWork) -> float:
        """Seconds that one step lasts, without jitter."""
        return self.step_factor * step_seconds(work, self.hardware, self.target, self.draft)

    def decode_step_s(self, batch_size: int, context: int, draft_length: int = 0, category: str = "", temperature: float = 0.0) -> float:
        """Expected seconds of a step in which ``batch_size`` requests of ``context`` tokens each decode and none is prefilled."""
        drafted = round(batch_size * self.draft_probability(category)) if draft_length else 0
        verified = batch_size + drafted * draft_length
        drafting = batch_size if self.acceptance and draft_length else 0
        return self.step_s(
            StepWork(
                decode_requests=batch_size,
                verified_tokens=verified,
                context_tokens=batch_size * context,
                attended_pairs=verified * context,
                draft_passes=self.draft_passes(draft_length),
                drafting_requests=drafting,
                sampling_requests=drafting if temperature else 0,
                expert_share=self.target.expert_share.get(category, 1.0),
            )
        )


def presets() -> list[str]:
    """The names that :func:`load_model` knows."""
    return sorted(path.stem for path in PRESET_FOLDER.glob("*.yaml"))


def load_model(
    source: str | Path | Mapping[str, Any],
    drafter: str = NO_DRAFTER,
    *,
    topk: int | None = None,
    dialect: str = "",
    counter: bool = False,
) -> SimModel:
    """One arm of a model: a preset's name, the path of a YAML file, or its content.

    ``topk``: candidates of a tree at each position (None or 1: a chain). ``dialect``: the engine that is spoken for, where the file says
    how they differ. ``counter``: the model with every effect turned round (:mod:`specsweep.client.sim.bend`).

    Raises :class:`ModelError` for a file that cannot be read, a field that is missing, unknown or out of range, and for a drafter that the
    model does not describe.
    """
    content, label = _content(source)
    try:
        plain = _with_bases(content)
        found = _model(bent(plain) if counter else plain, drafter, dialect)
        if topk is not None and topk > 1 and found.acceptance is not None:
            found = replace(found, acceptance=found.acceptance.widened(topk))
        return found
    except ModelError as error:
        raise ModelError(f"{label}: {error}") from None


def _content(source: str | Path | Mapping[str, Any]) -> tuple[object, str]:
    if isinstance(source, Mapping):
        return source, "model"
    path = PRESET_FOLDER / f"{source}.yaml" if str(source) in presets() else Path(source)
    try:
        return _parsed(path.read_text("utf-8")), f"model {source}"
    except OSError as error:
        known = ", ".join(presets())
        raise ModelError(
            f"model={str(source)!r} is neither a preset ({known}) nor a file that can be read: {error.strerror or error}"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ModelError(f"model={str(source)!r} is not YAML: {error}") from None


@lru_cache(maxsize=32)
def _parsed(text: str) -> object:
    """A plan asks for the same few models at each of its points. What is returned is only read."""
    return yaml.safe_load(text)


def has_drafter(source: str | Path | Mapping[str, Any], drafter: str) -> bool:
    """Whether a model describes a drafter of this name. Raises :class:`ModelError` for a file that cannot be read."""
    content, _ = _content(source)
    drafters = content.get("drafters") if isinstance(content, Mapping) else None
    return isinstance(drafters, Mapping) and drafter in drafters


def _with_bases(content: object) -> object:
    """Every drafter with the fields of the one that it is ``like``: mappings merge, everything else is replaced."""
    drafters = content.get("drafters") if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not isinstance(drafters, Mapping):
        return content
    full: dict[Any, Any] = {}
    for name, fields in drafters.items():
        if not isinstance(fields, Mapping) or "like" not in fields:
            full[name] = fields
            continue
        base = drafters.get(fields["like"])
        if not isinstance(base, Mapping) or "like" in base:
            raise ModelError(f"drafters.{name}.like={fields['like']!r}: expected a drafter of the file that is described in full")
        own = {key: value for key, value in fields.items() if key != "like"}
        full[name] = {**base, **{key: _merged(base.get(key), value) for key, value in own.items()}}
    return {**content, "drafters": full}


def _merged(old: object, new: object) -> object:
    named = isinstance(old, Mapping) and isinstance(new, Mapping) and all(isinstance(key, str) for key in (*old, *new))
    return {**old, **new} if named else new  # type: ignore[dict-item]  # knots over a number are one value, not a mapping of names


def _model(content: object, drafter: str, dialect: str) -> SimModel:
    file = Section(content, "")
    name = file.text("name")
    file.text("about", "")
    hardware, target = read_hardware(file.section("hardware")), read_target(file.section("target"))
    factors = {str(d): number(f, f"engine_factor.{d}", above=True, high=10) for d, f in file.entries("engine_factor", {}).items()}
    jitter, answers = file.section("jitter", {}), file.section("answers", {})
    drafters, fit = file.entries("drafters", {}), file.entries("fit", {})
    file.finish()
    arms = {str(d): _drafter(Section(v, f"drafters.{d}")) for d, v in drafters.items()}  # all are checked, whichever is asked for
    if drafter != NO_DRAFTER and drafter not in arms:
        known = ", ".join([NO_DRAFTER, *sorted(arms)])
        raise ModelError(f"drafter={drafter!r} is not described for {name}; it has {known}: choose one, or add it under drafters")
    found = SimModel(
        name=name,
        drafter=drafter,
        hardware=hardware,
        target=target,
        acceptance=None,
        jitter=Jitter(jitter.number("sd", 0.0, high=2), jitter.number("steps", 5.0)),
        answers=Answers(answers.number("median_tokens", 0.0), answers.number("spread", 0.0, high=3)),
        fit=fit,
        step_factor=factors.get(dialect, 1.0),
    )
    jitter.finish()
    answers.finish()
    return found if drafter == NO_DRAFTER else replace(found, acceptance=arms[drafter][0], draft=arms[drafter][1])


def _drafter(section: Section) -> tuple[Acceptance, DraftCost]:
    found = read_acceptance(section), read_draft_cost(section)
    section.finish()
    return found
