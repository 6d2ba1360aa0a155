"""Values of axes as people read them. A leaf that imports nothing: plans and progress lines use it where no numbers are at hand."""

from __future__ import annotations

from collections.abc import Mapping


def format_axis(value: object, name: str = "") -> str:
    """``name``: of the axis, where one of its values is a word."""
    if value is None:
        return "–"
    if name == "isl" and value == 0:
        return "natural"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def capture_words(axes: Mapping[str, object]) -> str:
    """What a point with these axes captures instead of being timed; "" for a timed one."""
    found = str(axes.get("capture") or "none")
    return "" if found == "none" else {"logprobs": "log-probability capture"}.get(found, f"{found} capture")
