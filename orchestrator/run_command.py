"""The `specsweep run` command that goes on with a sweep, as a person would type it: one place, so that no two commands name it differently.

A word that names an exact command saves a reader the manual. It repeats what was typed, since overrides are short and the config
that they make is not, and names the store where the default one is not meant.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specsweep.orchestrator.typed_paths import as_typed


def key_of(word: str) -> str:
    """Of an override as it was typed."""
    return word.partition("=")[0].strip().lstrip("+~")


def run_command(overrides: Sequence[str], root: Path | str, *, rerun: str = "", config_dirs: Sequence[str] = ()) -> str:
    """The command of a sweep that was asked for with ``overrides`` and lies in the store ``root``.

    ``rerun``: measured again besides what is missing; it takes the place of a ``rerun=`` that was typed. Empty: as it was typed.
    """
    words = [w for w in overrides if not (rerun and key_of(w) == "rerun")]
    if not any(key_of(w) == "store" for w in words):
        words.append(as_typed("store", root))
    words += [f"rerun={rerun}"] if rerun else []
    return shlex.join(["specsweep", "run", *words, *(w for folder in config_dirs for w in ("--config-dir", folder))])


def continue_command(plan: Mapping[str, Any], root: Path | str, *, rerun: str = "") -> str:
    """What goes on with a sweep that has this ``plan.json``. A merged one is measured by the commands of its sources, one after the other."""
    sources = plan.get("merged_from") or [{"overrides": plan.get("overrides") or (), "store": root}]
    commands = [run_command([str(o) for o in s["overrides"]], s["store"], rerun=rerun) for s in sources]
    return " && ".join(dict.fromkeys(commands))
