"""What a session needs before its engine starts: model files, the target's tokenizer, every point's prompts.

Done for all sessions' models before the first engine is started where it can fail for the user's sake (a missing file should not
be found out after an hour), and for prompts once per workload and ISL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from specsweep.client.dialects import dialect
from specsweep.client.workload import Prompt, PromptSet, TargetTokenizer, load_prompts, load_tokenizer, workload_hash
from specsweep.client.workload.errors import WorkloadError
from specsweep.orchestrator.drafter_facts import mismatch
from specsweep.orchestrator.engines import ModelFormat, SessionModels, launcher
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.head_config import changes, patched
from specsweep.orchestrator.models import LocalModel, ensure_model, in_format
from specsweep.orchestrator.points import Point

CONTEXT_MARGIN = 16  # tokens beside prompt and answer: templates of engines, a draft beyond the cap
TURN_MARGIN = 64  # tokens of a later turn beside its words and its answer: what the template puts around two messages
CONTEXT_STEP = 256  # llama.cpp pads its KV cache to this


def for_target(workload: Mapping[str, Any], target: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recipe with what the target's template takes beside messages: GPT-OSS has its reasoning effort in the prompt."""
    if not target.get("reasoning_effort"):
        return workload
    return {**workload, "template_args": {**(workload.get("template_args") or {}), "reasoning_effort": target["reasoning_effort"]}}


def _engines_are_offline(config: Mapping[str, Any]) -> bool:
    """Whether they read models from a volume that is filled from here, and fetch nothing themselves."""
    volume = config["cluster"].get("weights") or {}
    filled_here = Path(str(config.get("cache"))) == Path(str(volume.get("path")))  # else nobody but a prefetch may write to it
    return config["cluster"]["kind"] == "kubernetes" and bool(volume.get("claim")) and filled_here


def conversation_tokens(prompt: Prompt, osl: int, tokenizer: TargetTokenizer | None) -> int:
    """Of a prompt, all that follows in its conversation, and answers of ``osl`` tokens.

    A history goes through text, and a text that is no text (half of a character) can be longer than the ids that it came from; so each
    later turn has a margin of its own, and a turn for which even that is too little fails alone.
    """
    osl = prompt.cap(osl)
    if not prompt.turns or tokenizer is None:
        return len(prompt.ids) + osl
    later = sum(len(tokenizer.encode(text)) + osl + TURN_MARGIN for text in prompt.turns)
    return len(prompt.ids) + osl + later


class Preparation:
    """Caches models, tokenizers and prompt sets of one run. For the threads of sessions that run at the same time: one prepares at a time."""

    def __init__(self, cache: Path, say: Callable[[str], None]) -> None:
        self._lock = threading.RLock()
        self._cache = cache
        self._say = say
        self._models: dict[str, LocalModel] = {}
        self._tokenizers: dict[Path, TargetTokenizer] = {}
        self._prompts: dict[tuple[Any, ...], PromptSet] = {}

    def models(self, config: Mapping[str, Any]) -> SessionModels:
        """Raises ConfigError naming the field if a model cannot be had. On ``cluster=attach`` only the tokenizer's files are needed, if those."""
        with self._lock:
            return self._all_models(config)

    def _all_models(self, config: Mapping[str, Any]) -> SessionModels:
        if config["cluster"]["kind"] == "attach" and not config["target"].get("model"):
            return SessionModels(Path(), "")  # a server that takes texts: nothing is tokenized here, and nothing started
        form = launcher(config["engine"]["name"]).model_format
        complete = form != "tokenizer" and _engines_are_offline(config)
        target = self._model("target", config["target"], form, complete=complete)
        has_model = bool(config["drafter"].get("model")) and config["cluster"]["kind"] != "attach" and form != "tokenizer"
        drafter = self._model("drafter", config["drafter"], form, complete=complete) if has_model else None
        if drafter is None:
            return SessionModels(target.path, target.sha256)
        if (reason := mismatch(config, self._cache)) is not None:  # a plan could not see what was fetched just now
            raise ConfigError(reason)
        return SessionModels(target.path, target.sha256, patched(drafter.path, config["drafter"], self._cache), drafter.sha256)

    def _model(self, role: str, group: Mapping[str, Any], form: ModelFormat, *, complete: bool = False) -> LocalModel:
        """``complete``: with its weights, where the engine cannot fetch them itself."""
        spec = group.get("model")
        if not spec:
            raise ConfigError(f"{role} {group.get('name')!r} has no model; set {role}.model.source and {role}.model.path")
        spec = in_format(spec, form)
        weights = complete or bool(changes(group))  # a patched copy is made of the whole folder
        key = repr((sorted(spec.items()), weights))
        if key not in self._models:
            self._models[key] = ensure_model(spec, self._cache, progress=self._say, weights=weights)
        return self._models[key]

    def prompts(self, point: Point) -> PromptSet:
        with self._lock:
            return self._prompt_set(point)

    def _prompt_set(self, point: Point) -> PromptSet:
        config = point.config
        workload, isl = for_target(config["workload"], config["target"]), int(point.axes["isl"])
        source = self.tokenizer_source(config)
        key = (workload_hash(workload, isl), isl, source)
        if key not in self._prompts:
            try:
                self._prompts[key] = load_prompts(workload, isl=isl, tokenizer=self._tokenizer(source))
            except WorkloadError as error:
                raise ConfigError(str(error)) from error
        return self._prompts[key]

    def tokenizer_source(self, config: Mapping[str, Any]) -> Path | None:
        """Where the target's tokenizer is loaded from; None of a server that takes texts. Raises ConfigError as :meth:`models` does."""
        if not dialect(config["engine"]["dialect"]).takes_ids and not config["target"].get("model"):
            return None
        with self._lock:
            return self._model("target", config["target"], launcher(config["engine"]["name"]).model_format).tokenizer_path

    def _tokenizer(self, source: Path | None) -> TargetTokenizer | None:
        if source is None:
            return None
        if source not in self._tokenizers:
            try:
                self._tokenizers[source] = load_tokenizer(source)
            except WorkloadError as error:
                raise ConfigError(str(error)) from error
        return self._tokenizers[source]

    def context_per_slot(self, points: Iterable[Point]) -> int:
        """Tokens of context that the longest conversation of the points needs, its answers included, rounded up.

        Never more than the target has: engines refuse to start with that. A conversation that outgrows it ends with a turn that is not sent.
        """
        need, limits = 0, []
        for point in points:
            prompts, tokenizer = self.prompts(point), self._tokenizer(self.tokenizer_source(point.config))
            osl, drafted = int(point.config["workload"]["osl"]), int(point.axes["draft_length"] or 0)
            longest = max(conversation_tokens(prompt, osl, tokenizer) for prompt in (*prompts.main, *prompts.ramp))
            need = max(need, longest + drafted + CONTEXT_MARGIN)
            if limit := point.config["target"].get("max_model_len"):
                limits.append(int(limit))
        return min([-(-need // CONTEXT_STEP) * CONTEXT_STEP, *limits])
