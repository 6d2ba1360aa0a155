"""The launch side of the engines: one module an engine, each with one object that satisfies :class:`Launcher`.

A launcher is pure. It turns a session's config into an :class:`EngineSpec`, which says what to start and how to know that it
is ready; clusters start it, on this machine or elsewhere. What an engine cannot do, it says in ``check``, before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from specsweep.orchestrator.errors import ConfigError

ENGINES = ("llamacpp", "vllm", "sglang", "trtllm", "openai_chat", "sim", "hf")


ModelFormat = Literal["gguf", "hf", "tokenizer"]  # one GGUF file, a Hugging Face folder, or no weights at all


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What a cluster needs to start one engine. ``{host}`` and ``{port}`` in ``argv`` are filled in by the cluster, ``{files}`` in ``argv``
    and ``env``."""

    engine: str
    argv: tuple[str, ...]
    model_name: str
    version: str | None = None  # None: what the running engine says of itself
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # name → text; ``{files}`` in argv is the folder that holds them
    port: int | None = None  # None: any free one
    health_path: str = "/health"
    startup_timeout_s: float = 120.0
    gpus: int = 0
    recorder_files: int = 0  # that one dump of its expert recorder writes into the folder ``routing`` of its files; 0: it records nothing
    flags: Mapping[str, Any] = field(default_factory=dict)  # as resolved; part of env_id
    drafter_flags: Mapping[str, Any] = field(default_factory=dict)  # likewise, but free to differ between the arms of a speedup
    unstable_flags: Mapping[str, Any] = field(
        default_factory=dict
    )  # recorded, not part of env_id (sizes that follow from the session's points)


@dataclass(frozen=True, slots=True)
class SessionModels:
    """The files of one session, fetched and checked."""

    target: Path
    target_sha256: str
    drafter: Path | None = None
    drafter_sha256: str | None = None


class Launcher(Protocol):
    name: str
    drafters: frozenset[str]  # methods that this engine has
    attach_only: bool
    model_format: ModelFormat  # of the files that it loads
    in_our_image: bool  # whether the image of specsweep itself has this engine

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Why this point cannot run on this engine: (rule, reason) pairs, empty if it can."""
        ...

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        """What this machine lacks to start it with ``cluster=local``, and the command that mends it; None if nothing is known to be."""
        ...

    def stateful(self, drafter: Mapping[str, Any]) -> bool:
        """Whether this drafter remembers earlier answers here: then no prompt is sent twice, and each point gets a fresh engine."""
        ...

    def warn(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        """What a user should know of this point though it can run: (rule, reason) pairs."""
        ...

    def spec(self, config: Mapping[str, Any], models: SessionModels, *, n_ctx_per_slot: int) -> EngineSpec: ...

    def facts(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Version and resolved settings from what the running engine says of itself (``answers``: path → JSON)."""
        ...

    fact_paths: tuple[str, ...]


def launcher(name: str) -> Launcher:
    if name not in ENGINES:
        raise ConfigError(f"engine {name!r} is not known; choose one of {', '.join(ENGINES)}")
    return import_module(f"specsweep.orchestrator.engines.{name}").LAUNCHER  # type: ignore[no-any-return]
