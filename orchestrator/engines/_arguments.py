"""From settings to a command line, the same way for every engine whose flags are ``--like-this``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specsweep.orchestrator.engines import SessionModels
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.head_config import changes


def arguments(flags: Mapping[str, Any]) -> Iterator[str]:
    """``None`` leaves a flag out, True gives it bare, False as ``--no-…``, a list gives its values, a mapping JSON."""
    for name, value in flags.items():
        if value is None:
            continue
        if value is True:
            yield f"--{name}"
        elif value is False:
            yield f"--no-{name}"
        elif isinstance(value, Mapping):
            yield from (f"--{name}", json.dumps(value, separators=(",", ":")))
        elif isinstance(value, list | tuple):
            yield from (f"--{name}", *map(str, value))
        else:
            yield from (f"--{name}", str(value))


def model_argument(group: Mapping[str, Any], path: Path) -> tuple[str, str | None]:
    """What an engine loads for a target or drafter, and its revision: from the hub by name, from this machine by path, and so a patched
    copy of what is on the hub."""
    model = group.get("model") or {}
    if model.get("source") == "hub" and not changes(group):
        return str(model["repo"]), str(model["revision"])
    return str(path), None


def served_by(config: Mapping[str, Any], *, local: Sequence[str], image: Sequence[str]) -> Sequence[str]:
    """The head of the command: an interpreter of this machine, or the one of the engine's image."""
    return local if config["cluster"]["kind"] == "local" else image


def without_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def drafter_path(drafter: Mapping[str, Any], models: SessionModels) -> Path:
    """The files of a drafter that has weights of its own. Raises :class:`ConfigError` if it has no model."""
    if models.drafter is None:
        raise ConfigError(f"drafter {drafter['name']!r} has no model: set drafter.model (source, path)")
    return models.drafter


def given_environment(engine: Mapping[str, Any]) -> dict[str, str]:
    """``engine.env`` as a process takes it."""
    return {str(name): str(value) for name, value in (engine.get("env") or {}).items()}
