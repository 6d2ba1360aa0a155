"""The environment that the engine ``hf`` runs in: one with specsweep and torch, which is large and which nothing else here needs.

The user names an interpreter (``engine.python``); else it is our own, if the extra ``specsweep[hf]`` was installed with us; else the one
that ``make engines`` builds in the cache folder.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from specsweep.orchestrator.engines.versions import installed, parse

HERE = Path(__file__).parents[2]
BUILT = "hf-2.13.0"  # by its torch, as pinned in requirements/hf.txt
ADVICE = (
    "run `make engines` to build an environment with it, install the extra here (pip install 'specsweep[hf]'), "
    "or set engine.python=/path/to/python of an environment with specsweep[hf]"
)
NEEDED = ("torch", "transformers", "ray", "specsweep")


def built() -> Path:
    """The interpreter that ``make engines`` makes."""
    home = Path(os.environ.get("SPECSWEEP_ENGINES") or "~/.cache/specsweep/engines").expanduser()
    return home / BUILT / "bin" / "python"


def interpreter(engine: Mapping[str, Any]) -> str:
    if engine.get("python"):
        return str(Path(str(engine["python"])).expanduser())
    return sys.executable if found(sys.executable, "torch") else str(built())


def problem(engine: Mapping[str, Any]) -> str | None:
    """Why the server cannot be started from that environment, and what to do; None if it can."""
    python = interpreter(engine)
    if not os.access(python, os.X_OK):
        if engine.get("python"):
            return f"engine.python={python} does not exist or cannot be run; {ADVICE}"
        return f"it needs torch, which is neither installed here nor in {python}; {ADVICE}"
    missing = [name for name in NEEDED if found(python, name) is None]
    if missing:
        return f"there is no {' and no '.join(missing)} in the environment of {python}; {ADVICE}"
    if (other := checkout(python)) is not None and other != HERE:
        return f"the environment of {python} has the specsweep of {other}, and this one is in {HERE}; run `make engines` here"
    wanted, has = engine.get("version"), version(engine)
    if wanted and parse(str(wanted)) != parse(has or ""):
        return f"engine.version={wanted} is asked for, but {python} has transformers {has}; leave it unset, or set engine.python"
    return None


def version(engine: Mapping[str, Any]) -> str | None:
    """Of transformers, which the models and their numbers come from."""
    return found(interpreter(engine), "transformers")


def checkout(python: str) -> Path | None:
    """The working copy whose specsweep that environment runs (an editable install, PEP 610); None if it has a copy of its own."""
    for record in Path(python).parent.parent.glob("lib/python3*/site-packages/specsweep-*.dist-info/direct_url.json"):
        origin = json.loads(record.read_text())
        if origin.get("dir_info", {}).get("editable"):
            return Path(unquote(urlsplit(origin["url"]).path))
    return None


@functools.cache
def found(python: str, distribution: str) -> str | None:
    return installed(python, distribution)
