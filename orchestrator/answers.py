"""The texts behind a stored point: what was sent, and what came back, out of the workload and the trace's token ids.

A trace holds ids and no texts, and of prompts only their names. So a report that shows texts makes the prompts once more from the point's
own config, and decodes the answers with the target's tokenizer. Both can be impossible later (the file of the workload was changed, the
model is gone), and a wrong text would be worse than none: prompts are shown only if the workload still has the hash that names the point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specsweep.analysis.spec_bench_rows import Said
from specsweep.client.trace import RequestTrace
from specsweep.client.workload import Prompt, TargetTokenizer, WorkloadError, load_tokenizer, task_names
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.identity import Contents, recipe
from specsweep.orchestrator.points import Point
from specsweep.orchestrator.preparation import Preparation

CACHE = "~/.cache/specsweep"  # where a record does not say
CHANGED = "the workload's prompts are not those that were measured: its file was changed since"
NO_IDS = "the server streams texts and no token ids, and a trace keeps ids only"
NO_TOKENIZER = "the target's tokenizer cannot be had"


def point_of(record: Mapping[str, Any]) -> Point:
    """The point of a ``point.json``."""
    return Point(record["point_id"], record["axes"], record["config"], record.get("declared") or {}, record.get("baseline_id"))


def names_of(point: Point) -> dict[str, str]:
    """Names of the point's tasks by prompt_id, of prompts that have one. None if the workload's file is gone: ids will do."""
    try:
        return task_names(point.config["workload"], int(point.axes["isl"]))
    except (WorkloadError, KeyError, TypeError):
        return {}


class Texts:
    """Prompts and answers of stored points. Each workload and tokenizer is loaded once; ``say`` hears of what has to be fetched."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._contents = Contents()
        self._preparations: dict[str, Preparation] = {}
        self._tokenizers: dict[Path, TargetTokenizer] = {}

    def of(self, point: Point, requests: Sequence[RequestTrace]) -> dict[int, Said]:
        """By the request's index. Never raises for what cannot be had: each text that is missing says why."""
        cache = str(point.config.get("cache") or CACHE)
        preparation = self._preparations.setdefault(cache, Preparation(Path(cache).expanduser(), self._say))
        tokenizer, no_tokenizer = self._tokenizer(point, preparation)
        prompts, no_prompts = self._prompts(point, preparation)
        found = {}
        for request in requests:
            prompt, why_not = _prompt(prompts.get(request.prompt_id), request.turn, tokenizer, no_prompts)
            response, silent = _response(request, tokenizer, no_tokenizer)
            found[request.index] = Said(prompt, response, "; ".join(dict.fromkeys(filter(None, (why_not, silent)))))
        return found

    def _tokenizer(self, point: Point, preparation: Preparation) -> tuple[TargetTokenizer | None, str]:
        try:
            source = preparation.tokenizer_source(point.config)
            if source is None:
                return None, NO_TOKENIZER
            if source not in self._tokenizers:
                self._tokenizers[source] = load_tokenizer(source)
        except (ConfigError, WorkloadError, KeyError) as error:  # a key that records of other versions do not have
            return None, f"{NO_TOKENIZER}: {error}"
        return self._tokenizers[source], ""

    def _prompts(self, point: Point, preparation: Preparation) -> tuple[dict[str, Prompt], str]:
        try:
            hashed = self._contents.workload(recipe(point.config["workload"]), int(point.axes["isl"]))
            if hashed != point.declared.get("workload"):
                return {}, CHANGED
            return {prompt.prompt_id: prompt for prompt in preparation.prompts(point).main}, ""
        except (ConfigError, KeyError) as error:
            return {}, f"the workload's prompts cannot be made again: {error}"


def _prompt(prompt: Prompt | None, turn: int, tokenizer: TargetTokenizer | None, why_none: str) -> tuple[str | None, str]:
    """What was sent in the first turn, template included; of a later turn what the user said, since its history is in the turns before."""
    if prompt is None:
        return None, why_none or "the workload has no such prompt any more"
    if turn:
        return (prompt.turns[turn - 1], "") if turn <= len(prompt.turns) else (None, "the workload has no such turn any more")
    return (tokenizer.decode(prompt.ids) if tokenizer is not None and prompt.ids else prompt.text), ""


def _response(request: RequestTrace, tokenizer: TargetTokenizer | None, no_tokenizer: str) -> tuple[str | None, str]:
    ids = request.read.output_ids
    if not ids:
        return None, NO_IDS if request.read.outcome == "ok" else "nothing was answered"
    return (None, no_tokenizer) if tokenizer is None else (tokenizer.decode(ids), "")
