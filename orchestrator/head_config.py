"""A drafter's folder with another context length: the same weights, a patched ``config.json``.

Engines take a head's length from its own config, and several heads in use say 2,048 though they work beyond it, or can with YaRN
scaling of their rotary embeddings at inference. The patched folder lies in the cache, named by its content; weights are links.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from specsweep.orchestrator.durable import make_dirs, write_synced
from specsweep.orchestrator.errors import ConfigError

KEYS = ("rope_scaling", "max_position_embeddings")


def changes(drafter: Mapping[str, Any]) -> dict[str, Any]:
    """What the config of the drafter's model is to say otherwise; empty if nothing."""
    return {key: drafter[key] for key in KEYS if drafter.get(key)}


def patched(folder: Path, drafter: Mapping[str, Any], cache: Path) -> Path:
    """``folder``, or one in ``cache`` that links to its files and has its own ``config.json``.

    Raises :class:`ConfigError` if the model is no Hugging Face folder.
    """
    wanted = changes(drafter)
    if not wanted:
        return folder
    source = folder / "config.json"
    try:
        config = json.loads(source.read_text("utf-8"))
    except (OSError, ValueError) as error:
        name = f"drafter {drafter.get('name')!r}"
        raise ConfigError(f"{name}: {', '.join(wanted)} change a config.json, and {folder} has none that can be read") from error
    text = json.dumps({**config, **wanted}, indent=1) + "\n"
    place = cache.expanduser() / "patched" / hashlib.sha256(f"{folder.resolve()}\0{text}".encode()).hexdigest()[:16]
    make_dirs(place)
    for file in folder.iterdir():
        if file.name != "config.json":
            with suppress(FileExistsError):  # made before, or by another run just now
                os.symlink(file.resolve(), place / file.name)
    with suppress(FileExistsError):
        write_synced(place / "config.json", text)
    return place
