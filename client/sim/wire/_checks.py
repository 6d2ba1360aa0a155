"""Checks of a request body that more than one engine makes in the same way."""

from __future__ import annotations

import json
from typing import Any

CHARS_PER_TOKEN = 4  # of a prompt that is sent as text: there is no tokenizer here, and its ids matter to nobody


def json_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def text_length(text: str) -> int:
    return max(1, -(-len(text) // CHARS_PER_TOKEN))


def are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(i) is int for i in value)


def is_count(value: Any) -> bool:
    return type(value) is int


def number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default
