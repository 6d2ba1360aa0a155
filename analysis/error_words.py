"""What failed when an attempt ended, in a word. The files keep the name of a class, which programs filter by and nobody should read."""

from __future__ import annotations

from typing import Any

_WORDS = {
    "config": "configuration",
    "cluster": "cluster",
    "engine": "engine",
    "request": "requests",
    **dict.fromkeys(("client", "run", "store", "noclients"), "client"),
}


def what_failed(kind: Any) -> str:
    """``EngineTerminal`` → ``engine``; for a kind that is not known just ``measurement``."""
    text = str(kind or "").lower()
    return next((word for name, word in _WORDS.items() if text.startswith(name)), "measurement")
