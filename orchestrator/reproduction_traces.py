"""Records made of what points left in the store beside their numbers, for ``specsweep reproduce``: answers of targets, and routing captures."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsweep.analysis.attempts import cells, is_capture, is_simulated
from specsweep.analysis.details import describe
from specsweep.analysis.reproduce.expert_figures import Capture, Captures
from specsweep.analysis.reproduce.vocabulary_table import Arm, Head, Vocabularies
from specsweep.analysis.vocabulary import FULL, Answer, Mask, answers, counted, coverage, kept_by_head, seen, sizes_for, top
from specsweep.client.trace import PointTrace
from specsweep.client.workload.documents import corpus, documents
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.random_tokens import NAME as RANDOM
from specsweep.client.workload.tokenizer import TargetTokenizer, load_tokenizer
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.models import ensure_model
from specsweep.orchestrator.preparation import Preparation
from specsweep.orchestrator.routing_files import read_capture
from specsweep.orchestrator.store import Store

if TYPE_CHECKING:
    from specsweep.orchestrator.reproduction_extras import Request

REFERENCE = ("low_entropy", "mixed", "high_entropy")  # texts of the offline set
_EVIDENCE = Path("evidence", "routing.npz")


def vocabularies(request: Request) -> Vocabularies:
    """Of each target and reasoning effort that was measured, its answers under vocabularies. Raises ConfigError where a tokenizer cannot be had."""
    store = Store(request.store)
    arms: dict[tuple[str, str], Arm] = {}
    for cell in cells(request.attempts):
        record = cell.attempts[0]
        target, effort = str(cell.axes.get("target")), str(cell.axes.get("target.reasoning_effort") or "")
        said = _said(store, record)
        if (target, effort) not in arms and said:
            config = record["point"]["config"]
            arms[target, effort] = _arm(target, effort, said, config, request, _heads(store, config, said))
    return Vocabularies(tuple(arms.values()))


def captures(request: Request) -> Captures:
    """The captures of the experiment's points, and the files that the user named, which come first. Raises ConfigError for a file that is none."""
    found = [
        Capture(name, name.startswith("random"), read_capture(Path(path)))
        for option, name in (("routing-real", "real prompts"), ("routing-random", "random tokens"))
        if (path := request.options.get(option))
    ]
    store = Store(request.store)
    for record in request.attempts:
        attempt = store.latest(str(record["point"]["point_id"])) if is_capture(record) else None
        if attempt is None or not (attempt.path / _EVIDENCE).is_file():
            continue
        axes = record["point"]["axes"]
        random = record["point"]["config"]["workload"].get("corpus") == RANDOM
        name = describe({name: axes.get(name) for name in ("target", "workload", "isl")})
        found.append(Capture(name, random, read_capture(attempt.path / _EVIDENCE), is_simulated(record)))
    return Captures(tuple(found))


def _said(store: Store, record: Mapping[str, Any]) -> list[Answer]:
    """The answers of one point; none if they were simulated, or its trace holds no token ids."""
    attempt = store.latest(str(record["point"]["point_id"]))
    if attempt is None or is_simulated(record):
        return []
    try:
        trace: PointTrace | None = attempt.trace()
        return answers(trace.requests) if trace else []
    except (OSError, ValueError) as error:
        print(f"specsweep reproduce: {attempt.path}: {error}", file=sys.stderr)
        return []


def _arm(
    target: str, effort: str, said: list[Answer], config: Mapping[str, Any], request: Request, heads: Mapping[str, Head]
) -> Arm:  # fmt: skip
    preparation = Preparation(Path(str(config["cache"])), lambda line: print(line, file=sys.stderr))
    source = preparation.tokenizer_source(config)
    if source is None:
        return Arm(target, effort, "", (), heads)
    try:
        tokenizer = load_tokenizer(source)
        name, texts = _reference(request.options.get("vocabulary"))
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    counts = _counts(tokenizer, texts)
    found = {label: top(counts, size) for label, size in sizes_for(len(counts)).items()} | {FULL: seen(counts)}
    return Arm(target, effort, name, tuple(coverage(label, mask, said) for label, mask in found.items()), heads)


def _reference(path: str | None) -> tuple[str, Iterable[str]]:
    if path is None:
        return "the texts of the offline set", (d.text for tier in REFERENCE for d in documents(corpus(tier)))
    try:
        return path, [Path(path).expanduser().read_text(encoding="utf-8")]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"vocabulary={path}: it cannot be read as a text: {error}") from error


def _counts(tokenizer: TargetTokenizer, texts: Iterable[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return counted((i for text in texts for i in tokenizer.encode(text)), tokenizer.vocab_size)


def _heads(store: Store, config: Mapping[str, Any], said: list[Answer]) -> dict[str, Head]:
    """EAGLE3 heads that were measured with the target of ``config``, in whatever sweep, with valid acceptance by category."""
    records = [a.record() for a in store.attempts() if a.measured and _same_target(a.point["config"], config)]
    found: dict[str, Head] = {}
    for cell in cells(records):
        drafter = cell.attempts[0]["point"]["config"]["drafter"]
        name = str(cell.axes.get("drafter"))
        if drafter.get("method") != "eagle3" or name in found or not cell.valid("acceptance") or is_simulated(cell.attempts[0]):
            continue
        parts = cell.counted("acceptance")[0]["measurement"].get("by_category") or {}
        al = {category: float(part["al_decode"]) for category, part in parts.items() if part.get("al_decode")}
        mask = _kept(drafter, config)
        if al:
            found[name] = Head(None if mask is None or mask.all() else coverage(name, mask, said), al)
    return found


def _same_target(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return bool(a["drafter"].get("model")) and a["target"].get("model") == b["target"].get("model")


def _kept(drafter: Mapping[str, Any], config: Mapping[str, Any]) -> Mask | None:
    """The target's tokens that the head has, by its own map; None without one. Raises ConfigError for a map that does not fit."""
    from safetensors import SafetensorError, safe_open

    folder = ensure_model(drafter["model"], Path(str(config["cache"])), progress=lambda _: None).path
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        try:
            with safe_open(file, "numpy") as weights:
                maps = {name: weights.get_tensor(name) for name in ("d2t", "t2d") if name in set(weights.keys())}
            if maps:
                return kept_by_head(int(config["target"]["vocab_size"]), **maps)
        except (SafetensorError, ValueError, OSError) as error:
            raise ConfigError(f"drafter {drafter['name']}: {file}: {error}") from error
    return None
