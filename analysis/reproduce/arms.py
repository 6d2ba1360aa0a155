"""Which arm of the paper a measured cell is: target, kind of drafter, engine and material, in the paper's words.

A sweep names its options as it likes (``trained_2k``, ``sim_trtllm``), so who is who is read from what the point declares: the checkpoint, the
drafter's method, the engine (of a simulated one the wire that it speaks), the corpus of the prompts. What the paper does not know keeps its
own name: claims are checked on it like on any other arm, and no printed number is held against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from specsweep.analysis.attempts import Attempt, Cell, Estimate, cells, latest, varying
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.reproduce import printed

Material = Literal["qualitative", "specbench", "throughput", "random", "other"]

TIERS = ("low_entropy", "mixed", "high_entropy")
DRAFTERS = {"ngram": "N-Gram", "draft_model": "Vanilla", "eagle3": "EAGLE3", "mtp": "MTP", "none": "none"}
ENGINES = {"trtllm": "TensorRT-LLM", "vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "hf": "transformers"}
PRESETS = {
    "gpt-oss-120b": "GPT-OSS 120B",
    "llama-3.3-70b": "Llama 3.3 70B",
    "qwen3-next-80b": "Qwen3-Next",
    "qwen3-235b": "Qwen3 235B",
    "deepseek-r1": "DeepSeek R1",
}
_SHOWN = ("target", "drafter", "engine")


@dataclass(frozen=True, slots=True)
class Arm:
    """One cell of the grid with its names in the paper. ``target`` is a paper's name only if ``paper_target``."""

    cell: Cell
    target: str
    paper_target: bool
    drafter: str
    engine: str
    material: Material
    tier: str  # of throughput prompts: low_entropy, mixed, high_entropy; else empty

    @property
    def option(self) -> str:
        """The drafter as the sweep calls it: two heads of one kind differ here."""
        return str(self.cell.axes.get("drafter"))

    @property
    def draft_length(self) -> int:
        return int(self.cell.axes.get("draft_length") or 0)

    @property
    def batch_size(self) -> int:
        return self.cell.batch_size

    @property
    def isl(self) -> int:
        return int(self.cell.axes.get("isl") or 0)

    @property
    def temperature(self) -> float:
        return float(self.cell.axes.get("temperature") or 0.0)

    @property
    def baseline(self) -> bool:
        return self.drafter == "none"

    @property
    def pair(self) -> str:
        return f"{self.target} + {self.drafter}"

    def setting(self, name: str) -> Any:
        """A setting by its full name (``drafter.topk``): an axis where it is one, else what the point's config says."""
        if name in self.cell.axes:
            return self.cell.axes[name]
        found: Any = self.cell.attempts[0]["point"].get("config") or {}
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def lacking(self, aspect: str) -> str:
        """Why its numbers of that aspect are not used; empty if they are."""
        return "" if self.cell.valid(aspect) else self.cell.why_invalid(aspect)

    def estimate(self, name: str, aspect: str) -> Estimate | None:
        """A metric, None where it is not there or may not be believed."""
        return self.cell.estimate(name, aspect) if self.cell.valid(aspect) else None


def arms_of(attempts: Iterable[Attempt]) -> list[Arm]:
    """Every timed cell, in the order of ``attempts.cells``."""
    return [_arm(cell) for cell in cells(latest(attempts))]


def _arm(cell: Cell) -> Arm:
    config = cell.attempts[0]["point"].get("config") or {}
    target, of_paper = _target(cell, config)
    method = str((config.get("drafter") or {}).get("method") or cell.axes.get("drafter"))
    drafter = DRAFTERS.get(method) or next((name for kind, name in DRAFTERS.items() if method.startswith(kind)), method)
    return Arm(cell, target, of_paper, drafter, _engine(cell, config), *_material(cell, config))


@lru_cache(maxsize=1)
def _checkpoints() -> Mapping[str, str]:
    return {row.checkpoint: row.target_model for row in printed.targets()}


def _target(cell: Cell, config: Mapping[str, Any]) -> tuple[str, bool]:
    """A checkpoint names a target; a simulated engine knows it by its preset alone, and then its name has to do."""
    named = str(cell.axes.get("target"))
    target, engine = config.get("target") or {}, config.get("engine") or {}
    model = target.get("model")
    repo = str(model.get("repo") or "") if isinstance(model, Mapping) else ""
    if repo and repo in _checkpoints():
        return _checkpoints()[repo], True
    if repo and engine.get("name") != "sim":
        return named, False
    for name in (engine.get("preset"), named):
        plain = re.sub(r"^sim[-_/]|^mini[-_/]", "", str(name or "").lower().rpartition("/")[2]).replace("_", "-")
        if plain in PRESETS:
            return PRESETS[plain], True
    return named, False


def _engine(cell: Cell, config: Mapping[str, Any]) -> str:
    engine = config.get("engine") or {}
    name = str(engine.get("name") or cell.axes.get("engine"))
    kind = str(cell.axes.get("engine.dialect") or engine.get("dialect") or "") if name == "sim" else ""
    return next((shown for known, shown in ENGINES.items() if known in (kind or name)), kind or name)


def _material(cell: Cell, config: Mapping[str, Any]) -> tuple[Material, str]:
    workload = config.get("workload") or {}
    words = " ".join(str(w or "") for w in (cell.axes.get("workload"), workload.get("corpus"), cell.axes.get("workload.corpus"))).lower()
    if "random" in words:
        return "random", ""
    if re.search(r"spec[_/-]?bench", words):
        return "specbench", ""
    if "qualitative" in words:
        return "qualitative", ""
    for tier in TIERS:
        if tier in (cell.axes.get("workload.category"), workload.get("category")) or tier in words:
            return "throughput", tier
    return ("throughput" if "throughput" in words else "other"), ""


def select(arms: Iterable[Arm], **wanted: Any) -> list[Arm]:
    """Those whose attributes have these values; a tuple means any of its members."""
    return [a for a in arms if all(getattr(a, k) in v if isinstance(v, tuple) else getattr(a, k) == v for k, v in wanted.items())]


def groups(arms: Sequence[Arm], *along: str) -> dict[str, list[Arm]]:
    """Arms that differ in nothing but the axes ``along``, by a label of what they are (only what differs between groups is in it)."""
    shown = varying(a.cell for a in arms) - {*along, "repeat", *_SHOWN}
    found: dict[str, list[Arm]] = {}
    for arm in arms:
        found.setdefault(label(arm, shown, arms), []).append(arm)
    return {name: sorted(members, key=lambda a: [_number(a.cell.axes.get(x)) for x in along]) for name, members in found.items()}


def label(arm: Arm, shown: Iterable[str], among: Sequence[Arm]) -> str:
    """``GPT-OSS 120B + EAGLE3, BS 32, DL 3``; the option's name stands behind the drafter where arms of one kind have several."""
    options = {a.option for a in among if a.pair == arm.pair}
    alone = len({a.pair for a in among}) == 1  # then the figure's title says it
    text = arm.pair if len(options) < 2 else arm.option if alone else f"{arm.pair} ({arm.option})"
    if len({a.engine for a in among}) > 1:
        text += f", {arm.engine}"
    words = {"batch_size": "BS", "draft_length": "DL", "isl": "ISL", "temperature": "T", "workload": ""}
    axes = [(words.get(name, name.removeprefix("drafter.")), arm.cell.axes.get(name), name) for name in sorted(shown)]
    parts = [f"{word} {format_axis(value, name)}".strip() for word, value, name in axes if value is not None]
    return ", ".join([text, *parts])


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
