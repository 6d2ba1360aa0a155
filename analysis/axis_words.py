"""Values of axes as people read them. A leaf that imports nothing: plans and progress lines use it where no numbers are at hand."""

from __future__ import annotations


def format_axis(value: object, name: str = "") -> str:
    """``name``: of the axis, where one of its values is a word."""
    if value is None:
        return "–"
    if name == "isl" and value == 0:
        return "natural"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
