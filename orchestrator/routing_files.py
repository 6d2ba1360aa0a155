"""A routing capture from files, whoever made it: our own ``routing.npz``, or what an engine wrote or answered, for `inspect` and `reproduce`.

* ``routing.npz``, or the folder of an attempt that holds one;
* SGLang's ``expert_distribution_recorder_*.pt`` of one dump (mode per_pass), one file or their folder;
* TensorRT-LLM's folder of ``meta_info.json`` and ``rank*.safetensors``: all passes of its window, whatever ran in them;
* answers of vLLM or SGLang with their routing, as JSON or JSON lines (``.json``, ``.jsonl``): one answer is one request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from specsweep.analysis.routing import Routing, from_npz
from specsweep.client.routing_answers import counted, has_routing, read_answer
from specsweep.client.routing_dump import RoutingDump, RoutingDumpError, read_sglang
from specsweep.client.routing_window import META, read_window
from specsweep.orchestrator.errors import ConfigError

NAME = "routing.npz"
SGLANG_FILES = "expert_distribution_recorder_*.pt"
_LOOKED_AT = 5  # lines of a file that may be answers, before it is taken for another


def capture_at(path: Path) -> Path | None:
    """The capture that ``path`` names, a file or the folder of an engine's files; None if it is something else."""
    if path.is_dir():
        own = path / "evidence" / NAME
        return own if own.is_file() else path if (path / META).is_file() or any(path.glob(SGLANG_FILES)) else None
    if not path.is_file():
        return None
    if path.suffix in (".npz", ".pt"):
        return path
    return path if path.suffix in (".json", ".jsonl") and _holds_routing(path) else None


def read_capture(path: Path, *, layers: int | None = None, top_k: int | None = None, experts: int | None = None) -> Routing:
    """``layers``, ``top_k``, ``experts``: of the model, where the files do not say. Raises ConfigError naming the path for what is no capture."""
    try:
        if path.suffix == ".npz":
            return from_npz(path.read_bytes())
        if path.is_dir() and (path / META).is_file():
            window, known = read_window({f.name: f.read_bytes() for f in sorted(path.iterdir()) if f.is_file()}, top_k=top_k)
            return _of(window, known)
        if path.is_dir() or path.suffix == ".pt":
            files = sorted(path.glob(SGLANG_FILES)) if path.is_dir() else [path]
            return _of(read_sglang({f.name: f.read_bytes() for f in files}), top_k)
        answers = [
            read_answer(answer, layers=layers, top_k=top_k, name=f"answer {n}")
            for n, answer in enumerate(_answers(path))
            if has_routing(answer)
        ]
        counts, by_slot = counted(answers, experts)
        return Routing(counts, np.arange(len(counts), dtype=np.int64), None, answers[0].shape[2], by_slot)
    except (RoutingDumpError, ValueError, OSError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _of(dump: RoutingDump, top_k: int | None) -> Routing:
    return Routing(dump.counts, dump.pass_ids, dump.physical_to_logical, top_k)


def _holds_routing(path: Path) -> bool:
    try:
        return any(has_routing(answer) for answer in islice(_answers(path), _LOOKED_AT))
    except (ValueError, OSError):
        return False


def _answers(path: Path) -> Iterator[Any]:
    """The JSON values of a file: one, a list of them, or one a line."""
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    yield from found if isinstance(found, list) else [found]
