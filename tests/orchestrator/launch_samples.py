"""What a session's launcher makes of a sweep config: its command line as a dictionary, its environment and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from plan_samples import plan_of

from specsweep.orchestrator.engines import EngineSpec, SessionModels, launcher
from specsweep.orchestrator.errors import ConfigError

MODELS = SessionModels(Path("/m/target"), "aa", Path("/m/drafter"), "bb")
GPU = ("engine.python=/usr/bin/python3",)


def spec(*overrides: str, context: int = 8192) -> EngineSpec:
    """Of the only session of the sweep."""
    (session,) = plan_of("name=t", *overrides).sessions
    return launcher(session.config["engine"]["name"]).spec(session.config, MODELS, n_ctx_per_slot=context)


def flags(found: EngineSpec) -> dict[str, Any]:
    """``--name value`` pairs and bare flags (True) of a command line; ``command`` holds what comes before the first flag."""
    first = next(i for i, part in enumerate(found.argv) if part.startswith("--"))
    result: dict[str, Any] = {"command": found.argv[:first]}
    rest = found.argv[first:]
    for part, following in zip(rest, [*rest[1:], "--"], strict=True):
        if part.startswith("--"):
            result[part[2:]] = True if following.startswith("--") else following
    return result


def speculation(found: EngineSpec) -> dict[str, Any] | None:
    """vLLM's ``--speculative-config`` or the ``speculative_config`` of TensorRT-LLM's YAML."""
    if "engine.yaml" in found.files:
        section: dict[str, Any] | None = settings(found).get("speculative_config")
        return section
    text = flags(found).get("speculative-config")
    return None if text is None else dict(json.loads(text))


def settings(found: EngineSpec) -> dict[str, Any]:
    return dict(yaml.safe_load(found.files["engine.yaml"]))


def refused(*overrides: str) -> str:
    """The reasons why nothing is left of a sweep."""
    try:
        plan = plan_of("name=t", *overrides)
    except ConfigError as error:
        return error.message
    return " / ".join(d.reason for d in plan.dropped)


def warned(*overrides: str) -> str:
    """What a plan says of points that it keeps."""
    return " / ".join(plan_of("name=t", *overrides).warnings)
