"""What was found, as against what was asked for: the facts that make up an attempt's ``env_id`` and those recorded beside it."""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specsweep.orchestrator.engines import EngineSpec

GPU_FIELDS = ("name", "driver_version", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_throttle_reasons.active")


def environment(spec: EngineSpec, engine_facts: Mapping[str, Any], host: Mapping[str, Any]) -> dict[str, Any]:
    """``drafter`` is what may differ between the arms of a speedup; ``unstable`` is recorded but is not part of ``env_id``.

    So are the engine's facts under ``unstable``: sizes that follow from the rest, as the cache that a drafter leaves room for.
    """
    facts = {key: value for key, value in engine_facts.items() if key != "unstable"}
    return {
        "engine": {"name": spec.engine, "version": spec.version or "unknown", **facts},
        "flags": dict(spec.flags),
        "drafter": dict(spec.drafter_flags),
        "host": {key: value for key, value in host.items() if key != "unstable"},
        "gpu": sorted({gpu["name"] for gpu in gpus()}),
        "driver": next((gpu["driver_version"] for gpu in gpus()), None),
        "unstable": {**spec.unstable_flags, **engine_facts.get("unstable", {}), **host.get("unstable", {})},
    }


def stable(env: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in env.items() if key != "unstable"}


def gpus() -> list[dict[str, str]]:
    """One dict a GPU as nvidia-smi reports it now (clocks, power, throttle reasons included); [] where there is none."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [dict(zip(GPU_FIELDS, map(str.strip, line.split(",")), strict=False)) for line in text.splitlines() if line.strip()]


@functools.cache
def provenance() -> dict[str, str]:
    """Who measured: host name, version of specsweep, and its git commit when it runs from a checkout."""
    try:
        release = version("specsweep")
    except PackageNotFoundError:
        release = "unknown"
    return {"host": socket.gethostname(), "specsweep_version": release, "git_commit": _git_commit()}


def _git_commit() -> str:
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists() or shutil.which("git") is None:
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
